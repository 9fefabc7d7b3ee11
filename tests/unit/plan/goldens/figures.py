"""Prices and predicted timelines from fixed inputs: what a change of the planners' code alone must not move.

    python -m tests.unit.plan.goldens.figures    # writes goldens.json anew; say in the changelog what moved, and why

Figures are stored to the last bit; the tests allow 1e-12 of them, since libraries add in other orders elsewhere.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.cluster.graph import CollectiveFit, Measurements, OperatorTime, Straggling, blocking, on_link
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.layouts.space import in_every_order, legal_layouts
from meshwright.plan.measured.data_parallel import StepInputs, predict_step
from meshwright.plan.measured.pipeline import predict_pipeline_step
from meshwright.plan.measured.spmd import operators_of, predict_spmd_step
from meshwright.plan.search.simulated import simulate_plan
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import RowOutcome, known_models, predict
from meshwright.timeline import Timeline
from meshwright.workload.holdings import peak_memory_bytes
from meshwright.workload.models import load_model
from meshwright.workload.transformer import ModelConfig, describe_workload
from tests.multiproc.parallel.layouts import FAST, SLOW, Case

STORED = Path(__file__).with_name("goldens.json")
PUBLISHED = Path(__file__).parents[3] / "external" / "published" / "training_runs.csv"
GLOBAL_BATCH, SEQ_LEN, BUCKET_BYTES = 8, 16, 2**14
SAMPLED = 240  # layouts of the search
PUBLISHED_STACK = "llama3paper"
SIMULATED = (
    *("tp=8,pp=2,dp=4,sp=1,zero=1", "tp=4,dp=16,zero=3,replicas=2", "tp=2,pp=4,dp=8,zero=3,schedule=zb"),
    *("tp=2,pp=2,cp=2,dp=8,vpp=2,schedule=interleaved", "tp=8,dp=8,zero=2,recompute=full"),
)


def small_model(**changes: Any) -> ModelConfig:
    """Return the decoder of the parity table."""
    sizes = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": SEQ_LEN,
    }  # fmt: skip
    return ModelConfig(**(sizes | changes))


def measurements(layout: Layout, inputs_of: Any) -> Measurements:
    """Return figures as if they had been measured: each collective and operator has another one."""
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
    wrapped = (str, blocking, on_link)
    fits = [
        CollectiveFit(
            collective=wrap(name), backend="meshwright", ranks=ranks, alpha_s=(1 + place + way) * 1e-5 * ranks,
            beta_s_per_byte=(2 + place + 3 * way) * 1e-10 * ranks, min_bytes=1, max_bytes=2**30, busy_share=0.2,
            hides=0.1, delay_s=1e-5,
        )
        for ranks in (2, 3, 4, 8)
        for place, name in enumerate(names)
        for way, wrap in enumerate(wrapped)
    ]  # fmt: skip
    times = [
        OperatorTime(
            operator=op.key, ranks=layout.world_size, threads=1, forward_s=(2 + len(op.key) % 7) * 1e-5,
            backward_s=(3 + len(op.key) % 5) * 1e-5,
        )
        for op in operators_of(inputs_of, layout)
    ]  # fmt: skip
    return Measurements(
        fingerprint="golden", operators=tuple(times), collectives=tuple(fits),
        straggling=tuple(Straggling(ranks=ranks, share=0.02) for ranks in (2, 3, 4, 8)),
        memory_bandwidth_bytes_per_s=1e10,
    )  # fmt: skip


def predicted(case: Case) -> tuple[Timeline, int]:
    """Return the timeline and the peak bytes that `train` predicts of a layout of the parity table."""
    layout, model = Layout.parse(case.layout), small_model(**case.model)
    workload = describe_workload(model, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout)
    inputs = StepInputs(
        workload=workload, global_batch=GLOBAL_BATCH, measured=measurements(layout, workload), backend="meshwright",
        peak_flops_per_s=None, data_s=1e-6,
    )  # fmt: skip
    count = GLOBAL_BATCH // (layout.dp * layout.mbs)
    if layout.pp > 1:
        memory = peak_memory_bytes(workload, layout, micro_batches=count)
        return predict_pipeline_step(layout, inputs, 2**30), memory  # as `choose` does: all gradients at once
    predict_one = predict_step if layout.is_plain else predict_spmd_step
    return predict_one(layout, inputs, BUCKET_BYTES), peak_memory_bytes(workload, layout, micro_batches=count)


def summed(timeline: Timeline) -> dict[str, float]:
    """Return the seconds of each kind of span, and the end."""
    found: dict[str, float] = {"end": max((span.end_s for span in timeline.spans), default=0.0)}
    for span in timeline.spans:
        key = f"{span.lane} {span.name}"
        found[key] = found.get(key, 0.0) + span.end_s - span.start_s
    return found


def measured_figures() -> dict[str, dict[str, float]]:
    """Return the parts of the predicted step of every layout of the parity table, and its memory."""
    found = {}
    for case in (*FAST, *SLOW):
        name = str(case._replace(backend="meshwright"))
        timeline, memory = predicted(case)
        found[name] = summed(timeline) | {"bytes": memory}
    return found


def published_figures() -> dict[str, list[float]]:
    """Return step time and memory of every published run that can be priced."""
    known, catalogue = book(), load_catalogue()
    rows = read_rows(PUBLISHED, catalogue, known, known_models())
    outcomes = [one for one in predict(rows, catalogue, known) if isinstance(one, RowOutcome)]
    return {one.id: [one.step_time_s, one.peak_memory_bytes_per_gpu] for one in outcomes}


def setting(stack: str, model: str = "llama3-405b", gpus: int = 16384, batch: int = 2048) -> Setting:
    """Return the search of docs/planning.md, or another model and cluster."""
    return Setting(
        architecture=load_model(model).architecture,
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", gpus), gpus=gpus,
        global_batch=batch, seq_len=8192, stack=stack,
    )  # fmt: skip


def searched_grid(given: Setting) -> Grid:
    """Return layouts from all over the search, in all orders."""
    space = legal_layouts(
        given.architecture, ranks=given.gpus, global_batch=given.global_batch, seq_len=given.seq_len, node=8
    )
    grid = in_every_order(space.grid)
    return grid.take(np.linspace(0, len(grid) - 1, SAMPLED).astype(int))


def searched_figures(stack: str = PUBLISHED_STACK) -> dict[str, list[float]]:
    """Return step time and memory of layouts from all over the search of 405 B on 16,384 GPUs."""
    given = setting(stack)
    grid = searched_grid(given)
    prices = price_layouts(given, grid)
    pairs = zip(prices.step_time_s, prices.reserved_bytes, strict=True)
    return {str(grid.layout(index)): [float(a), float(b)] for index, (a, b) in enumerate(pairs)}


def simulated_figures(stack: str = PUBLISHED_STACK) -> dict[str, dict[str, float]]:
    """Return the parts of simulated steps."""
    given = setting(stack, "llama3-8b", 64, 128)
    return {text: summed(simulate_plan(given, Layout.parse(text, world_size=64))) for text in SIMULATED}


def everything() -> Iterator[tuple[str, Any]]:
    """Yield the sections of the file."""
    yield "measured", measured_figures()
    yield "published", published_figures()
    yield "searched", searched_figures()
    yield "simulated", simulated_figures()


def main() -> None:
    """Write the file."""
    lines = [f"{json.dumps(name)}: {{\n" + _lines(section) + "\n}" for name, section in everything()]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(section: dict[str, Any]) -> str:
    return ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in section.items())


if __name__ == "__main__":
    main()
