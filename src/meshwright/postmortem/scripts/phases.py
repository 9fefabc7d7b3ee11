"""Heartbeats of ranks that tell the step and the phase in which each is: who is not in the one where the others wait.

A monitor writes them as a table in CSV with a column for each, as `phase=` beside `rank=`, or as JSON, line by line.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ...units import shortened
from ..nouns.facts import Busy, Fact, Succeeded, TrainingEnded, of
from ..nouns.identities import RankPhase
from ..nouns.position import HangPosition
from ..nouns.world import MOST_RANKS, ranks_of_job
from ..text.lines import LogMessage
from .rank_timers import FOR_DATA, WAITS

_RANKS = {"rank", "global_rank", "world_rank", "rank_id"}
_PHASES = ("phase", "stage", "state", "activity", "section", "region")
_STEPS = ("step", "iteration", "iter", "global_step")
_HELD = re.compile(
    r"(?:(?:secs?|seconds|time|duration|elapsed|age|for|ms)_?(?:in_)?(?:phase|stage|state)?|(?:in|since|phase|stage|state)"
    r"_?(?:in_)?(?:secs?|seconds|time|duration|age|for)?)_?(?P<unit>s|ms|secs?|seconds)?"
)
DATA = re.compile(rf"^(?!.*(?:param|train|forward|backward)).*?(?:{FOR_DATA}|batch|fetch|tokeni[sz])", re.IGNORECASE)
_OF_HOST = re.compile(
    r"(?:^|[_ .-])(?:save|saving|checkpoint\w*|ckpt\w*|logging|eval\w*|write|writing|upload\w*|compil\w*|init\w*"
    r"|sleep\w*)(?:[_ .-]|$)",
    re.IGNORECASE,
)
_PAIR = re.compile(r"(?<![\w.])\"?(?P<name>[A-Za-z]\w{0,30})\"?(?:=|: ?)\"?(?P<value>[\w.:/+-]{1,60})\"?")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_HANGS_S = 60.0  # in one phase of one step
_ROWS = 5  # heartbeats in one phase of one step, where none tells a time
_LEAST = 3  # ranks
_LONGEST = 400  # characters of a line


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the last phase of each rank of one file, and what keeps a rank that stays in one of its own."""
    told: dict[int, list[RankPhase]] = defaultdict(list)
    columns: list[str] = []
    for message in messages:
        text = message.where.text
        if len(text) > _LONGEST:
            continue
        if "rank" in text and "," in text and (head := _columns(text)):
            columns = head
            continue
        row = _row(text, columns)
        if row and (one := _phase(row, message)):
            told[one.rank].append(one)
    for phases in told.values():
        last = _with_its_length(phases)
        yield last
        kind = _kind(last.phase)
        if kind != "absent" and last.held_s >= _HANGS_S:
            yield Busy(rank=last.rank, what=_told(last), kind="data" if kind == "data" else "host", where=last.where)


def _columns(text: str) -> list[str]:
    """Return the columns of the head of a table that has a rank's phase, [] where a line is none."""
    names = [cell.strip(" \"'").lower().replace(" ", "_") for cell in text.split(",")]
    is_head = len(_RANKS & set(names)) == 1 and len(set(names) & set(_PHASES)) == 1
    return names if is_head and len(set(names)) == len(names) else []


def _row(text: str, columns: Sequence[str]) -> Mapping[str, str]:
    """Return the cells of a row by their columns, or the values that a line names."""
    if columns and text.count(",") == len(columns) - 1:
        return dict(zip(columns, (cell.strip(" \"'") for cell in text.split(",")), strict=True))
    if "rank" in text and any(phase in text for phase in _PHASES):
        return {pair["name"].lower(): pair["value"] for pair in _PAIR.finditer(text)}
    return {}


def _phase(row: Mapping[str, str], message: LogMessage) -> RankPhase | None:
    rank = next((row[name] for name in row if name in _RANKS), "")
    phase = next((row[name] for name in _PHASES if name in row), "")
    step = next((row[name] for name in _STEPS if name in row), "")
    if not rank.isdecimal() or not phase or phase.isdecimal() or int(rank[:9]) >= MOST_RANKS:
        return None
    return RankPhase(
        rank=int(rank),
        phase=phase,
        step=int(step) if step.isdecimal() and len(step) < 10 else None,
        held_s=_held_s(row),
        where=message.where.by(int(rank)),
    )


def _held_s(row: Mapping[str, str]) -> float:
    """Return the seconds that a row says that a rank is in its phase, 0 where it says none."""
    for name, value in row.items():
        told = _HELD.fullmatch(name) if name not in _PHASES else None
        if told and _NUMBER.fullmatch(value.removesuffix("s")):
            return float(value.removesuffix("s")) * (1e-3 if name.endswith("ms") or name.startswith("ms") else 1.0)
    return 0.0


def _with_its_length(phases: Sequence[RankPhase]) -> RankPhase:
    """Return the last heartbeat of a rank with how long all those of its step and phase tell that it is in it."""
    last = phases[-1]
    own = [last]
    for one in reversed(phases[:-1]):
        if (one.step, one.phase) != (last.step, last.phase):
            break
        own.append(one)
    times_s = [at_s for one in own if (at_s := one.where.time_s) is not None]
    between_s = max(times_s) - min(times_s) if times_s else 0.0
    many_s = _HANGS_S if not times_s and len(own) >= _ROWS else 0.0
    return RankPhase(
        rank=last.rank,
        phase=last.phase,
        step=last.step,
        held_s=max(last.held_s, between_s, many_s),
        where=last.where,
    )


def _kind(phase: str) -> str:
    """Return what a phase of a rank's own is: data, host, or (where it computes) absent from the others' call."""
    if WAITS.search(phase):
        return "absent"
    return "data" if DATA.search(phase) else "host" if _OF_HOST.search(phase) else "absent"


def _told(one: RankPhase) -> str:
    step = f" of step {one.step}" if one.step is not None else ""
    return f"the phase {one.phase}{step} of rank {one.rank} ({one.held_s:.0f} s)"


def by_phases(facts: list[Fact]) -> HangPosition | None:
    """Return the few ranks that stay in a phase of their own while all others wait for others in one; None for none.

    The others are all in one phase of one step, that is a collective by its name, and each is in it for a minute.
    """
    last = {one.rank: one for one in of(facts, RankPhase)}
    waits = {rank: one for rank, one in last.items() if WAITS.search(one.phase)}
    apart = sorted(last.keys() - waits.keys())
    if len(last) < _LEAST or not apart or len(apart) >= len(waits):
        return None
    if len({(one.step, one.phase) for one in waits.values()}) != 1 or any(o.held_s < _HANGS_S for o in last.values()):
        return None
    call = next(iter(waits.values()))
    if any((last[rank].step or 0) > (call.step or 0) for rank in apart):
        return None  # who is a step ahead is not waited for
    if any(isinstance(fact, TrainingEnded | Succeeded) for fact in facts):
        return None
    certain = set(last) >= set(range(ranks_of_job(facts)))
    told = "; ".join(f"rank {rank} stays in {last[rank].phase}" for rank in apart)
    step = f" of step {call.step}" if call.step is not None else ""
    lacks = ("the heartbeats of all ranks of the job",)
    return HangPosition(
        kind="absent",
        blamed=tuple(apart) if certain else (),
        waiting=tuple(sorted(waits)),
        why=f"{told}{step}; ranks {shortened(sorted(waits))} wait in {call.phase} for {call.held_s:.0f} s",
        certain=certain,
        evidence=tuple(last[rank].where for rank in [*apart, *sorted(waits)]),
        missing=() if certain else lacks,
    )
