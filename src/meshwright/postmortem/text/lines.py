"""Text of a log into messages: prefixes of launchers taken off, glued lines cut, wrapped lines joined.

A message keeps the number of the line that it began on, and what its prefix says of rank, host, process and time.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from ..nouns.where import Where
from .clocks import STAMP, time_of
from .exports import lines_of
from .labels import label_of
from .newest_first import oldest_first
from .viewers import FEW_LINES, is_labelled, name_in, unframed, unnumbered, without_quotation

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_IN_UTC = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?Z")
_CONTAINER = re.compile(rf"^(?P<stamp>{STAMP}) (?:stdout|stderr) [FP] ")  # containerd's log files
_STAMPED = re.compile(rf"^\[?(?P<stamp>{STAMP})\]?(?:\s+(?=[\[(]|\S+:\d+:\d+ \[)|\t)")
_CLOCK = re.compile(rf"^\[?{STAMP}\]?[ \t]+(?= *\d{{1,6}}:(?: |$))")  # before a task's label
_JOURNAL = re.compile(  # journalctl of a unit that runs a launcher; what others say there is known by their name
    r"^(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>\w[\w.-]*)"
    r" (?!kernel|slurm|kubelet|systemd|containerd)[\w./@-]+\[\d+\]: ?"
)
_PROMPT = re.compile(
    r"^(?:[\w.@~-]+(?::[\w./~-]*)?)?[$#%] +(?P<command>[a-z./]\S*.*)"
)  # a command that was pasted with its output
_PRINTS_SCRIPT = re.compile(r"^(?:cat|head|tail|less|sed|bat)\b.*\.(?:sh|sbatch|slurm|bash|py|ya?ml|toml|job)\b")
_OF_SLURM = ("srun: ", "slurmstepd: ", "sbatch: ", "+ ")  # what it and the job's script say, without a task
_POD = re.compile(r"^\[pod/(?P<pod>[^/\]]+)/[^\]]*\] ")
_RAY = re.compile(
    r"^\((?P<actor>[\w.<>:]+)(?:[(\[]rank=(?P<rank>\d+)[)\]])?(?: pid=(?P<pid>\d+)|(?<=raylet))"
    r"(?:, ip=(?P<ip>[\w.:-]+))?\) ?"
)
_SKY = re.compile(  # SkyPilot's, whose ranks are of hosts
    r"^\((?:(?P<host>head|worker\d{1,5}), rank=\d{1,5}|[\w.-]{1,80}), pid=\d{1,8}(?:, ip=(?P<ip>[\w.:-]+))?\) ?"
)
_XLA_DIST = re.compile(rf"^(?P<stamp>{STAMP}) (?P<ip>\d{{1,3}}(?:\.\d{{1,3}}){{3}}) \[\d{{1,5}}\](?: |$)")  # of a host
_SRUN = re.compile(r"^ *(?P<task>\d{1,6}):(?: |$)")  # a clock's hour has no space behind it
_BOXED = re.compile(r"^\[(?P<task>\d{1,4})\] ")  # of programs that print their rank
_MPI = re.compile(  # Open MPI's [1,3], PRRTE's [job@1,3], SageMaker's [1,mpirank:3,algo-1], horovodrun's [3], dated
    r"^(?P<stamp>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})?"
    r"\[(?:[\w.@-]+,(?:mpirank:)?)?(?P<rank>\d+)(?:,[\w.-]+)?\]<(?:stdout|stderr)>: ?"
)
_ROLE = re.compile(r"^\[(?!rank)(?P<role>[A-Za-z_]+)(?P<local>\d+)\]: ?")
_KUBECTL = re.compile(r"^(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z) ")  # kubectl logs --timestamps
_HOST = re.compile(r"^(?P<host>\w[\w.-]*): (?=\[rank\d|\[[EWIF]\d{0,4} |\S+:\d+:\d+ \[|\[ *\d+\.\d+\])")
_POD_NAME = re.compile(  # pdsh, kubectl logs of several pods, compose; scripts that put it in brackets
    r"^(?:(?P<host>\w[\w.-]*\d)(?::(?: |$)| +\| ?)"
    r"|\[(?!rank|local|gpu|cuda|xpu|step|epoch|iter|task)(?P<boxed>[A-Za-z][\w.-]*\d)\](?: |$))",
    re.IGNORECASE,
)
_BEFORE_NAME = re.compile(  # a clock before the name of a pod, a container or a worker
    rf"^\[?{STAMP}\]?[ \t]+(?=(?!rank|local|gpu|cuda|xpu|step|epoch|iter|task)[A-Za-z][\w.-]*\d(?::(?: |$)| +\| ?))",
    re.IGNORECASE,
)
_RELAYED = re.compile(r"^\w[\w.-]* \[std(?:err|out)\] (?=\S)")  # a runner that says whose stream it passes on
_DIGITS, _LETTERS = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PREFIXES = (  # in the order in which launchers put them around each other, and what each begins with
    *(
        (_JOURNAL, _LETTERS),
        (_CONTAINER, _DIGITS),
        (_POD, "["),
        (_KUBECTL, _DIGITS),
        (_XLA_DIST, _DIGITS),
        (_SRUN, f" {_DIGITS}"),
        (_BOXED, "["),
        (_RAY, "("),
        (_SKY, "("),
        (_MPI, f"[{_LETTERS}"),
    ),
    (_RELAYED, _LETTERS + _DIGITS),
    *((_ROLE, "["), (_HOST, _LETTERS + _DIGITS), (_STAMPED, f"[{_DIGITS}"), (_RAY, "(")),
)
_GLUED = re.compile(  # at a bracket
    r"(?<=\S)(?<!\]:)(?=\[rank\d+\]:)|(?<=\S)(?<!\]:)(?<!>:)(?=\[[EWIF]\d{0,4} ?[\d:. ]*ProcessGroup)"
    r"|(?<=\S)(?<!\d\]:)(?<!>:)(?=\[[EWIF] ProcessGroup)"
    r"|(?:(?<=\(Pdb\) )|(?<=ipdb> )|(?<=\(gdb\) ))(?=\[rank\d+\]|\[[EWIF]\d{0,4}[ \d])"  # behind a debugger's prompt
)
_RANK = re.compile(r"^\[rank(?P<rank>\d+)\](?::\s?|\s+)")  # torch's own has a colon, a program's often none
# what a viewer that we do not know puts before a line: one word
_SHORT = re.compile(r"^(?:\[[^\[\]\s]{1,40}\]|[\w./:-]{1,64}(?: +\|)?) +(?=\[rank\d+\]:)")
RESTART = re.compile(
    r"Restarting worker group|Worker group (?:FAILED|UNHEALTHY)\b.*will restart|will restart worker group"
)
_COUNT = re.compile(r"restart[ _]count[ =:]+(\d{1,4})", re.IGNORECASE)
_LEFT = re.compile(r"(\d{1,4})/(\d{1,4}) attempts left")
_ATTEMPT_FOLDER = re.compile(r"attempt_(\d+)")
_RANK_FOLDER = re.compile(r"(?:global[_-]?)?rank[_-]?(\d+)", re.IGNORECASE)  # a folder for each rank: rank3/stderr.txt
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d+)(?!.*rank[_-]?\d)", re.IGNORECASE)
_RANKS_IN_NAME = re.compile(r"(?P<of>local|node|group|global|world)?[_-]?rank[_-]?(?P<rank>\d+)", re.IGNORECASE)
_WHOLE = re.compile(
    r"Work\w*CCL\([^)]*\(ms\)=\d+\) ran for \d+ milliseconds"
    r"|last enqueued(?: NCCL)? work: -?\d+.*?last completed(?: NCCL)? work: -?\d+"
    r"|Xid \(PCI:[\w:.]+\): \d+|Killed process \d+ \(|out of memory\. Tried to allocate"
    r"|failed to pass monitoredBarrier in \d+ ms|opCount \w+ .*?comm 0x\w+"
    r"|watchdog got stuck for \d+ ?(?:milli)?seconds"
    r"|gloo/transport.*?(?:Timed out waiting \d+ ?ms for (?:recv|send) operation to complete"
    r"|Connection closed by peer|Connection reset by peer|Broken pipe)"
    r"|(?:CUDA|HIP) error: (?:uncorrectable (?:ECC|NVLink) error|hardware error|GPU is lost)",
    re.IGNORECASE,
)
_OPENED = (  # in small letters
    *("ccl(", "watchdog", "dump signal", "xid", "opcount", "monitoredbarr", "oom_memcg", "gloo/trans", "cuda error"),
    "hip error",
)
_CUT = re.compile(r"(?:(?:(?:caught )?collective )?operation )?(?:timeout: )?Work\w*CCL\(")  # off its watchdog
MOST_CHARACTERS = 16_384  # of a line that are read; what is longer is data, not a message
_KERNEL_OF = re.compile(
    r"(?P<host>[\w.-]+?)(?:\.|(?<=\d)[_-])(?:dmesg|kern|kernel|syslog|journal|journalctl)(?![A-Za-z])"
    r"|(?:dmesg|kern(?:el)?|syslog|journal(?:ctl)?)(?:-T|[_.-]log)?[._-](?P<after>[A-Za-z][\w-]*\d)(?=\.|$)"
)
_NO_HOST = {"dmesg", "kern", "kernel", "syslog", "journal", "log", "node", "host"}
LEAST_WIDTH, MOST_WIDTH = 72, 260  # of a terminal that wraps lines
_STARTS = re.compile(  # how messages of logs and frames of tracebacks begin, and rows of tables
    rf"\s*(?:[\[(]|[|+=]|{STAMP}|[A-Z][a-z]{{2}} [ \d]\d \d\d:|[EWIF]\d{{4}} |\d+: |Traceback |File \"|\S+:\d+:\d+ \[)"
)
_DIGIT, _BEGIN = re.compile(r"\d+"), 12
_ROLED = re.compile(r"\[[a-z]+(?P<task>\d+)\]:")
_PLACED = re.compile(r"^\S* ?\[[EWIF][^\]]*ProcessGroup[^\]]*\] ?\[Rank (?P<place>\d+)\] Watchdog")
_MOST_PIECES = 4  # that one message was wrapped into
MOST_WRAPPED = 4096  # characters of a message that lost spaces where it was wrapped
_NEAR = 64  # lines among which the pieces of one source are looked for, between those of others


class LogMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a log without its prefixes."""

    text: str
    where: Where
    rank: int | None = None
    task: int | None = None  # of srun or mpirun: a rank where each rank is a task
    local_rank: int | None = None
    host: str = ""
    pid: int | None = None
    pod: str = ""  # of Kubernetes, where kubectl puts it before each line

    @property
    def labelled(self) -> str:
        """The message; of a known rank the whole line, since what looks like its label may begin a row of a table."""
        return self.text if self.rank is None else self.where.text

    @property
    def is_of_library(self) -> bool:
        """Whether NCCL or torch's process groups print it: it is in no script's own words."""
        return "NCCL INFO" in self.text or "ProcessGroup" in self.text


class FileHint(msgspec.Struct, frozen=True):
    """Facts from the path of a file: torchrun's `attempt_0/3/stderr.log`, `rank3.txt`, `node-a.log`."""

    rank: int | None
    attempt: int | None
    host: str
    is_local: bool = False  # the path counts ranks on one of several hosts: no prefix of a launcher does better
    is_guess: bool = False  # the number in the name is a rank's because there is one file for each number
    has_several: bool = False  # the log prints the RANK of several processes: its name tells none


def hint_of(path: PurePath) -> FileHint:
    """Return what a path says of rank, attempt and host."""
    attempt = next((int(m.group(1)) for part in path.parts if (m := _ATTEMPT_FOLDER.fullmatch(part))), None)
    named = None if names_several_ranks(path.name) else _RANK_IN_NAME.search(path.name)
    rank = int(named.group(1)) if named else None
    is_elastics = path.stem in {"stderr", "stdout"} or path.name == "error.json"
    if rank is None and path.parent.name.isdecimal() and is_elastics:
        rank = int(path.parent.name)
    if rank is None and (folder := _RANK_FOLDER.fullmatch(path.parent.name)):
        rank = int(folder.group(1))
    host = named["host"] or named["after"] if (named := _KERNEL_OF.match(path.name)) else ""
    return FileHint(rank, attempt, "" if host in _NO_HOST else host)


def names_several_ranks(name: str) -> bool:
    """Return whether a file's name is that of several ranks (`rank2_and_rank6.txt`), not one's in several countings."""
    found = list(_RANKS_IN_NAME.finditer(name))
    return len({one["rank"] for one in found}) > 1 and not any(one["of"] for one in found)


def anonymous_messages(text: str, *, file: str, order: int, hint: FileHint, first: int) -> Iterator[LogMessage]:
    """Yield the messages of a log as they were written, each with what its own prefixes say of who speaks."""
    ordered, lines = oldest_first(list(_rows(text, first)))
    rows, fronts = unframed(without_quotation(ordered), _behind_prefixes)
    rows = _without_common_label(_unwrapped(unnumbered(rows)))
    rows, fronts = _with_name_first(rows, fronts)
    tasks = _tasks_of(rows)
    named = [] if tasks else [_POD_NAME.match(row) for _, row in rows]
    hosts = {number: name for number, front in fronts.items() if (name := name_in(front))}
    # "step10:" is no host: hosts come again
    if is_labelled(named) and len({_named(label) for label in named if label}) <= max(2, len(rows) // 2):
        hosts = {number: _named(label) for (number, _), label in zip(rows, named, strict=True) if label}
        rows = [
            (number, row[label.end() :] if label else row) for (number, row), label in zip(rows, named, strict=True)
        ]
        tasks = _tasks_of(rows)
    attempt = hint.attempt
    above_s: float | None = None

    @functools.cache  # asked for around wrapped rows alone
    def source_of(index: int) -> tuple[str, int]:
        number, row = rows[index]
        return _source(row, tasks=tasks, host=hosts.get(number, ""))

    for number, row in _joined(rows, source_of):
        for piece in _pieces(row):
            message = _message(piece, number, file=file, order=order, attempt=attempt, tasks=tasks, hint=hint)
            if message.where.time_s is None and (front := fronts.get(number)):
                is_utc = _IN_UTC.search(front) is not None
                message = replace(message, where=replace(message.where, time_s=time_of(front), is_utc=is_utc))
            if message.where.time_s is not None:
                above_s = message.where.time_s
            elif above_s is not None:
                message = replace(message, where=replace(message.where, above_s=above_s))
            if not message.host and number in hosts:
                where = replace(message.where, host=message.where.host or hosts[number])
                message = replace(message, host=hosts[number], where=where)
            if lines:
                message = replace(message, where=replace(message.where, shown=lines[number]))
            if hint.attempt is None and RESTART.search(message.text):
                attempt = _next_attempt(message.text, attempt)
            yield message


def _with_name_first(
    rows: list[tuple[int, str]], fronts: dict[int, str]
) -> tuple[list[tuple[int, str]], dict[int, str]]:
    """Return the rows without a clock that stands before a name in nine of ten of them, and what stood before each."""
    clocks = [_BEFORE_NAME.match(row) for _, row in rows]
    if not is_labelled(clocks):
        return rows, fronts
    found = {number: clock.group() for (number, _), clock in zip(rows, clocks, strict=True) if clock}
    bare = [(number, row[clock.end() :] if clock else row) for (number, row), clock in zip(rows, clocks, strict=True)]
    return bare, {**found, **fronts}


def _next_attempt(text: str, attempt: int | None) -> int:
    """Return the number of the attempt that a restart begins: as the line counts, else one more than before."""
    if counted := _COUNT.search(text):
        return int(counted.group(1))
    if left := _LEFT.search(text):
        return int(left.group(2)) - int(left.group(1)) + 1
    return (attempt or 0) + 1


def _rows(text: str, first: int) -> Iterator[tuple[int, str]]:
    for number, line in lines_of(text, first):
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        for part in line.rstrip("\r").split("\r"):
            if part.strip():
                yield number, part[:MOST_CHARACTERS].rstrip()


def _unwrapped(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the rows of a log that a terminal wrapped at one width in mid-word, joined again.

    Where what follows a row of the full width begins a message as often as not, lines were cut off there, not wrapped.
    """
    width = max((len(row) for _, row in rows), default=0)
    full = [index for index, (_, row) in enumerate(rows[:-1]) if len(row) == width]
    if not LEAST_WIDTH <= width <= MOST_WIDTH or len(full) < FEW_LINES:
        return rows
    begun = sum(_begun_behind(rows[index], rows[index + 1]) for index in full)
    if 5 * begun > len(full):
        return rows
    found: list[tuple[int, str]] = []
    before = 0, ""
    for number, row in rows:
        if len(before[1]) == width and not _begun_behind(before, (number, row)) and len(found[-1][1]) < MOST_CHARACTERS:
            found[-1] = found[-1][0], found[-1][1] + row
        else:
            found.append((number, row))
        before = number, row
    return found


def _begun_behind(before: tuple[int, str], row: tuple[int, str]) -> bool:
    """Whether a message begins with a row: behind an empty line, by how it begins, or as the row before does."""
    alike = _DIGIT.sub("#", row[1][:_BEGIN]) == _DIGIT.sub("#", before[1][:_BEGIN])
    return row[0] > before[0] + 1 or _STARTS.match(row[1]) is not None or alike


def _without_common_label(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the rows without the one task's label that all bear, where several ranks speak behind it: a host's agent.

    They show it by tasks of their own, or by places of one group that differ.
    """
    labels = [_SRUN.match(row) for _, row in rows]
    if not rows or not all(labels) or len({label["task"] for label in labels if label}) != 1:
        return rows
    inner = [(number, row[label.end() :]) for (number, row), label in zip(rows, labels, strict=True) if label]
    inner = [(number, row) for number, row in inner if row.strip()]
    tasks = [label["task"] for _, row in inner if (label := _SRUN.match(row) or _ROLED.match(row))]
    places = {place["place"] for _, row in inner if (place := _PLACED.search(row[:200]))}
    several = (len(set(tasks)) > 1 and 2 * len(tasks) > len(inner)) or len(places) > 1
    return inner if several else rows


def _tasks_of(rows: Sequence[tuple[int, str]]) -> re.Pattern[str] | None:
    """Return the labels of tasks that the rows bear: srun's, or boxed ranks from 0 on, each more than once."""
    inner = [row for whole in _of_job(rows) if not (row := _inner(whole)).startswith(_OF_SLURM)]
    if is_labelled([_SRUN.match(row) for row in inner]):
        return _SRUN
    boxes = [_BOXED.match(row) for row in inner]
    counts = Counter(int(box["task"]) for box in boxes if box)
    several = len(counts) > 1 and counts.keys() == set(range(len(counts))) and min(counts.values()) > 1
    return _BOXED if several and is_labelled(boxes) else None


def _of_job(rows: Sequence[tuple[int, str]]) -> list[str]:
    """Return the rows of a log that was pasted, without the commands around it and the scripts that these print."""
    found: list[str] = []
    of_script = False
    for _, row in rows:
        if prompt := _PROMPT.match(row):
            of_script = _PRINTS_SCRIPT.match(prompt["command"]) is not None
        elif not of_script:
            found.append(row)
    return found or [row for _, row in rows]


def _inner(row: str) -> str:
    """Return a row without what is put around srun's labels."""
    for pattern in (_JOURNAL, _CONTAINER, _POD, _KUBECTL, _XLA_DIST, _RAY, _CLOCK):
        if found := pattern.match(row):
            row = row[found.end() :]
    return row


def _behind_prefixes(row: str) -> str:
    """Return a row without all prefixes that are known."""
    for pattern in (*(pattern for pattern, _ in _PREFIXES), _POD_NAME, _RANK):
        if found := pattern.match(row):
            row = row[found.end() :]
    return row


def _named(label: re.Match[str]) -> str:
    return label["host"] or label["boxed"]


def _joined(rows: list[tuple[int, str]], source_of: Callable[[int], tuple[str, int]]) -> Iterator[tuple[int, str]]:
    """Yield the rows, those joined that make a whole message only together: a terminal or a launcher wrapped them.

    A source is what a launcher put before the row, and where the row's own text begins: the pieces of one message
    have one source, and others may write between them.
    """
    width = max((len(row) for _, row in rows), default=0)
    taken: set[int] = set()
    for index, (number, row) in enumerate(rows):
        if index in taken:
            continue
        if (len(row) == width or any(map(row.lower().__contains__, _OPENED))) and not _WHOLE.search(row):
            row, used = _rest_of(rows, index, source_of)
            taken.update(used)
        yield number, row


def _rest_of(
    rows: list[tuple[int, str]], index: int, source_of: Callable[[int], tuple[str, int]]
) -> tuple[str, list[int]]:
    """Return a row joined with the rows that make a whole message of it, and their places; as it is where none do.

    They have the row's own source, or none: what wrapped the row may have put the launcher's label on its start alone.
    """
    source, _ = source_of(index)
    near = range(index + 1, min(index + _NEAR, len(rows)))
    own = [at for at in near if source_of(at)[0] == source]
    bare = itertools.takewhile(lambda at: not source_of(at)[0], near) if source else ()
    for following in (own, list(bare)):
        pieces, used = [rows[index][1]], []
        for at in following[: _MOST_PIECES - 1]:
            piece = rows[at][1][source_of(at)[1] :]
            if _begins(piece):
                break
            pieces.append(piece)
            used.append(at)
            if whole := _whole(pieces):
                return whole, used
    return rows[index][1], []


def _whole(pieces: Sequence[str]) -> str:
    """Return the message that pieces make, "" for none: a break in mid-word, or at a space that is lost."""
    lost = ("", " ") if sum(map(len, pieces)) < MOST_WRAPPED else ("",)
    for gaps in itertools.product(lost, repeat=len(pieces) - 1):
        text = pieces[0] + "".join(gap + piece for gap, piece in zip(gaps, pieces[1:], strict=True))
        if _WHOLE.search(text):
            return text
    return ""


def _source(row: str, *, tasks: re.Pattern[str] | None, host: str) -> tuple[str, int]:
    """Return what launchers put before a row, without its clock, and where the row's own text begins."""
    found, text = host, row
    for pattern, begins in _PREFIXES:
        if (
            text[:1] not in begins
            or pattern in {_HOST, _STAMPED}
            or (pattern in {_SRUN, _BOXED} and pattern is not tasks)
        ):
            continue
        if match := pattern.match(text):
            found += "".join(value for key, value in match.groupdict().items() if value and key != "stamp") + "|"
            text = text[match.end() :]
    return found, len(row) - len(text)


def _begins(row: str) -> bool:
    if re.match(r"\[rank\d+\]:|\[[EWIF]\d{0,4} |\S+:\d+:\d+ \[\d+\] ", row):
        return True
    return bool(_WHOLE.search(row)) and not _CUT.match(row)


def _pieces(row: str) -> list[str]:
    """Cut a line that two processes wrote into, or a progress bar and what follows it."""
    cuts = [at for at in _places("[", row) if _GLUED.match(row, at)]
    return [piece for piece in map(row.__getitem__, map(slice, [0, *cuts], [*cuts, None])) if piece.strip()]


def _places(sign: str, row: str) -> Iterator[int]:
    """Yield where a sign stands in a row."""
    at = row.find(sign)
    while at >= 0:
        yield at
        at = row.find(sign, at + 1)


def _message(
    text: str, number: int, *, file: str, order: int, attempt: int | None, tasks: re.Pattern[str] | None, hint: FileHint
) -> LogMessage:
    raw = text
    found: dict[str, str] = {}
    for pattern, begins in _PREFIXES:
        if text[:1] not in begins or (pattern in {_SRUN, _BOXED} and pattern is not tasks):
            continue
        match = pattern.match(text)
        if match:
            found |= {key: value for key, value in match.groupdict().items() if value}
            text = text[match.end() :]
    stamp = found.get("stamp", "")
    if "[rank" in text[1:128] and (short := _SHORT.match(text)):
        text = text[short.end() :]
    rank = _number(found.get("rank"))
    while match := _RANK.match(text):  # the last is the process's own word: torchrun's may count on the host
        rank = int(match["rank"])
        text = text[match.end() :]
    time_s = time_of(stamp or text, text)
    # where the file is one rank's, another in front of its lines is spoken of
    if rank is None and hint.rank is None and "ank" in text[:128].lower() and (label := label_of(text)):
        rank, text = label.rank, text[label.end :]
        found.setdefault("host", label.host)
    return LogMessage(
        text=text,
        where=Where(
            file,
            number,
            raw.strip()[:400],
            time_s,
            attempt,
            order,
            rank,
            stamp.endswith("Z"),
            found.get("pod") or found.get("host") or found.get("ip") or "",
        ),
        rank=rank,
        task=_number(found.get("task")),
        local_rank=_number(found.get("local")) if found.get("role") in {"default", "trainer", "worker"} else None,
        host=found.get("host") or found.get("ip") or hint.host,
        pid=_number(found.get("pid")),
        pod=found.get("pod", ""),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text else None
