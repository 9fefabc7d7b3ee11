"""Time of a collective over its size as a curve of five constants, for sweeps that alpha-beta does not follow."""

import msgspec

SHARE_OF_SIZE = 1 / 3  # exponent of the filling term
ONE_MIB = 2**20


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """time(n) = max(start_s, small_s (n / 1 MiB)^small_power, n / bandwidth + filling_s (n / 1 MiB)^(1/3)).

    The first term is the start of a collective, the second a protocol for small messages whose chunks grow with the
    message, the third a pipeline: the link's rate, and its filling and draining.
    """

    start_s: float
    small_s: float
    small_power: float
    bandwidth_bytes_per_s: float
    filling_s: float

    def time_s(self, size_bytes: float) -> float:
        """Return the predicted seconds of one call with `size_bytes`."""
        share: float = size_bytes / ONE_MIB
        small: float = self.small_s * share**self.small_power if size_bytes else 0.0
        filling: float = self.filling_s * share**SHARE_OF_SIZE
        return max(self.start_s, small, size_bytes / self.bandwidth_bytes_per_s + filling)
