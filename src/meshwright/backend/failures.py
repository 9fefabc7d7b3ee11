"""What a collective raises when a rank dies, stalls, leaves or disagrees: one family, always naming the rank."""

from torch.distributed import DistBackendError

from ..errors import MeshwrightError
from ..units import format_bytes
from .hosts import Member


class CollectiveError(MeshwrightError, DistBackendError):
    """A collective could not be completed; the group is of no use any more."""


class RankFailure(CollectiveError):
    """A rank died, left or did not arrive in time."""

    def __init__(self, culprit: Member, what: str, *, operation: str, sequence: int, size_bytes: int) -> None:
        self.culprit = culprit
        self.what = f"{culprit} {what}"
        self.rank = culprit.world_rank
        self.host = culprit.host
        self.operation = operation
        self.sequence = sequence
        self.size_bytes = size_bytes
        super().__init__(f"{self.what}, in {operation} #{sequence} of {format_bytes(size_bytes)}")


class Mismatch(CollectiveError):
    """Two ranks called different things at the same place in the order; raised in debug mode only."""
