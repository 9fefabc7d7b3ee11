"""Figures that were measured, as cells have them: times of a step, tokens a second, memory; marks of any country."""

import re
from collections.abc import Callable, Mapping, Sequence

from ...errors import InputError
from ...units import format_time, parse_bytes, parse_time
from .cells import Cells, is_empty
from .names import OPEN_RATE, RATE, STEP, letters

DECIMAL_COMMA = re.compile(r"^(\d+),(\d{1,2}|\d{4,})(?!\d)")
DECIMAL_POINT = re.compile(r"^(?:\d+\.(?:\d{1,2}|\d{4,})|(?:0|\d{4,})\.\d+)(?![\d.,])")
EITHER_COMMA = re.compile(r"^(\d{1,3}),(\d{3})(?![\d.,])")
POINTS = re.compile(r"^[1-9]\d{0,2}(?:\.\d{3})+(?![\d.,])")  # may part thousands
WHOLE_POINT = re.compile(r"^(\d+)\.0+$")
# thousands parted by one mark, a fraction by the other
BOTH_MARKS = re.compile(r"^(\d{1,3}(?:([.,])\d{3})+)(?!\2)[.,](\d+)(?![\d.,])")
GROUPED_TWICE = re.compile(r"^[1-9]\d{0,2}(?:,\d{3}){2,}(?![\d.,])")  # commas that can be no decimal ones
SPACED = re.compile(r"^[1-9]\d{0,2}(?:(?:[ \u00a0\u202f]\d{3})+|(?:['\u2019]\d{3})+)(?!\d)")
COMMAS = re.compile(r"^[1-9]\d{0,2}(?:,\d{3})+(?!\s*[\d.,kKM])")  # part thousands of what is a whole number mostly
NUMBER = r"\d+(?:[.,]\d+)?|[.,]\d+"
A_SECOND = re.compile(rf"(?i)({NUMBER})\s*{STEP}\s*(?:/|per)\s*(?:s|sec|seconds?)")  # steps
SPREAD = re.compile(rf"\s*(?:±|\+/-)\s*(?:{NUMBER})\s*%?(?=\s*[a-z]*$)")  # behind a mean
OF_A_STEP = re.compile(rf"(?i)\s*(?:/|per)\s*{STEP}$")
WORDS = {  # of units of time
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
}
CLOCK = re.compile(r"(?:(?:(\d+):)?([0-5]?\d):)([0-5]\d(?:[.,]\d+)?)")  # 0:00:09.1, 1:09.5
EITHER_CLOCK = re.compile(r"(\d+):([0-5]\d)")  # minutes and seconds, or hours and minutes
# 2m9.5s, 1 h 2 min, PT9.1S (ISO 8601)
PARTS = re.compile(
    rf"(?i)(?:P(?:0D)?T)?(?:(\d+)\s*h(?:ours?|rs?)?)?[\s,]*(?:(\d+)\s*m(?:in(?:ute)?s?)?)?[\s,]*(?:({NUMBER})\s*s(?:econds?|ecs?)?)?"
)
THOUSAND, MILLION = 1e3, 1e6
NO_UNIT = "?"  # behind a number, in a column of memory whose name has none
LEAST_BYTES = 2**20  # of a peak: smaller numbers are in a unit that is not said
SHARE = re.compile(r"\s*\(\s*[\d.,]+\s*%\s*\)\s*$")  # of the card, behind a figure
RAN_OUT = re.compile(r"(?i)\W*(?:cuda\W*)?(?:oom|out[\s_-]*of[\s_-]*memory)\b.*")
ALIKE = 0.05  # two measurements of one step differ by no more: figures are rounded, and rates are of many steps
ABOUT = re.compile(r"^(?:~|≈|≃|ca?\.|circa|about|approx(?:\.|imately)?)\s*(?=[\d.,])", re.IGNORECASE)  # before a number
TOKENS_A_SECOND = re.compile(rf"({NUMBER})\s*([kKM]?)(?:\s+(.*)|([a-z/].*))?")


def with_decimal_point(cells: Sequence[str]) -> list[str]:
    """Return the figures of a column; a comma before three digits is a decimal one where others can be nothing else."""
    decimal = any(DECIMAL_COMMA.match(cell.strip()) for cell in cells) and not any("." in cell for cell in cells)
    return [EITHER_COMMA.sub(r"\1.\2", cell.strip()) for cell in cells] if decimal else list(cells)


def with_plain_numbers(
    counts: Mapping[str, Sequence[str]], figures: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return columns of whole numbers and of figures without the marks that part their thousands.

    A point before three digits parts thousands where the figures of the table have decimal commas, and none a point.
    """
    measured = [cell.strip() for column in figures.values() for cell in column]
    everything = [*measured, *(cell.strip() for column in counts.values() for cell in column)]
    both = {found[2] for cell in measured if (found := BOTH_MARKS.match(cell))}
    commas = "." in both or any(DECIMAL_COMMA.match(cell) for cell in measured)
    points = "," in both or any(DECIMAL_POINT.match(cell) for cell in everything)
    plain = {name: with_decimal_point(column) for name, column in figures.items()}
    if not commas and any(GROUPED_TWICE.match(cell) for cell in everything):
        plain = {name: [EITHER_COMMA.sub(r"\1\2", cell.strip()) for cell in column] for name, column in plain.items()}
    if commas and not points:
        grouped = {name: list(map(_without_points, column)) for name, column in {**counts, **figures}.items()}
        return grouped | {name: plain[name] for name, column in figures.items() if not any("." in c for c in column)}
    whole = {name: [WHOLE_POINT.sub(r"\1", cell.strip()) for cell in column] for name, column in counts.items()}
    return plain | (whole if points else {name: list(column) for name, column in counts.items()})


def _without_points(cell: str) -> str:
    return POINTS.sub(lambda found: found[0].replace(".", ""), cell.strip())


def _with_point(found: re.Match[str]) -> str:
    return f"{found[1].replace(found[2], '')}.{found[3]}"


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def step_seconds(text: str) -> float:
    """Return the seconds of a step that a cell says: 9.1, 9100 ms, 9.1s/it, 0.11 it/s, 0:00:09.1, 2m9.5s, PT9.1S."""
    if a_second := A_SECOND.fullmatch(text):
        return 1.0 / _number(a_second[1])
    alone = OF_A_STEP.sub("", SPREAD.sub("", text))
    if (clock := CLOCK.fullmatch(alone)) and not EITHER_CLOCK.fullmatch(alone):
        return 3600.0 * int(clock[1] or 0) + 60.0 * int(clock[2]) + _number(clock[3])
    parts = PARTS.fullmatch(alone)
    if parts and (sum(part is not None for part in parts.groups()) > 1 or alone[:1] in "Pp"):
        return 3600.0 * int(parts[1] or 0) + 60.0 * int(parts[2] or 0) + _number(parts[3] or "0")
    word = re.search(r"[A-Za-z]+$", alone)
    if word and word[0].lower() in WORDS:
        alone = f"{alone[: word.start()]}{WORDS[word[0].lower()]}"
    return parse_time(alone)


def tokens_a_second(text: str) -> float:
    """Return the tokens a second of one GPU that a cell says: 1621, 1.62k, 1621 tok/s/GPU."""
    found = TOKENS_A_SECOND.fullmatch(text)
    unit = letters((found[3] or found[4] or "") if found else "")
    if found is None or (unit and not RATE.fullmatch(unit)):
        return float(text)
    return round(_number(found[1]) * {"": 1.0, "M": MILLION}.get(found[2], THOUSAND), 9)


def tokens_of_all(text: str) -> float:
    """Return the tokens a second of all GPUs that a cell says: 68464, 1984k, 68,464 tok/s."""
    found = TOKENS_A_SECOND.fullmatch(text)
    unit = ((found[3] or found[4] or "") if found else "").replace(" ", "").lower()
    if found is None or (unit and not OPEN_RATE.fullmatch(unit)):
        return float(text)
    return round(_number(found[1]) * {"": 1.0, "M": MILLION}.get(found[2], THOUSAND), 9)


def peak_bytes_said(text: str) -> float:
    """Return the bytes that a cell says: 41.2 GiB, 47.96GiB(51.2%); InputError where a small number has no unit."""
    plain = SHARE.sub("", text)
    without = plain.removesuffix(NO_UNIT).strip()
    found = parse_bytes(without)
    if plain.endswith(NO_UNIT) and found < LEAST_BYTES:
        raise InputError(f"{without!r}: a unit of memory is missing, such as GiB")
    return found


READ: dict[str, Callable[[str], float]] = {
    "step_time_s": step_seconds,
    "tokens_per_s_per_gpu": tokens_a_second,
    "tokens_per_s": tokens_of_all,
    "samples_per_s": float,
    "peak_memory_bytes_per_gpu": peak_bytes_said,
}


def measured_of(cells: Cells, name: str, unreadable: list[str]) -> float | None:
    """Return a figure that was measured; None where there is none, or where the cell is added to `unreadable`.

    It may have a unit of time or of memory, and a decimal comma; before three digits it may part thousands as well,
    unless a point does, as in 4.512,5.
    """
    text = cells.get(name, "")
    if is_empty(text) or RAN_OUT.fullmatch(text):
        return None
    plain = SPACED.sub(lambda found: re.sub(r"\D", "", found[0]), ABOUT.sub("", text))
    plain = DECIMAL_COMMA.sub(r"\1.\2", BOTH_MARKS.sub(_with_point, plain))
    if name in {"tokens_per_s_per_gpu", "tokens_per_s"}:
        plain = COMMAS.sub(lambda found: found[0].replace(",", ""), plain)
    try:
        value = READ[name](plain)
    except (ValueError, ZeroDivisionError, InputError):
        value = float("nan")
    if not 0 < value < float("inf"):
        unreadable.append(f"{name}: {text!r} {_why(name, text)}, so it counts as not measured")
        return None
    return value


def measured_step_s(cells: Cells, done: tuple[int, int, int] | None, unreadable: list[str]) -> tuple[float | None, str]:
    """Return the seconds of a step that a row has measured, or what its tokens a second of one GPU make of it.

    Then what contradicts them: tokens a second of another step, "" where nothing does. `done` are the sequences of a
    step, the tokens of one and the GPUs. Sequences a second are mostly rounded: they count where there is nothing else.
    """
    step_s = measured_of(cells, "step_time_s", unreadable)
    rate = measured_of(cells, "tokens_per_s_per_gpu", unreadable)
    samples, together = (measured_of(cells, name, unreadable) for name in ("samples_per_s", "tokens_per_s"))
    if done is None:
        return step_s, ""
    sequences, seq_len, gpus = done
    rate = together / gpus if rate is None and together is not None else rate
    if rate is None:
        return (sequences / samples if step_s is None and samples is not None else step_s), ""
    of_rate_s = sequences * seq_len / (rate * gpus)
    if step_s is None or abs(of_rate_s / step_s - 1.0) <= ALIKE:
        return step_s or of_rate_s, ""
    return step_s, f"its {rate:.6g} tokens/s of a GPU make a step of {format_time(of_rate_s)}: one of the two is wrong"


def ran_out(cells: Cells) -> bool:
    """Return whether a measured cell says that the run had not memory enough."""
    return any(RAN_OUT.fullmatch(cells.get(name, "")) for name in READ)


def is_of_tokens(cells: Cells) -> bool:
    """Return whether the step of a row is what its tokens a second make of it."""
    step_s, rate = (measured_of(cells, name, []) for name in ("step_time_s", "tokens_per_s_per_gpu"))
    return step_s is None and rate is not None


def _why(name: str, text: str) -> str:
    """Return why a measured cell is no figure."""
    plain = COMMAS.sub(lambda found: found[0].replace(",", ""), text)
    said = TOKENS_A_SECOND.fullmatch(plain) if name == "tokens_per_s_per_gpu" else None
    if said and OPEN_RATE.fullmatch((said[3] or said[4] or "").replace(" ", "").lower()):
        return "does not say that it is of one GPU, as its column does: tokens/s/GPU would"
    if either := EITHER_COMMA.match(text):
        return f"is {either[1]}{either[2]} or {either[1]}.{either[2]}"
    if clock := EITHER_CLOCK.fullmatch(text):
        return f"is {clock[1]} min {clock[2]} s or {clock[1]} h {clock[2]} min"
    if text.endswith(NO_UNIT):
        return "has no unit of memory, such as GiB"
    return "is no number above 0"
