"""Time of a collective over its size as a curve of five constants, for sweeps that alpha-beta does not follow."""

import msgspec

from ..quantities import BytesPerSecond, Factor, FittedBytes, Seconds

ONE_MIB = 2**20
SHARPNESS = 8  # of the bends between the parts of a curve over links: the norm in which they are added


class LinksCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="form", tag="links"):
    """Over links, with s = n / 1 MiB: small_s s^small_power, then middle_s s^middle_power, then n / bandwidth.

    First the start of a collective and a protocol for small messages, then a pipeline that fills, then the links' rate;
    time(n) is the norm of order 8 of the three: close to the largest, with rounded bends.
    """

    small_s: Seconds
    small_power: Factor
    middle_s: Seconds
    middle_power: Factor
    bandwidth_bytes_per_s: BytesPerSecond

    def time_s(self, size_bytes: float) -> float:
        """Return the predicted seconds of one call with `size_bytes`."""
        if not size_bytes:
            return 0.0
        share = size_bytes / ONE_MIB
        parts: tuple[float, float, float] = (
            self.small_s * share**self.small_power,
            self.middle_s * share**self.middle_power,
            size_bytes / self.bandwidth_bytes_per_s,
        )
        longest = max(parts)
        norm: float = sum((part / longest) ** SHARPNESS for part in parts) ** (1 / SHARPNESS)
        return longest * norm


class MemoryCurve(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="form", tag="memory"
):
    """Through shared memory: time(n) = start_s + small_s s^small_power + max(0, n - knee_bytes) / bandwidth.

    Copies in the caches (s = n / 1 MiB), and what each byte costs more beyond them.
    """

    start_s: Seconds
    small_s: Seconds
    small_power: Factor
    bandwidth_bytes_per_s: BytesPerSecond
    knee_bytes: FittedBytes

    def time_s(self, size_bytes: float) -> float:
        """Return the predicted seconds of one call with `size_bytes`."""
        small: float = self.small_s * (size_bytes / ONE_MIB) ** self.small_power if size_bytes else 0.0
        return self.start_s + small + max(0.0, size_bytes - self.knee_bytes) / self.bandwidth_bytes_per_s


Curve = LinksCurve | MemoryCurve
