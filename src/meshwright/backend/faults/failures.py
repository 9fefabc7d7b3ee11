"""Errors of a collective when a rank dies, stalls, leaves or disagrees: one family, always naming the rank."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from torch.distributed import DistBackendError

from ...errors import InputError, MeshwrightError
from ...units import format_bytes
from ..hosts.placement import GroupMember


class ArgumentError(InputError, ValueError, RuntimeError):
    """A call that cannot be made, refused before anything moved: the group can be used afterwards.

    Torch's backends raise a ValueError for some (a root, sizes), a RuntimeError for others (an operator, a type), and
    programs fall back to another call on either.
    """


class WaitTimeout(MeshwrightError, RuntimeError, TimeoutError):
    """A `wait` with a limit of its own ended before its work; the work goes on. A RuntimeError, as torch's is."""


class FaultyRank(NamedTuple):
    """The rank that is to blame, as the job counts, and what it did."""

    rank: int
    host: str
    pid: int
    what_happened: str

    @classmethod
    def of(cls, member: GroupMember, what_happened: str) -> "FaultyRank":
        """Return a member of a group as the one to blame."""
        return cls(member.world_rank, member.host, member.pid, what_happened)

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, pid {self.pid}) {self.what_happened}"


class CollectiveError(MeshwrightError, DistBackendError):
    """A collective could not be completed; the group is of no use any more."""

    def of_later_call(self, name: str) -> Self:
        """Return the error of a call that was made after this error: of the same kind, with what this one tells."""
        later = copy.copy(self)
        later.args = (f"{name}: this group is broken: {self}",)
        return later

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Make copies without the constructor, whose arguments are not those of an exception (Ray pickles errors)."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[CollectiveError], arguments: tuple[Any, ...], facts: Mapping[str, Any]) -> CollectiveError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(facts)
    return error


class RankFailure(CollectiveError):
    """A rank died, left or did not arrive in time."""

    def __init__(self, culprit: FaultyRank, *, operation: str, sequence: int, size_bytes: int) -> None:
        self.culprit = culprit
        self.rank = culprit.rank
        self.host = culprit.host
        self.operation = operation
        self.sequence = sequence
        self.size_bytes = size_bytes
        super().__init__(f"{culprit}, in {operation} #{sequence} of {format_bytes(size_bytes)}")


DISAGREE = "the ranks disagree: "  # begins what a rank did that is in another collective than others


class CollectiveMismatch(CollectiveError):
    """Ranks called different collectives at the same position of the order; the message lists each rank's call."""

    def __init__(self, message: str, culprit: FaultyRank | None = None) -> None:
        self.culprit = culprit
        super().__init__(message)


def failure_of(culprit: FaultyRank, *, operation: str, sequence: int, size_bytes: int) -> CollectiveError:
    """Return the error of a collective for which a rank is to blame."""
    if culprit.what_happened.startswith(DISAGREE):
        return CollectiveMismatch(culprit.what_happened, culprit)
    return RankFailure(culprit, operation=operation, sequence=sequence, size_bytes=size_bytes)
