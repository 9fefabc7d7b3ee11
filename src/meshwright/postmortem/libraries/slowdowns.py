"""Steps of a whole job that take longer from some step to the end of its log, by what its lines say of each step."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from ..nouns.facts import Fact, of
from ..nouns.paces import Paced, SlowedJob
from ..nouns.position import HangPosition
from ..surroundings.outlived import STEP
from ..text.lines import LogMessage

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
    re.compile(r"\b(?:step|iter(?:ation)?|batch)_m?s(?:ec)?[\"' ]{0,2}[=: ] *(\d+(?:\.\d+)?)"),
    re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?(?:m?s|sec|seconds)/(?:it|iter|step|batch)\b"),
    re.compile(r"\b(?:dt|time)[ =:]{1,2}(\d+(?:\.\d+)?) ?m?s\b"),
)
_RATES = (
    re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?(?:it|iters?|steps?|batch(?:es)?)/s(?:ec)?\b"),
    re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) ?[kKM]? ?(?:tok(?:en)?s?|samples?|images?)/s(?:ec)?\b"),
    re.compile(r"\b(?:tok(?:en)?s?|samples?)[_ ]?(?:per|/)[_ ]?s\w*[\"' ]{0,2}[=:] *(\d[\d,]*(?:\.\d+)?)"),
    re.compile(r"\b(?:tps|mfu)[ =:]{1,2}(\d[\d,]*(?:\.\d+)?)", re.IGNORECASE),
)
_TOTAL = re.compile(r"\btotal[ =:]{1,2}(\d+(?:\.\d+)?) ?m?s\b")  # of parts, by which ranks are held against each other
_OF_PARTS = len(_DURATIONS) + len(_RATES)
_DIGITS = re.compile(r"\d+")
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


def read(messages: Sequence[LogMessage]) -> Iterator[SlowedJob | Paced]:
    """Yield that the steps of one log last longer from some step to its end, of equal work; or how long even ones last.

    By what its lines say of each step; of lines that say nothing, by the clock between those of one form.
    """
    series: dict[tuple[int | None, int | None, int], list[_Step]] = defaultdict(list)
    clocks: dict[tuple[object, ...], list[tuple[float, int, LogMessage]]] = defaultdict(list)
    for message in messages:
        text = message.text[:600]
        if message.is_of_library or not (step := STEP.search(text)):
            continue
        source = message.rank, message.where.attempt
        duration, form = _duration(text)
        if duration is not None:
            work = {name.lower(): size for name, size in _WORK.findall(text)}
            series[message.rank, message.where.attempt, form].append(_Step(duration, work, message))
        elif message.where.time_s is not None:
            number = int(step["number"] or step["done"])
            clocks[*source, _DIGITS.sub("#", text[: step.end()])].append((message.where.time_s, number, message))
    for (rank, _, form), steps in series.items():
        yield from _slower(steps, _LONGER) if form != _OF_PARTS else ()
        yield from _even(steps, rank, form)
    for lines in () if series else clocks.values():
        steps = [
            _Step((at_s - before_s) / (number - earlier), {}, message)
            for (before_s, earlier, _), (at_s, number, message) in pairwise(lines)
            if number > earlier
        ]
        yield from _slower(steps, _GAPS_LONGER)


def _duration(text: str) -> tuple[float | None, int]:
    """Return how long a step takes by its line, in any unit, and which of the forms says it; None for none."""
    for form, pattern in enumerate((*_DURATIONS, *_RATES, _TOTAL)):
        if (found := pattern.search(text)) and (value := float(found[1].replace(",", ""))) > 0:
            return 1 / value if len(_DURATIONS) <= form < _OF_PARTS else value, form
    return None, 0


def _slower(steps: Sequence[_Step], longer: float) -> Iterator[SlowedJob]:
    begun = _rise([step.duration for step in steps], longer)
    if begun and steps[0].work == steps[-1].work:
        first, since = steps[:begun], steps[begun:]
        ratio = median(step.duration for step in since) / median(step.duration for step in first)
        yield SlowedJob(ratio=ratio, before=first[-1].message.where, where=since[0].message.where)


def _even(steps: Sequence[_Step], rank: int | None, form: int) -> Iterator[Paced]:
    """Yield how long a step lasts where there are several, all of about one length but the first ones."""
    last = steps[len(steps) // 3 :]
    usual = median(step.duration for step in last)
    if len(last) >= _BEFORE + _SINCE and all(usual < _STEADY * step.duration < _STEADY**2 * usual for step in last):
        work = tuple(sorted(last[-1].work.items()))
        yield Paced(rank=rank, step=usual, form=form, work=work, where=last[-1].message.where)


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
    """Return that the job became slower, by its own lines; None where it did not."""
    found = of(facts, SlowedJob)
    if not found:
        return None
    ratio = max(one.ratio for one in found)
    return HangPosition(
        kind="slow",
        why=f"steps take {ratio:.1f} times longer from some step to the end of the log, and nothing tells whose",
        certain=False,
        evidence=tuple(dict.fromkeys(where for one in found for where in (one.before, one.where))),
        missing=("times of each rank: Megatron's --log-straggler, NVRx, traces of all ranks, clocks (nvidia-smi -q)",),
    )
