"""Every reader of files, with the good files that its cases are made of."""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.bench.reading import read_tables
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Measurements
from meshwright.cluster.wire import read_cluster
from meshwright.collectives.algorithms.uneven import read_counts
from meshwright.collectives.msccl.trip import round_trip
from meshwright.collectives.sources import read_schedule
from meshwright.files import read_struct
from meshwright.hardware import load_catalogue
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.layout import Plan
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.tables.runs import read_rows
from meshwright.postmortem.inputs import examine_files
from meshwright.timeline import Performance
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from meshwright.train.checkpoint.llama import read_config
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.data.corpus import vocabulary_size
from meshwright.train.job.config import load_job as load_config
from meshwright.train.job.config import read_whole_config
from meshwright.train.run.run_folder import RunFolder
from meshwright.workload.models import load_model
from tests.faults.hostile.formats import FORMATS
from tests.fuzz import kept, made
from tests.fuzz.kept import Seed
from tests.fuzz.texts import UNIT, literals

PUBLISHED = Path(__file__).parents[1] / "external" / "published"
COUNTS = [("counts.txt", b"# row i: what rank i sends\n0 3 1\n1,0,2\n4\t1\t0\n"), ("counts.json", b"[[0, 3], [1, 0]]")]
MOST_SEED_BYTES = 300_000  # larger files make slow cases that find no more


@dataclass(frozen=True)
class Reader:
    """One way into the program: `read` gets the path of a damaged file and returns what it made of it."""

    name: str
    seeds: Callable[[], Sequence[Seed]]
    read: Callable[[Path], Any]


def files(*patterns: str) -> Callable[[], Sequence[Seed]]:
    """Return the files of the tests that match."""

    def found() -> list[Seed]:
        paths = sorted({path for pattern in patterns for path in UNIT.glob(pattern) if path.is_file()})
        return [(p.name, p.read_bytes()) for p in paths if p.stat().st_size <= MOST_SEED_BYTES]

    return found


@functools.cache
def _made(name: str, folder: str) -> None:
    next(one for one in FORMATS if one.name == name).make(Path(folder))


def formats(folder: Path, *names: str) -> Callable[[], Sequence[Seed]]:
    """Return the good files that the tests of hostile formats make."""

    def found() -> list[Seed]:
        seeds = []
        for name in names:
            chosen = next(one for one in FORMATS if one.name == name)
            home = folder / name.replace(" ", "-")
            home.mkdir(exist_ok=True)
            _made(name, str(home))
            file = home / chosen.file
            seeds.append((file.name, file.read_bytes()))
        return seeds

    return found


def _run_file(folder: Path, name: str) -> Callable[[], Sequence[Seed]]:
    """Return a file of a run folder that the format "plan" makes."""

    def found() -> list[Seed]:
        formats(folder, "plan")()
        return [(name, (folder / "plan" / "run" / name).read_bytes())]

    return found


def _timeline(path: Path) -> Any:
    (path.parent / "timeline.json").write_bytes(path.read_bytes())
    return RunFolder(path.parent).timeline("measured")


def _metrics(path: Path) -> Any:
    (path.parent / "metrics.jsonl").write_bytes(path.read_bytes())
    return RunFolder(path.parent).metric_rows()


def _runs() -> list[Seed]:
    lines = (PUBLISHED / "training_runs.csv").read_bytes().splitlines(keepends=True)
    return [("runs.csv", b"".join([lines[0], *lines[at : at + 5]])) for at in range(1, len(lines) - 5, 40)]


def _summary(path: Path) -> Any:
    ranks = read_traces([path])
    return summarized(ranks)


def _job(path: Path) -> Any:
    return read_job([str(path)], JobOptions(gpus=64))


def _log(path: Path) -> Any:
    return examine_files([path])


def readers(folder: Path) -> tuple[Reader, ...]:
    """Return all readers; seeds that must be made first are made in `folder`."""
    catalogue = load_catalogue()
    rows = [("metrics.jsonl", b"".join(json.dumps({"step": s, "loss": 2.0}).encode() + b"\n" for s in range(5)))]
    model = b"[config]\nvocab_size = 97\nhidden_size = 32\nintermediate_size = 40\nnum_hidden_layers = 2\n"
    return (
        Reader("cluster", _run_file(folder, "cluster.json"), read_cluster),
        Reader("dump", files("cluster/data/**/*"), lambda path: load_dump(path, catalogue)),
        Reader("schedule", formats(folder, "schedule"), read_schedule),
        Reader("msccl", files("collectives/msccl/*.xml"), read_schedule),
        Reader("plan", _run_file(folder, "plan.json"), lambda path: read_struct(path, Plan)),
        Reader("performance", _run_file(folder, "predicted.json"), lambda path: read_struct(path, Performance)),
        Reader("timeline", _run_file(folder, "predicted_timeline.json"), _timeline),
        Reader("measurements", kept.measurements, lambda path: read_struct(path, Measurements)),
        Reader("metrics", lambda: rows, _metrics),
        Reader("config", formats(folder, "config"), lambda path: load_config(path, {})),
        Reader("hardware", formats(folder, "catalogue"), lambda path: load_catalogue(path)),
        Reader("model", formats(folder, "model"), lambda path: load_model(str(path))),
        Reader("model toml", lambda: [("model.toml", model)], lambda path: load_model(str(path))),
        Reader("hugging face", formats(folder, "hugging face"), read_config),
        Reader("tokenizer", formats(folder, "tokenizer"), lambda path: vocabulary_size(str(path))),
        Reader("manifest", formats(folder, "manifest"), lambda path: read_manifest(path.parent)),
        Reader("bench", files("bench/tables/**/*"), lambda path: read_tables(str(path))),
        Reader(
            "runs", _runs, lambda path: read_rows(path, catalogue, book(), {}),
        ),
        Reader("job", files("jobs/cases/*"), _job),
        Reader("trace", files("traces/data/**/*.json", "traces/data/**/*.gz", "traces/data/steps/*"), _summary),
        Reader("postmortem", files("postmortem/cases/**/*"), _log),
        Reader("cluster toml", kept.clusters, read_cluster),
        Reader("model config", files("workload/configs/cases/*.json"), lambda path: load_model(str(path))),
        Reader("mscclpp", kept.execution_plans, read_schedule),
        Reader("kept measurements", kept.kept_measurements, kept.read_kept),
        Reader("own calibration", kept.calibrations(PUBLISHED / "training_runs.csv"), kept.read_own),
        Reader("events", kept.events, kept.read_run_events),
        Reader("loads", kept.loads, kept.read_loads),
        Reader("dump texts", literals("cluster/test_*.py", lines=3), lambda path: load_dump(path, catalogue)),
        Reader("dump of two", made.dumps, lambda path: load_dump(path, catalogue)),
        Reader("bench texts", literals("bench/test_*.py", lines=3), lambda path: read_tables(str(path))),
        Reader("job texts", literals("jobs/test_*.py", lines=2), _job),
        Reader("log texts", literals("postmortem/*.py", lines=1), _log),
        Reader("logs", made.logs, _log),
        Reader("other traces", made.traces, _summary),
        Reader("msccl trip", files("collectives/msccl/*.xml"), round_trip),
        Reader("counts", lambda: COUNTS, read_counts),
        Reader("foreign weights", made.foreign_weights, made.read_foreign_weights),
        Reader("job of plan", made.run_files("plan.json"), made.read_job_of_plan),
        Reader("whole config", made.run_files("config.toml"), read_whole_config),
        Reader("run files", made.run_files(*made.READ_BY_RUN), made.read_run_file),
        Reader("lock", made.run_files("lock.json"), made.read_lock),
        Reader("links", made.run_files("links.json"), made.read_links),
        Reader("servers", made.run_files("0.json"), made.read_servers),
        Reader("tokens", made.tokens, made.read_kept_tokens),
        Reader(
            "shard",
            kept.shards(formats(folder, "manifest"), folder / "manifest"),
            kept.verified(folder / "manifest"),
        ),
    )  # fmt: skip
