"""Verdicts on tables, and on a measured rate: percent of the spec per direction, what to expect, the trap if less."""

from collections.abc import Sequence

import msgspec

from ...hardware import Catalogue, Interconnect
from ...hardware.arithmetic import EXPECTED_SHARE, duplex_trap
from ...units import format_bytes, format_rate
from ..table import Row

LOW, HIGH = EXPECTED_SHARE
ABOVE = 1.02  # of the spec: no payload crossed that link faster


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The yardstick of a measurement, per direction."""

    name: str  # "NVLink 3", "8 x InfiniBand HDR x4", "memory copy of this host"
    bytes_per_s: float
    link: Interconnect | None = None
    reduces_in_switch: bool = False
    nics: int = 1  # of which the rate is the sum
    is_measured: bool = False  # beside what it is held against, not a figure of a datasheet
    hint: str = ""  # what it is where nothing else fits
    slower: tuple[tuple[str, float], ...] = ()  # other ways that the bytes may have taken: (name, rate)


class SpecVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Percent of the spec, and what to make of it."""

    percent: float
    text: str
    trap: str | None = None

    def __str__(self) -> str:
        return self.text + (f"; {self.trap}" if self.trap else "")


class TableVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`ok` is None where nobody can tell from file and options."""

    ok: bool | None
    reason: str
    expected_bytes_per_s: float | None = None

    def wire_form(self) -> dict[str, object]:
        """Return the object that `bench --from --json` prints."""
        expected = self.expected_bytes_per_s
        return {"ok": self.ok, "reason": self.reason, "expected_GBps": None if expected is None else expected / 1e9}


def verdict(measured_bytes_per_s: float, spec: Spec, *, bound: bool = True) -> SpecVerdict:
    """Return the verdict on a peak rate; `bound` says whether the ranks were bound to their NUMA nodes."""
    share = measured_bytes_per_s / spec.bytes_per_s
    text = (
        f"{format_rate(measured_bytes_per_s)} is {100 * share:.0f} % of {format_rate(spec.bytes_per_s)} per direction, "
        f"{spec.name} (expected {100 * LOW:.0f} to {100 * HIGH:.0f} %)"
    )
    return SpecVerdict(percent=100 * share, text=text, trap=_trap(measured_bytes_per_s, share, spec, bound))


def sweep_verdict(rows: Sequence[Row], spec: Spec) -> SpecVerdict:
    """Return the verdict on the best rate of a sweep; on that of the largest size where only smaller ones surpass the
    spec, since a buffer or a cache takes these faster than the link carries them.
    """
    best, largest = max(rows, key=lambda row: row.busbw_bytes_per_s), max(rows, key=lambda row: row.bytes)
    most = ABOVE * spec.bytes_per_s
    if spec.reduces_in_switch or best.busbw_bytes_per_s <= most or largest.busbw_bytes_per_s > most:
        return verdict(best.busbw_bytes_per_s, spec)
    found = verdict(largest.busbw_bytes_per_s, spec)
    more = (
        f"the {format_rate(best.busbw_bytes_per_s)} of {format_bytes(best.bytes)} are what buffers or caches take, "
        "not what the link carries"
    )
    return msgspec.structs.replace(found, text=f"{found.text}, at {format_bytes(largest.bytes)}; {more}")


def compute_verdict(measured_flops_per_s: float, dense_peak_flops_per_s: float, name: str) -> SpecVerdict:
    """Return the verdict on a matrix-product rate against the dense peak."""
    share = measured_flops_per_s / dense_peak_flops_per_s
    text = f"{measured_flops_per_s / 1e12:.3g} TFLOP/s is {100 * share:.0f} % of {name}"
    trap = "half of it: is the peak that you compare with the one with sparsity?" if 0.35 <= share <= 0.5 else None
    return SpecVerdict(percent=100 * share, text=text, trap=trap)


def slower_ways(catalogue: Catalogue, host_link: str) -> tuple[tuple[str, float], ...]:
    """Return the way that bytes take when the GPUs' own links are not used."""
    link = catalogue.interconnect(host_link)
    return ((f"{link.title} instead of the GPUs' own links", link.rate_bytes_per_s),)


def _trap(measured: float, share: float, spec: Spec, bound: bool) -> str | None:
    """Return the trap that explains a share outside what is expected; None if it is as expected."""
    if share > ABOVE:
        if spec.reduces_in_switch:
            return "above the link's rate because the switch reduces (NVLS, SHARP): each byte crosses a link once"
        return (
            "above the spec: the payload did not cross this link (caches, shared memory), or the spec is another part's"
        )
    if share >= 0.7:
        return None
    if spec.link is not None:
        duplex = duplex_trap(spec.bytes_per_s, spec.link)
        if duplex:
            return f"the spec is wrong: {duplex}"
    for name, rate in spec.slower:
        if 0.6 <= measured / rate <= 1.02:
            return f"it looks like {name} ({format_rate(rate)})"
    if spec.nics > 1:
        used = measured / (spec.bytes_per_s / spec.nics)
        if used < spec.nics / 2:
            return (
                f"as much as {max(1, round(used))} of the {spec.nics} NICs carry: the wrong NIC, or not all, are used"
            )
    if spec.hint:
        return spec.hint
    if 0.4 <= share <= 0.56 and not spec.is_measured:
        return "near half: is the spec that you think of the duplex figure (both directions added)?"
    if not bound:
        return "the ranks are not bound: memory of another NUMA node or a moving process costs this much"
    return "below what is expected: look at other jobs on the links, at the message size, and at the path (topo)"
