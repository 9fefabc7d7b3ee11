"""Faults for long: a job that is killed and paused at random, and the memory of one that lives on."""

import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.faults_rig import RANKS, Rig, Row
from meshwright.train.run.run_folder import RunFolder
from testkit.fault_jobs import Job, kill, pid_of, steps_done

FAULT_EVERY = 500  # steps between faults, on average
LIFE, PAUSE_EVERY = 2, 4  # times the steps of the soak that the job lives which is only paused; times as rarely
PAUSE_S = 2.0
WARM_UP_STEPS = 1000  # of a process, before its memory is compared: caches of torch and of the allocator fill
LOOK_S = 0.5
LEAST_LOOKS = 9  # at a process, for its end to be compared with its beginning


class Look(NamedTuple):
    """What one process held at one time."""

    time_s: float
    steps: int
    resident_bytes: int
    descriptors: int


Lives = dict[int, list[Look]]  # by the process
Fault = Callable[[RunFolder, int], None]  # what is done to a rank of a run


def soak(place: Path, rng: random.Random, steps: int) -> list[Row]:
    """Kill and pause ranks about every 500 steps; then watch the memory of a job of twice the steps, paused alone."""
    rig = Rig(place)
    return [_soak(rig, rng, steps), _life(rig, rng, LIFE * steps)]


def _soak(rig: Rig, rng: random.Random, steps: int) -> Row:
    folder, job = rig.begin("soak", steps=steps, checkpoint_every=100, record=True)
    done, lives = _watched(folder, job, rng, _instants(rng, steps, FAULT_EVERY), (_kill, _pause))
    code, _ = job.end()
    steady = [life for life in map(_settled, lives.values()) if len(life) >= LEAST_LOOKS]
    return {
        "fault": "a random fault about every 500 steps",
        "system": "meshwright",
        "times": sum(done.values()),
        "killed": done["_kill"],
        "paused": done["_pause"],
        "steps": steps_done(folder),
        "ended normally": code == 0,
        f"processes seen after {WARM_UP_STEPS} steps": len(steady),
        "of these with other descriptors at their end": sum(_descriptors_differ(life) for life in steady),
    }


def _life(rig: Rig, rng: random.Random, steps: int) -> Row:
    folder, job = rig.begin("life", steps=steps, checkpoint_every=100, record=True)
    done, lives = _watched(folder, job, rng, _instants(rng, steps, PAUSE_EVERY * FAULT_EVERY), (_pause,))
    code, _ = job.end()
    steady = [_settled(life) for life in lives.values()]
    seen_s = max(life[-1].time_s - life[0].time_s for life in steady)
    return {
        "fault": "paused now and then, for long",
        "system": "meshwright",
        "times": done["_pause"],
        "steps": steps_done(folder),
        "ended normally": code == 0,
        "processes": len(lives),
        f"memory MiB per hour of each, after {WARM_UP_STEPS} steps": [
            round(_growth_per_s(life) * 3600 / 2**20, 2) for life in steady
        ],
        "seen for minutes": round(seen_s / 60, 1),
        "with other descriptors at their end": sum(_descriptors_differ(life) for life in steady),
    }


def _instants(rng: random.Random, steps: int, every: int) -> list[int]:
    """Return steps at which something happens, `every` apart on average, none near the end."""
    found, at = [], rng.randrange(every // 2, every * 3 // 2)
    while at < steps - every // 2:
        found.append(at)
        at += rng.randrange(every // 2, every * 3 // 2)
    return found


def _kill(folder: RunFolder, rank: int) -> None:
    kill(folder, rank)


def _pause(folder: RunFolder, rank: int) -> None:
    kill(folder, rank, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    kill(folder, rank, signal.SIGCONT)


def _watched(
    folder: RunFolder, job: Job, rng: random.Random, instants: list[int], faults: Sequence[Fault]
) -> tuple[dict[str, int], Lives]:
    """Do the faults at their steps; return how often each was done, and what every process held over its life."""
    done = {fault.__name__: 0 for fault in faults}
    lives: Lives = {}
    begun: dict[int, int] = {}
    coming = list(instants)
    while job.process.poll() is None:
        steps = steps_done(folder)
        if coming and steps >= coming[0]:
            coming.pop(0)
            fault = rng.choice(faults)
            fault(folder, rng.randrange(RANKS))
            done[fault.__name__] += 1
        for pid in _processes(folder, job):
            try:
                process = psutil.Process(pid)
                look = (process.memory_info().rss, process.num_fds())
            except psutil.Error:  # it has just ended
                continue
            lives.setdefault(pid, []).append(
                Look(time.monotonic(), steps - begun.setdefault(pid, steps), look[0], look[1])
            )
        time.sleep(LOOK_S)
    return done, lives


def _processes(folder: RunFolder, job: Job) -> list[int]:
    """Return the launcher and the ranks that are there."""
    there = [rank for rank in range(RANKS) if (folder.ranks / f"{rank}.json").exists()]
    return [job.process.pid, *(pid_of(folder, rank) for rank in there)]


def _settled(life: list[Look]) -> list[Look]:
    """Return what was seen after the warm-up."""
    return [look for look in life if look.steps >= WARM_UP_STEPS]


def _descriptors_differ(life: list[Look]) -> bool:
    """Return whether a process mostly held another number at its end; a save opens some for a moment, an end closes."""
    third = max(len(life) // 3, 1)
    first, last = (statistics.mode(look.descriptors for look in part) for part in (life[:third], life[-third:]))
    return first != last


def _growth_per_s(life: list[Look]) -> float:
    """Return the median slope of the lines through all pairs (Theil and Sen): a jump is no growth."""
    pairs = ((one, other) for i, one in enumerate(life) for other in life[i + 1 :: 3])
    return statistics.median(
        (other.resident_bytes - one.resident_bytes) / (other.time_s - one.time_s) for one, other in pairs
    )
