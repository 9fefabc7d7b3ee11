"""The right losses of a job that went on with fewer ranks: those of a run of ours that did so at the same steps.

Fewer ranks sum in another order, under the layout that was planned for them, and what differs in the last bit grows
with the steps. So a disturbed run is held against an undisturbed one that begins with all ranks and goes on, from the
same checkpoints, on as many and under the same layouts.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults_manifest import NODES, RANKS_PER_NODE
from benchmarks.faults_play import NIC_BYTES_PER_S, WAS, disk, environment_of, no_sockets
from benchmarks.faults_systems import Ours
from meshwright.cluster.emulation import Emulation, EmulationSpec
from meshwright.train.run.events import Event, read_events
from meshwright.train.run.run_folder import RunFolder

ALL = NODES * RANKS_PER_NODE
PATIENCE_S = 400.0
Begin = Callable[[Emulation, Path], Ours]


class Part(NamedTuple):
    """Some steps of a run: from which on, on how many ranks, under which layout (of all ranks: "", the one given)."""

    step: int
    ranks: int
    layout: str = ""


def parts_of(events: list[Event]) -> tuple[Part, ...]:
    """Return the parts that a run's losses are made of at its end, from the events of its rank 0."""
    parts, ranks, layout = [Part(0, ALL)], ALL, ""
    for event in events:
        if event.kind == "replan":  # "2 ranks in place of 4: layout dp=2,mbs=6 in place of dp=4,mbs=3"
            ranks = int(event.message.split()[0])
            layout = event.message.partition(": layout ")[2].partition(" in place")[0] if ranks != ALL else ""
        elif event.kind == "resume" and event.step is not None:
            parts = [part for part in parts if part.step < event.step]
            if not parts or parts[-1][1:] != (ranks, layout):
                parts.append(Part(int(event.step), ranks, layout))
    return tuple(parts)


class Truth:
    """Runs that nothing happened to but that they went on with fewer ranks; each is made once."""

    def __init__(self, begin: Begin, place: Path) -> None:
        self._begin, self._place = begin, place
        self._made: dict[tuple[Part, ...], Path | None] = {}

    def losses(self, folder: Path) -> tuple[Mapping[int, float] | None, str]:
        """Return the losses that the run in a folder should have, and what that is; None where no run can tell.

        Without losses, and "", for a run on all ranks from its first step to its last.
        """
        parts = parts_of([event for event in read_events(folder / "events") if event.rank == 0])
        if parts == (Part(0, ALL),):
            return None, ""
        told = ", ".join(f"{part.ranks} ranks from step {part.step}" for part in parts)
        made = self._run(parts, folder)
        if made is None:
            return None, f"unknown: {told}"
        return {int(row["step"]): row["loss"] for row in RunFolder(made).metric_rows()}, told

    def _run(self, parts: tuple[Part, ...], like: Path) -> Path | None:
        """Return the folder of the run of these parts, all checkpoints kept; None where it cannot begin at its step."""
        if parts not in self._made:
            before = self._run(parts[:-1], like) if len(parts) > 1 else None
            self._made[parts] = None
            begins_there = before is not None and (before / "checkpoints" / f"step-{parts[-1].step:08d}").exists()
            if len(parts) == 1 or begins_there:
                self._made[parts] = self._played(parts[-1], before, like)
        return self._made[parts]

    def _played(self, part: Part, before: Path | None, like: Path) -> Path | None:
        place = self._place / f"truth-{len(self._made)}"
        place.mkdir()
        (place / "tmp").mkdir()
        spec = EmulationSpec(nodes=NODES, ranks_per_node=RANKS_PER_NODE, nic_bytes_per_s=NIC_BYTES_PER_S)
        with disk(place / "disk") as where, Emulation(spec) as cluster:
            system = self._begin(cluster, where)
            if before is not None:
                shutil.copy(before / "metrics.jsonl", system.path)
                for saved in (before / "checkpoints").glob("step-*"):
                    if int(saved.name.removeprefix("step-")) <= part.step:
                        shutil.copytree(saved, system.kept / saved.name)
            if part.ranks != ALL:  # the plan that it had then: it may have had all ranks again since
                kept = RunFolder(like).plans / str(part.ranks)
                for path in kept.iterdir() if kept.exists() else [like / "plan.json"]:
                    shutil.copy(path, system.path)
            command, environment = system.command(), environment_of(place)
            if part.ranks == ALL:
                job = system.start(cluster, environment)
            else:
                job = cluster.start_on(0, command, env=environment | system.links())
            try:
                codes = job.wait(timeout_s=PATIENCE_S)
            except TimeoutError:  # then no run can tell, and the row says so
                return None
            shutil.copytree(system.path, place / WAS, ignore=no_sockets)
        return place / WAS if 0 in codes else None
