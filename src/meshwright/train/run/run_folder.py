"""The run folder: which file is where, and how each is read and written."""

import contextlib
import errno
import json
import math
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from ...cluster.graph import Cluster, Pace
from ...cluster.wire import read_cluster
from ...errors import InputError
from ...files import convert, parse_json, read_struct, read_text, write_atomic, write_struct
from ...layout import Plan
from ...machine_load import Load
from ...quantities import Bytes, BytesPerSecond, Instant, Number, ProcessId, Rank, Seconds
from ...timeline import STEP_PARTS, Performance, Timeline, chrome_trace, parse_chrome_trace
from ...units import format_bytes
from ..job.config import JobConfig, read_whole_config, to_toml
from .run_lock import LOCK
from .secret import SECRET, secret_in

PLAN_FILES = ("cluster.json", "predicted.json", "predicted_timeline.json", "plan.json")  # of one plan
_MAY_END = {"loss", "validation_loss", "grad_norm"}  # as figures of a run that diverged: NaN or infinite


class RankPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a rank runs."""

    rank: Rank
    host: str
    pid: ProcessId
    network_bytes_per_s: BytesPerSecond | None = None  # of all NICs of its host, in a job of several hosts
    switches: tuple[str, ...] = ()  # above its host, the highest first, where the mesh is laid out by them


class RankParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of each part of the median step of a rank, as `timeline.step_parts` names them."""

    rank: Rank
    parts: dict[str, Seconds]
    steps: tuple[Number, ...] | None = None  # of the measured timeline that the parts are of; None: not known

    def __post_init__(self) -> None:
        if self.parts.keys() != STEP_PARTS:
            raise ValueError(f"parts: expected {', '.join(sorted(STEP_PARTS))}")


class FirstStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a run was first started, and by which command line."""

    time_s: Instant  # since 1970
    command: list[str]


class RunFolder:
    """Paths and contents of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.saved = path / "saved"  # the step that was saved last: without a checkpoint it shows that there was one
        self.ranks = path / "ranks"
        self.events = path / "events"  # failures, restarts, stragglers: a file a rank
        self.servers = path / "servers"  # of asynchronous modes: where they listen
        self.flight = path / "flight"  # the last collectives of a rank that waits or gave up
        self.links = path / "links"  # between hosts, as the job's groups measured them when it began
        self.tensorboard = path / "tensorboard"
        self.plans = path / "plans"  # for other numbers of ranks, which the run had before: a folder for each number
        self.report = path / "report.html"

    def create(self, config: JobConfig, cluster: Cluster, plan: Plan, timeline: Timeline, corpus_listing: str) -> None:
        """Write what is known before the first step; InputError if the folder cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.checkpoints.mkdir(exist_ok=True)
            self.ranks.mkdir(exist_ok=True)
            self.events.mkdir(exist_ok=True)
            write_atomic(self.path / "corpus.txt", os.fsencode(corpus_listing))
            self.write_plan(cluster, plan, timeline)
            write_struct(self.path / "start.json", FirstStart(time.time(), _command()))
            self.write_config(config)
        except OSError as error:
            raise InputError(f"{self.path}: cannot write the run folder: {error.strerror or error}") from None

    def write_plan(self, cluster: Cluster, plan: Plan, timeline: Timeline) -> None:
        """Write a plan with its cluster and its predicted timeline."""
        write_struct(self.path / "cluster.json", cluster)
        write_struct(self.path / "plan.json", plan)
        write_struct(self.path / "predicted.json", plan.predicted)
        self._write_trace("predicted_timeline.json", timeline)

    def keep_plan(self) -> None:
        """Keep the plan for when the run has that number of ranks again; OSError if the disk refuses."""
        kept = self.plans / str(self.plan().layout.world_size)
        kept.mkdir(parents=True, exist_ok=True)
        for name in PLAN_FILES:
            write_atomic(kept / name, read_text(self.path / name).encode())

    def kept_plan(self, ranks: int) -> Plan | None:
        """Return the plan for a number of ranks that was kept, None where there is none that can be read."""
        kept = self.plans / str(ranks)
        with contextlib.suppress(InputError):
            read_cluster(kept / "cluster.json")
            plan = read_struct(kept / "plan.json", Plan)
            if plan.layout.world_size == ranks and all((kept / name).is_file() for name in PLAN_FILES):
                return plan
        return None

    def plans_of_the_run(self) -> list[Plan]:
        """Return the plan, then the kept plans of other numbers of ranks."""
        kept = [self.kept_plan(int(path.name)) for path in self.plans.glob("*") if path.name.isdecimal()]
        return [self.plan(), *(plan for plan in kept if plan is not None)]

    def forget_plans(self) -> None:
        """Drop the plans that were kept: they are of a layout that is no longer asked for."""
        shutil.rmtree(self.plans, ignore_errors=True)

    def take_up_plan(self, ranks: int) -> None:
        """Put the plan for a number of ranks that was kept in the place of the plan."""
        for name in PLAN_FILES:
            write_atomic(self.path / name, read_text(self.plans / str(ranks) / name).encode())

    def secret(self) -> bytes:
        """Return random bytes that all machines of this run know and no other user does (`secret_in`)."""
        return secret_in(self.path)

    def forget_secret(self) -> None:
        """Leave nothing of a run that was refused before it began; a folder that holds one keeps its secret."""
        if not self.holds_a_run():
            with contextlib.suppress(OSError):  # it was never written, or something else is in the folder
                (self.path / SECRET).unlink()
                self.path.rmdir()

    def holds_a_run(self) -> bool:
        """Return whether a run was started here."""
        return (self.path / "config.toml").exists()

    def holds_measured(self) -> bool:
        """Return whether the ranks have handed in what they measured: not where one died after the last step."""
        return (self.path / "measured.json").exists()

    def write_measured(self, measured: Performance, timeline: Timeline) -> None:
        """Write what was measured; timeline.json is a Chrome trace."""
        write_struct(self.path / "measured.json", measured)
        self._write_trace("timeline.json", timeline)

    def timeline(self, source: Literal["measured", "predicted"]) -> Timeline:
        """Return the measured or the predicted timeline; both are Chrome traces."""
        path = self.path / ("timeline.json" if source == "measured" else "predicted_timeline.json")
        try:
            return parse_chrome_trace(parse_json(read_text(path), where=str(path)))
        except ValueError as error:
            raise InputError(f"{path}: {error}") from None

    def write_rank(self, rank: int, network_bytes_per_s: float | None = None, switches: tuple[str, ...] = ()) -> None:
        """Write where a rank runs, for tools that look at a running job, and what its host's network can."""
        place = RankPlace(rank, socket.gethostname(), os.getpid(), network_bytes_per_s, switches)
        write_struct(self.ranks / f"{rank}.json", place)

    def write_rank_memory(self, peak_memory_bytes: list[int]) -> None:
        """Write the peak memory of every rank, in the order of the ranks."""
        write_atomic(self.path / "rank_memory.json", json.dumps(peak_memory_bytes).encode())

    def rank_memory(self) -> dict[int, int]:
        """Return the peak memory of every rank in bytes; empty for a run that did not write it."""
        path = self.path / "rank_memory.json"
        return dict(enumerate(read_struct(path, list[Bytes]))) if path.exists() else {}

    def write_rank_parts(self, parts: list[RankParts]) -> None:
        """Write what a step took on every rank, of which `measured.json` is made."""
        write_atomic(self.path / "rank_parts.json", msgspec.json.encode(parts))

    def rank_parts(self) -> dict[int, dict[str, float]]:
        """Return the seconds of each part of a step on every rank; empty for a run that did not write them."""
        return {each.rank: each.parts for each in self._rank_parts()}

    def steps_of_parts(self) -> frozenset[int] | None:
        """Return the steps of the measured timeline that the parts of all ranks are of; None where not known."""
        said = [each.steps for each in self._rank_parts()]
        if not said or None in said:
            return None
        return frozenset.intersection(*(frozenset(steps or ()) for steps in said))

    def _rank_parts(self) -> list[RankParts]:
        path = self.path / "rank_parts.json"
        return read_struct(path, list[RankParts]) if path.exists() else []

    def write_loads(self, loads: list[Load]) -> None:
        """Write the load of the processors while the steps ran, as each rank counted it."""
        write_atomic(self.path / "load.json", msgspec.json.encode(loads))

    def loads(self) -> list[Load]:
        """Return the load of the processors; empty for a run that did not write it."""
        path = self.path / "load.json"
        return read_struct(path, list[Load]) if path.exists() else []

    def write_pace(self, pace: Pace) -> None:
        """Write how fast rank 0's machine was at the end of the run."""
        write_atomic(self.path / "pace.json", msgspec.json.encode(pace))

    def pace(self) -> Pace | None:
        """Return how fast rank 0's machine was at the end of the run, None for a run that did not look."""
        path = self.path / "pace.json"
        return read_struct(path, Pace) if path.exists() else None

    def start(self) -> FirstStart | None:
        """Return when and how the run was first started, None for a run that did not write it."""
        path = self.path / "start.json"
        return read_struct(path, FirstStart) if path.exists() else None

    def hosts(self) -> dict[int, str]:
        """Return the host that each rank ran on."""
        return {place.rank: place.host for place in self._places()}

    def switches(self) -> dict[str, tuple[str, ...]]:
        """Return the switches above each host by which the mesh was laid out, the highest first."""
        return {place.host: place.switches for place in self._places() if place.switches}

    def networks(self) -> dict[str, float]:
        """Return what the network of each host can carry in one direction, where its ranks have read it."""
        return {place.host: place.network_bytes_per_s for place in self._places() if place.network_bytes_per_s}

    def _places(self) -> list[RankPlace]:
        places = [read_struct(path, RankPlace) for path in self.ranks.glob("*.json")]
        return sorted(places, key=lambda place: place.rank)

    def config(self) -> JobConfig:
        """Return the resolved configuration of the run; what an older version did not write has its default."""
        return read_struct(self.path / "config.toml", JobConfig)

    def write_config(self, config: JobConfig) -> None:
        """Write the job, every key of it."""
        write_atomic(self.path / "config.toml", to_toml(config).encode())

    def check_end(self, config: JobConfig) -> None:
        """Raise InputError where a step beyond the job's last was saved."""
        text = read_text(self.saved).strip() if self.saved.exists() else ""
        step = int(text) if text.isascii() and text.isdigit() else 0  # whatever else is told when it is resumed
        if step > config.train.steps:
            raise InputError(
                f"--steps {config.train.steps}: {self.checkpoints} holds step {step} already; expected {step} or more"
            )

    def whole_config(self) -> JobConfig:
        """Return the same to train by; InputError where a part of it is missing, since a default is another job."""
        return read_whole_config(self.path / "config.toml")

    def plan(self) -> Plan:
        """Return the plan of the run."""
        return read_struct(self.path / "plan.json", Plan)

    def cluster(self) -> Cluster:
        """Return the cluster that the plan was made for."""
        return read_cluster(self.path / "cluster.json")

    def measured(self) -> Performance:
        """Return what was measured."""
        return read_struct(self.path / "measured.json", Performance)

    def metric_rows(self) -> list[dict[str, float]]:
        """Return the numbers of each row of metrics.jsonl; a last line that was cut off by a crash is left out."""
        rows = [row for _, row in self._metric_lines()]
        return [{name: value for name, value in row.items() if not isinstance(value, list)} for row in rows]

    def _metric_lines(self) -> list[tuple[str, dict[str, float | list[int]]]]:
        """Return each whole line with the row that it holds; asynchronous runs list the ranks that were in."""
        if not self.metrics.exists():
            return []
        rows = []
        for number, line in enumerate(read_text(self.metrics).splitlines(keepends=True), start=1):
            where = f"{self.metrics}:{number}"
            if line.endswith("\n"):
                try:
                    row = convert(json.loads(line), dict[str, float | list[int]], where=where)  # a loss may be NaN
                except (ValueError, RecursionError) as error:
                    raise InputError(f"{where}: {error}") from None
                step = row.get("step")
                if not isinstance(step, int | float) or not 0 <= step < 2**53 or step != int(step):
                    raise InputError(f"{where}: step: expected a whole number, 0 or more, got {str(step)[:40]}")
                endless = [name for name, value in row.items() if name not in _MAY_END and not _is_finite(value)]
                if endless:
                    raise InputError(f"{where}: {endless[0]}: expected a finite number")
                rows.append((line, row))
        return rows

    def keep_metrics_before(self, step: int) -> int:
        """Drop rows of `step` and later, which a resumed run writes again; return how many earlier steps have none."""
        kept = {line: row["step"] for line, row in self._metric_lines() if cast(float, row["step"]) < step}
        write_atomic(self.metrics, "".join(kept).encode())
        return step - len({cast(float, each) for each in kept.values()})

    def _write_trace(self, name: str, timeline: Timeline) -> None:
        write_atomic(self.path / name, json.dumps(chrome_trace(timeline)).encode())


def _is_finite(value: float | list[int]) -> bool:
    return isinstance(value, list) or math.isfinite(value)


def is_of_a_run(files: Sequence[str]) -> bool:
    """Return whether a folder with these files is that of a run, or of one that is being planned."""
    seen = {name for name in files if not name.startswith(".")}
    return seen >= {"config.toml", "plan.json"} or (LOCK in seen and seen <= {LOCK, SECRET})


def newest_run(folder: Path) -> Path | None:
    """Return the run in a folder of runs that was started last; None where there is none."""
    begun = [path / "config.toml" for path in folder.iterdir() if (path / "config.toml").is_file()]
    return max(begun, key=lambda path: path.stat().st_mtime).parent if begun else None


def how_to_go_on(problem: str, path: Path) -> str:
    """Return what to do about a run that could not write: room is lacking only where the system says so."""
    full = any(os.strerror(number) in problem for number in (errno.ENOSPC, errno.EDQUOT))
    return f"{problem}; {'make room and ' if full else ''}go on with --resume {path}"


def check_writable(path: Path, needed_bytes: int) -> None:
    """Raise InputError unless a new run folder of about `needed_bytes` can be made at `path`; makes nothing."""
    if (path / "config.toml").exists():
        raise InputError(f"--run-dir {path}: holds a run already; --resume {path} goes on with it")
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if path.is_symlink() and existing != path:
        raise InputError(f"--run-dir {path}: is a link to {os.readlink(path)}, where nothing is")
    if not existing.is_dir():
        raise InputError(f"--run-dir {path}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"--run-dir {path}: {existing} is not writable")
    if os.statvfs(existing).f_flag & os.ST_RDONLY:
        raise InputError(f"--run-dir {path}: {existing} is on a read-only file system")
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise InputError(
            f"--run-dir {path}: {format_bytes(free_bytes)} are free in {existing}, the run writes about "
            f"{format_bytes(needed_bytes)}; make room, or write fewer checkpoints (train.checkpoint_every)"
        )


def _command() -> list[str]:
    """Return the command line of this process as one would type it: programs by their names."""
    program, *rest = sys.orig_argv
    if rest and not rest[0].startswith("-"):  # a script, which a person types without its interpreter
        program, *rest = rest
    return [Path(program).name, *rest]
