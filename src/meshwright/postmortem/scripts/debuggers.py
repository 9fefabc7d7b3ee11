"""Prompts of debuggers that somebody left in a program: the rank waits for a person, the others for the rank."""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..nouns.facts import Fact, Failure, StackTrace, of
from ..positions.stands import debugger_in
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, WENT_ON

_PROMPT = re.compile(
    r"^(?P<prompt>\((?:[Pp]db(?:\+\+)?|rdb|Pdb-\d+)\)|ipdb>|\((?:cuda-)?gdb\)|\(lldb\)|In \[\d+\]:(?=\s*$))"
    r"\s*(?P<command>.*)$"
)
_NATIVE = ("(gdb", "(cuda-gdb", "(lldb")  # which people attach to a process that hangs already
_AT = re.compile(r"^> (?P<file>\S+)\((?P<line>\d+)\)(?P<function>[\w<>]+)\(\)")
_LISTENS = re.compile(
    r"RemotePdb session open at|Ray (?:\S+ )?debugger (?:is )?listening|PDB is running on \S+:\d+"
    r"|[Ww]aiting for (?:a |the )?(?:debugger|client|IDE) to attach"
)
_OF_TORCH = re.compile(r"\bcalled dist\.breakpoint\(rank=(?P<rank>\d{1,6})\)")
_MAY_TELL = ("db)", "ipdb", "db>", "In [", "ebugger", "Pdb", "PDB", "breakpoint", "to attach", "(lldb)")
_WAITS = "the program waits for a person at a debugger's prompt"
_QUIT = "BdbQuit"  # ends the program: an exception


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield which ranks of one file wait at a debugger's prompt, after which they made no steps."""
    told: set[int | None] = set()
    for at, message in enumerate(messages):
        text = message.text
        if not any(word in text for word in _MAY_TELL):
            continue
        prompt, torch = _PROMPT.match(text), _OF_TORCH.search(text)
        rank = int(torch["rank"]) if torch else message.rank
        if rank in told or not (prompt or torch or _LISTENS.search(text)):
            continue
        if prompt and prompt["prompt"].startswith(_NATIVE) and (rank is None or prompt["command"]):
            continue
        if _goes_on(messages[at + 1 :], rank):
            continue
        told.add(rank)
        line = next(
            (found for before in reversed(messages[max(at - 4, 0) : at]) if (found := _AT.match(before.text))), None
        )
        place = f" at {line['file'].rsplit('/', 1)[-1]}:{line['line']}" if line else ""
        shown = prompt["prompt"] if prompt else text.strip()[:60]
        what = f"{_WAITS}{place}: {shown}"
        yield Failure(kind="host", what=what, rank=rank, where=message.where.by(rank))


def _goes_on(following: Sequence[LogMessage], rank: int | None) -> bool:
    """Whether the rank, or anybody where it is not known, makes steps after a prompt, or the program was quit there."""
    steps = 0
    for message in following:
        if _QUIT in message.text:
            return True
        if (rank is None or message.rank == rank) and WENT_ON.search(message.text):
            steps += 1
            if steps == MANY_STEPS:
                return True
    return False


def with_their_stacks(facts: list[Fact]) -> list[Fact]:
    """Return the facts, a prompt without a rank as that of the one rank whose stack stands in a debugger."""
    ranks = {stack.rank for stack in of(facts, StackTrace) if debugger_in(stack.frames)}
    rank = ranks.pop() if len(ranks) == 1 else None
    if rank is None:
        return facts
    return [
        replace(fact, rank=rank, where=fact.where.by(rank))
        if isinstance(fact, Failure) and fact.rank is None and fact.what.startswith(_WAITS)
        else fact
        for fact in facts
    ]
