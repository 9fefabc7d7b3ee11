"""Two pages of docs: what engines can run, and public jobs as read: `python -m benchmarks.published_jobs`."""

import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.result import GENERATED, banner
from meshwright.errors import InputError
from meshwright.jobs.job import HELD, Job
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.workload.engines import ENGINES, applicable, fact_sources
from meshwright.workload.models import load_model

# of all files but the first the right job of each was worked out by hand, and stands beside it under `right`
RENDERINGS = tuple(
    Path(__file__).with_name(f"published_jobs{part}.toml") for part in ("", "_read", "_scripts", "_recipes")
)
PAGE = GENERATED / "jobs-published.md"
FACTS = GENERATED / "engines.md"
FACTS_HEAD = f"""# What each engine can run

{banner("python -m benchmarks.published_jobs")}
From the table in `meshwright/workload/engines.py`, which `plan --engine` and
`plan --emit` follow. A version is the one whose source was read.
"""
WORDS = {
    "axes": "axes",
    "schedules": "pipeline schedules",
    "virtual_only": "schedules that need two or more stages a rank",
    "uncompiled": "schedules that do not go with torch.compile",
    "stages": "stages of a pipeline (any; even; counted: embedding and output as layers; by length)",
    "zero": "ZeRO stages",
    "zero_in_pipelines": "ZeRO stages in a pipeline",
    "zero_with_tensor": "ZeRO stages with tp or cp",
    "sp": "sequence parallelism with tp",
    "experts_need_sp": "experts with tp need sequence parallelism",
    "shares_over_context": "ranks of cp and ep share the weights too",
    "etp": "tensor parallelism inside experts",
    "expert_ranks": "ranks that experts may take",
    "replicas": "copies of a sharded model",
    "orders": "orders of ranks",
    "recompute": "recomputation",
    "offload": "offload",
    "offload_zero": "ZeRO stages with offload",
    "kv_heads": "tp and key-value heads",
    "context": "context parallelism",
}
HEAD = f"""# Public configurations, and what is read from each

{banner("python -m benchmarks.published_jobs")}
From `benchmarks/published_jobs.toml`, which holds of each public file the keys that decide time and memory. A number
of GPUs with a star was given with `--gpus`, since the file has none or another; a dash is what no file says
(`plan --job` then asks for it).
"""
FIELDS = ("tp", "pp", "cp", "dp", "ep", "vpp", "mbs", "zero", "sp", "schedule", "recompute", "replicas", "offload")
NEUTRAL = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "vpp": 1, "sp": 0, "replicas": 1, "offload": "none", "schedule": "1f1b"}


def renderings() -> list[dict[str, Any]]:
    """Return the entries of the files of renderings."""
    return [entry for file in RENDERINGS for entry in tomllib.loads(file.read_text())["job"]]


def job_of(entry: dict[str, Any]) -> Job:
    """Return the job that the files of an entry describe."""
    model = entry.get("model")
    architecture = None if model is None else load_model(model).architecture
    with tempfile.TemporaryDirectory() as folder:
        for name, text in entry["files"].items():
            (Path(folder) / name.partition(":")[0]).write_text(text)
        items = [] if entry.get("alone") else [str(Path(folder) / name) for name in entry["files"]]
        question = JobOptions(gpus=entry.get("gpus"), model=model, architecture=architecture)
        words = [word.replace("FOLDER", folder) for word in entry.get("words", [])]
        return read_job([*items, *words], question)


def page() -> str:
    """Return the page: a table for each engine."""
    parts = [HEAD]
    for name, engine in ENGINES.items():
        head = "| source | GPUs | layout | batch x tokens | precision | said |"
        parts += [f"\n## {engine.title}\n", head, "|---|---|---|---|---|---|"]
        parts += [_row(entry) for entry in renderings() if entry["engine"] == name]
    return "\n".join([*parts, ""])


def _told(value: object) -> str:
    """Return a fact as a cell of the table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_told(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def facts_page() -> str:
    """Return the page of what each engine can run, with the source of each fact."""
    parts = [FACTS_HEAD]
    for engine in ENGINES.values():
        parts += [f"\n## {engine.title} ({engine.version})\n", "| fact | | source |", "|---|---|---|"]
        for name in applicable(engine):
            parts.append(
                f"| {WORDS[name]} | {_told(getattr(engine, name))} | {'; '.join(fact_sources(engine, name))} |"
            )
    return "\n".join([*parts, ""])


def _row(entry: dict[str, Any]) -> str:
    source = entry["source"] + (f", {entry['name']}" if "name" in entry else "")
    try:
        job = job_of(entry)
    except InputError as error:
        return f"| {source} | | refused | | | {error} |"
    told = msgspec.to_builtins(job.layout)
    layout = ", ".join(f"{key}={told[key]}" for key in FIELDS if told.get(key) not in {None, NEUTRAL.get(key)})
    world = "-" if job.world is None else f"{job.world:,}" + ("*" if "gpus" in entry else "")
    batch = f"{_or_dash(job.global_batch)} x {_or_dash(job.seq_len)}"
    said = [f"{name} {getattr(job, name)}" for name in HELD if getattr(job, name)]
    said += [f"{len(job.assumed)} assumed"] if job.assumed else []
    said += [f"ignored: {', '.join(text.partition(' ')[0].rstrip(':') for text in job.ignored)}"] if job.ignored else []
    said += [f"asks for {', '.join(job.asked)}"] if job.asked else []
    return f"| {source} | {world} | {layout} | {batch} | {job.precision} | {'; '.join(said)} |"


def _or_dash(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


if __name__ == "__main__":
    PAGE.write_text(page())
    FACTS.write_text(facts_page())
