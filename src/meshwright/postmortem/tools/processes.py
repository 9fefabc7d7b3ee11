"""Tables of processes that `ps` and `top` print: ranks of a host by their launcher, command and environment; states.

Where `grep` has taken the head of a table away, the command that made it tells its columns.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from ..nouns.facts import Fact, Failure
from ..nouns.identities import (
    AgentRanks,
    ChildProcess,
    FreeProcesses,
    HeldProcess,
    LocalProcess,
    RankIdentity,
    SameProcess,
    Siblings,
)
from ..nouns.where import Where
from ..text.host_commands import ranks_of_numbered
from ..text.lines import LogMessage
from .commands import host_of_prompt, numbers_of_command
from .headings import Heading, noted

_STATE, _COMMAND = "STAT", "COMMAND"
_NAMES = {  # of columns, in heads and in options
    **dict.fromkeys(("CMD", "ARGS", "COMM", "UCMD", "UCOMM"), _COMMAND),
    **dict.fromkeys(("S", "STATE", "STAT"), _STATE),
    **dict.fromkeys(("WCHAN", "NWCHAN"), "WCHAN"),
}
_WORDS = {"LSTART": 5}  # of a column that has more than one
_FORMS = (  # of a command without -o
    (re.compile(r"^-?aux"), "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND"),
    (re.compile(r"^-(?=\w*l)(?=\w*f)\w+"), "F S UID PID PPID C PRI NI ADDR SZ WCHAN STIME TTY TIME CMD"),
    (re.compile(r"^-(?=\w*f)\w+"), "UID PID PPID C STIME TTY TIME CMD"),
)
_ASKED = re.compile(r"(?:^|[\s;|&'\"(])ps +(?P<options>[^|;&'\"]{1,200})")
_LIST = re.compile(r"(?:^|\s)-?[A-Za-z]*o[ =]?(?P<columns>[a-z%][\w%:=,]*)")
_RANK_OF = re.compile(r"python\S* .*(?:--(?:local|global)?[_-]?rank[= ]\d|\bRANK=\d)")
_LAUNCHER = re.compile(
    r"\btorchrun\b|torch\.distributed\.(?:run|launch)|deepspeed\.launcher|accelerate launch|\bsrun\b"
)
_SEVERAL = re.compile(r"--nnodes[= ](?:[2-9]|\d\d)|--(?:node|machine)[_-]rank[= ][1-9]")
_PYTHON = re.compile(r"python|pt_main_thread|^ray::(?!IDLE)")
_WORKER = re.compile(r"\bpt_data_worker\b")  # what a loader's worker calls itself
_METHOD = re.compile(r"^(ray::\w+)\.\S+")  # in which an actor is
_OWN_NUMBER = re.compile(r"--local[_-]rank[= ]\d+|(?<!\w)(?:[A-Z_]*RANK|SLURM_PROCID)=\d+")
_ENVIRON = re.compile(  # what somebody printed of the environment of a process
    r"^\W{0,4}(?:/proc/|pid[ =:]{0,3})?(?P<pid>\d{2,8})(?:/environ)?[\s:=>-]{1,8}(?=[A-Z_]{1,40}=)(?P<rest>.{1,300})$",
    re.IGNORECASE,
)
_ASKED_ENVIRON = re.compile(r"/proc/(\d{2,8})/environ\b(?!:)")
_LISTED = re.compile(  # of a loop over processes: host, process, RANK, state and the call of the kernel
    r"^(?:(?P<host>[A-Za-z][\w.-]*):? )?(?P<pid>\d{2,8}) RANK=(?P<rank>\d{1,6}) "
    r"(?P<state>[DRSTIZ][A-Za-z<+]{0,5}) +(?P<call>\S+)"
)
_FILE_SYSTEMS = re.compile(r"^_{0,2}(nfs|rpc|ll|lustre|cl|osc|ceph|fuse|gpfs|cxi|cifs|smb|beegfs)\d?_")
_NUMBER = re.compile(r"(?<![\d.])\d{3,8}(?!\d)")
_VARIABLE = re.compile(r"^\s*[A-Za-z_]\w*=")
_INNER = re.compile(r"\bNSpid:\s+(?P<pid>\d{1,8})(?:\s+\d{1,8})*?\s+(?P<inner>\d{1,8})\s*$")  # of /proc/PID/status


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a table; `parent`, `state` and `call` are None and "" where the table does not have them."""

    pid: int
    command: str
    where: Where
    host: str = ""
    parent: int | None = None
    state: str = ""
    call: str = ""
    note: Heading | None = None  # of a person, behind the command


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks of processes, the ones that one launcher started with one command, and which alone is held.

    Workers of a loader run the same command under a rank, and are no ranks.
    """
    tables = list(_tables(messages))
    for table in tables:
        yield from _held(table)
        yield from _numbered(table)
        for row in table:
            if row.parent is not None and (_PYTHON.search(row.command) or _WORKER.search(row.command)):
                yield ChildProcess(pid=row.pid, parent=row.parent, host=row.host, where=row.where)
    yield from _environments(messages)
    yield from _listed(messages)
    for message in messages:
        if "NSpid" in message.text and (same := _INNER.search(message.text)):
            yield SameProcess(pid=int(same["pid"]), inner=int(same["inner"]), where=message.where)
    yield from _siblings([row for table in tables for row in table])


def _tables(messages: Sequence[LogMessage]) -> Iterator[list[_Row]]:
    """Yield the rows of each table of a file."""
    columns: list[str] = []
    table: list[_Row] = []
    host = ""
    for message in messages:
        host = host_of_prompt(message.text) or host
        if head := _columns(message.text):
            yield table
            columns, table = head, []
        elif columns and (row := _row(message, columns)):
            table.append(row if row.host else replace(row, host=host))
    yield table


def _columns(text: str) -> list[str]:
    """Return the columns that the head of a table names, or the command that prints it; [] where a line is neither."""
    words = text.split() if "PID" in text else []
    named = [_NAMES.get(word, word) for word in words]
    if "PID" in words and named[-1] == _COMMAND:
        return named
    asked = _ASKED.search(text) if "ps " in text else None
    if asked is None:
        return []
    options = asked["options"]
    told = ",".join(found["columns"] for found in _LIST.finditer(options)) or next(
        (columns.replace(" ", ",") for form, columns in _FORMS if form.search(options)), ""
    )
    names = [re.split("[:=]", name)[0].upper() for name in told.split(",")]
    columns = [_NAMES.get(name, name) for name in names for _ in range(_WORDS.get(name, 1))]
    return columns if "PID" in columns and columns[-1] == _COMMAND else []


def _row(message: LogMessage, columns: Sequence[str]) -> _Row | None:
    cells = message.text.split(None, len(columns) - 1)
    if len(cells) < len(columns):
        return None
    row = dict(zip(columns, cells, strict=True))
    parent = row.get("PPID", "")
    if not row["PID"].isdecimal() or (parent and not parent.isdecimal()):
        return None
    command, note = noted(row[_COMMAND])
    return _Row(
        pid=int(row["PID"]),
        command=command,
        note=note,
        parent=int(parent) if parent else None,
        state=row.get(_STATE, ""),
        call=row.get("WCHAN", "").strip("-"),
        host=message.host,
        where=message.where,
    )


def _siblings(rows: Sequence[_Row]) -> Iterator[Siblings]:
    """Yield the processes of all tables of a file that run one Python command under one parent."""
    groups: dict[tuple[int, str], dict[int, Where]] = defaultdict(dict)
    for row in rows:
        if row.parent is not None and "python" in row.command:
            groups[row.parent, _OWN_NUMBER.sub("", row.command).strip()][row.pid] = row.where
    processes = {pid for pids in groups.values() for pid in pids}
    tops = [pids for (parent, _), pids in groups.items() if len(pids) > 1 and parent not in processes]
    if len(tops) == 1:
        pids = tops[0]
        yield Siblings(pids=tuple(sorted(pids)), where=pids[min(pids)])


def _held(table: Sequence[_Row]) -> Iterator[Fact]:
    """Yield the processes that stand in one call of the kernel (state D), and those of their table that do not.

    Of the processes whose command says a rank, where any does, else of the ones that run one Python command. Several
    count only where the table names the call: short waits for a disk are many.
    """
    ranks = [row for row in table if _RANK_OF.search(row.command) and not _LAUNCHER.search(row.command)]
    alike = ranks or _most_alike(table)
    held = [row for row in alike if row.state.startswith("D")]
    others = tuple(row.pid for row in alike if row not in held)
    if others:
        yield FreeProcesses(pids=others, host=alike[0].host, where=alike[0].where)
    is_one_call = len({row.call for row in held}) == 1 and bool(held[0].call)
    if not held or (len(held) > 1 and not is_one_call):
        return
    for row in held:
        named = f" {row.call}" if row.call else ""
        what = f"process {row.pid} (python) stands in a call of the kernel{named} that does not return (state D)"
        if ranks and others and len(held) == 1:
            yield Failure(kind="host", what=what, pid=row.pid, host=row.host, where=row.where)
        else:
            yield HeldProcess(pid=row.pid, what=what, host=row.host, where=row.where)


def _listed(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks of a list of processes, and the few that stand in calls of one file system."""
    rows: dict[int, tuple[re.Match[str], LogMessage]] = {}
    pids: dict[int, set[str]] = defaultdict(set)
    for message in messages:
        if "RANK=" in message.where.text and (row := _LISTED.match(message.where.text)):
            rows[int(row["rank"])] = row, message
            pids[int(row["rank"])].add(f"{row['host']} {row['pid']}")
    if any(len(own) > 1 for own in pids.values()):
        return  # RANK counts hosts
    for rank, (row, message) in rows.items():
        host = row["host"] or message.host
        yield RankIdentity(rank=rank, host=host, pid=int(row["pid"]), where=message.where.by(rank))
    held = {rank: row for rank, row in rows.items() if row[0]["state"].startswith("D")}
    systems = {_file_system(row["call"]) for row, _ in held.values()}
    if len(held) > 1 and (len(systems) > 1 or "" in systems):
        return
    for rank, (row, message) in held.items() if 2 * len(held) < len(rows) else ():
        what = f"process {row['pid']} stands in a call of the kernel {row['call']} that does not return (state D)"
        host = row["host"] or message.host
        where = message.where.by(rank)
        yield Failure(kind="host", what=what, pid=int(row["pid"]), rank=rank, host=host, where=where)


def _file_system(call: str) -> str:
    """Return the file system that a call of the kernel is of, "" for none that is known."""
    found = _FILE_SYSTEMS.match(call)
    return found[1] if found else ""


def _most_alike(table: Sequence[_Row]) -> list[_Row]:
    """Return the processes of the command that most of a table's Python processes run; Ray adds the method to it."""
    groups: dict[str, list[_Row]] = defaultdict(list)
    for row in table:
        if _PYTHON.search(row.command) and "grep" not in row.command and not _LAUNCHER.search(row.command):
            groups[_METHOD.sub(r"\1", row.command)].append(row)
    return max(groups.values(), key=len, default=[])


def _numbered(table: Sequence[_Row]) -> Iterator[Fact]:
    """Yield the ranks of a table's processes by their commands and environments, or their numbers on the host."""
    several = any(_SEVERAL.search(row.command) for row in table)
    own = [row for row in table if not _LAUNCHER.search(row.command) and "grep" not in row.command]
    told = [(row.pid, *_numbers_of(row), row) for row in own]
    yield from _of_numbers(told, of_several=several)


def _numbers_of(row: _Row) -> tuple[int | None, int | None]:
    """Return the rank of a process and its number on the host, by its command or by what somebody noted behind it."""
    rank, local = numbers_of_command(row.command)
    if (rank, local) != (None, None) or row.note is None:
        return rank, local
    return row.note.rank, row.note.local_rank


def _environments(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks of processes of which somebody printed the environment, each in a line or one name a line."""
    told = []
    asked = _of_named_file(messages)
    for message in messages:
        text = message.text
        if "RANK=" in text and (found := _ENVIRON.match(text)):
            row = _Row(pid=int(found["pid"]), command=found["rest"], host=message.host, where=message.where)
            told.append((row.pid, *numbers_of_command(row.command), row))
        if "/environ" in text and len(pids := _ASKED_ENVIRON.findall(text)) == 1:
            asked = _Row(pid=int(pids[0]), command="", host=message.host, where=message.where)
        elif asked and _VARIABLE.match(text):
            asked = replace(asked, command=f"{asked.command} {text.strip()}")
        elif asked and not asked.command and message.where.line <= asked.where.line + _echoes_before(asked.where.text):
            continue
        elif asked:
            yield from _of_environment(asked)
            asked = None
    if asked:
        yield from _of_environment(asked)
    yield from _of_numbers(told, of_several=False)


def _of_named_file(messages: Sequence[LogMessage]) -> _Row | None:
    """Return the process after which a file is named that holds its environment (`812.environ`), None for none."""
    if not messages or not _VARIABLE.match(messages[0].text):
        return None
    path = PurePath(messages[0].where.file)
    named = path.name if "env" in path.name.lower() and path.name != "environ" else "/".join(path.parts[-2:])
    pids = set(_NUMBER.findall(named))
    if "env" not in named.lower() or len(pids) != 1:
        return None
    return _Row(pid=int(pids.pop()), command="", host=messages[0].host, where=messages[0].where)


def _echoes_before(command: str) -> int:
    """Return how many lines the commands in front of one that prints an environment print, in one line with it."""
    return command.partition("/environ")[0].count("echo ")


def _of_environment(row: _Row) -> Iterator[RankIdentity | AgentRanks]:
    """Yield the rank of a process by its whole environment: RANK alone may count hosts, but not beside LOCAL_RANK.

    And the ranks of its host, where it says the number of that and how many ranks each has.
    """
    rank, local = numbers_of_command(row.command)
    if rank is not None and local is not None and rank >= local:
        yield RankIdentity(rank=rank, host=row.host, pid=row.pid, where=row.where.by(rank))
    elif rank is None and (ranks := ranks_of_numbered(row.command)):
        yield AgentRanks(ranks=ranks, where=replace(row.where, host=row.host))


def _of_numbers(
    told: Sequence[tuple[int, int | None, int | None, _Row]], *, of_several: bool
) -> Iterator[RankIdentity | LocalProcess]:
    """Yield processes by (process, rank, number on the host); a rank's helpers have its numbers and are younger.

    A rank that processes of several numbers share is that of their host.
    """
    ranks: dict[int, dict[int, _Row]] = defaultdict(dict)
    locals_: dict[int, dict[int, _Row]] = defaultdict(dict)
    shared: dict[int, set[int | None]] = defaultdict(set)
    for pid, rank, local, row in told:
        if rank is not None:
            ranks[rank][pid] = row
            shared[rank].add(local)
        elif local is not None:
            locals_[local][pid] = row
    if all(len(numbers) == 1 for numbers in shared.values()) and len(ranks) > 1:
        for rank, rows in ranks.items():
            row = rows[min(rows)]
            yield RankIdentity(rank=rank, host=row.host, pid=row.pid, where=row.where.by(rank))
    for number, rows in locals_.items():
        row = rows[min(rows)]
        yield LocalProcess(number=number, pid=row.pid, host=row.host, of_several=of_several, where=row.where)
