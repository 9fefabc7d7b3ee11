"""How a run holds its weights and its logits: arithmetic by hand, and measured peaks that the planner had got wrong."""

import csv

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.memory_rows import UNSEEN_2, peaks
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, book, price_layouts
from meshwright.plan.analytic.fits import OVER, SPARED_LOGITS, SPARED_STATES, UNSAID, as_said, memory_trust
from meshwright.plan.analytic.held_roles import FUSED_ROWS, is_said, loss_roles, weight_roles
from meshwright.plan.analytic.optimizers import optimizer_roles
from meshwright.plan.analytic.price import coefficients_of, states_too_large, verdicts_in
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.workload.adapters import trained_share
from meshwright.workload.conventions import FROZEN_BYTES
from meshwright.workload.models import load_model

LLAMA = load_model("llama2-7b").architecture
TABLE, LAYERS = 2 * 32000 * 4096, 32 * (4 * 4096**2 + 3 * 4096 * 11008)  # embedding and output; matrices of all layers


def setting_on(gpus, *, stack="accelerate", model=LLAMA, seq_len=4096, batch=8, **said):
    cluster = cluster_by_name(load_catalogue(), "dgx-h100", max(8, gpus))
    return Setting(
        architecture=model, cluster=cluster, gpus=gpus, global_batch=batch, seq_len=seq_len, stack=stack, **said
    )


def priced(layout, **said):
    given = setting_on(layout.world_size, **said)
    return price_layouts(given, Grid.of([layout]))


def test_half_precision_alone_is_eight_bytes_a_parameter_and_a_master_copy_eighteen():
    half, single = (priced(Layout(recompute="full"), weights=name) for name in ("bf16", "fp32"))

    def states(prices):
        return float((prices.parameters_bytes + prices.gradients_bytes + prices.optimizer_bytes)[0])

    assert states(half) == pytest.approx(8 * LLAMA.text_parameters, rel=0.001)
    assert states(single) == pytest.approx(18 * LLAMA.text_parameters, rel=0.001)


def test_a_stack_in_half_precision_is_told_that_a_run_has_master_copies():
    usual, told = (priced(Layout(dp=8, zero=3), stack="torchtune", weights=name) for name in ("", "fp32"))

    assert usual.optimizer_bytes[0] == pytest.approx(4 * LLAMA.text_parameters / 8, rel=0.001)
    assert told.optimizer_bytes[0] == pytest.approx(8 * LLAMA.text_parameters / 8, rel=0.001)  # the share is the copy
    assert told.parameters_bytes[0] == pytest.approx(2 * usual.parameters_bytes[0])


@pytest.mark.parametrize("name", FROZEN_BYTES)
def test_frozen_layers_lie_in_few_bits_and_tables_do_not(name):
    prices = priced(Layout(recompute="full"), lora_rank=8, weights=name)
    trained = trained_share(LLAMA, 8)
    packed = FROZEN_BYTES[name] * LAYERS * (1 - trained) + 2 * LAYERS * trained

    assert prices.parameters_bytes[0] == pytest.approx(packed + 2 * TABLE, rel=0.002)


def test_shares_of_packed_layers_are_gathered_packed_and_one_matrix_is_unpacked():
    packed, plain = (priced(Layout(dp=8, zero=3, recompute="full"), lora_rank=8, weights=name) for name in ("nf4", ""))
    layer = LAYERS / 32
    less = (2 - FROZEN_BYTES["nf4"]) * (1 - trained_share(LLAMA, 8))

    assert plain.parameters_bytes[0] - packed.parameters_bytes[0] == pytest.approx(less * LAYERS / 8, rel=0.002)
    spared = plain.working_bytes[0] - packed.working_bytes[0]
    assert spared == pytest.approx(less * 2 * layer - 2 * 4096 * 11008, rel=0.002)


def test_packed_weights_that_live_on_the_host_are_packed_there():
    layout = Layout(dp=8, zero=3, recompute="full", offload="parameters")
    packed, plain = (priced(layout, lora_rank=8, weights=name).host_bytes[0] for name in ("nf4", ""))

    less = (2 - FROZEN_BYTES["nf4"]) * (1 - trained_share(LLAMA, 8))
    assert plain - packed == pytest.approx(less * LAYERS / 8, rel=0.002)


def test_few_bits_need_adapters_and_names_are_checked():
    with pytest.raises(InputError, match=r"--weights nf4: weights in so few bits are frozen; expected adapters"):
        weight_roles("nf4", 4.0, adapters=False, where="--weights")
    with pytest.raises(InputError, match=r"'bf61': no such type .*bf16"):
        weight_roles("bf61", 4.0, adapters=False, where="weights")
    with pytest.raises(InputError, match=r"'fusd': no such loss .*fused"):
        loss_roles("fusd", where="loss")


def test_our_own_engine_is_not_told_how_it_holds_weights():
    request = PlanRequest(
        model=load_model("llama2-7b"), cluster="dgx-h100", gpus=8, global_batch=8, seq_len=4096, weights="bf16"
    )

    with pytest.raises(InputError, match="--weights: not of our own engine; expected --stack NAME"):
        setting_of(request, load_catalogue())


def test_an_answer_says_what_it_assumes_of_the_loss_unless_that_is_said():
    def assumed(stack, loss=""):
        request = PlanRequest(
            model=load_model("llama2-7b"),
            cluster="dgx-h100",
            gpus=8,
            global_batch=8,
            seq_len=4096,
            stack=stack,
            loss=loss,
        )
        return [text for text in setting_of(request, load_catalogue()).assumed if "--loss" in text]

    assert assumed("torchtitan") == ["an eighth of the logits at a time, as torchtitan does today (--loss)"]
    assert assumed("trl") == ["some rows of logits (512 are counted) at a time, as trl does today (--loss)"]
    assert assumed("torchtitan", "whole") == assumed("bridge") == []


def test_a_row_of_a_table_says_the_same(tmp_path):
    head = "id,family,gpu,num_gpus,model_name,seq_len,global_batch_sequences,zero_stage_fsdp,recompute,"
    head += "lora_rank,weights,loss"
    lines = [
        "a,accelerate,h100,8,llama2-7b,4096,8,3,full,8,nf4,fused",
        "b,accelerate,h100,8,llama2-7b,4096,8,3,full,,nf4,",
    ]
    (tmp_path / "runs.csv").write_text("\n".join([head, *lines]) + "\n")
    catalogue = load_catalogue()
    rows = read_rows(tmp_path / "runs.csv", catalogue, book(), known_models())
    told, refused = predict(rows, catalogue, book())

    same = priced(Layout(dp=8, zero=3, recompute="full"), lora_rank=8, weights="nf4", loss="fused")
    assert told.peak_memory_bytes_per_gpu == pytest.approx(same.reserved_bytes[0], rel=1e-6)
    assert any(text.startswith("frozen weights unpack") for text in told.assumed)
    assert "expected adapters as well" in refused.reason


@pytest.mark.parametrize(
    ("loss", "rows", "each"),
    [("whole", 8192, 14), ("compiled", 8192, 4), ("half", 8192, 8), ("chunked", 1024, 14), ("fused", FUSED_ROWS, 14)],
)
def test_the_loss_says_how_many_logits_exist_at_once(loss, rows, each):
    model = load_model("qwen2.5-0.5b").architecture
    prices = priced(Layout(dp=8, zero=3, recompute="full"), model=model, seq_len=8192, loss=loss)

    assert prices.logits_bytes[0] == pytest.approx(each * rows * 151936)


def test_moments_follow_weights_in_half_precision():
    assert optimizer_roles("lion", 12.0, where="x")["optimizer_bytes"] == 8
    assert optimizer_roles("lion", 4.0, where="x")["optimizer_bytes"] == 2
    assert optimizer_roles("adam8bit", 4.0, where="x")["optimizer_bytes"] == 2
    assert optimizer_roles("adamw-fp32", 4.0, where="x") == {"optimizer_bytes": 8, "optimizer*": 1, "roots_at_once": 0}
    assert optimizer_roles("adamw-fp32", 12.0, where="x")["optimizer_bytes"] == 12  # beside weights that are copies


def test_what_a_stack_leaves_open_is_left_open_unless_a_run_says_it():
    trust = memory_trust(book(), "accelerate")
    open_, told = (as_said(trust, "accelerate", states=said, loss=said) for said in (False, True))

    assert (open_.spared_states, open_.spared_logits) == (SPARED_STATES, SPARED_LOGITS)
    assert told == trust
    assert as_said(trust, "torchtune", states=False, loss=False) == trust
    assert "torchtune" not in UNSAID
    assert is_said(weight_roles("fp32", 4.0, adapters=False, where="")) == (True, False)
    assert is_said(loss_roles("whole", where="")) == (False, True)


def test_a_full_fine_tuning_that_may_hold_half_precision_alone_is_not_refused():
    big = load_model("llama3-8b").architecture
    grid = Grid.of([Layout(recompute="full")])
    silent = setting_on(1, model=big, batch=1)
    told = replace(silent, weights="fp32")

    assert verdicts_in(silent, grid, price_layouts(silent, grid))[0] != OVER  # 80 GB: 64 in half precision
    assert verdicts_in(told, grid, price_layouts(told, grid))[0] == OVER
    assert not states_too_large(silent, grid)[0]


def test_torchtitan_keeps_exchanges_of_experts_and_not_their_products():
    model = load_model("qwen3-30b-a3b").architecture
    alone, spread = (
        priced(Layout(dp=8, ep=ep, zero=3, recompute="selective"), stack="torchtitan", model=model).activations_bytes[0]
        for ep in (1, 8)
    )
    rows = 48 * 4096 * 8

    assert spread - alone == pytest.approx(2 * 2 * 2048 * rows, rel=0.01)
    # queries, values, attention's output and its sums, the last product's result, and what enters the layer
    each = 2 * (32 * 128 + 4 * 128 + 32 * 128) + 4 * 32 + 2 * 2048 + 2 * 2048
    assert alone == pytest.approx(48 * 4096 * each, rel=0.02)


def test_layouts_with_and_without_exchanges_of_experts_differ_in_one_grid_as_apart():
    model = load_model("qwen3-30b-a3b").architecture
    layouts = [Layout(dp=8, ep=ep, zero=3, recompute="selective") for ep in (1, 8)]
    given = setting_on(8, stack="torchtitan", model=model)
    together = price_layouts(given, Grid.of(layouts)).allocated_bytes

    assert list(together) == [price_layouts(given, Grid.of([one])).allocated_bytes[0] for one in layouts]


def test_peaks_that_were_wrong_at_first_sight_are_met_since_their_settings_can_be_said():
    rows = peaks(UNSEEN_2)
    first = {line["id"]: line for line in csv.DictReader(UNSEEN_2.read_text().splitlines())}
    known = [row for row in rows if row.error is not None]
    before = np.abs([float(first[row.id]["first_error"]) for row in known if first[row.id]["first_error"]])
    errors = np.abs([row.error for row in known])

    assert len(known) == 25
    assert np.median(before) > 15
    assert np.median(errors) < 0.05
    assert np.max([abs(row.error) for row in known if row.family in {"titanq", "prime", "litgpt", "bridge"}]) < 0.07
    assert [row.id for row in rows if row.ran and row.fits == "does not fit"] == []
    assert [row.id for row in rows if not row.ran and row.fits == "fits"] == []
    assert [name for name, line in first.items() if line["ran"] == "1" and line["first_fits"] == "does not fit"]


@pytest.mark.parametrize("stack", ["before-2023", "since-2024"])
def test_whole_logits_of_a_stack_that_nobody_described_are_pytorchs(stack):
    def bytes_of(loss, name=stack):
        return float(coefficients_of(setting_on(8, stack=name, loss=loss)).logit_bytes)

    assert bytes_of("whole") == bytes_of("chunked") == 12  # softmax and two gradients in single precision
    assert bytes_of("whole") > bytes_of("half") > bytes_of("compiled") == 4
    assert bytes_of("whole", "megatron") == bytes_of("", "megatron") == 4  # whose kernel is known


def test_more_gpus_do_not_make_room_for_the_logits_of_long_sequences():
    big = load_model("llama3-8b").architecture
    few, many = (
        priced(Layout(dp=gpus, zero=3, recompute="full"), stack="since-2024", loss="whole", seq_len=65536, model=big,
               batch=gpus)
        for gpus in (8, 64)
    )  # fmt: skip

    assert many.logits_bytes[0] == few.logits_bytes[0] > 80e9
