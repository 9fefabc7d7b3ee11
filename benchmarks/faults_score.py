"""The score of a scenario: what was lost, whether the losses are right, and whether those were named who were at fault.

Of the faults that end a life of the job, the first to bite in each life must be named; the others of that life may be.
A fault that is shorter than the timeout must change nothing and need not be named; nor must strangers.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.faults_acts import FIRST_ENDED, Done
from benchmarks.faults_manifest import ENDING, TIMEOUT_S, Scenario
from benchmarks.faults_play import Played
from benchmarks.faults_systems import EVERY, OTHER_JOB, Named

LATE_S = TIMEOUT_S + 30  # after a fault was mended, it may still be what is told of
SLOW_STEPS = 25  # under a slow link, until it must have been named
WRONG = 1e-5  # a loss that is further off, relatively, is wrong; ranks that are fewer sum in another order


def score(
    name: str, scenario: Scenario, played: Played, right: Played, *, truth: Mapping[int, float] | None, told: str
) -> dict[str, Any]:
    """Return what came of a scenario, as one row.

    `truth` are the right losses where those of the undisturbed run are not, and `told` says why they are not.
    """
    losses = right.losses if truth is None else truth
    off = _furthest(played.losses, losses)
    due = [done for done in played.truth if _is_due(done, played)]
    missed = [done for done in due if not _is_told(done, played, scenario)]
    wrong = [named for named in played.named if not any(_is_right(named, done, scenario) for done in played.truth)]
    complete = played.is_complete
    return {
        "seed": scenario.seed,
        "system": name,
        "scenario": str(scenario),
        "truth": [_truth(done) for done in played.truth],
        "complete": complete,
        "starts": len(played.codes),
        "exit codes": [list(codes) for codes in played.codes],
        "hangs": played.hangs,
        "bit-identical": complete and played.losses == losses,
        "held against": told or "undisturbed",
        "losses off": None if math.isinf(off) else off,
        "losses wrong": bool(played.losses) and off > WRONG,
        "lost more than it had to": _lost_more(played),
        "named": len(played.named),
        "named wrongly": [f"{one.what} node{one.node} rank {one.rank} by node{one.by}: {one.said}" for one in wrong],
        "due": len(due),
        "missed": [str(done.fault) for done in missed],
        "second": [[code, re.sub(r"/\S*/run\b", "RUN", text)] for code, text in played.second],
        "orphans": played.orphans,
        "leftovers": played.leftovers,
        "time ratio": round(right.took_s / played.took_s, 3) if complete else 0.0,
        "seconds": round(played.took_s, 1) if complete else None,
    }


def _furthest(found: dict[int, float], right: dict[int, float]) -> float:
    """Return how far a loss is off, relatively, at worst; infinite where nothing was done."""
    return max((abs(found[step] - right[step]) / abs(right[step]) for step in found if step in right), default=math.inf)


def _lost_more(played: Played) -> bool:
    """Return whether a life went on from before the newest checkpoint that was whole then."""
    return any(saved - step > 1 for step, saved in played.resumed)


def _bites_s(done: Done) -> float:
    return done.begun_s + (TIMEOUT_S if done.fault.kind in {"freeze", "partition"} else 0.0)


def _is_due(done: Done, played: Played) -> bool:
    """Return whether a fault had an effect that must be told."""
    kind = done.fault.kind
    if not done.begun_s:
        return False
    if kind == "clock":
        return True
    if kind in ENDING:
        same = [
            other
            for other in played.truth
            if other.fault.kind in ENDING and other.begun_s and played.life(other.begun_s) == played.life(done.begun_s)
        ]
        storage = any(one.what == "disk" and 0 < one.time_s < _bites_s(done) for one in played.named)
        ended = any(end_s > done.begun_s for end_s in played.ends_s[:-1])
        return done.whole and ended and not storage and min(same, key=_bites_s) is done
    if kind == "slow":
        return done.whole and _steps_of_one_life(done, played) >= SLOW_STEPS
    if kind in {"full", "gone"}:
        return done.whole and _steps_of_one_life(done, played) > EVERY
    if kind == "damage":
        return any(end_s > done.begun_s for end_s in played.ends_s[:-1]) and _was_newest(done, played)
    return kind == "second" and done.note != FIRST_ENDED


def _steps_of_one_life(done: Done, played: Played) -> int:
    """Return how many steps went on under a fault until it was mended or the life ended."""
    until_s = min([done.ended_s or math.inf, *(end_s for end_s in played.ends_s if end_s > done.begun_s)])
    rows = [rows for time_s, rows in played.rows if done.begun_s <= time_s <= until_s]
    return rows[-1] - rows[0] if rows else 0


def _was_newest(done: Done, played: Played) -> bool:
    """Return whether the checkpoint that was damaged was still the newest when the next life began."""
    following = [end_s for end_s in played.ends_s if end_s > done.begun_s]
    rows = [rows for time_s, rows in played.rows if done.begun_s <= time_s <= following[0]]
    return bool(rows) and max(rows[:-1], default=rows[0]) < int(done.note.removeprefix("step-")) + EVERY


def _is_told(done: Done, played: Played, scenario: Scenario) -> bool:
    if done.fault.kind == "damage":
        return played.set_aside > 0 or any("damaged" in text for _, text in played.texts)
    if done.fault.kind == "second":
        return all(code not in {None, 0} and re.search(OTHER_JOB, text) for code, text in played.second)
    return any(_is_right(named, done, scenario) for named in played.named)


def _is_right(named: Named, done: Done, scenario: Scenario) -> bool:
    """Return whether what was named is what a fault concerned, in its time."""
    fault, kind = done.fault, done.fault.kind
    if not done.begun_s or not _in_time(named, done, scenario):
        return False
    across = named.node is not None and named.by is not None and named.node != named.by
    is_rank = named.rank is not None and named.rank == fault.rank
    on_node = named.node == done.node
    match named.what:
        case "failure":
            if kind in {"kill", "freeze", "oom"}:
                return is_rank or (named.rank is None and on_node)
            if kind == "partition":
                return across or on_node
            if kind in {"full", "gone"}:
                return scenario.on_storage_error == "end"
            return kind == "launcher" and (on_node or named.node is None)
        case "slow_rank":
            return is_rank or (kind in {"strangers", "second", "launcher"} and on_node)
        case "slow_link":
            return kind in {"slow", "cut", "partition", "strangers"}
        case "checkpoint":
            return kind == "damage"
        case "disk":
            return kind in {"full", "gone"}
        case "clock":
            return kind == "clock" and on_node
        case "owner":
            return kind == "second"
    return False


def _in_time(named: Named, done: Done, scenario: Scenario) -> bool:
    ahead = {fault.node: fault.ahead_s for fault in scenario.faults if fault.kind == "clock"}
    if not named.time_s or (named.by is None and ahead) or done.fault.kind == "clock":
        return True
    time_s = named.time_s - (ahead.get(named.by, 0) if named.by is not None else 0)
    return done.begun_s - 1 <= time_s <= (done.ended_s or math.inf) + LATE_S


def _truth(done: Done) -> str:
    if not done.begun_s:
        return f"{done.fault}: not done, {done.note or 'the job had ended'}"
    when = f"at step {done.step}, for {done.ended_s - done.begun_s:.1f} s" if done.ended_s else f"at step {done.step}"
    return f"{done.fault}: {when}{f', {done.note}' if done.note else ''}"
