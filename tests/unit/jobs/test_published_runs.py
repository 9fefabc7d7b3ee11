"""A run priced by `validate` from its row costs the same where its configuration is given as a job."""

import csv
from pathlib import Path

import pytest

from meshwright.cli.job import priced_job, setting_of_job
from meshwright.cli.options import JobQuestion
from meshwright.hardware import load_catalogue
from meshwright.jobs.models import catalogue_name
from meshwright.jobs.read import read_job
from meshwright.plan.analytic import book
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict

RUNS = Path(__file__).parents[2] / "external" / "published" / "training_runs.csv"
PRECISIONS = {"bf16": "BF16", "fp8": "FP8_CS", "mxfp8": "FP8_MX", "nvfp4": "NVFP4"}


def preset(run, name: str) -> str:
    """Return a workload preset of Megatron-Bridge with the numbers of a run."""
    layout = run.layout
    values = {
        "num_gpus": run.gpus,
        "global_batch_size": run.global_batch,
        "micro_batch_size": layout.mbs,
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "context_parallel_size": layout.cp,
        "virtual_pipeline_model_parallel_size": layout.vpp if layout.vpp > 1 else None,
        "use_megatron_fsdp": layout.zero == 3,
        "sequence_parallel": bool(layout.sp),
    }
    keywords = ", ".join(f"{key}={value!r}" for key, value in values.items())
    return f"from utils.utils import WorkloadBaseConfig\n{name} = WorkloadBaseConfig({keywords})\n"


def test_runs_of_megatron_bridge_cost_the_same_as_jobs(tmp_path):
    catalogue, known = load_catalogue(), book()
    rows = read_rows(RUNS, catalogue, known, known_models())
    compared = {}
    for row, outcome, cells in zip(
        rows, predict(rows, catalogue, known), csv.DictReader(RUNS.read_text().splitlines()), strict=True
    ):
        run = row.run
        model = catalogue_name(cells["model_name"])
        dense = row.family == "bridge" and run is not None and not run.architecture.experts and model is not None
        if not dense or run.layout.recompute != "none" or run.traits:
            continue
        name = f"RUN_{PRECISIONS[run.precision]}_V1"
        file = tmp_path / f"{row.id}.py"
        file.write_text(preset(run, name))
        job = read_job([f"{file}:{name}", f"seq_length={run.seq_len}", f"hf_path={model}"])
        setting = setting_of_job(job, JobQuestion(cluster=run.node, stack=run.stack), catalogue)
        compared[row.id] = priced_job(job, setting).predicted.step_time_s / outcome.step_time_s

    assert len(compared) >= 30
    assert compared == pytest.approx(dict.fromkeys(compared, 1.0), rel=1e-9)
