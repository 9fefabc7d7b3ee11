"""Unsloth: what its kernels keep and write over, by hand, and the longest sequences that its authors publish."""

import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, price_layouts
from meshwright.plan.analytic.price import coefficients_of, machine_of, performance
from meshwright.plan.analytic.quantities import ModelQuantities
from meshwright.plan.analytic.saved_activations import layer_bytes, layer_parts, working_bytes
from tests.unit.plan.analytic.test_host import gpt, setting, terms
from tests.unit.plan.test_validate import RUN, outcomes

FULL = Layout(mbs=1, recompute="full")
TOKENS = 1000
HIDDEN, KEYS, INNER, HEADS = 4096, 1024, 14336, 32


def told(**given):
    return setting(**{"stack": "unsloth", "global_batch": 1, "seq_len": TOKENS, "lora_rank": 16} | given)


def parts(model=None, **given):
    case = told(**given) if model is None else replace(told(**given), architecture=model)
    machine, c, grid = machine_of(case), coefficients_of(case), Grid.of([FULL])
    sizes = ModelQuantities.of(case.architecture)
    found = layer_parts(machine, c, sizes, grid, TOKENS, moe=False)
    kept = layer_bytes(machine, c, sizes, grid, TOKENS, found, moe=False)
    return found, kept, working_bytes(machine, c, sizes, grid, TOKENS, found.all, kept, moe=False)


def test_a_layer_keeps_what_enters_it_and_its_halves_queries_keys_values_and_both_gates():
    found, kept, _ = parts()

    rows = 2 * HIDDEN + 2 * HIDDEN  # what enters both norms and leaves them
    inside = (HIDDEN + 2 * KEYS) + HIDDEN  # queries, keys, values, and what attention returns
    assert found.all == pytest.approx(TOKENS * (2 * (rows + inside + 2 * INNER) + 4 * HEADS))
    assert found.acted == 0  # what the activation returned is made anew, in the place of its gradient
    assert kept == 0  # what enters a layer is in the host's memory


def test_its_backward_has_one_gradient_of_a_networks_width_beside_what_it_repeats():
    found, _, working = parts()

    repeated = found.all + 2 * TOKENS * HIDDEN  # and what enters the layer, which has come back
    assert working == pytest.approx(repeated + 2 * TOKENS * (INNER + 2 * HIDDEN))


def test_without_adapters_networks_are_those_of_transformers():
    found, _, working = parts(lora_rank=0)

    repeated = found.all + 2 * TOKENS * HIDDEN
    assert found.acted == pytest.approx(2 * TOKENS * INNER)
    assert working == pytest.approx(repeated + 2 * TOKENS * (3 * INNER + 2 * HIDDEN))


def test_networks_without_a_gate_have_no_kernel_of_their_own():
    ungated = gpt(1.1, 20, 2048)
    (own, _, _), (plain, _, _) = parts(ungated), parts(ungated, lora_rank=0)

    assert own.acted == plain.acted > 0


def test_what_enters_a_layer_lies_on_the_host_unless_it_is_said_not_to():
    given = [told(away=one) for one in (None, ("input",), ())]

    own, said, here = (terms(one, "dp=1,mbs=1,recompute=full")[0]["host_bytes"] for one in given)

    assert own == said == pytest.approx(32 * 2 * TOKENS * HIDDEN)
    assert here == 0


def test_an_answer_says_that_activations_of_unsloth_lie_on_the_host_where_layers_are_repeated():
    def says(layout, **given):
        case = told(**given)
        beside = performance(case, price_layouts(case, Grid.of([layout])), 0, layout).not_modelled
        return any("activations lie on the host" in text for text in beside)

    assert says(FULL)
    assert not says(Layout(mbs=1))
    assert not says(FULL, away=())


def test_a_row_of_unsloth_may_say_that_nothing_lies_on_the_host(tmp_path):
    row = RUN | {"family": "unsloth", "tp": "1", "num_gpus": "1", "dp": "1", "global_batch_sequences": "1"}
    row |= {"recompute": "full", "lora_rank": "8"}

    own, said, here = outcomes(tmp_path, *(row | {"id": one, "activations_away": one} for one in ("", "input", "none")))

    assert own.peak_memory_bytes_per_gpu == said.peak_memory_bytes_per_gpu < here.peak_memory_bytes_per_gpu
    assert [any("activations lie on the host" in text for text in one.doubts) for one in (own, said, here)] == [
        *(True, True, False)
    ]


# docs.unsloth.ai, Unsloth Benchmarks: QLoRA of rank 32 on all matrices, batch of 1, the longest sequence by memory.
# The figures lie on a line each (4,719 and 2,415 tokens a GB): most were worked out from few that ran
LONGEST = [
    ("llama3-8b", "t4", 16, 40_724),
    ("llama3-8b", "l4", 24, 78_475),
    ("llama3-8b", "a100-40g", 40, 153_977),
    ("llama3-8b", "a6000", 48, 191_728),
    ("llama3-8b", "a100-80g", 80, 342_733),
    ("llama3-70b", "a6000", 48, 12_106),
    ("llama3-70b", "a100-80g", 80, 89_389),
]


def published(model, gpu, tokens, **more):
    row = {"id": f"{model} {gpu} {tokens}", "family": "unsloth", "gpu": gpu, "num_gpus": "1", "gpus_per_node": "1"}
    row |= {"model_name": model, "seq_len": str(tokens), "global_batch_sequences": "1", "micro_batch": "1"}
    return row | {"lora_rank": "32", "weights": "nf4-nested", "optimizer": "adam8bit", "recompute": "full"} | more


@pytest.mark.parametrize(("model", "gpu", "most_gib", "tokens"), LONGEST)
def test_the_longest_sequences_that_are_published_are_met_within_a_twentieth(tmp_path, model, gpu, most_gib, tokens):
    longest, beyond = outcomes(tmp_path, *(published(model, gpu, one) for one in (tokens, tokens * 6 // 5)))

    assert longest.fits != "does not fit"
    assert longest.peak_memory_bytes_per_gpu / 2**30 == pytest.approx(most_gib, rel=0.05)
    assert beyond.fits != "fits"


def test_seventy_billion_parameters_which_take_41_gb_are_not_said_to_fit_in_40(tmp_path):
    (found,) = outcomes(tmp_path, published("llama3-70b", "a100-40g", 512))

    assert found.fits != "fits"


@pytest.mark.parametrize("tokens", [1024, 2048, 4096, 8192, 16384, 32768, 65536, 100_000])
def test_what_llama_factory_ran_on_40_gb_is_never_said_not_to_fit(tmp_path, tokens):
    rest = {"lora_rank": "8", "weights": "nf4", "optimizer": "adamw", "loss": "whole"}  # before its loss was fused

    (found,) = outcomes(tmp_path, published("llama2-7b", "a100-40g", tokens, **rest))

    assert found.fits != "does not fit"
