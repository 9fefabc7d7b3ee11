"""Low-rank adapters take the time of what their kernels move, and published runs with adapters are met."""

import csv
from pathlib import Path

import numpy as np
import pytest

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic.adapters import adapters_s
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.quantities import Grid, ModelQuantities
from meshwright.plan.batch import batch_coefficients as coefficients_of_rows
from meshwright.plan.batch import batch_of
from meshwright.plan.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.workload.models import load_model
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
