"""The campaign's interface to a system: how to start it on all nodes, and how to read its run folder.

`Ours` is `meshwright train`. `Loop` is any other training loop, as a command that is run once on each node with
torchrun's variables. It gets a folder, writes a line a step to `steps` there (number, seconds, loss; rank 0 alone) and
its checkpoints to `step-NUMBER` beside it, and goes on from there when it is started again.
"""

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.faults_manifest import NODES, RANKS_PER_NODE, TIMEOUT_S, Scenario
from meshwright.backend.hosts.links import LINKS_VARIABLE
from meshwright.cluster.emulation import Emulation
from meshwright.cluster.emulation.session import StartedJob
from meshwright.train.checkpoint.folder import SET_ASIDE, checkpoints
from meshwright.train.run.events import Event, read_events
from testkit.fault_jobs import steps_done
from testkit.fault_nodes import train_command, write_on_nodes

STEPS, EVERY = 160, 20  # 40 at least follow the last fault
REJOIN_S, RESTARTS = 12.0, 10  # some partitions end before, some after
MODEL = {"hidden_size": 96, "intermediate_size": 256}
WIDTH = 256  # of the peer's model, whose steps then take about as long
OTHER_JOB = "another job has this run folder|this job has another launcher on this machine"
_ERRORS = re.compile(r"error|fail|lost|closed|reset|refused|timed out|dead|exitcode", re.IGNORECASE)
_SPEAKER = re.compile(r"^\s*\[rank\d+\]:")  # torch's prefix: which rank says it, and not of whom
_INFORMS = re.compile(r"\[(INFO|DEBUG)\]")  # a level below that of errors


class Named(NamedTuple):
    """Something that was said to be at fault: a rank or a node of it, a disk, a clock, a checkpoint, or the owner."""

    time_s: float  # of the wall clock; 0: unknown
    what: str
    said: str
    node: int | None = None
    rank: int | None = None
    by: int | None = None  # the node on which it was said


class System(Protocol):
    """One job, from its first start to its end, however often it is started."""

    name: str
    path: Path  # of its folder
    kept: Path  # in which its checkpoints lie

    def start(self, cluster: Emulation, environment: Mapping[str, str]) -> StartedJob:
        """Start it on all nodes, or start it again."""

    def command(self) -> list[str]:
        """Return what is run on a node."""

    def losses(self) -> dict[int, float]:
        """Return the loss of each step that is done, as it was computed last."""

    def rows(self) -> int:
        """Return how many steps are written down."""

    def pids(self) -> dict[int, int]:
        """Return the processes of ranks, as numbered in the namespaces of their nodes; empty: unknown."""

    def saved(self) -> list[Path]:
        """Return the checkpoints that are whole, the newest last."""

    def set_aside(self) -> int:
        """Return how many checkpoints it has found damaged."""

    def named(self, texts: list[tuple[int, str]], addresses: list[str]) -> list[Named]:
        """Return whom or what it named, from its folder and from what the nodes (number, text) have printed."""


class Ours:
    """`meshwright train` on two nodes."""

    name = "meshwright"

    def __init__(
        self,
        cluster: Emulation,
        place: Path,
        corpus: str,
        scenario: Scenario,
        links: Path | None,
        *,
        keep_last: int = 3,
    ) -> None:
        self.path = place / "run"
        launch: dict[str, object] = {
            **{"min_nodes": scenario.min_nodes, "timeout_s": TIMEOUT_S, "rejoin_s": REJOIN_S},
            "max_restarts": RESTARTS,
        }
        train: dict[str, object] = {
            "steps": STEPS,
            "checkpoint_every": EVERY,
            "on_storage_error": scenario.on_storage_error,
        }
        train |= {"keep_last": keep_last}
        self.folder = write_on_nodes(
            cluster, self.path, corpus, launch=launch, model=MODEL, validate_every=10**6, **train
        )
        self.kept = self.folder.checkpoints
        self._links = links
        self._clocks = {fault.node: fault.ahead_s for fault in scenario.faults if fault.kind == "clock"}

    def start(self, cluster: Emulation, environment: Mapping[str, str]) -> StartedJob:
        """Start it on all nodes, or start it again."""
        return cluster.start_nodes(self.command(), env={**environment, **self.links()})

    def links(self) -> dict[str, str]:
        """Return the variable that names the links of another run, in whose order of sums it goes."""
        return {LINKS_VARIABLE: str(self._links)} if self._links else {}

    def command(self) -> list[str]:
        """Return what is run on a node."""
        return train_command(self.path, self._clocks)

    def losses(self) -> dict[int, float]:
        """Return the loss of each step, as metrics.jsonl has it."""
        return {int(row["step"]): row["loss"] for row in self.folder.metric_rows()}

    def rows(self) -> int:
        """Return how many steps are written down."""
        return steps_done(self.folder)

    def pids(self) -> dict[int, int]:
        """Return the processes of the ranks."""
        found = {}
        for rank in range(NODES * RANKS_PER_NODE):
            try:
                found[rank] = int(json.loads((self.folder.ranks / f"{rank}.json").read_text())["pid"])
            except (OSError, ValueError):
                continue
        return found

    def saved(self) -> list[Path]:
        """Return the checkpoints that are whole, the newest last."""
        return sorted(checkpoints(self.kept))

    def set_aside(self) -> int:
        """Return how many checkpoints were found damaged."""
        return len(list(self.kept.glob(f"{SET_ASIDE}*"))) if self.kept.exists() else 0

    def named(self, texts: list[tuple[int, str]], addresses: list[str]) -> list[Named]:
        """Return what its events name, and what its last lines say of the disk."""
        found = [one for event in read_events(self.folder.events) for one in _of_event(event)]
        for node, text in texts:
            for line in text.splitlines():
                if line.startswith("meshwright: ") and re.search(r"No space|cannot save|No such file|removed", line):
                    found.append(Named(0.0, "disk", line[:200], by=node))
                lost = re.match(r"meshwright: ([\d.]+):\d+: lost the machine where all meet", line)
                if lost and lost[1] in addresses:
                    found.append(Named(0.0, "failure", line[:200], addresses.index(lost[1]), None, node))
                if re.search(OTHER_JOB, line):
                    found.append(Named(0.0, "owner", line[:200], by=node))
        return found


def _of_event(event: Event) -> list[Named]:
    by = event.rank // RANKS_PER_NODE if event.rank is not None else None
    host = re.fullmatch(r"node(\d+)", event.host)
    node = int(host[1]) if host else event.culprit // RANKS_PER_NODE if event.culprit is not None else None
    match event.kind:
        case "failure" | "slow_rank" if event.culprit is None and not event.host:
            return []
        case "failure" | "slow_rank" | "slow_link" | "corruption" | "not_finite":
            return [Named(event.time_s, event.kind, event.message[:200], node, event.culprit, by)]
        case "storage" if "damaged" in event.message:
            return [Named(event.time_s, "checkpoint", event.message[:200], by=by)]
        case "storage":
            return [Named(event.time_s, "disk", event.message[:200], by=by)]
        case "clock":
            return [Named(event.time_s, "clock", event.message[:200], node)]
    return []


class Loop:
    """A training loop of somebody else's."""

    def __init__(self, name: str, place: Path, command: str) -> None:
        self.name, self.path = name, place / "run"
        self.path.mkdir()
        self.kept = self.path
        words = {"folder": str(self.path), "steps": STEPS, "every": EVERY, "timeout": f"{TIMEOUT_S:g}"}
        self._command = shlex.split(command.format(**words))

    def start(self, cluster: Emulation, environment: Mapping[str, str]) -> StartedJob:
        """Start it on all nodes, or start it again."""
        return cluster.start_nodes(self._command, env=environment)

    def command(self) -> list[str]:
        """Return what is run on a node."""
        return self._command

    def losses(self) -> dict[int, float]:
        """Return the loss of each step, as it was computed last."""
        found = {}
        for line in self._lines():
            step, _, loss = line.split()
            found[int(step)] = float(loss)
        return found

    def rows(self) -> int:
        """Return how many steps are done."""
        lines = self._lines()
        return int(lines[-1].split()[0]) + 1 if lines else 0

    def pids(self) -> dict[int, int]:
        """Return nothing: its ranks are found by their variables."""
        return {}

    def saved(self) -> list[Path]:
        """Return the checkpoints that are whole, as DCP marks them; any file, where it is not DCP's."""
        found = sorted(self.path.glob("step-*"))
        return [path for path in found if path.is_file() or (path / ".metadata").exists()]

    def set_aside(self) -> int:
        """Return none: nobody asks it to look."""
        return 0

    def named(self, texts: list[tuple[int, str]], addresses: list[str]) -> list[Named]:
        """Return ranks and addresses of nodes that its errors name, and what they say of the disk."""
        found = []
        for by, text in texts:
            for whole in text.splitlines():
                line = _SPEAKER.sub("", whole).replace(sys.executable, "python")  # no path of this machine
                here = {int(number) for number in re.findall(r"\blocal_rank: (\d+)", line)}
                found += [Named(0.0, "failure", line[:200], by, None, by) for _ in here]
                if here or _INFORMS.search(line) or not _ERRORS.search(line):
                    continue
                ranks = {int(number) for number in re.findall(r"\brank\s*[:=]?\s*(\d+)\b", line, re.IGNORECASE)}
                nodes = {node for node, address in enumerate(addresses) if re.search(rf"\b{address}\b", line)}
                found += [Named(0.0, "failure", line[:200], None, rank, by) for rank in ranks]
                found += [Named(0.0, "failure", line[:200], node, None, by) for node in nodes - {by}]
                if "No space left" in line or "No such file" in line:
                    found.append(Named(0.0, "disk", line[:200], by=by))
        return found

    def _lines(self) -> list[str]:
        path = self.path / "steps"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith("\n") and len(line.split()) == 3]


def gloo_command() -> str:
    """Return DDP over Gloo with DCP under torchrun, as the campaign runs it."""
    return f"{shlex.quote(sys.executable)} -m torch.distributed.run --max-restarts={RESTARTS} {_loop('faults_peer.py')}"


def torchft_command() -> str:
    """Return replicas of torchft over Gloo with DCP, as the campaign runs them."""
    return f"{shlex.quote(sys.executable)} {_loop('faults_torchft.py')} {RANKS_PER_NODE} {RESTARTS}"


def _loop(file: str) -> str:
    """Return the program of a peer with what `Loop` fills in."""
    return f"{shlex.quote(str(Path(__file__).with_name(file)))} {{folder}} {{steps}} {{every}} {{timeout}} {WIDTH}"
