"""Facts on who is where: ranks of processes, GPUs, hosts and pods, how many there are, who spoke at all."""

from typing import Literal

import msgspec

from .network_state import GidRow, NcclSetting, NetworkAlarm
from .where import Where


class RankIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The process, GPU and host of a rank, as NCCL's Init line or torchrun says."""

    rank: int
    where: Where
    host: str = ""
    pid: int | None = None
    device: int | None = None
    bus_id: str = ""  # of an accelerator that is no GPU, the name of its device file: accel4, davinci4
    communicator: str = ""
    communicator_id: str = ""
    ranks: int | None = None


class GpuPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The number of a GPU on its host, and its PCI address as NCCL prints it, by `nvidia-smi` or `rocm-smi`."""

    device: int
    bus_id: str
    where: Where
    host: str = ""


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """The name of the device file of an accelerator (`accel4`), and its PCI address as NCCL prints it."""

    name: str
    bus_id: str
    where: Where
    host: str = ""


class BusyGpus(msgspec.Struct, frozen=True, kw_only=True):
    """A host's count of GPUs that were busy all the time, by `nvidia-smi`: a kernel that waits is busy, too."""

    busy: int
    gpus: int
    where: Where
    host: str = ""


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a GPU of a host is in one table, how much power it draws, and which processes are on it.

    `power_share` is of what it may draw; both are None where the table does not tell.
    """

    device: int
    percent: int
    host: str
    where: Where
    watts: float | None = None
    power_share: float | None = None
    pids: tuple[int, ...] = ()


class RankPhase(msgspec.Struct, frozen=True, kw_only=True):
    """The phase of a step in which a rank's last heartbeat is, and for how long; 0 s where that is not told."""

    rank: int
    phase: str
    step: int | None
    held_s: float
    where: Where


class VisibleGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a host that a program is given, by their numbers there: it counts these from 0.

    `host` is "" where that is not told, or they are the same on all.
    """

    devices: tuple[int, ...]
    where: Where
    host: str = ""


class Adapters(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of InfiniBand or RoCE that the processes of a host use, by their names, as NCCL lists them."""

    host: str
    ports: tuple[str, ...]
    where: Where


class PortUse(msgspec.Struct, frozen=True, kw_only=True):
    """A port over which a process sends or receives, by its `place` in the list of ports that NCCL uses there."""

    host: str
    pid: int
    place: int
    where: Where


class Siblings(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that one launcher started on a host with one command; their numbers grow with the rank."""

    pids: tuple[int, ...]
    where: Where


class ChildProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process and the one that started it, by a table of processes: a rank's loader is a child of the rank."""

    pid: int
    parent: int
    where: Where
    host: str = ""


class LocalProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process and its number on its host: LOCAL_RANK, or the number of the GPU that it uses (`is_gpu`).

    `of_several` where its launcher's command says that the job has several hosts. A table of a host counts `all` of its
    GPUs, a program the ones that it is `given`; of what people write either may be.
    """

    pid: int | None
    number: int
    where: Where
    host: str = ""
    is_gpu: bool = False
    of_several: bool = False
    counts: Literal["", "all", "given"] = ""


class HeldProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One of several alike processes that stands in a call of the kernel (state D): a rank, or a rank's helper."""

    pid: int
    what: str
    where: Where
    host: str = ""
    rank: int | None = None  # where the log says whose it is


class FreeProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """The alike processes of a table that stand in no call of the kernel."""

    pids: tuple[int, ...]
    where: Where
    host: str = ""
    rank: int | None = None  # of the only one, where the log says whose it is


class SameProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process by its number on its machine, and by that in its container (`inner`)."""

    pid: int
    inner: int
    where: Where


class GoneProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a tool did not find any more."""

    pid: int
    where: Where


class LeftRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's word that it has come to the end of its own epoch or data; `leaves` where it says that it ends."""

    rank: int
    where: Where
    leaves: bool = False


class WorldSize(msgspec.Struct, frozen=True, kw_only=True):
    """The number of ranks, as some line says; `is_of_host` where it says that one host has them all."""

    ranks: int
    where: Where
    is_of_host: bool = False


class Spoke(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of which anything at all is in the files: it exists."""

    rank: int
    where: Where
    late: Where | None = None  # the step from which on it made `MANY_STEPS`, the last ones that have a clock


class SaidSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The last sizes of tensors that a rank's own program printed, in elements or bytes."""

    rank: int
    sizes: tuple[int, ...]
    where: Where


class AgentRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that one of torchrun's agents started on its host."""

    ranks: tuple[int, ...]
    where: Where


class HostList(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts of a job in the order of SLURM's list."""

    hosts: tuple[str, ...]
    where: Where


class NumberedHosts(msgspec.Struct, frozen=True, kw_only=True):
    """A command that numbers hosts by their place in SLURM's list, or pods by their index (`are_pods`).

    `per_host` is the number of ranks of each, None where it is not told; `per_job` that of the pods of each job of a
    JobSet, which numbers its jobs too, None where pods are counted in one job.
    """

    per_host: int | None
    where: Where
    are_pods: bool = False
    per_job: int | None = None


class NotStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A host or pod of the job on which a scheduler (`by`) has started nothing; `what` says it in full."""

    host: str
    by: str
    what: str
    where: Where


class AxisGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of ranks along one axis of a mesh (tp, dp), as a script prints them, each in the order of its places."""

    axis: str
    groups: tuple[tuple[int, ...], ...]
    where: Where


class MadeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group that a line tells of as it is made: the words for it, and its ranks."""

    name: str
    ranks: tuple[int, ...]
    where: Where


class AgentEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One of torchrun's agents was told to end (SIGTERM)."""

    where: Where


class ToldToEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A process that torchrun's agent told to end, which still ran then; half a minute later the agent kills it."""

    pid: int
    where: Where


class TimeUp(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler's word that the time of the job is up, and that it ends it."""

    where: Where


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """The first step that one log shows, with a clock or without: the ranks of the job had all come."""

    where: Where


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the job, and the node on which Kubernetes started it, "" where a table of pods does not say."""

    pod: str
    node: str
    where: Where


class NodeGone(msgspec.Struct, frozen=True, kw_only=True):
    """An event of Kubernetes on a node that is being taken away, or no longer answers."""

    node: str
    what: str
    where: Where


class HostCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A host that a check of its state calls bad, whenever that was."""

    host: str
    what: str
    where: Where


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """RANK and WORLD_SIZE as a log prints them: of a process, or of a host where the launcher counts those.

    With LOCAL_RANK beside them, or in a `pod` of one process that a file describes, they are a process's (`has_local`).
    """

    number: int
    world: int
    has_local: bool = False
    pod: str = ""
    where: Where


class PortRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of an active port of a host, in Gb/s, as a table of its ports shows it."""

    host: str
    device: str
    rate_gb_s: int
    where: Where


class NearPort(msgspec.Struct, frozen=True, kw_only=True):
    """The port (its device) that is nearest to a GPU, of the `gpus` of its host, by `nvidia-smi topo -m`."""

    device: str
    gpu: int
    gpus: int
    where: Where


class PortErrors(msgspec.Struct, frozen=True, kw_only=True):
    """How often the port of a host went down, and its errors, by its own counters: they have no clock."""

    host: str
    downs: int
    errors: int
    where: Where


class PortName(msgspec.Struct, frozen=True, kw_only=True):
    """The name by which a host's kernel calls the network of a port, `ibp64s0`, beside that of its device."""

    host: str
    device: str
    name: str
    where: Where


class HostAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a host on one of its networks, as NCCL prints it."""

    host: str
    address: str
    where: Where


class SaidWait(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose last own words are that it enters a barrier, or waits for the others."""

    rank: int
    where: Where


class OwnCallFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A watchdog's word that a call of its own rank failed or timed out, which does not say which call that was."""

    rank: int
    where: Where


class Torchrun(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks were started by torchrun: a task of SLURM is one of its agents, not a rank."""

    where: Where


Identity = (
    RankIdentity
    | GpuPlace
    | DeviceFile
    | BusyGpus
    | GpuUse
    | RankPhase
    | VisibleGpus
    | Adapters
    | PortUse
    | Siblings
    | ChildProcess
    | LocalProcess
    | HeldProcess
    | FreeProcesses
    | SameProcess
    | GoneProcess
    | LeftRank
    | WorldSize
    | Spoke
    | SaidSizes
    | AgentRanks
    | HostList
    | NumberedHosts
    | NotStarted
    | AxisGroups
    | MadeGroup
    | AgentEnded
    | ToldToEnd
    | TimeUp
    | Placed
    | NodeGone
    | HostCheck
    | Began
    | Environment
    | Torchrun
    | SaidWait
    | OwnCallFailed
    | HostAddress
    | PortRate
    | NearPort
    | PortErrors
    | NetworkAlarm
    | GidRow
    | NcclSetting
    | PortName
)
