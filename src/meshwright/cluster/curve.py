"""Time of a collective over its size as a curve of five constants, for sweeps that alpha-beta does not follow."""

import msgspec

SHARE_OF_SIZE = 1 / 3  # exponent of the filling term
ONE_MIB = 2**20


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of two forms of five constants, with s = n / 1 MiB; either `filling_s` or `knee_bytes` is set.

    Over links: time(n) = max(start_s, small_s s^small_power, n / bandwidth + filling_s s^(1/3)): the start of a
    collective, a protocol for small messages whose chunks grow with the message, and a pipeline with the link's rate
    and its filling. Through shared memory: time(n) = start_s + small_s s^small_power + max(0, n - knee_bytes) /
    bandwidth: copies in the caches, and what each byte costs more beyond them.
    """

    start_s: float
    small_s: float
    small_power: float
    bandwidth_bytes_per_s: float
    filling_s: float | None = None
    knee_bytes: float | None = None

    def __post_init__(self) -> None:
        if (self.filling_s is None) == (self.knee_bytes is None):
            raise ValueError("a curve has either filling_s or knee_bytes")

    def time_s(self, size_bytes: float) -> float:
        """Return the predicted seconds of one call with `size_bytes`."""
        share = size_bytes / ONE_MIB
        small: float = self.small_s * share**self.small_power if size_bytes else 0.0
        if self.filling_s is None:
            beyond = max(0.0, size_bytes - (self.knee_bytes or 0.0))
            return self.start_s + small + beyond / self.bandwidth_bytes_per_s
        filling: float = self.filling_s * share**SHARE_OF_SIZE
        return max(self.start_s, small, size_bytes / self.bandwidth_bytes_per_s + filling)
