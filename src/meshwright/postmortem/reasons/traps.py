"""GPU faults that a program's own kernel brings about: the driver's word on a bad access is that of its program."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..nouns.facts import Failure
from ..ranks.owners import owners_of

_OF_PROGRAMS = re.compile(r"Xid (?:13|31) \(")  # NVIDIA's "Xid Errors": usually of the application
_TRAPPED = re.compile(
    r"\b(?:illegal memory access|illegal instruction|illegal address|misaligned address|invalid program counter"
    r"|device-side assert|unspecified launch failure|warp out-of-range)",
    re.IGNORECASE,
)


def with_traps(found: Sequence[Failure]) -> list[Failure]:
    """Return the faults, each Xid that programs bring about as the error of a rank whose program was stopped by it.

    Of an Xid whose rank is not known that is the one rank that raised such an error.
    """
    errors = [fault for fault in found if fault.kind == "exception" and not fault.follows and owners_of(fault)]
    raised = [error for error in errors if _TRAPPED.search(error.what)]
    return [_as_error(fault, raised) if _is_of_program(fault) else fault for fault in found]


def _is_of_program(fault: Failure) -> bool:
    return fault.kind == "device" and _OF_PROGRAMS.match(fault.what) is not None


def _as_error(trap: Failure, raised: Sequence[Failure]) -> Failure:
    own = [error for error in raised if owners_of(trap) in {(), owners_of(error)}]
    if len({owners_of(error) for error in own}) != 1:
        return trap
    error = own[0]
    what = f"{error.what}; the driver says {trap.what}"
    return replace(trap, kind="exception", what=what, rank=error.rank, ranks=error.ranks)
