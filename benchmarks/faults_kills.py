"""Faults of ranks: SIGKILL at random instants, SIGSTOP below and past the timeout."""

import random
import shutil
import signal
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults_rig import EVERY, PATIENCE_S, RANKS, STEPS, Peer, Rig, Row, outcome, until
from meshwright.train.checkpoint.folder import latest_checkpoint
from meshwright.train.run.run_folder import RunFolder
from testkit.fault_jobs import Job, events, kill, steps_done

KILLS_OF_A_RUN = 10
RUN_STEPS = 400  # of a run that is killed so often
STOP_S, TIMEOUT_S = 5.0, 10.0


def kills(place: Path, rng: random.Random, count: int) -> list[Row]:
    """SIGKILL a random rank at random instants, of our jobs and of the peer's."""
    return [_kills(Rig(place), rng, count), _peer_kills(place, rng, min(count, 8))]


class Death(NamedTuple):
    """One SIGKILL: the steps done and saved before it, and how long each survivor took to name the rank."""

    done: int
    saved: int
    named_s: list[float]


def _kills(rig: Rig, rng: random.Random, count: int) -> Row:
    right = rig.undisturbed(RUN_STEPS)
    deaths: list[Death] = []
    lost: list[int] = []
    equal = kept = 0
    while len(deaths) < count:
        todo = min(KILLS_OF_A_RUN, count - len(deaths))
        folder, job = rig.begin(f"kills-{len(deaths)}", steps=RUN_STEPS)
        some: list[Death] = []
        for at in sorted(rng.sample(range(2, RUN_STEPS - 20), todo)):
            some.append(_kill(folder, job, rng, at, attempt=len(some)))
        code, _ = job.end(timeout_s=PATIENCE_S)
        equal += todo * (code == 0 and outcome(folder) == right)
        resumed = {event.attempt: event.step or 0 for event in events(folder, "resume")}
        lost += [death.done - resumed.get(attempt + 1, 0) for attempt, death in enumerate(some)]
        kept += sum(resumed.get(attempt + 1, 0) >= death.saved for attempt, death in enumerate(some))
        deaths += some
        shutil.rmtree(folder.path)
    named_s = [took_s for death in deaths for took_s in death.named_s]
    return {
        "fault": "SIGKILL of a rank",
        "system": "meshwright",
        "times": count,
        "named by every survivor": sum(len(death.named_s) == RANKS - 1 for death in deaths),
        "median_s": round(statistics.median(named_s), 3),
        "worst_s": round(max(named_s), 3),
        "in runs that ended bit-identical": equal,
        "resumed from the last checkpoint that was whole": kept,
        "most steps lost": max(lost),
        "steps between checkpoints": EVERY,
    }


def _kill(folder: RunFolder, job: Job, rng: random.Random, at: int, *, attempt: int) -> Death:
    """Kill a random rank at a random instant after a step, in the life of a job that has died `attempt` times."""
    job.wait_until(lambda: len(_ready(folder)) > attempt and steps_done(folder) > at, PATIENCE_S)
    time.sleep(rng.random() * 0.05)  # anywhere in a step
    rank, done = rng.randrange(RANKS), steps_done(folder)
    newest = latest_checkpoint(folder.checkpoints)
    saved = int(newest.name.removeprefix("step-")) if newest else 0
    killed_s = kill(folder, rank)
    job.wait_until(lambda: len(events(folder, "restart")) > attempt, PATIENCE_S)
    found = [e for e in events(folder, "failure") if (e.culprit, e.attempt) == (rank, attempt)]
    return Death(done, saved, [event.time_s - killed_s for event in found])


def _ready(folder: RunFolder) -> list[float]:
    """Return when each attempt went on: the first, and those after a death, once all ranks are under way again."""
    deaths = [event.time_s for event in events(folder, "restart")]
    written_s = min((folder.ranks / f"{rank}.json").stat().st_mtime for rank in range(RANKS)) if _begun(folder) else 0.0
    return [0.0, *(died_s for died_s in deaths if written_s > died_s)]


def _begun(folder: RunFolder) -> bool:
    return len(list(folder.ranks.glob("*.json"))) == RANKS


def _peer_kills(place: Path, rng: random.Random, count: int) -> Row:
    took_s, named, resumed, hung = [], 0, 0, 0
    for number in range(count):
        peer = Peer(place / f"peer-{number}")
        at, rank = rng.randrange(2, STEPS - 20), rng.randrange(RANKS)
        until(lambda peer=peer, at=at: peer.steps_done() > at)  # type: ignore[misc]
        killed_s = peer.signal(rank, signal.SIGKILL)
        code = peer.ended()
        resumed, hung = resumed + (code == 0), hung + (code is None)
        took_s += [event["time_s"] - killed_s for event in peer.said()]
        named += any(f"rank {rank}" in event["message"].lower() for event in peer.said())
    return {
        "fault": "SIGKILL of a rank",
        "system": "Gloo + DCP",
        "times": count,
        "named": named,
        "median_s of an error": round(statistics.median(took_s), 3) if took_s else None,
        "resumed": resumed,
        "hung": hung,
    }


def pauses(place: Path, rng: random.Random, count: int) -> list[Row]:
    """SIGSTOP a rank for less than the timeout, and for good."""
    rig = Rig(place)
    right = rig.undisturbed()
    equal = quiet = named = resumed = 0
    late_s: list[float] = []
    for number in range(count):
        folder, job = rig.begin(f"short-{number}", timeout_s=TIMEOUT_S)
        _stop(folder, job, rank := rng.randrange(RANKS))
        time.sleep(STOP_S)
        kill(folder, rank, signal.SIGCONT)
        code, _ = job.end(timeout_s=PATIENCE_S)
        equal += code == 0 and outcome(folder) == right
        quiet += not events(folder, "failure")
    for number in range(count):
        folder, job = rig.begin(f"long-{number}", timeout_s=TIMEOUT_S)
        stopped_s = _stop(folder, job, rank := rng.randrange(RANKS))
        code, _ = job.end(timeout_s=PATIENCE_S)
        found = [event for event in events(folder, "failure") if event.culprit == rank and event.attempt == 0]
        late_s += [event.time_s - stopped_s for event in found]
        named += len(found) == RANKS - 1
        resumed += code == 0 and outcome(folder) == right
    return [
        {
            "fault": f"SIGSTOP for {STOP_S:g} s of {TIMEOUT_S:g} s",
            "system": "meshwright",
            "times": count,
            "bit-identical": equal,
            "nobody blamed": quiet,
        },
        {
            "fault": "SIGSTOP for good",
            "system": "meshwright",
            "times": count,
            "named by every survivor": named,
            "latest after the timeout_s": round(max(late_s) - TIMEOUT_S, 3) if late_s else None,
            "resumed bit-identical": resumed,
        },
        _peer_pause(place, rng, count),
    ]


def _stop(folder: RunFolder, job: Job, rank: int) -> float:
    """Stop a rank in the middle of a run; return the wall clock before that."""
    job.wait_until(lambda: steps_done(folder) > STEPS // 4, PATIENCE_S)
    return kill(folder, rank, signal.SIGSTOP)


def _peer_pause(place: Path, rng: random.Random, count: int) -> Row:
    late_s, named, resumed, hung = [], 0, 0, 0
    for number in range(count):
        peer = Peer(place / f"peer-pause-{number}", timeout_s=TIMEOUT_S)
        until(lambda peer=peer: peer.steps_done() > STEPS // 4)  # type: ignore[misc]
        rank = rng.randrange(RANKS)
        stopped_s = peer.signal(rank, signal.SIGSTOP)
        code = peer.ended()
        resumed, hung = resumed + (code == 0), hung + (code is None)
        late_s += [event["time_s"] - stopped_s - TIMEOUT_S for event in peer.said()]
        named += any(f"rank {rank}" in event["message"].lower() for event in peer.said())
    return {
        "fault": "SIGSTOP for good",
        "system": "Gloo + DCP",
        "times": count,
        "named": named,
        "latest after the timeout_s": round(max(late_s), 3) if late_s else None,
        "resumed": resumed,
        "hung": hung,
    }
