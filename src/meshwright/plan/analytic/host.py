"""Time of what a step does with the memory of the GPUs' hosts: copies between device and host, and the update there.

Adam on a host's processors is bound by its memory: every parameter's gradient, master weight and moments are read, and
all but the gradient written, 30 bytes in all. CPU-Adam takes 2.57 s for 10 B parameters on a DGX-2's two Xeons of
128 GB/s each (Ren et al. 2021, arXiv 2101.06840, table 4): 46 % of their rate.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np

from ...hardware import load_catalogue
from ...units import format_rate
from ...workload.elements import HALF_BYTES, SINGLE_BYTES
from ...workload.program import Comm
from ...workload.split import adds_on_host, host_master_bytes
from .coefficients import Coefficients
from .quantities import Grid, Machine, Number
from .sent import RankParameters, host_sent, sharers

ONCE_BYTES = float(SINGLE_BYTES + HALF_BYTES)  # an update's gradient read and its weight written for the device
# a gradient, where FSDP2 adds those of micro-batches up on the host: two read, one written
ADDED_BYTES = 3.0 * SINGLE_BYTES
MEMORY_SHARE = 0.46  # of the rate of the host's memory
LINK_SHARE = 0.8  # of the link's; assumed: 80 to 90 % are common on PCIe and NVLink-C2C alike
ASSUMED_MEMORY_RATE = 50e9  # a GPU's share of its host's memory, where no processor beside such a GPU is known
ASSUMED_LINK_RATE = 16e9  # PCIe 3, the slowest of them
STATES_AWAY = (
    "offload: no run that offloads was fitted to; rates of CPU-Adam and of copies are ZeRO-Offload's, whose update has "
    "all cores: OMP_NUM_THREADS is 1 under torchrun where nothing sets it"
)
ON_NVME = "nvme"  # trait of a job that offloads there
NVME = (
    "offload to NVMe: its rates are not modelled; priced as if all of it lay in the hosts' memory, which is faster: a "
    "step takes longer than this"
)
AWAY = "offload: no run whose activations lie on the host was fitted to; copies go beside computation"


class HostShare(TypedDict):
    """One GPU's share of its node's host, as fields of `Machine`."""

    host_rate: float
    host_memory_rate: float
    host_memory_bytes: float


def are_away(said: float | str | None, by_stack: Number, recompute: str) -> bool:
    """Whether activations lie on the hosts: as a run says, else as its stack has it where all layers are repeated."""
    return bool(said) if said is not None else bool(by_stack) and recompute == "full"


def host_link_text(accelerator: str, rate: float) -> str:
    """Return the way of a GPU to its host in words, by its name where the catalogue has it at that rate."""
    catalogue = load_catalogue()
    known = catalogue.accelerators.get(accelerator)
    link = None if known is None else catalogue.interconnect(known.cpu_link or known.host_link)
    name = f"{link.title}: " if link is not None and link.rate_bytes_per_s == rate else ""
    return f"{name}{format_rate(rate)} a GPU and direction"


class HostFigures(NamedTuple):
    """Figures of a node's host: rates in bytes per second, None where the catalogue does not know."""

    link_rate: float | None  # of one GPU to it
    memory_rate: float | None  # of its memory
    memory_bytes: float | None
    like: str = ""  # the node whose processors these are taken to have, where their own memory's rate is not known
    nvme: bool = False  # what is offloaded lies there, of which nothing is known

    def of_gpu(self, used: int, gpus: int) -> HostShare:
        """Return the share of one of the `used` of a node's `gpus`, as fields of `Machine`; assumed if not known."""
        return {
            "host_rate": self.link_rate or ASSUMED_LINK_RATE,
            "host_memory_rate": (self.memory_rate or ASSUMED_MEMORY_RATE * gpus) / used,
            "host_memory_bytes": self.memory_bytes / used if self.memory_bytes and not self.nvme else np.inf,
        }

    def doubts(self, stack: str, *, states: bool = True, activations: bool = False) -> tuple[str, ...]:
        """Return what is assumed where `states` of a layout, or `activations`, lie on the hosts of a stack."""
        told = [AWAY] if activations else []
        told += [STATES_AWAY] if states else []
        if not told:
            return ()
        if not self.link_rate:
            told.append(
                f"offload: the link of a GPU to its host is not known; assumed {format_rate(ASSUMED_LINK_RATE)}"
            )
        if states and (self.like or not self.memory_rate):
            rate = f"{format_rate(self.memory_rate or ASSUMED_MEMORY_RATE)} a {'node' if self.like else 'GPU'}"
            rate += f", of processors as in {self.like}, all of it for this job" if self.like else ""
            told.append(f"offload: the rate of the hosts' memory is not known; assumed {rate}")
        if self.nvme and states:
            told.append(NVME)
        elif not self.memory_bytes:
            told.append(
                "offload: the size of the hosts' memory is not known, and what lies there is not held against it"
            )
        if states and stack in {"maxtext", "pax"}:
            told.append(
                "offload: MaxText updates on the device, states travelling there and back; priced as on the host"
            )
        return tuple(told)


@dataclass(frozen=True, slots=True)
class Hosted:
    """Seconds a step of layouts that offload, and the update of the others."""

    update_s: Number  # with what of the weights' way back from the host it does not hide
    exposed_s: Number
    hidden_s: Number


def hosted_s(
    machine: Machine,
    c: Coefficients,
    grid: Grid,
    parameters: RankParameters,
    device_s: Number,
    *,
    micro: Number,
    work_s: Number,
    backward_s: Number,
    shard: Number,
) -> Hosted:
    """Return what offloading `parameters` takes.

    The devices take `device_s` to update all of them: what stays there they update beside the hosts.

    Weights may come beside all `work_s` of a step, gradients may leave beside its `backward_s`.
    FSDP2 copies the gradients of the first micro-batch beside what follows; those of the others it waits for, since
    the host adds them up.
    """
    sent = host_sent(c, grid, parameters, sharers(c, grid, shard))
    rate = machine.host_rate * LINK_SHARE
    memory = machine.host_memory_rate * MEMORY_SHARE

    def seconds(*names: str) -> Number:
        comms: list[Comm] = [getattr(one, name) for one in sent for name in names]
        return sum(comm.in_step(micro) * comm.bytes / rate for comm in comms)

    weights, gradients = grid.offload == 2, seconds("leave")
    added_up = [adds_on_host(one.leave, c, offload=grid.offload, micro_batches=micro) for one in sent]
    late_s = [comm.in_step(micro) * comm.bytes / rate for comm in (one.leave for one in sent)]
    waiting = sum(np.where(adds, 1.0 - 1.0 / micro, 0.0) * s for adds, s in zip(added_up, late_s, strict=True))
    updated = sum(one.back.bytes for one in sent) / c.host_weight_bytes
    added = np.where(waiting > 0, ADDED_BYTES * updated * (micro - 1.0) / memory, 0.0)
    beside = np.maximum(seconds("fetch", "again"), gradients - waiting)
    late = np.maximum(beside - np.where(weights, work_s, backward_s), 0.0)
    master = host_master_bytes(c)
    once = np.where(master < SINGLE_BYTES, c.host_gradient_bytes, ONCE_BYTES)  # weights without a copy need no cast
    states = c.optimizer_bytes - c.master_bytes + master  # moments and the master weight, read and written
    update, back = (once + 2.0 * states) * updated / memory, seconds("back")
    after = np.where(c.host_overlaps > 0, np.maximum(update, back), update + back)
    beside_s = np.where(grid.offload == 1, (1.0 - c.host_share) * device_s, 0.0)
    return Hosted(
        update_s=np.where(grid.offload > 0, np.maximum(after + added, beside_s), device_s),
        exposed_s=late + waiting + seconds("leave_once"),
        hidden_s=beside - late,
    )
