"""Programs of a host that end a process by SIGKILL and say so in its system log: watchers of GPUs and limits."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..text.lines import LogMessage

_BY = re.compile(  # the program of a line of the system log; the job's own launchers end whom another rank took along
    r"^\S.{13,40}? (?P<host>\w[\w.-]*) (?P<by>(?!kernel|python|torchrun|srun|slurm|mpirun|deepspeed|accelerate|ray)"
    r"[A-Za-z][\w.@/-]*)\[\d+\]: "
)
_PROCESS = r"(?:pid|process|task)[ =:#]{1,2}"
_KILLS = re.compile(
    r"(?<!would )(?<!not )\b(?:"
    rf"kill(?:ed|ing) {_PROCESS}(?P<ended>\d{{2,8}})\b"
    rf"|(?:sent|sending) (?:SIGKILL|signal 9) to {_PROCESS}(?P<told>\d{{2,8}})\b"
    rf"|{_PROCESS}(?P<held>\d{{2,8}})\b.{{1,160}}?(?<!would be )\b(?:sent|sending) (?:SIGKILL|signal 9)\b)",
    re.IGNORECASE,
)


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the processes that a program of the host says it has killed, each once, by the first word of it.

    Who ends a process for memory is read with the kernel's words on memory.
    """
    told: set[tuple[str, str]] = set()
    for message in messages:
        line = message.where.text
        if "kill" not in line.lower() or "oom" in line or not (by := _BY.match(line)):
            continue
        if not (kills := _KILLS.search(line, by.end())):
            continue
        pid = kills["ended"] or kills["told"] or kills["held"]
        if (by["host"], pid) not in told:
            told.add((by["host"], pid))
            what = f"{by['by']} of {by['host']} ended process {pid} by SIGKILL"
            yield Failure(kind="killed", what=what, host=by["host"], pid=int(pid), where=message.where)
