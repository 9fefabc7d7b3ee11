"""Times of each rank that jobs print in words of their own: whose own work is longer while the others wait for it.

A report has a section for each timer with a row for each rank, a line for each rank with its timers, or a table; a
dashboard exports them as CSV (`timer_reports`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ...units import format_time, ranks_in_words
from ..libraries.stragglers import FEW
from ..libraries.timers import LONGER, MAINLY, SHARE, TITLE
from ..nouns.facts import SlowRank, StepTimes
from ..nouns.paces import DataLate, RanksAlike
from ..nouns.where import Where
from ..text.lines import LogMessage
from .timer_reports import NO_TIME, Report, has_units, of_exports, own_steps

_SECTION = re.compile(r"^\s*(?:\[[\w .-]+\] ?)?(?P<name>[A-Za-z][\w ./-]{1,40}?)(?: \(m?s\))?:\s*$")
_ROW = re.compile(
    r"^\s*(?:global[_ ])?rank[ =:#]{0,2}(?P<rank>\d{1,6})\s*[:=|]\s*(?P<value>\d+(?:\.\d+)?)"
    r" ?(?P<unit>m?s|us|sec)?\s*$",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"^\s*(?:global[_ ])?rank[ =:#]{0,3}(?P<rank>\d{1,6})[ :|]+(?P<first>\d+(?:\.\d+)?)(?: ?ms)? */"
    r" *(?P<second>\d+(?:\.\d+)?)(?: ?ms)?\s*$",
    re.IGNORECASE,
)
_STATISTICS = re.compile(r"^\s*(?:Min|Max|Avg|Mean|Median|Std|Slowdown)\b", re.IGNORECASE)
_RANK = re.compile(
    r"(?<![\w-])(?<!local )(?<!node )(?:global[_ ])?ran[kg][ =:#]{0,2}(?P<rank>\d{1,6})\b", re.IGNORECASE
)
_STEP = re.compile(r"\b(?:step|étape|iter(?:ation)?|it)[ =:#]{1,3}(?P<step>\d{1,9})\b", re.IGNORECASE)
_PART = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z][\w./-]*?)(?:\((?:(?P<in>m?s)|[A-Za-z][\w+/, -]{0,30})\))? ?[=:] ?"
    r"(?P<value>\d+(?:\.\d+)?) ?(?P<unit>m?s|us|sec)?(?![\w.])"
)
_SPACED = re.compile(  # a name of words and its time, with a unit
    r"(?:^|[:,;|]|\s{2,})\s*(?P<name>[^\W\d][\w+/. -]{1,40}?) (?P<value>\d+(?:\.\d+)?) ?(?P<unit>m?s|us|sec)(?![\w/])"
)
_CELL = re.compile(  # of a line of several, with bars between them
    r"^\s*(?P<name>[A-Za-z][\w ./()-]{0,30}?)[ =:]+(?P<value>\d+(?:\.\d+)?) ?(?P<unit>m?s|us|sec)?\s*$"
)
_WAITED = (
    "wait|attente|sync|comm(?!it)|reduce|gather|scatter|barrier|nccl|rccl|idle|all_?to_?all|a2a|stall|exposed"
    "|broadcast|bcast"
)
_MAY_WAIT = re.compile(_WAITED, re.IGNORECASE)
FOR_DATA = r"data(?![_ -]?par)|input|chargement|(?<!pay)(?<!off)(?<!up)load"
_DATA = re.compile(FOR_DATA, re.IGNORECASE)
WAITS = re.compile(rf"^(?!.*(?:{FOR_DATA})).*?(?:{_WAITED})", re.IGNORECASE)  # for other ranks
_WORK = re.compile(
    r"fwd|forward|bwd|backward|comput|calcul|optim|adam|data|load|gemm|attn|attention|mlp|update|encod|preproc|work|own|busy"
    r"|kernel|step_fn|model|loss_fn|grad|host|cpu|tokeni[sz]",
    re.IGNORECASE,
)
_BACKWARD = re.compile(r"(?:\w+[_-])?(?:backward|bwd)(?:[_ (-]\w+\)?)?", re.IGNORECASE)  # reduces gradients in it
_TIMED = re.compile(rf"{_WAITED}|data|load|backward|bwd", re.IGNORECASE)
_WHOLE = re.compile(
    r"(?:total|step|iter|iteration|elapsed|wall|e2e|time|dt)(?:[_-]?(?:total|time|s|ms))?", re.IGNORECASE
)
_STAGES = re.compile(r"recv|send|p2p|pipe|bubble|stage", re.IGNORECASE)  # of a pipeline, which differ by nature
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_LINES = 1  # of the forms of reports, that of lines
_LAST = 2  # reports, where there are as many, in which a rank must be slow
_LONGEST = 1000  # characters of a line that are read
_ALIKE = 1.3  # by which the others may differ
_EQUAL = 1.1  # by which ranks may differ of which none is slow
_MATTERS = 0.1  # of a rank's whole time, from which on a timer counts


def read(messages: Sequence[LogMessage]) -> Iterator[SlowRank | DataLate | RanksAlike | StepTimes]:
    """Yield who is slow by the last reports of one file, of each form by itself; or that the last shows ranks alike.

    Of the log of one rank alone, its last times: they are held against those of the others.
    """
    forms = reports_of(messages)
    yield from _of_one_rank(forms[_LINES] or own_steps(messages))
    for reports in (*forms, _of_pairs(messages)):
        yield from _slow([report for report in reports if len(report.times) > 2])
    for table, where in _last(forms):
        if len(table) > 1 and _are_alike(list(table.values())):
            yield RanksAlike(ranks=len(table), where=where)


def _of_one_rank(reports: Sequence[Report]) -> Iterator[StepTimes]:
    ranks = {rank for report in reports for rank in report.times}
    if len(ranks) != 1 or len(reports) < FEW or _has_stages(reports[-1]):
        return
    rank = ranks.pop()
    sums = [_sums(report, by_whole=True) for report in reports[-FEW:]]
    if all(rank in work for work, _ in sums):
        work, waits = median(work[rank] for work, _ in sums), median(waits[rank] for _, waits in sums)
        yield StepTimes(rank=rank, work=work, waits=waits, where=reports[-1].lines[rank].where.by(rank))


def last_tables(messages: Sequence[LogMessage]) -> Iterator[tuple[dict[int, dict[str, float]], Where]]:
    """Yield the last report of each form in one file: the timers of each rank, and its last line."""
    return _last(reports_of(messages))


def reports_of(messages: Sequence[LogMessage]) -> tuple[list[Report], ...]:
    """Return the reports of each form in one file, in its order."""
    return _of_sections(messages), _of_lines(messages), _of_tables(messages), of_exports(messages)


def _last(forms: Sequence[Sequence[Report]]) -> Iterator[tuple[dict[int, dict[str, float]], Where]]:
    for reports in forms:
        if reports and (last := reports[-1]).times:
            yield last.times, last.lines[max(last.lines)].where


def _are_alike(ranks: Sequence[dict[str, float]]) -> bool:
    """Whether all ranks have the same timers, and the long ones hardly differ."""
    names = set(ranks[0])
    if any(set(parts) != names for parts in ranks):
        return False
    usual = {name: median(parts[name] for parts in ranks) for name in names}
    long = [name for name in names if usual[name] >= _MATTERS * sum(usual.values())]
    return all(max(p[name] for p in ranks) <= _EQUAL * min(p[name] for p in ranks) for name in long)


def _slow(reports: Sequence[Report]) -> Iterator[SlowRank | DataLate]:
    late = [_late(report) for report in reports[-_LAST:]]
    if not late or not late[-1] or len(set(late)) != 1:
        return
    slow, last = late[-1], reports[-1]
    if _has_stages(last) and (len(reports) <= _LAST or _late(reports[0])):
        return
    work, waits = _sums(last)
    where = "communication" if _waits_in(last) is WAITS else "the backward pass, at whose end all meet"
    others = [rank for rank in work if rank not in slow]
    typical = [median(times[r] for r in ranks) for times in (work, waits) for ranks in (slow, others)]
    own, usual, waited, long = map(format_time if has_units(last) else "{:.4g}".format, typical)
    what = (
        f"the own work of {ranks_in_words(slow)} takes {own}, that of the others {usual}; they"
        f" wait {long} in {where}, it {waited}"
    )
    data = {rank: sum(value for name, value in last.times[rank].items() if _DATA.search(name)) for rank in work}
    if _lag(data, slow, others) >= MAINLY * _lag(work, slow, others):
        yield DataLate(ranks=slow, what=f"{what}: for its data", where=last.lines[slow[0]].where.by(slow[0]))
        return
    for rank in slow:
        yield SlowRank(rank=rank, what=what, where=last.lines[rank].where.by(rank))


def _lag(times: Mapping[int, float], slow: Sequence[int], others: Sequence[int]) -> float:
    return min(times[rank] for rank in slow) - max(times[rank] for rank in others)


def _has_stages(report: Report) -> bool:
    return any(_STAGES.search(name) for parts in report.times.values() for name in parts)


def _sums(report: Report, *, by_whole: bool = False) -> tuple[dict[int, float], dict[int, float]]:
    """Return the own work of each rank and what it spends waiting; of a rank whose report lacks either, nothing.

    Own work is the sum of its parts, or what waits leave of the whole where no parts are told, or (`by_whole`) that is
    more: not all parts have a name. Where no timer is one of waits, the backward pass is: it ends with the gradients of
    all.
    """
    waits_in = _waits_in(report)
    work: dict[int, float] = {}
    waits: dict[int, float] = {}
    for rank, parts in report.times.items():
        waited = [value for name, value in parts.items() if waits_in.search(name)]
        own = [value for name, value in parts.items() if not waits_in.search(name) and not _WHOLE.fullmatch(name)]
        whole = [value for name, value in parts.items() if _WHOLE.fullmatch(name)]
        if waited and (own or whole):
            rest = [whole[0] - sum(waited)] if whole and (by_whole or not own) else []
            work[rank], waits[rank] = max([*rest, *([sum(own)] if own else [])]), sum(waited)
    return work, waits


def _waits_in(report: Report) -> re.Pattern[str]:
    """Return what names the timers of a report in which ranks wait for others."""
    return WAITS if any(WAITS.search(name) for parts in report.times.values() for name in parts) else _BACKWARD


def _late(report: Report) -> tuple[int, ...]:
    """Return the ranks that work longer than all others by about what these wait longer; () for none.

    They are fewer than the others, or as many where they are a row, as those of one host.
    """
    work, waits = _sums(report)
    if work.keys() != report.times.keys():
        return ()
    ordered = sorted(work, key=work.__getitem__)
    begins = max(range(1, len(ordered)), key=lambda at: work[ordered[at]] - work[ordered[at - 1]])
    others, slow = ordered[:begins], tuple(sorted(ordered[begins:]))
    is_row = slow[-1] - slow[0] == len(slow) - 1
    if len(slow) > len(others) or (len(slow) == len(others) and not is_row):
        return ()
    least, most = work[others[0]], work[others[-1]]
    lag = min(work[rank] for rank in slow) - most
    longer = min(waits[rank] for rank in others) - max(waits[rank] for rank in slow)
    is_apart = work[ordered[begins]] >= LONGER * most and most <= _ALIKE * least
    return slow if is_apart and longer >= SHARE * lag else ()


def _of_sections(messages: Sequence[LogMessage]) -> list[Report]:
    """Return reports of sections; one begins where a section comes again.

    Not Megatron's tables, whose timers stand inside each other: `libraries.timers` reads them.
    """
    found: list[Report] = []
    name, seen, is_nested = "", set[str](), False
    for message in messages:
        row = _ROW.match(message.text) or _ROW.match(message.labelled)
        section = None if row else _SECTION.match(message.text)
        is_nested = TITLE.match(message.text) is not None or (is_nested and bool(row or section))
        if is_nested:
            name = ""
        elif row and name:
            if not found or (
                name in seen and int(row["rank"]) in found[-1].times and name in found[-1].times[int(row["rank"])]
            ):
                found.append(Report())
                seen = set()
            seen.add(name)
            found[-1].add(int(row["rank"]), name, _seconds(row["value"], row["unit"]), message)
        elif section:
            name = section["name"].strip() if _told(section["name"]) else ""
        elif not _STATISTICS.match(message.text):
            name = ""
    return found


def _of_lines(messages: Sequence[LogMessage]) -> list[Report]:
    """Return reports of which each rank prints its own line; one begins where a rank or a step comes again."""
    found: list[Report] = []
    for message in messages:
        text = message.text[:_LONGEST]
        if (
            message.is_of_library
            or not any(sign in text for sign in ("=", ":", "|", "  "))
            or not _MAY_WAIT.search(text)
        ):
            continue
        named = _RANK.search(text)
        rank = int(named["rank"]) if named else message.rank
        parts = _parts(text) if rank is not None else {}
        if rank is None or len(parts) < 2 or not any(map(WAITS.search, parts)):
            continue
        step = told["step"] if (told := _STEP.search(text)) else ""
        open_ = [report for report in found[-_LAST - 1 :] if rank not in report.times and report.step == step]
        if not open_:
            open_ = [Report(step=step)]
            found += open_
        for name, value in parts.items():
            open_[0].add(rank, name, value, message)
    most = max((len(report.times) for report in found), default=0)
    return [report for report in found if len(report.times) == most]


def _parts(text: str) -> dict[str, float]:
    """Return the timers of a line, by their names; a number without a unit counts where its name is one of a timer."""
    cells = [cell for part in text.split("|") if (cell := _CELL.match(part))] if "|" in text else []
    cells = [cell for cell in cells if cell["unit"]] or [cell for cell in cells if _is_bare(cell)]
    if len(cells) > 2:
        return {cell["name"]: _seconds(cell["value"], cell["unit"]) for cell in cells}
    spaced = [part for part in _SPACED.finditer(text) if _told(part["name"]) and not _RANK.match(part["name"])]
    if len(spaced) > 1:
        return {part["name"]: _seconds(part["value"], part["unit"]) for part in spaced}
    return {
        part["name"]: _seconds(part["value"], part["unit"] or part["in"])
        for part in _PART.finditer(text)
        if (part["unit"] or part["in"] or _told(part["name"]))
        and not _RANK.match(f"{part['name']} {part['value']}")
        and (part["unit"] or not _STEP.match(f"{part['name']}={part['value']}"))
    }


def _is_bare(cell: re.Match[str]) -> bool:
    """Whether a cell without a unit is a timer: by its name, and not the number of a step."""
    is_told = _told(cell["name"]) or _STAGES.search(cell["name"]) is not None
    return is_told and not NO_TIME.search(cell["name"]) and not _STEP.fullmatch(cell[0].strip())


def _of_tables(messages: Sequence[LogMessage]) -> list[Report]:
    """Return reports in columns, the ranks in the first."""
    found: list[Report] = []
    columns: list[str] = []
    for message in messages:
        text = "" if message.is_of_library else message.labelled
        cells = [cell for cell in re.split(r"[\s,|]+", text.strip(" |")) if cell]
        if len(cells) > 2 and cells[0].lower() in {"rank", "global_rank"} and any(map(_TIMED.search, cells)):
            columns = cells
            found.append(Report())
        elif columns and len(cells) == len(columns) and cells[0].isdecimal():
            for name, cell in zip(columns[1:], cells[1:], strict=True):
                value = re.fullmatch(r"(\d+(?:\.\d+)?)(m?s|us)?", cell)
                if value and _told(name):
                    found[-1].add(int(cells[0]), name, _seconds(value[1], value[2]), message)
        elif set(text.strip()) - set("-+=| "):
            columns = []
    return found


def _of_pairs(messages: Sequence[LogMessage]) -> list[Report]:
    """Return reports of one line for each rank, `rank 3 2890.7 / 6010.1`, below a line that names both times."""
    found: list[Report] = []
    names: tuple[str, ...] = ()
    for message in messages:
        text = message.labelled
        if row := _PAIR.match(text):
            if names:
                for name, value in zip(names, row.group("first", "second"), strict=True):
                    found[-1].add(int(row["rank"]), name, float(value), message)
            continue
        parts = re.sub(r"\([^()]*\)", "", text[:_LONGEST]).split("/")
        is_heading = len(parts) == 2 and bool(WAITS.search(parts[0])) != bool(WAITS.search(parts[1]))
        if is_heading and any(_WORK.search(part) and not WAITS.search(part) for part in parts):
            names = tuple(parts)
            found.append(Report())
        elif text.strip():
            names = ()
    return [report for report in found if report.times]


def _told(name: str) -> bool:
    """Whether a name is that of a timer."""
    return any(pattern.search(name) for pattern in (WAITS, _WORK)) or _WHOLE.fullmatch(name) is not None


def _seconds(value: str, unit: str | None) -> float:
    """Return a number in seconds, as it is where it has no unit."""
    return float(value) * _SECONDS.get((unit or "s").lower(), 1.0)
