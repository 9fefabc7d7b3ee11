"""Faults of machines and cables, in an emulated cluster of three nodes with real training on them."""

import contextlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults_rig import ENVIRONMENT, PATIENCE_S, PEER_PATIENCE_S, Row, outcome, until
from meshwright.cluster.emulation import Emulation, EmulationSpec
from meshwright.train.run.run_folder import RunFolder
from testkit.fault_jobs import events, steps_done
from testkit.fault_nodes import start_on_nodes
from testkit.train_jobs import write_corpus

NODES, VICTIM = 3, 2  # node0 holds the rendezvous
STEPS, EVERY, AT = 150, 25, 60
TIMEOUT_S = 10.0
NIC_BYTES_PER_S, SLOWED = 25e6, "20Mbps"  # a tenth
SLOW_WITHIN = 20
OUTAGE_S = 5.0


class Nodes:
    """A job on every node of an emulated cluster."""

    def __init__(
        self, cluster: Emulation, place: Path, corpus: str, *, min_nodes: int, steps: int, links: Path | None
    ) -> None:
        self.cluster = cluster
        self.folder, self.job = start_on_nodes(
            cluster,
            place,
            corpus,
            launch={"min_nodes": min_nodes, "timeout_s": TIMEOUT_S},
            model={"hidden_size": 96, "intermediate_size": 256},
            links=links,
            steps=steps,
            checkpoint_every=EVERY,
            validate_every=10**6,
        )

    def reach(self, step: int) -> None:
        """Wait until a step is done; RuntimeError if a node has ended before."""
        until(lambda: steps_done(self.folder) > step or any(code is not None for code in self.job.codes()))
        if steps_done(self.folder) <= step:
            raise RuntimeError(f"{self.job.codes()}: {[self.job.stderr(node)[-2000:] for node in range(NODES)]}")

    def ended(self, nodes: list[int], patience_s: float = PATIENCE_S) -> list[int | None]:
        """Wait for these nodes to end and return their exit codes; None for one that does not."""
        with contextlib.suppress(TimeoutError):
            until(lambda: all(self.job.codes()[node] is not None for node in nodes), patience_s)
        return [self.job.codes()[node] for node in nodes]


@contextlib.contextmanager
def _running(
    place: Path,
    corpus: str,
    name: str,
    *,
    min_nodes: int = NODES,
    steps: int = STEPS,
    topology: Any = "star",
    links: Path | None = None,
) -> Iterator[Nodes]:
    spec = EmulationSpec(nodes=NODES, ranks_per_node=1, nic_bytes_per_s=NIC_BYTES_PER_S, topology=topology)
    with Emulation(spec) as cluster:
        yield Nodes(cluster, place / name, corpus, min_nodes=min_nodes, steps=steps, links=links)


def outage(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Take a cable out and put it back.

    A job keeps the links by which it chooses in what order to sum. All runs take those of one before them, as runs that
    are resumed would.
    """
    corpus = write_corpus(place)
    with _running(place, corpus, "first", steps=AT) as first:
        first.ended(list(range(NODES)))
        links = first.folder.links
    with _running(place, corpus, "whole", links=links) as whole:
        codes = whole.ended(list(range(NODES)))
        if codes != [0] * NODES:
            raise RuntimeError(f"the undisturbed run failed: {codes}: {whole.job.stderr(0)[-3000:]}")
        right = outcome(whole.folder)
    return [_outage(place, corpus, right, links, number) for number in range(count)]


def nodes(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Take cables out and machines away for good, and slow one."""
    corpus = write_corpus(place)
    rows: list[Row] = []
    for _ in range(count):
        rows += [
            _gone(place, corpus, "NIC down for good, 2 of 3 are enough", f"cut node{VICTIM}", min_nodes=2),
            _gone(place, corpus, "NIC down for good, all are needed", f"cut node{VICTIM}", min_nodes=NODES),
            _gone(place, corpus, "node killed, 2 of 3 are enough", f"kill node{VICTIM}", min_nodes=2),
            _peer_gone(place, "NIC down for good, 2 of 3 are enough", f"cut node{VICTIM}"),
            _peer_gone(place, "node killed, 2 of 3 are enough", f"kill node{VICTIM}"),
            _slowed(place, corpus),
        ]
    return rows


def _outage(place: Path, corpus: str, right: Any, links: Path, number: int) -> Row:
    with _running(place, corpus, f"outage-{number}", links=links) as run:
        run.reach(AT)
        run.cluster.fault(f"cut node{VICTIM}")
        time.sleep(OUTAGE_S)
        run.cluster.fault(f"restore node{VICTIM}")
        codes = run.ended(list(range(NODES)))
        return {
            "fault": f"NIC down for {OUTAGE_S:g} s",
            "system": "meshwright",
            "times": 1,
            "nobody blamed": not events(run.folder, "failure"),
            "ended normally": codes == [0] * NODES,
            "bit-identical": outcome(run.folder) == right,
        }


def _gone(place: Path, corpus: str, fault: str, command: str, *, min_nodes: int) -> Row:
    with _running(place, corpus, f"{command.replace(' ', '-')}-{min_nodes}", min_nodes=min_nodes) as run:
        run.reach(AT)
        fault_s = time.time()
        run.cluster.fault(command)
        left = [node for node in range(NODES) if node != VICTIM]
        codes = run.ended(left)
        ended_s = time.time() - fault_s
        others = [e for e in events(run.folder, "failure") if e.attempt == 0 and e.rank != VICTIM]
        took_s = [event.time_s - fault_s for event in others if event.culprit == VICTIM]
        row: Row = {
            "fault": fault,
            "system": "meshwright",
            "times": 1,
            "named by survivors": f"{len({e.rank for e in others if e.culprit == VICTIM})} of {len(left)}",
            "others blamed": sum(event.culprit != VICTIM for event in others),
            "named after s": f"{max(took_s):.2f} (timeout {TIMEOUT_S:g})" if took_s else None,
            "exit codes": codes,
            "ended after s": round(ended_s, 1),
            "steps": steps_done(run.folder),
        }
        if command.startswith("cut"):
            row["exit code of the node cut off"] = run.ended([VICTIM])[0]
        return row


def _peer_gone(place: Path, fault: str, command: str) -> Row:
    folder = place / f"peer-{command.replace(' ', '-')}"
    folder.mkdir()
    spec = EmulationSpec(nodes=NODES, ranks_per_node=1, nic_bytes_per_s=NIC_BYTES_PER_S)
    with Emulation(spec) as cluster:
        program = [str(Path(__file__).with_name("faults_peer.py")), str(folder), str(STEPS), str(EVERY), str(TIMEOUT_S)]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2:3", "--max-restarts=3"]
        job = cluster.start_nodes([*torchrun, *program], env=ENVIRONMENT)
        steps = folder / "steps"
        until(lambda: steps.exists() and len(steps.read_text().splitlines()) > AT, PATIENCE_S)
        fault_s = time.time()
        cluster.fault(command)
        left = [node for node in range(NODES) if node != VICTIM]
        with contextlib.suppress(TimeoutError):
            until(lambda: all(job.codes()[node] is not None for node in left), PEER_PATIENCE_S)
        said = [json.loads(path.read_text()) for path in folder.glob("said-*.json")]
        return {
            "fault": fault,
            "system": "Gloo + DCP",
            "times": 1,
            "errors": len(said),
            "naming the rank": sum(f"rank {VICTIM}" in event["message"].lower() for event in said),
            "an error after s": round(min(e["time_s"] for e in said) - fault_s, 2) if said else None,
            "exit codes": [job.codes()[node] for node in left],
        }


def _slowed(place: Path, corpus: str) -> Row:
    with _running(place, corpus, "slowed") as run:
        run.reach(AT)
        at = steps_done(run.folder)
        run.cluster.fault(f"slow node{VICTIM} {SLOWED}")
        run.ended(list(range(NODES)))
        named_at = [event.step for event in _links(run.folder) if event.step >= at and _is_of_victim(event)]
        return {
            "fault": "NIC at 10 %",
            "system": "meshwright",
            "times": 1,
            "named after steps": min(named_at) - at if named_at else None,
            "to be named within": SLOW_WITHIN,
        } | _alarms(run.folder, lambda step: step >= at)


def healthy(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Do nothing to a run of `count` steps, and count the alarms."""
    with _running(place, write_corpus(place), "healthy", steps=count) as run:
        codes = run.ended(list(range(NODES)), patience_s=count)
        return [
            {
                "fault": "none: a healthy run",
                "system": "meshwright",
                "times": steps_done(run.folder),
                "ended normally": codes == [0] * NODES,
            }
            | _alarms(run.folder, lambda step: True)
        ]


def _links(folder: RunFolder) -> list[Any]:
    return list(events(folder, "slow_link"))


def _is_of_victim(event: Any) -> bool:
    return VICTIM in (event.rank, event.culprit)


def _alarms(folder: RunFolder, counts: Callable[[int], bool]) -> Row:
    links = [event for event in _links(folder) if counts(event.step)]
    ranks = [event for event in events(folder, "slow_rank") if counts(event.step)]
    wrong = [event for event in links if not _is_of_victim(event)]
    return {"links named": len(links), "of these not of the slow node": len(wrong), "ranks named": len(ranks)}
