"""Ranks of which the first evaluates its wrapped model while all others train, and all wait: it does so alone."""

import re
from collections.abc import Sequence

from ...units import ranks_in_words
from ..nouns.facts import StackTrace
from ..nouns.position import HangPosition
from ..nouns.world import A_HOST
from .stands import WAITS, own_frames, stand_of

_EVALUATES = re.compile(  # what a function of a program does with the model beside the steps of its training
    r"(?:^|_)(?:eval(?:uate)?|evaluation|valid(?:ate|ation)?|val|test|infer(?:ence)?|predict|generate|sample)(?:_|$)"
)
_WRAPPED = re.compile(  # models whose forward is a call of all ranks
    r"torch/nn/parallel/distributed\.py|torch/distributed/(?:fsdp|_composable)/|deepspeed/runtime/|fairscale/"
)
_LEAST = 3  # ranks, of which one is the few
_LACKS = "whether all ranks evaluate there: the program's own line, or flight records of all ranks"


def by_own_way(stacks: Sequence[StackTrace]) -> HangPosition | None:
    """Return the few ranks that wait in an evaluation while all others wait, in none; None where there are none.

    Named is the first rank of the job, or of hosts, where by habit one alone evaluates; of others it is not told
    whether they are only ahead.
    """
    last = {stack.rank: stack for stack in stacks if stack.rank is not None}
    stands = {rank: stand_of(stack) for rank, stack in last.items()}
    if len(last) < _LEAST or any(stand.kind not in WAITS for stand in stands.values()):
        return None
    inside = {rank: name for rank, stack in last.items() if (name := _evaluates(stack))}
    few, many = tuple(sorted(inside)), tuple(sorted(last.keys() - inside.keys()))
    if not few or 2 * len(few) >= len(last) or not all(_is_wrapped(last[rank]) for rank in few):
        return None
    own, other = stands[few[0]], stands[many[0]]
    who = f"{ranks_in_words(few)} alone"
    why = f"{who} in {inside[few[0]]} ({own.line}), whose forward waits for all ranks; the others in none of it, in"
    is_first = 0 in few and all(rank % A_HOST == 0 for rank in few)
    return HangPosition(
        kind="desync",
        blamed=few if is_first else (),
        waiting=many if is_first else tuple(sorted(last)),
        operation="",
        why=f"{why} {other.call} ({other.line})",
        certain=is_first,
        evidence=tuple(stands[rank].where for rank in sorted(stands)),
        missing=() if is_first else (_LACKS,),
    )


def _evaluates(stack: StackTrace) -> str:
    """Return the outermost function of the program in a stack that evaluates, "" for none."""
    return next((f.function for f in reversed(own_frames(stack)) if _EVALUATES.search(f.function.lower())), "")


def _is_wrapped(stack: StackTrace) -> bool:
    return any(_WRAPPED.search(frame.file) for frame in stack.frames)
