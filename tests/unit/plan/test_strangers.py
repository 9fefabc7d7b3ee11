"""Runs of stacks that nobody measured are priced by the facts that their rows state."""

import re

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.coefficients import ROLES, book, resolve_roles
from meshwright.plan.analytic.step import step_s
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.tables.batch import batch_coefficients, batch_of, step_of
from meshwright.plan.tables.columns import overlap_off
from meshwright.plan.tables.row_machine import accelerator_of
from meshwright.plan.tables.runs import band_of, beside_of
from meshwright.workload.conventions import Conventions
from meshwright.workload.models import load_model
from meshwright.workload.split import Sizes, context_exchange
from tests.unit.plan.test_tables import DENSE, EXPERTS, run

FSDP = {**DENSE, "tp": "1", "dp": "64", "family": "house", "year": "2025", "zero_stage_fsdp": "fsdp2 (zero3)"}
SHORT = {
    **{"gpu": "B200", "num_gpus": "8", "model_name": "deepseek-v3", "layers": "4", "seq_len": "4096", "dp": "8"},
    **{"ep": "8", "global_batch_sequences": "32", "recompute": "none"},
}
LLAMA = load_model("llama3-8b").architecture
DGX = cluster_by_name(load_catalogue(), "dgx-h100", 8)


def roles(*runs):
    batch = batch_of(runs, load_catalogue(), book())
    return batch_coefficients(batch, book().values), step_of(batch, book().values)


def used(role, *arguments):
    return resolve_roles(book(), *arguments)[ROLES.index(role)]


@pytest.mark.parametrize(
    ("cells", "stack"),
    [
        ({}, "sharded-since-2024"),
        ({"zero_stage_fsdp": "hsdp"}, "sharded-since-2024"),
        ({"zero_stage_fsdp": "fsdp shard 8"}, "since-2024"),  # as Megatron's and XLA's tables write it
        ({"zero_stage_fsdp": "no fsdp"}, "since-2024"),
        ({"zero_stage_fsdp": "distributed optimizer"}, "since-2024"),
        ({"notes": "MaxText on JAX"}, "since-2024"),
        ({"notes": "MaxText on JAX", "gpu": "tpu-v5p", "gpus_per_node": "4"}, "since-2024"),
        ({"zero_stage_fsdp": "1", "source": "README.md (Megatron-core 0.6.0)"}, "megatron"),
        ({"zero_stage_fsdp": "1", "notes": "a fork of Megatron-LM"}, "megatron"),
        ({"zero_stage_fsdp": "1", "notes": "Megatron-DeepSpeed with flash attention"}, "since-2024"),
        ({"year": "2023", "notes": "Megatron-LM"}, "in-2023"),
        ({"year": "2023"}, "in-2023"),
        ({"year": "2022"}, "before-2023"),
        ({"year": "2022", "notes": "flash attention"}, "in-2023"),
        ({"year": "2023", "precision": "fp16"}, "before-2023"),
        ({"year": "2023", "precision": "fp16", "notes": "Flash Attention 2"}, "in-2023"),
        ({"year": "2023", "precision": "fp16", "source": "README.md: flash-attn"}, "in-2023"),
        ({"year": "2023", "source": "README.md: without flash attention"}, "before-2023"),
        ({"year": "2023", "notes": "Megatron-DeepSpeed"}, "before-2023"),
    ],
)
def test_an_unknown_stack_on_pytorchs_fsdp_has_the_facts_of_pytorch(tmp_path, cells, stack):
    assert run(tmp_path, FSDP | cells).stack == stack


def test_fsdp_reduces_in_the_type_of_the_computation_and_repeats_every_second_product(tmp_path):
    plain, selective = (run(tmp_path, FSDP | {"recompute": word}) for word in ("none", "selective"))
    found, step = roles(plain, selective)

    assert found.gradient_bytes.tolist() == [2.0, 2.0]
    assert step.recompute_s[0] == 0.0 < step.recompute_s[1]
    assert found.tp_hidden.tolist() == [0.0, 0.0]


def test_xla_waits_for_its_gathers_on_gpus_whatever_the_stack(tmp_path):
    silent, xla = (run(tmp_path, FSDP | {"zero_stage_fsdp": "3", "notes": text}) for text in ("", "PaxML"))
    tpu = run(tmp_path, FSDP | {"gpu": "tpu-v5p", "zero_stage_fsdp": "3", "notes": "MaxText", "gpus_per_node": "4"})
    drags = roles(silent, xla, tpu)[0].fsdp_drag

    assert drags[1] == book().constants["drag_xla"].value > drags[0] == drags[2]


@pytest.mark.parametrize("cell", ["n/a", "nan", "unknown", "-", ""])
def test_a_cell_of_modules_that_says_nothing_names_none(tmp_path, cell):
    silent = run(tmp_path, FSDP | {"recompute": "selective"})

    assert run(tmp_path, FSDP | {"recompute": "selective", "recompute_modules": cell}).facts == silent.facts


@pytest.mark.parametrize(
    ("notes", "axes"),
    [
        ("te 2.11; tp/grad/param overlap off; fused cross entropy", {"tp", "dp"}),
        ("gradient overlap off", {"dp"}),
        ("p2p overlapping is off", {"pp"}),
        ("dp overlap on, tp overlap off", {"tp"}),
        ("pp 4, grad overlap off; tp overlap off", {"dp", "tp"}),
        ("overlap-grad-reduce on", set()),
        ("", set()),
    ],
)
def test_notes_that_an_overlap_is_off_are_read(notes, axes):
    assert overlap_off(notes) == axes


def test_nothing_hides_what_notes_say_is_not_overlapped(tmp_path):
    row = DENSE | {"family": "house", "year": "2026", "seq_parallel": "1", "zero_stage_fsdp": "1"}
    hidden, shown = (run(tmp_path, row | {"notes": text}) for text in ("", "tp/grad overlap off"))
    found, step = roles(hidden, shown)

    assert (found.tp_hidden[1], found.dp_hidden[1]) == (0.0, 0.0)
    assert found.tp_hidden[0] > 0.3
    assert step.exposed_comm_s[1] > 1.3 * step.exposed_comm_s[0]
    assert step.hidden_comm_s[1] == pytest.approx(0.0, abs=1e-9)


def test_what_waits_for_its_network_is_exposed(tmp_path):
    row = DENSE | {"family": "megatron", "year": "2026", "zero_stage_fsdp": "1", "tp": "1", "dp": "64"}
    found = roles(run(tmp_path, row))[0]
    waits = {
        trait: resolve_roles(book(), "megatron", "h100", "bf16", [trait]) for trait in ("dp-waits", "gather-waits")
    }

    assert found.dp_hidden[0] == 1.0
    assert found.gather_waits[0] == 0.0
    assert waits["dp-waits"][ROLES.index("dp_hidden")] == 0.0
    assert waits["gather-waits"][ROLES.index("gather_waits")] > 0.0


@pytest.mark.parametrize("zero", [1, 2])
def test_deepspeed_ends_a_step_with_the_gather_of_updated_weights(zero):
    setting = Setting(architecture=LLAMA, cluster=DGX, gpus=8, global_batch=8, seq_len=8192, stack="deepspeed")
    found = price_layouts(setting, Grid.of([Layout(dp=8, mbs=1, zero=zero)]))

    assert found.exposed_comm_s[0] > 2.0 * found.hidden_comm_s[0]  # as many bytes of weights as of gradients


def test_megatron_hides_tensor_parallelism_where_its_flag_is_named_and_bridge_always(tmp_path):
    row = DENSE | {"year": "2026", "seq_parallel": "1", "zero_stage_fsdp": "1", "precision": "bf16"}
    told = [("megatron", ""), ("megatron", "--tp-comm-overlap on"), ("megatron", "tp-comm-overlap off"), ("bridge", "")]
    found, step = roles(*(run(tmp_path, row | {"family": name, "notes": text}) for name, text in told))

    assert found.tp_hidden[1] == found.tp_hidden[3] > 0.3
    assert found.tp_hidden[0] == found.tp_hidden[2] == 0.0
    assert step.exposed_comm_s[0] > 1.3 * step.exposed_comm_s[1]


def test_omni_path_reaches_less_of_its_rate_than_infiniband(tmp_path):
    row = DENSE | {"family": "house", "year": "2022", "precision": "fp16", "inter_node_Gbps_per_node": "400"}
    infiniband, omni_path = (run(tmp_path, row | {"notes": text}) for text in ("", "4x100G Omni-Path per node"))
    found, step = roles(infiniband, omni_path)

    assert found.network[1] < 0.5 * found.network[0]
    assert step.data_comm_s[1] > 2.0 * step.data_comm_s[0]


@pytest.mark.parametrize("accelerator", ["a100-80g", "h100", "h100-96g", "rtx-4090", "mi300x", "gaudi2", "no-such-one"])
def test_first_kernels_of_fused_attention_are_slower_on_every_accelerator(accelerator):
    assert "flash_triton" in used("attention", "in-2023", accelerator, "bf16")
    assert "flash_triton" not in used("attention", "since-2024", accelerator, "bf16")


@pytest.mark.parametrize(("accelerator", "beside"), [("h100", []), ("mi300x", [0.637]), ("h100-96g", [0.86])])
def test_an_accelerator_to_scale_runs_the_attention_that_its_stack_runs(accelerator, beside):
    assert used("attention", "torchtitan", accelerator, "bf16") == ["flash_h100", "flash_sdpa", *beside]


@pytest.mark.parametrize("stack", sorted(book().stacks))
def test_selective_recomputation_repeats_no_attention_that_memory_keeps(stack):
    def share(role):
        return used(role, stack, "h100", "bf16")

    keeps_attention = share("selective_saves") > 0
    assert (share("selective_attention") == 1.0) != keeps_attention
    assert (share("selective_elements") == 0.0) != keeps_attention


def test_gradients_of_experts_travel_among_their_own_copies_alone(tmp_path):
    row = EXPERTS | {"family": "bridge", "num_gpus": "64", "dp": "64", "precision": "bf16"}
    few, many = (run(tmp_path, row | {"ep": ep}) for ep in ("8", "32"))
    step = roles(few, many)[1]

    assert (
        step.data_comm_s[1] < 0.5 * step.data_comm_s[0]
    )  # a fourth of the experts on each rank, and two copies of each in place of eight


def test_copies_of_a_sharded_model_keep_the_gathers_of_experts_inside_a_node(tmp_path):
    row = EXPERTS | {"family": "house", "num_gpus": "64", "dp": "64", "year": "2026", "zero_stage_fsdp": "3"}
    whole, copied = (run(tmp_path, row | {"replicas": copies}) for copies in ("1", "8"))
    step = roles(whole, copied)[1]

    assert step.data_comm_s[1] < 0.8 * step.data_comm_s[0]


def test_dense_layers_of_a_shortened_model_are_said_or_assumed_aloud(tmp_path):
    assumed, said = run(tmp_path, SHORT), run(tmp_path, SHORT | {"dense_layers": "1"})

    assert any("3 of the 4 layers of deepseek-v3 without experts" in text for text in assumed.assumed)
    assert not any("without experts" in text for text in said.assumed)
    assert (assumed.architecture.moe_layers, said.architecture.moe_layers) == (1, 3)
    assert said.architecture.parameters > 2 * assumed.architecture.parameters


GRAPHED = "full-iteration CUDA graphs"


def test_a_host_launches_nothing_inside_a_graph_of_the_whole_iteration(tmp_path):
    row = EXPERTS | {"family": "house", "year": "2026", "ep": "8", "dp": "64", "num_gpus": "64"}
    launched, graphed = (run(tmp_path, row | {"notes": text}) for text in ("", GRAPHED))
    found, step = roles(launched, graphed)

    assert (found.launch_s[1], found.launch_moe_s[1], found.launch_expert_s[1], found.ep_exposed[1]) == (0, 0, 0, 0)
    assert found.routing.tolist() == [book().constants["routing"].value, 1.0, *found.routing[2:]]
    assert step.total_s[1] < step.total_s[0]


def test_a_host_that_waits_for_the_counts_of_rows_adds_its_time_to_that_of_the_gpu(tmp_path):
    row = EXPERTS | {"family": "house", "year": "2026", "ep": "8", "dp": "64", "num_gpus": "64"}
    ahead, waiting = (run(tmp_path, row | {"notes": text}) for text in ("", "dispatched by all-to-all"))
    dense = run(tmp_path, DENSE | {"family": "house", "year": "2026", "notes": "dispatched by all-to-all"})
    found, step = roles(ahead, waiting, dense, dense)

    assert found.host_waits.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert step.total_s[1] > step.total_s[0]
    plain = run(tmp_path, DENSE | {"family": "house", "year": "2026"})
    assert roles(plain)[1].total_s[0] == pytest.approx(step.total_s[2])


@pytest.mark.parametrize(
    ("gpu", "model", "release", "traits"),
    [
        ("GB300-NVL72", "Qwen3_235B_a22B", "26.06 NeMo Container; MXFP8", {"graphed"}),
        ("GB200-NVL72", "GPT OSS 120B", "26.06 NeMo Container; MXFP8", {"graphed"}),
        ("GB200-NVL72", "GPT OSS 120B", "26.06.01 NeMo Container; MXFP8", set()),  # lost its fused kernels
        ("GB300-NVL72", "Nemotron_3_Super", "26.08 NeMo Container; MXFP8", set()),  # hybrids keep graphs of parts
        ("GB300-NVL72", "DeepSeekV3", "26.04.01 NeMo Container; MXFP8", set()),
        ("B300-SXM (DGX B300)", "DeepSeekV3", "26.06 NeMo Container; MXFP8", set()),
        ("B300-SXM (DGX B300)", "DeepSeekV3", "26.06.01 NeMo Container; MXFP8", {"graphed"}),
        ("GB300-NVL72", "DeepSeekV3", "26.06 NeMo Container; BF16", set()),
        ("B200-SXM (DGX B200)", "Qwen3_30B_a3B", "26.02 NeMo Container; MXFP8", {"counted"}),
        ("B200-SXM (DGX B200)", "Qwen3_30B_a3B", "26.02.01 NeMo Container; MXFP8", set()),
        ("B200-SXM (DGX B200)", "Qwen3_30B_a3B (tokendrop)", "25.11 NeMo Container; MXFP8", set()),
        ("B300-SXM (DGX B300)", "Qwen3_235B_a22B", "26.04 NeMo Container; MXFP8", {"counted"}),
    ],
)
def test_what_nvidias_recipes_of_a_release_switch_on_is_known(gpu, model, release, traits):
    catalogue, known = load_catalogue(), book()
    beside = beside_of({"model_name": model, "source": release}, accelerator_of(catalogue, gpu))
    found = {name for name in ("graphed", "counted") if re.search(known.traits[name], beside)}

    assert found == traits


LONG = {**DENSE, "family": "house", "year": "2026", "tp": "1", "dp": "1", "cp": "8", "num_gpus": "8", "gpu": "B200"}


def test_rows_exchanged_for_heads_take_the_place_of_gathered_keys(tmp_path):
    row = LONG | {"seq_len": "32768", "global_batch_sequences": "4"}
    ring, swapped, named = (
        run(tmp_path, row | {"notes": n}) for n in ("", "context parallel by all-to-all", "Ulysses")
    )
    found, step = roles(ring, swapped, named)
    sizes = Sizes(residual=1.0, keys_values=16.0, queries=8.0)
    sent = context_exchange(sizes, Layout(cp=8), Conventions(heads_exchanged=1)).forward

    assert found.heads_exchanged.tolist() == [0.0, 1.0, 1.0]
    assert [comm.calls for comm in sent] == [0, 1, 1]
    assert [comm.bytes for comm in sent[1:]] == [2 * (8 + 2), 2 * 8]  # a rank's queries, keys and values; results back
    assert step.exposed_comm_s[1] > 0.0


def test_many_ranks_wait_longer_for_the_start_of_each_bucket(tmp_path):
    row = DENSE | {"family": "house", "year": "2026", "tp": "1", "zero_stage_fsdp": "1", "precision": "bf16"}
    few, many = (run(tmp_path, row | {"num_gpus": n, "dp": n, "global_batch_sequences": n}) for n in ("64", "1024"))
    batch = batch_of([few, many], load_catalogue(), book())
    c = batch_coefficients(batch, book().values)
    parts = [
        step_s(
            batch.machine, replace(c, bucket=bucket), batch.model, batch.grid, seq_len=batch.seq_len,
            global_batch=batch.global_batch, shard=batch.shard,
        )
        for bucket in (1e7 * np.ones(2), 1e9 * np.ones(2))
    ]  # fmt: skip
    small, large = (step.data_comm_s + step.hidden_comm_s for step in parts)

    assert small[0] > large[0]
    assert small[1] / large[1] > 1.5 * small[0] / large[0]


@pytest.mark.parametrize(
    ("stack", "precision", "gathered"),
    [("mlperf_8b", "fp8", 1), ("mlperf_8b", "bf16", 2), ("mlperf_8b", "nvfp4", 2), ("bridge", "fp8", 2)],
)
def test_submissions_to_mlperf_gather_weights_in_the_byte_that_is_multiplied(stack, precision, gathered):
    assert used("weight_bytes", stack, "gb200", precision) == gathered


def test_a_stack_with_facts_of_its_own_keeps_them_beside_the_constants_of_another():
    facts = [used("shares_single", name, "h100", "bf16") for name in ("deepspeed", "accelerate", "automodel")]

    assert np.array_equal(facts, [0.0, 1.0, 0.0])
    assert used("element_wise", "accelerate", "h100", "bf16") == ["elements_eager"]


def test_notes_and_overlaps_say_how_rows_reach_their_experts(tmp_path):
    row = EXPERTS | {"family": "house", "year": "2025", "num_gpus": "64", "dp": "64", "ep": "64", "tp": "1", "pp": "1"}
    row |= {"top_k": "6", "experts": "64", "global_batch_sequences": "128"}
    plain, once, hidden = (
        run(tmp_path, row | more) for more in ({}, {"notes": "dispatched by DeepEP"}, {"overlap": "tp+dp+pp+ep"})
    )
    found, step = roles(plain, once, hidden)

    assert list(found.routed_once) == [0.0, 1.0, 0.0]
    assert step.tensor_comm_s[0] > 1.2 * step.tensor_comm_s[1] > 0.0
    assert step.tensor_comm_s[2] == 0.0


def test_a_stack_that_keeps_its_states_in_half_precision_needs_less_memory():
    held = {name: used("optimizer_bytes", name, "h100", "bf16") for name in ("automodel", "torchtitan", "bridge")}

    assert held == {"automodel": 4.0, "torchtitan": 12.0, "bridge": 12.0}
    assert used("held_gradient_bytes", "automodel", "h100", "bf16") == 2.0


PUBLISHED = {
    "family": "bridge", "gpu": "GB300-NVL72", "num_gpus": "64", "seq_len": "8192", "global_batch_sequences": "512",
    "ep": "64", "dp": "64", "precision": "mxfp8", "model_name": "Nemotron_3_Super",
    "source": "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, 26.06 NeMo Container",
}  # fmt: skip


def test_what_a_published_table_leaves_unsaid_is_taken_from_another_page_of_its_authors_and_told(tmp_path):
    silent, told, other = (
        run(tmp_path, PUBLISHED | more) for more in ({}, {"mtp_layers": "1"}, {"source": "a page of our own"})
    )

    assert (silent.architecture.mtp_trained, told.architecture.mtp_trained, other.architecture.mtp_trained) == (2, 1, 0)
    assert any(text.startswith("not stated in the table: mtp_layers 2") for text in silent.assumed)
    assert not any(text.startswith("not stated in the table") for text in (*told.assumed, *other.assumed))


def test_recomputation_that_a_recipe_states_and_its_table_does_not_is_priced(tmp_path):
    row = PUBLISHED | {"gpu": "H100-SXM (DGX H100)", "precision": "fp8", "model_name": "Nemotron_3_Nano", "ep": "8"}
    silent = run(tmp_path, row | {"notes": "precision label FP8"})
    stated = run(tmp_path, row | {"notes": "precision label FP8", "recompute": "none"})
    step = roles(silent, stated)[1]

    assert (silent.layout.recompute, stated.layout.recompute) == ("selective", "none")
    assert step.total_s[0] > 1.1 * step.total_s[1]


def test_a_run_with_a_year_and_no_family_is_priced_as_a_stack_of_then(tmp_path):
    found = run(tmp_path, DENSE | {"family": "", "year": "2023"})

    assert found.stack == "in-2023"
    assert any("family is empty and year is 2023" in text for text in found.assumed)
    assert run(tmp_path, DENSE | {"family": ""}).stack == "meshwright"


def test_a_pipeline_whose_schedule_nobody_states_is_assumed_in_words(tmp_path):
    pipeline = DENSE | {"pp": "2", "dp": "", "schedule": "", "vpp": ""}

    assert any("schedule 1f1b" in text for text in run(tmp_path, pipeline).assumed)
    for said in ({"schedule": "1f1b"}, {"vpp": "2"}):
        assert not any("schedule" in text for text in run(tmp_path, pipeline | said).assumed)


def test_compiled_layers_that_nobody_states_are_assumed_in_words(tmp_path):
    told = {note: run(tmp_path, FSDP | {"notes": note}).assumed for note in ("", "FSDP; eager", "with torch.compile")}

    assert [any("torch.compile" in text for text in assumed) for assumed in told.values()] == [True, False, False]


def test_layers_of_a_stack_that_never_compiles_them_are_not_said_to_be_compiled(tmp_path):
    (deepspeed, torchtitan) = (run(tmp_path, FSDP | {"family": name}) for name in ("deepspeed", "torchtitan"))

    assert not any("torch.compile" in text for text in deepspeed.assumed)
    assert any("torch.compile" in text for text in torchtitan.assumed)


def test_a_row_taken_for_one_without_fused_attention_says_which_word_would_help(tmp_path):
    row = FSDP | {"year": "2023", "precision": "fp16"}

    assert any("notes: flash attention" in text for text in run(tmp_path, row).assumed)
    assert not any("notes: flash attention" in text for text in run(tmp_path, row | {"notes": "no flash"}).assumed)
    assert not any("notes: flash attention" in text for text in run(tmp_path, row | {"precision": "bf16"}).assumed)


def test_a_stack_that_only_its_notes_name_is_told_and_has_no_narrower_band_than_one_nobody_knows(tmp_path):
    row = FSDP | {"zero_stage_fsdp": "1", "notes": "Megatron-LM"}
    named, unknown = (run(tmp_path, row | {"notes": text}) for text in ("Megatron-LM", ""))

    assert "family house: no such stack; facts of megatron, since Megatron-LM is named beside it" in named.assumed
    assert band_of(named, book()) >= band_of(unknown, book())
