"""Steps of a whole job that take longer from some step to the end of its log, by what its lines say of each step."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from .facts import Fact, SlowedJob, Stepped, of
from .lines import LogMessage
from .outlived import STEP
from .position import HangPosition

_LONGER = 1.5  # each step at the end than is usual before
_STEADY = 1.25  # most steps before, than is usual
_BEFORE, _SINCE = 3, 4  # steps or reports that show the one and the other
_FIRST = 8  # that show what is usual
_MOSTLY = 0.8  # of the steps before that must be steady
_GAPS_LONGER = 2.0  # of the clock between steps, which an evaluation or a checkpoint stretches, too
_IS = r"[\"' ]{0,2}[=:][\"' ]*"
_DURATIONS = (  # in any unit, that of one log; the first that a line has counts
    re.compile(
        r"\b(?:train_)?step[_ ]?tim(?:e|ing)\w*(?: in m?s)?[\"' ]{0,2}[=:][\"' ]*(\d+(?:\.\d+)?)", re.IGNORECASE
    ),
    re.compile(r"\belapsed time per iteration \(m?s\): (\d+(?:\.\d+)?)"),
    re.compile(
        r"\b(?:iter(?:ation)?|batch|time)[_ ](?:time|per[_ ](?:step|iter\w*|batch))\w*[\"' ]{0,2}[=:] *(\d+(?:\.\d+)?)"
    ),
    re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?(?:m?s|sec|seconds)/(?:it|iter|step|batch)\b"),
    re.compile(r"\b(?:dt|time)[ =:]{1,2}(\d+(?:\.\d+)?) ?m?s\b"),
)
_RATES = (
    re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?(?:it|iters?|steps?|batch(?:es)?)/s(?:ec)?\b"),
    re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) ?[kKM]? ?(?:tok(?:en)?s?|samples?|images?)/s(?:ec)?\b"),
    re.compile(
        r"\b(?:tok(?:en)?s?|samples?)[_ ]?(?:per|/)[_ ]?s(?:ec(?:ond)?)?\w*[\"' ]{0,2}[=:] *(\d[\d,]*(?:\.\d+)?)"
    ),
    re.compile(r"\b(?:tps|mfu)[ =:]{1,2}(\d[\d,]*(?:\.\d+)?)", re.IGNORECASE),
)
_WORK = re.compile(  # how much a step does
    r"\b((?:global[ _]|micro[ _])?batch[ _]?size|seq(?:uence)?[ _]?len(?:gth)?|num[ _]micro\w*|world[ _]size)"
    rf"{_IS}(\d+)",
    re.IGNORECASE,
)


class _Step(msgspec.Struct, frozen=True):
    """One step or report, by a line: what it takes, and how much it does, by name."""

    duration: float
    work: dict[str, str]
    message: LogMessage


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield that the steps of one log last longer from some step to its end, of equal work."""
    series: dict[tuple[int | None, int | None, int], list[_Step]] = {}
    for message in messages:
        text = message.text[:600]
        if not STEP.search(text):
            continue
        for index, pattern in enumerate((*_DURATIONS, *_RATES)):
            if found := pattern.search(text):
                value = float(found[1].replace(",", ""))
                if value > 0:
                    duration = value if index < len(_DURATIONS) else 1 / value
                    work = {name.lower(): size for name, size in _WORK.findall(text)}
                    key = message.rank, message.where.attempt, index
                    series.setdefault(key, []).append(_Step(duration, work, message))
                break
    for steps in series.values():
        if (begun := _rise([step.duration for step in steps], _LONGER)) and steps[0].work == steps[-1].work:
            first, since = steps[:begun], steps[begun:]
            ratio = median(step.duration for step in since) / median(step.duration for step in first)
            yield SlowedJob(ratio=ratio, before=first[-1].message.where, where=since[0].message.where)


def _rise(durations: Sequence[float], longer: float) -> int:
    """Return the place of the first of the steps that last so much longer to the end, 0 where there are none."""
    first = durations[: min(_FIRST, max(_BEFORE, len(durations) // 3))]
    if len(durations) < _BEFORE + _SINCE or (usual := median(first)) <= 0:
        return 0
    begun = max((at for at, one in enumerate(durations) if one < longer * usual), default=-1) + 1
    steady = sum(duration < _STEADY * usual for duration in durations[:begun])
    if begun < _BEFORE or len(durations) - begun < _SINCE or steady < _MOSTLY * begun:
        return 0
    return begun


def by_slowdown(facts: list[Fact]) -> HangPosition | None:
    """Return that the job became slower, by what its lines say of each step, else by their clock; None where not."""
    found = of(facts, SlowedJob)
    lines = [where for one in found for where in (one.before, one.where)]
    ratio = max((one.ratio for one in found), default=0.0)
    for log in of(facts, Stepped) if not found else ():
        gaps_s = [(later - earlier) for earlier, later in pairwise(log.times_s)]
        if begun := _rise(gaps_s, _GAPS_LONGER):
            ratio, lines = median(gaps_s[begun:]) / (median(gaps_s[:begun]) or 1.0), [log.where]
    if not lines:
        return None
    return HangPosition(
        kind="slow",
        why=f"steps take {ratio:.1f} times longer from some step to the end of the log, and nothing tells whose",
        certain=False,
        evidence=tuple(dict.fromkeys(lines)),
        missing=("times of each rank: Megatron's --log-straggler, NVRx, traces of all ranks, clocks (nvidia-smi -q)",),
    )
