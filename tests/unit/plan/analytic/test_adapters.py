"""Low-rank adapters take the time of what their kernels move, and published runs with adapters are met."""

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic.adapters import adapters_s
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.price import coefficients_of, flops_per_token, machine_of, price_layouts
from meshwright.plan.analytic.quantities import Grid, ModelQuantities
from meshwright.plan.analytic.saved_activations import layer_parts
from meshwright.plan.tables.batch import batch_coefficients as coefficients_of_rows
from meshwright.plan.tables.batch import batch_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.workload.architecture import Architecture
from meshwright.workload.conventions import conventions_of
from meshwright.workload.models import load_model
from meshwright.workload.split import sharding
from tests.unit.plan.analytic.test_price import setting

LLAMA = load_model("llama3-8b").architecture
UNFITTED = Path(__file__).parents[3] / "external" / "published" / "unfitted_runs.csv"


def seconds(layout: Layout, *, tokens: float = 4096.0, rank: int = 16) -> tuple[float, float]:
    given = setting(LLAMA, "dgx-h100", lora_rank=rank, stack="automodel")
    machine, c = machine_of(given), coefficients_of(given)
    found = adapters_s(machine, c, ModelQuantities.of(LLAMA), Grid.of([layout]), tokens)
    forward, backward = (float(np.broadcast_to(one, 1)[0]) for one in found)
    return forward, backward


def test_adapters_move_what_lora_reads_and_writes_of_each_matrix():
    sides = [(4096, 4096), (4096, 1024), (4096, 1024), (4096, 4096), (4096, 14336), (4096, 14336), (14336, 4096)]
    given = setting(LLAMA, "dgx-h100", lora_rank=16, stack="automodel")
    rate = float(machine_of(given).memory_rate) * float(coefficients_of(given).memory)

    forward, backward = seconds(Layout(dp=8))

    assert forward == pytest.approx(2 * 4096 * sum(into + 4 * out for into, out in sides) / rate)
    assert backward == pytest.approx(2 * 4096 * sum(5 * into + 2 * out for into, out in sides) / rate)


def test_adapters_take_nothing_where_nothing_is_frozen_and_no_more_for_a_higher_rank():
    assert seconds(Layout(dp=8), rank=0) == (0.0, 0.0)
    assert seconds(Layout(dp=8), rank=64) == seconds(Layout(dp=8), rank=16)


@pytest.mark.parametrize(("stack", "joined"), [("bridge", True), ("since-2024", True), ("torchtitan", False)])
def test_joined_matrices_have_one_adapter_that_reads_their_input_once(stack, joined):
    given = setting(LLAMA, "dgx-h100", lora_rank=16, stack=stack)
    machine, c = machine_of(given), coefficients_of(given)
    found = adapters_s(machine, c, ModelQuantities.of(LLAMA), Grid.of([Layout(dp=8)]), 4096.0)
    read = (2 if joined else 5) * 4096 + 4096 + 14336
    written = 4096 + 2 * 1024 + 2 * 14336 + 2 * 4096

    moved = 2 * 4096 * (read + 4 * written) / (float(machine.memory_rate) * float(c.memory))
    assert float(np.ravel(found[0])[0]) == pytest.approx(moved)


class Adapted(torch.nn.Module):
    """A frozen linear layer with a low-rank adapter beside it, as PEFT makes them."""

    def __init__(self, base: torch.nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = torch.nn.Linear(base.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def flops_with_adapters(model: Architecture, rank: int, seq_len: int) -> float:
    """Return the FLOPs of forward and backward of a decoder of plain matrices, all frozen but its adapters."""
    hidden, heads, inner = model.hidden_size, model.num_attention_heads, model.intermediate_size
    embedding = torch.nn.Embedding(model.vocab_size, hidden).requires_grad_(False)
    output = torch.nn.Linear(hidden, model.vocab_size, bias=False).requires_grad_(False)
    shapes = [(hidden, hidden)] * 4 + [(hidden, inner)] * 2 + [(inner, hidden)]
    layers = []
    for _ in range(model.num_hidden_layers):
        frozen = [torch.nn.Linear(*shape, bias=False).requires_grad_(False) for shape in shapes]
        layers.append([Adapted(one, rank) for one in frozen])
    with FlopCounterMode(display=False) as counter:
        x = embedding(torch.zeros(1, seq_len, dtype=torch.long)).requires_grad_()
        for q, k, v, o, gate, up, down in layers:
            cut = [part(x).view(1, seq_len, heads, -1).transpose(1, 2) for part in (q, k, v)]
            scores = (cut[0] @ cut[1].transpose(-1, -2)).softmax(-1)
            x = x + o((scores @ cut[2]).transpose(1, 2).reshape(1, seq_len, hidden))
            x = x + down(torch.nn.functional.silu(gate(x)) * up(x))
        output(x).sum().backward()
    assert all(part.base.weight.grad is None and part.down.weight.grad is not None for one in layers for part in one)
    return float(counter.get_total_flops())


def test_the_flops_of_adapters_are_those_of_a_model_with_frozen_weights():
    model = Architecture(
        vocab_size=512, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, head_dim=32,
    )  # fmt: skip
    given = msgspec.structs.replace(setting(model, "dgx-h100", lora_rank=8), seq_len=64)
    square = model.model_flops_per_token(64, causal=False) - model.model_flops_per_token(64)

    assert 64 * (flops_per_token(given) + square) == pytest.approx(flops_with_adapters(model, 8, 64), rel=1e-9)


def test_frozen_weights_are_gathered_and_their_gradients_never_sent():
    c = conventions_of("bridge")
    split = Layout(dp=8, zero=3)
    whole = sharding(1e9, split, c, shards=8)
    frozen = sharding(1e9, split, msgspec.structs.replace(c, trained=0.003), shards=8)

    assert frozen.gather.bytes == whole.gather.bytes
    assert frozen.again.bytes == whole.again.bytes
    for name in ("scatter", "scatter_once", "reduce", "copies"):
        assert getattr(frozen, name).bytes == pytest.approx(0.003 * getattr(whole, name).bytes)


def test_tensor_parallelism_cuts_the_wide_side_of_each_adapted_matrix():
    whole, cut = seconds(Layout(dp=8)), seconds(Layout(tp=2, dp=4))

    assert 0.5 * whole[0] < cut[0] < 0.7 * whole[0]


def test_published_runs_with_adapters_that_nobody_fitted_are_met():
    rows = [row for row in read_rows(UNFITTED, load_catalogue(), book(), known_models()) if "lora" in row.id]
    errors = [
        outcome.step_time_s / row.measured_step_time_s - 1
        for row, outcome in zip(rows, predict(rows, load_catalogue(), book()), strict=True)
    ]

    assert len(errors) == 6
    assert np.abs(errors).max() < 0.09
    assert np.abs(errors).mean() < 0.05


def test_torchtitan_gathers_weights_in_eight_bits_but_for_scales_by_row(tmp_path):
    row = {
        "id": "a", "gpu": "H100", "num_gpus": "64", "model_name": "llama3-8b", "seq_len": "8192", "dp": "64",
        "global_batch_sequences": "64", "micro_batch": "1", "zero_stage_fsdp": "3", "recompute": "selective",
        "precision": "fp8", "family": "torchtitan", "notes": "",
    }  # fmt: skip
    rows = [row, row | {"id": "b", "notes": "fp8 rowwise"}, row | {"id": "c", "precision": "bf16"}]
    table = tmp_path / "runs.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerows(rows)
    runs = [one.run for one in read_rows(table, load_catalogue(), book(), known_models())]
    found = coefficients_of_rows(batch_of(runs, load_catalogue(), book()), book().values)

    assert found.weight_bytes.tolist() == [1.0, 2.0, 2.0]


def test_frozen_weights_in_few_bits_are_gathered_as_they_lie():
    c = msgspec.structs.replace(conventions_of("accelerate"), trained=0.01, base_bytes=0.5, base_share=0.9)

    sent = sharding(1e9, Layout(dp=8, zero=3), c, shards=8)

    each = 0.01 * 2 + 0.99 * (0.9 * 0.5 + 0.1 * 2)  # adapters, layers, embedding and output
    assert sent.gather.bytes == pytest.approx(1e9 * each)
    assert sent.scatter.bytes == pytest.approx(1e9 * 0.01 * c.scattered_bytes)


class CastAdapted(Adapted):
    """The same in single precision beside a base in half, under autocast: what enters the adapter is cast, and cut."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.nn.functional.dropout(x.to(self.down.weight.dtype), 0.05)
        return self.base(x) + self.up(self.down(kept))


def kept_elements(made: type[Adapted], hidden: int, inner: int, tokens: int, rank: int) -> dict[torch.dtype, int]:
    """Return the elements of rows that a layer's frozen products and their adapters keep for backward, by type."""
    shapes = [(hidden, hidden)] * 4 + [(hidden, inner)] * 2 + [(inner, hidden)]
    bases = [torch.nn.Linear(*shape, bias=False).to(torch.bfloat16).requires_grad_(False) for shape in shapes]
    q, k, v, o, gate, up, down = (made(one, rank) for one in bases)
    found: dict[int, torch.Tensor] = {}

    def keep(one: torch.Tensor) -> torch.Tensor:
        if one.shape[0] == tokens and one.shape[1] > rank:
            found[one.untyped_storage().data_ptr()] = one
        return one

    x = torch.randn(tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one), torch.autocast("cpu", torch.bfloat16):
        rows = x * 1.0  # what a norm returns
        rows = o(q(rows) + k(rows) + v(rows))
        down(torch.nn.functional.silu(gate(rows)) * up(rows))
    counts: dict[torch.dtype, int] = {}
    for one in found.values():
        counts[one.dtype] = counts.get(one.dtype, 0) + one.numel()
    return counts


def test_adapters_in_single_precision_keep_a_copy_and_a_mask_of_what_enters_each_in_place_of_the_rows():
    hidden, inner, tokens = 64, 160, 48
    entering = 6 * hidden + inner  # of queries, keys, values, attention's output, gate and up; of down

    found = kept_elements(CastAdapted, hidden, inner, tokens, rank=4)

    assert found[torch.bfloat16] == tokens * (entering + 3 * inner)  # and gate, its activation and up
    assert found[torch.float32] == tokens * entering  # masks, which are a byte an element on a GPU


@pytest.mark.parametrize("stack", ["trl", "ms-swift"])
def test_stacks_on_peft_count_the_copies_of_adapters_and_what_casting_moves(stack):
    told = setting(LLAMA, "dgx-h100", lora_rank=16, stack=stack)
    machine, c = machine_of(told), coefficients_of(told)
    plain, grid = msgspec.structs.replace(c, adapters_cast=0), Grid.of([Layout(dp=8, mbs=2)])
    model, entering = ModelQuantities.of(LLAMA), 6 * 4096 + 14336
    kept, without = (layer_parts(machine, one, model, grid, 1024, moe=False) for one in (c, plain))
    moved, still = (adapters_s(machine, one, model, grid, 2048.0) for one in (c, plain))
    rate = float(machine.memory_rate) * float(c.memory)

    assert kept.all - without.all == pytest.approx(2048 * (3 * entering - 2 * (2 * 4096 + 14336)))
    for cast, plainly in zip(moved, still, strict=True):
        assert cast - plainly == pytest.approx(2048 * 21 * entering / rate)


def test_sharded_weights_have_adapters_of_their_own_type():
    told = setting(LLAMA, "dgx-h100", lora_rank=16, stack="trl")
    machine, c = machine_of(told), coefficients_of(told)
    grid = Grid.of([Layout(dp=8), Layout(dp=8, zero=1), Layout(dp=8, zero=2), Layout(dp=8, zero=3)])

    found = layer_parts(machine, c, ModelQuantities.of(LLAMA), grid, 1024, moe=False).adapted

    assert (found > 0).tolist() == [True, True, False, False]


def test_many_layouts_at_once_tell_sharded_adapters_from_others():
    told = setting(LLAMA, "dgx-h100", lora_rank=16, stack="trl")
    layouts = [Layout(dp=8, mbs=1 + n % 4, zero=n // 4 % 4) for n in range(400)]

    together = price_layouts(told, Grid.of(layouts))

    for n in range(16):
        alone = price_layouts(told, Grid.of([layouts[n]]))
        assert together.step_time_s[n] == pytest.approx(float(alone.step_time_s[0]))
        assert together.allocated_bytes[n] == pytest.approx(float(alone.allocated_bytes[0]))


def test_frozen_weights_in_few_bits_are_read_and_written_once_for_each_pass_over_a_layer():
    layout = Layout(dp=8, recompute="full")
    times = []
    for weights in ("bf16", "nf4"):
        given = setting(LLAMA, "dgx-h100", lora_rank=16, stack="torchtune", weights=weights)
        times.append(float(price_layouts(given, Grid.of([layout])).step_time_s[0]))
    machine, c = machine_of(given), coefficients_of(given)
    micro_batches, passes, weights_of_layers = 64 / 8, 3, 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    once = weights_of_layers * (0.5 + 4 / 64 + 2) / (float(machine.memory_rate) * float(c.memory))

    assert times[1] - times[0] == pytest.approx(micro_batches * passes * once, rel=0.05)


def test_fsdp_scatters_gradients_as_it_computes_and_ddp_sums_them_in_single_precision():
    c, others = conventions_of("accelerate"), conventions_of("torchtitan")

    sharded, copied = (sharding(1e9, Layout(dp=8, zero=zero), c, shards=8) for zero in (3, 0))
    hybrid = sharding(1e9, Layout(dp=16, zero=3, replicas=2), c, shards=8, copies=2)

    assert (sharded.scatter.bytes, sharded.scatter.element_bytes, copied.reduce.bytes) == (2e9, 2, 4e9)
    assert hybrid.copies.bytes == 2e9 / 8
    assert sharding(1e9, Layout(dp=8, zero=3), others, shards=8).scatter.bytes == 4e9  # it asks for single precision
