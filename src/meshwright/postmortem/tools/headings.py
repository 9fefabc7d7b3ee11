"""Lines above dumps of stacks, written by a person or a script: whose the next dump is, and where it was taken."""

import re

import msgspec

_FRAME = re.compile(r"[#=*>+-]{1,80} ?")
_TOOL = re.compile(r"\b(?:py-spy|pystack|gdb)\b[^#]{0,300}#")  # a command, before what somebody noted behind it
_ASKED = re.compile(  # the host or pod on which somebody took a dump
    r"\b(?:ssh +(?:-\S+ +)*(?:[\w.-]+@)?|kubectl (?:-\S+ +\S+ +)*exec +(?:-\S+ +)*(?:pod/)?)"
    r"(?P<host>[a-zA-Z][\w.-]*)[,;:]? .*(?:py-spy|pystack|gdb)\b"
)
_SENT = re.compile(r"^(?:[#$>] *)+ssh +(?:-\S+ +)*(?:[\w.-]+@)?(?P<host>[a-zA-Z][\w.-]*)$")  # the dumps follow
_PROMPT = re.compile(  # of a shell on that host
    r"^\[?[a-z][\w-]{0,31}@(?P<host>[A-Za-z][\w.-]*\d[\w.-]*)[ :][^#$%]{0,80}[#$%] .*(?:py-spy|pystack|gdb)\b"
)
_OF_PROCESS = re.compile(
    r"\bpy-spy +dump\b[^|;&#]{0,120}? (?:--pid[ =]|-p ?)(?P<pid>\d{1,8})\b|\bpystack +remote +(?P<other>\d{1,8})\b"
    r"|\bgdb\)? (?:[^|;&#]{0,120}? )??(?:--?pid[ =]|-p ?|attach )(?P<debugged>\d{1,8})\b"
    r"|\bgdb +(?:python\S*|/\S+) (?P<beside>\d{1,8})\b|(?:^|[$# ])g?p?stack +(?P<stack>\d{1,8})$"
    r"|^PID (?P<traced>\d{1,8}) - process$"
)
_GROUPS = "tp|pp|dp|cp|ep|group|parallel|tensor|pipeline|data|expert|model"
_NUMBER = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?P<kind>global|world|local|node|machine|{_GROUPS})[ _-]?)?"
    r"(?P<word>rank|gpu|cuda|device)[ =:_#-]{0,3}(?P<number>\d{1,6})\b",
    re.IGNORECASE,
)
_PROCESS = re.compile(r"(?<![A-Za-z0-9])(?:pid|process|proc)s?[ =:#/-]{0,3}\d{1,8}\b|^\d{3,8}\b", re.IGNORECASE)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]?|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?Z?")
_PLACE = re.compile(  # in a mesh, beside the rank
    r"(?<![A-Za-z0-9])(?:(?:(?:pp|pipeline)[ _-]?)?stage[ =:#_-]?|(?:tp|pp|dp|cp|ep)[ =:]?)\d{1,4}\b(?!\.)",
    re.IGNORECASE,
)
_ON = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:host(?:name)?|node|machine|pod|on|@)[ =:]{1,3})+(?P<host>[A-Za-z][\w.-]*)", re.IGNORECASE
)
_NAME = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w-]*\d[\w.-]*)(?![\w.-])")
_KNOWN = re.compile(  # words behind the number
    r"\b(?:SIG\w+|faulthandler|py-?spy|pystack|gdb|stacks?|dumps?|trace(?:back)?|backtrace|main|mainthread|threads?|of|bt"
    r"|pid|process|proc|python|watchdog|follows?|below|local|global|world|host|hostname|node|machine|pod|on|at|for|the|taken|from|gpu)\b",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"(?P<sign>[=#*>-])(?P=sign)* ?r(?P<rank>\d{1,4})(?: \(?pid[ =:]{0,2}\d+\)?)?:?(?: [=#*<-]+)?", re.IGNORECASE
)
_NOTED = re.compile(  # behind the command of a process
    r"\s(?:#+|//|;|<[-=]{1,3}) {0,3}(?P<note>[^#]{1,80})$|\s[(\[](?P<within>[^()\[\]]{1,80})[)\]]$"
)
_OF_VIEWER = re.compile(  # of logs of many hosts: a level, a clock, and values alone
    r"^(?:[A-Z]{4,8} {1,4})?(?:\d{4}-\d\d-\d\d[T ]\S{8,40})?(?: {0,4}\w{1,30}=[^\s=]{1,200}(?= |$))+$"
)
_HOST_OF_VIEWER = re.compile(
    r"(?:^| )(?:host(?:_?name)?|node(?:_?name)?|pod(?:_?name)?|instance)=(?P<host>[A-Za-z][\w.-]*)"
)
_ASIDE = re.compile(  # in such a note: what else the process is called
    rf"\((?![^()]*\b(?:{_GROUPS}|local|node|host)\b)[^()]{{1,60}}\)", re.IGNORECASE
)
_MOST_BEFORE = 40  # characters of any words in front of the number, in a frame
_MOST = 200  # characters of a heading


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that a line above a dump tells, or the number on its host (LOCAL_RANK), or that of a GPU there."""

    rank: int | None = None
    local_rank: int | None = None
    device: int | None = None
    host: str = ""


def host_asked(text: str) -> str:
    """Return the host or pod on which a command took a dump, "" where the line is no such command."""
    asked = _ASKED.search(text) or _PROMPT.match(text) or _SENT.match(text)
    return asked["host"] if asked else ""


def host_of_viewer(text: str) -> str:
    """Return the host that a viewer of logs says above a dump, in a line of values alone; "" for any other line."""
    named = _HOST_OF_VIEWER.search(text) if "=" in text[:_MOST] else None
    return named["host"] if named and _OF_VIEWER.match(text) else ""


def process_asked(text: str) -> int | None:
    """Return the one process of which a command takes a dump, None where the line is no such command."""
    asked = (
        list(_OF_PROCESS.finditer(text))
        if "py-spy" in text or "stack" in text or "gdb" in text or text[:4] == "PID "
        else []
    )
    return int(next(filter(None, asked[0].groups()))) if len(asked) == 1 else None


def heading_of(text: str) -> Heading | None:
    """Return what a line tells of the dump below it: framed by signs, noted behind a command, or alone in its line.

    None where it says something else, or names a place in a group or several ranks.
    """
    if not ("ank" in text or "ANK" in text or "gpu" in text.lower() or "cuda" in text or "evice" in text):
        return None
    noted = _TOOL.search(text[:_MOST])
    framed = _FRAME.match(text)
    if not noted and (len(text) > _MOST or text.startswith("[")):
        return None
    told = text[noted.end() :] if noted else text[framed.end() :] if framed else text
    told = _PLACE.sub(" ", _CLOCK.sub(" ", told)).strip(" #=*<>+-:")
    return _told(told, is_free=bool(noted or framed))


def note_behind(command: str) -> Heading | None:
    """Return what somebody noted behind the command of a process whose dump follows: `python train.py  # rank 3`."""
    return noted(command)[1]


def noted(command: str) -> tuple[str, Heading | None]:
    """Return the command of a process without what somebody noted behind it, and what that tells of its rank."""
    command = command.rstrip()
    note = _NOTED.search(command) if "ank" in command else None
    told = heading_of(f"# {_ASIDE.sub(' ', note['note'] or note['within']).strip()}") if note else None
    return (command[: note.start()], told) if note and told else (command, None)


def short_heading_of(text: str) -> Heading | None:
    """Return the rank that a line like `== r2 ==` tells, which may as well be a round of several dumps."""
    bare = _BARE.fullmatch(text)
    return Heading(rank=int(bare["rank"])) if bare else None


def _told(text: str, *, is_free: bool) -> Heading | None:
    """Return what the words of a heading tell; words that are not known may come first where it `is_free`."""
    numbers = list(_NUMBER.finditer(text))
    by_kind = {_kind(number): int(number["number"]) for number in numbers}
    if not numbers or len(by_kind) < len(numbers) or None in by_kind or not by_kind.keys() & {"rank", "local", "gpu"}:
        return None
    at = numbers[0].start()
    before, after = (_PROCESS.sub(" ", part) for part in (text[:at], _NUMBER.sub(" ", text[at:])))
    named = {on["host"] for part in (before, after) for on in (*_ON.finditer(part), *_NAME.finditer(part))}
    named = {name for name in named if not _KNOWN.fullmatch(name)}
    if len(named) > 1 or ("gpu" in by_kind and not is_free):
        return None
    before, after = (_NAME.sub(" ", _ON.sub(" ", part)) for part in (before, after))
    rest = _KNOWN.sub(" ", after if is_free and len(before) <= _MOST_BEFORE else f"{before} {after}")
    if re.search(r"\w", rest) or re.search(r"\d", before):
        return None
    host = named.pop() if named else f"node rank {by_kind['node']}" if "node" in by_kind else ""
    rank, local = by_kind.get("rank"), by_kind.get("local")
    return Heading(
        rank=rank,
        local_rank=local if rank is None else None,
        device=by_kind.get("gpu") if rank is None and local is None else None,
        host=host,
    )


def _kind(number: re.Match[str]) -> str | None:
    """Return what a number in a heading counts: rank, local, node or gpu; None for a place in a group."""
    kind = (number["kind"] or "").lower()
    if number["word"].lower() != "rank":
        return "gpu" if kind in {"", "local"} else None
    if kind in {"", "global", "world"}:
        return "rank"
    return {"local": "local", "node": "node", "machine": "node"}.get(kind)
