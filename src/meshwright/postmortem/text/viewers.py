"""Words of viewers and services around each line of a log: signs of a quotation, numbers, clocks, names of streams.

The forms that are known by name are launchers' prefixes in `lines`. A form that is not is known by what it does: it
stands before lines that begin a row wherever they are, such as those of a traceback, and before all others alike.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable

Rows = list[tuple[int, str]]  # lines with their numbers in the file

_QUOTE = re.compile(r"^ {0,3}> ?")
_NUMBERED = re.compile(r"^ *(?:\[(?P<inside>\d{1,7})\](?: |$)|(?P<bare>\d{1,7})(?:(?P<task>:) ?|\| ?|\t|  ))")
FEW_LINES = 6  # whose numbers may grow by chance
_FEW_TASKS = 64  # of srun, which may print one line each in their order
_BEGINS = re.compile(  # lines of tracebacks, summaries and stacks that begin their row
    r"Traceback \(most recent call last\):$|  File \"[^\"]{1,300}\", line \d{1,6}, in "
    r"|-- Process \d{1,6} terminated with|Root Cause \(first observed failure\):$"
    r"|(?<![=*-])[=*-]{20,}$|(?:Current t|T)hread (?:0x)?\w{1,20} \("
)
_FEW = 2  # of them, behind one form
_MOST_WORDS, _MOST_CHARACTERS = 8, 240  # of what stands in front
_WORD = re.compile(r"\S+")
_KINDS = {  # of words that change from line to line
    **dict.fromkeys(("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "NOTICE", "DEFAULT"), "level"),
    **dict.fromkeys(("stdout", "stderr"), "stream"),
}
_OWN = re.compile(  # of a rank or a process, which launchers and programs put there: not a viewer's
    r"[\[(]?\b(?:global[_ -]?|local[_ -]?|mpi)?rank|\[[A-Za-z_]+\d+\]:|<std(?:out|err)>|(?:\([\w.<>:-]{1,80} )?\bpid="
    r"|\[\d{1,6}\]\s|\d{1,6}:\s",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z][\w.-]*\d")  # of a host, a pod, a stream
_LEVEL_AND_DAY = re.compile(r"[A-Z]\d{4}")  # as glog writes them


def is_labelled(labels: list[re.Match[str] | None]) -> bool:
    """Return whether a label (the number of a task, a host) was put before the lines: nine of ten have it."""
    return bool(labels) and sum(map(bool, labels)) >= 0.9 * len(labels)


def without_quotation(rows: Rows) -> Rows:
    """Return the rows of a text that was pasted without the signs of a quotation, or the indent that all share."""
    quotes = [_QUOTE.match(row) for _, row in rows]
    if is_labelled(quotes):
        rows = [
            (number, row[quote.end() :] if quote else row) for (number, row), quote in zip(rows, quotes, strict=True)
        ]
        rows = [(number, row) for number, row in rows if row]
    if not all(row.startswith(" ") for _, row in rows):
        return rows
    indent = min((len(row) - len(row.lstrip(" ")) for _, row in rows), default=0)
    return [(number, row[indent:]) for number, row in rows] if indent else rows


def unnumbered(rows: Rows) -> Rows:
    """Return the rows without the numbers of lines that a viewer put before them, each one more than the last."""
    labels = [_NUMBERED.match(row) for _, row in rows]
    numbers = [int(label["inside"] or label["bare"]) for label in labels if label]
    steps = sum(second - first == 1 for first, second in itertools.pairwise(numbers))
    few = _FEW_TASKS if any(label and label["task"] for label in labels) else FEW_LINES
    is_table = numbers[:1] == [0] and labels[0] is None  # of ranks, below its head
    if is_table or len(numbers) < max(few, len(rows) // 2) or steps < 0.9 * (len(numbers) - 1):
        return rows
    return [(number, row[label.end() :] if label else row) for (number, row), label in zip(rows, labels, strict=True)]


def unframed(rows: Rows, inner: Callable[[str], str]) -> tuple[Rows, dict[int, str]]:
    """Return the rows without the words of one form that something unknown put before nine of ten, and these by line.

    `inner` takes known prefixes off a row: where these are all, nothing is.
    """
    forms = Counter(form for _, row in rows if (form := _form_before(row, inner)))
    if not forms:
        return rows, {}
    form, count = forms.most_common(1)[0]
    ends = [_end(row, form) for _, row in rows]
    if count < _FEW or sum(end is not None for end in ends) < 0.9 * len(ends):
        return rows, {}
    bare = [(number, row[end or 0 :]) for (number, row), end in zip(rows, ends, strict=True)]
    return bare, {number: row[:end] for (number, row), end in zip(rows, ends, strict=True) if end is not None}


Form = tuple[tuple[str, ...], str]  # the kinds of the words in front, and what is between them and the line


def _form_before(row: str, inner: Callable[[str], str]) -> Form | None:
    """Return the form of what stands before a line that begins its row anywhere else, None where nothing does."""
    begun = _BEGINS.search(row[: _MOST_CHARACTERS + 300])
    if begun is None or not 0 < begun.start() <= _MOST_CHARACTERS or begun.start() == len(row) - len(inner(row)):
        return None
    front = row[: begun.start()]
    if own := _OWN.search(front):
        front = front[: own.start()]
    words = front.split()
    bare = front.rstrip()
    if not words or len(words) > _MOST_WORDS or bare == front:
        return None
    return tuple(map(_kind, words)), front[len(bare) :]


def _kind(word: str) -> str:
    """Return what is alike in a word of all lines: any number, a level, else the word itself."""
    if any(character.isdigit() for character in word):
        return "#"
    return _KINDS.get(word.strip("[]():|,"), word)


def _end(row: str, form: Form) -> int | None:
    """Return where the line itself begins behind words of a form, None where these do not stand there."""
    kinds, between = form
    words = list(itertools.islice(_WORD.finditer(row, 0, _MOST_CHARACTERS), len(kinds)))
    if tuple(_kind(word[0]) for word in words) != kinds:
        return None
    end = words[-1].end()
    if row.startswith(between, end):
        return end + len(between)
    return end if end == len(row) else None


def name_in(front: str) -> str:
    """Return the one name with a number in what stood before a line, the host's or the stream's; "" for none."""
    names = [name for word in front.split() if _NAME.fullmatch(name := word.strip("[]():|,"))]
    return names[0] if len(names) == 1 and not _LEVEL_AND_DAY.fullmatch(names[0]) else ""
