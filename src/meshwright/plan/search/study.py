"""Study: everything that the search for a layout found, in one struct; the terminal, JSON and the page read it."""

import math
from typing import Literal

import msgspec

from ...layout import Candidate, Fits, Layout
from ...timeline import Performance
from ...units import counted, format_bytes, format_time


def on_host_text(needs: float, have: float, *, nvme: bool = False) -> str:
    """Return what a GPU needs of its host's memory, beside its share of it in bytes, infinite where nobody knows.

    With `nvme`, of both together, and neither is known.
    """
    if nvme:
        return f"{format_bytes(needs)} a GPU on NVMe or in its host's memory, neither held against what there is"
    told = f"{format_bytes(needs)} a GPU in its host's memory"
    if math.isinf(have):
        return f"{told}, whose size is not known"
    return f"{told}, of {format_bytes(have)}" + (": more than there is" if needs > have else "")


def offload_text(update_s: float, step_s: float, link: str) -> str:
    """Return what it costs a step that states lie on the hosts: their update, and the link that copies go over."""
    return (
        f"offload: the hosts' update takes {format_time(update_s)}, {update_s / step_s:.1%} of the step; copies go "
        f"over {link}, and are among the exposed and hidden comm"
    )


class PricedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """A layout with its price, term by term."""

    layout: Layout
    text: str  # the layout for `--layout`: with switches at 0 that its stack would add
    predicted: Performance
    terms: dict[str, float]  # every term of the cost model by name: seconds (..._s) and bytes (..._bytes)
    fits: Fits
    capacity_bytes: float  # of one GPU, as the driver shows it
    capacity_source: str = ""
    nvme: bool = False  # what lies on the host may lie on NVMe
    host_link: str = ""  # the way of a GPU to its host, in words
    host_capacity_bytes: float = math.inf  # one GPU's share of its host's memory, where the catalogue knows it
    memory_band: float = 0.0  # relative error that `terms`' bytes are held to lie within
    memory_band_lacks: str = ""  # what was not measured for it
    memory_otherwise: str = ""  # what is needed where an assumption does not hold that is worth more than the band
    simulated_s: float | None = None  # the step in the event simulator, where it was refined
    note: str = ""

    @property
    def candidate(self) -> Candidate:
        """The row as a plan keeps it."""
        return Candidate(self.layout, self.predicted, self.fits)

    @property
    def squeezes(self) -> bool:
        """Whether it fits only as the allocator gives split blocks back, which it does before it runs out."""
        return self.fits == "fits" and self.terms["card_bytes"] > self.capacity_bytes

    @property
    def on_host(self) -> dict[str, float]:
        """What lies in the host's memory for one GPU, and that GPU's share where it is known; nothing: an empty one."""
        if not self.terms.get("host_bytes"):
            return {}
        known = {} if math.isinf(self.host_capacity_bytes) else {"host_capacity_bytes": self.host_capacity_bytes}
        return {"host_bytes": self.terms["host_bytes"], **known}

    @property
    def memory(self) -> dict[str, float | str]:
        """The layout's memory beside the card's, as JSON has it."""
        needs: dict[str, float | str] = {
            n: round(self.terms[n]) for n in ("allocated_bytes", "reserved_bytes", "card_bytes")
        }
        return needs | {
            "capacity_bytes": round(self.capacity_bytes),
            "capacity_source": self.capacity_source,
            "error_band": self.memory_band,
            **{name: round(value) for name, value in self.on_host.items()},
        }


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """One class of what was set aside."""

    reason: str
    count: int
    of: Literal["factorisations", "layouts"]  # ways to write the ranks as tp x cp x dp x pp, or whole layouts

    def __str__(self) -> str:
        if self.of == "layouts":
            return f"{counted(self.count, 'layout')} {self.reason}"
        return f"{counted(self.count, 'way')} to factor the ranks: {self.reason}"


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The winner at one micro-batch size, all else kept."""

    mbs: int
    micro_batches: int
    global_batch: int
    step_time_s: float
    bubble_share: float  # of the step
    activations_bytes: float
    memory_bytes: float
    fits: Fits


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """The best layout of a model on a cluster, and all that tells why it is the best."""

    model: str
    cluster: str
    gpus: int
    global_batch: int  # sequences
    seq_len: int
    precision: str
    stack: str
    memory_bytes: int  # of one GPU
    rows: tuple[PricedLayout, ...]  # the best of each way to split the ranks, the fastest first
    plain: PricedLayout  # data parallelism alone, whether it fits or not
    pareto: tuple[PricedLayout, ...]  # no other layout is both faster and smaller; the smallest first
    rejections: tuple[Rejection, ...]
    legal: int  # layouts that break no rule, each in its default axis order
    priced: int  # prices computed, axis orders included
    micro_batches: tuple[MicroBatch, ...]
    reason: str
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> PricedLayout:
        """The fastest layout that fits."""
        return self.rows[0]
