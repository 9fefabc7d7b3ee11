"""Facts in the artefacts of a hung job: one struct for each thing that can be read.

`rank` is the job's (global) rank, None where the artefact does not say; a position inside a group is `group_rank`.
Times are seconds since the start of a year, good for telling earlier from later and for nothing else.
"""

from typing import Literal, TypeVar

import msgspec

from .calls import Call
from .identities import Identity
from .launch_counts import CountedCalls, LaunchCounts, LaunchedAlike, Remark
from .paces import OutlivedWait, Pace, Stepped
from .where import GroupName, Where

T = TypeVar("T")


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    """A rank waited too long for a collective: what a watchdog prints; `seq` and sizes None where it does not say."""

    rank: int | None
    where: Where
    group_rank: int | None = None
    group: GroupName | None = None
    operation: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    waited_s: float | None = None
    counted_in_group: bool = False  # `rank` is the only number of the line, which counts inside a group


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rank has come in a group: the last calls that it enqueued, started and completed."""

    rank: int | None
    where: Where
    group_rank: int | None = None
    group: GroupName | None = None
    enqueued: int | None = None
    started: int | None = None
    started_operation: str = ""
    completed: int | None = None
    failed_at: int | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that ends a rank or a link. `follows` marks what usually follows from a fault elsewhere."""

    kind: str
    what: str
    where: Where
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    host: str = ""
    pod: str = ""  # of Kubernetes: its log is named after it
    pid: int | None = None
    bus_id: str = ""  # of an accelerator that is no GPU, the name of its device file
    device: int | None = None  # GPU, as its host counts
    follows: bool = False
    unless_first: bool = False  # and `follows`: not where it is the only one of its kind, on a rank that did not wait
    is_over: bool = False  # it did no harm: the training went on
    is_general: bool = False  # it befell the job, not one of its ranks
    is_summary: bool = False  # a launcher's word at the end: where it stands says nothing of when it was


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a launcher says a process ended; `code` is minus the signal. Without a rank it counts by itself."""

    rank: int | None
    where: Where
    task: int | None = None  # of MPI: a rank where each rank is a task
    host: str = ""
    local_rank: int | None = None
    pid: int | None = None
    code: int = 0
    first: bool = False  # "root cause (first observed failure)", or the only one that the launcher names
    time_s: float | None = None  # when, as the launcher says


class LinkUp(msgspec.Struct, frozen=True, kw_only=True):
    """A link that came up again after it had been down for long, since the line `down`."""

    down: Where
    where: Where


class PortDown(msgspec.Struct, frozen=True, kw_only=True):
    """A port that a table of its host shows as down, while others of the host or of its name are active."""

    host: str
    device: str
    number: int | None = None  # of the NPU whose port it is
    where: Where


class DesyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """A print of TORCH_NCCL_DESYNC_DEBUG: ranks by what they did last, by number of the call."""

    where: Where
    rank: int | None = None
    at_operation: str = ""
    at_seq: int | None = None
    never: tuple[int, ...] = ()
    unfinished: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (call, ranks that joined and did not finish)
    not_joined: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (call that they did not join, ranks)
    started: tuple[tuple[int, str, tuple[int, ...]], ...] = ()  # (call, operation, ranks)


class Absentees(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that did not come, named by one who waited for all (a monitored barrier) or for one of them (HCCL).

    `ranks` is empty where the line does not say which ranks of the job they are: but their `hosts`, and who `came`.
    """

    ranks: tuple[int, ...]
    where: Where
    by: str = "a monitored barrier"
    operation: str = "monitored_barrier"
    seq: int | None = None
    hosts: tuple[str, ...] = ()
    came: tuple[str, ...] = ()  # hosts
    kind: str = "absent"  # or desync: they run another program


class Analysed(msgspec.Struct, frozen=True, kw_only=True):
    """One group by torch's own analyser of flight records: who is missing from a call, or calls it unlike the first.

    `culprits` are (rank, type of the error, what the first rank has, what this one has); `loaded` counts its files;
    `transfers` are the sends and receives of its table that have not ended.
    """

    group: GroupName
    operation: str
    seq: int
    expected: tuple[int, ...]
    where: Where
    missing: tuple[int, ...] = ()
    culprits: tuple[tuple[int, str, str, str], ...] = ()
    numel_in: int | None = None
    numel_out: int | None = None
    ended: bool = False
    loaded: int | None = None
    size: int = 0  # of the group
    transfers: tuple[Call, ...] = ()


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that says that it came, and waits for another."""

    rank: int | None
    where: Where


class NotifyWait(msgspec.Struct, frozen=True, kw_only=True):
    """A rank waits for another by HCCL, in a `call` (`AllReduce_group_name_7`).

    `remote` and `place` count inside the group, of `size` ranks.
    """

    rank: int | None
    remote: int | None
    where: Where
    call: str = ""
    group: str = ""
    size: int | None = None
    place: int | None = None


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """A rank began one `call` of a group by HCCL's log of entries; `rank` counts inside the group."""

    rank: int
    call: str
    shape: str  # its count and type
    where: Where


class StoreWait(msgspec.Struct, frozen=True, kw_only=True):
    """A rank timed out waiting for a key of the store, or for others to join; `of` is the rank that writes the key.

    `to` is the address of a store that could not be reached at all; `what` says it where it is no key of a store.
    `is_host` marks the process that holds the store, which waited for the others to connect, `lacking` of whom did not.
    """

    rank: int | None
    where: Where
    of: int | None = None
    to: str = ""
    what: str = "for a key of the store"
    is_host: bool = False
    lacking: int | None = None
    joined: int | None = None  # of its clients
    key: str = ""  # of the store's barrier
    pid: int | None = None
    host: str = ""


class GroupJoin(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that says that it begins to set up a group; `key` is that of the store's barrier, "" for none."""

    rank: int
    where: Where
    key: str = ""


class Stalled(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that some ranks have submitted and others have not, as Horovod's stall check prints it."""

    tensor: str
    where: Where
    missing: tuple[int, ...] = ()
    ready: tuple[int, ...] = ()


class UnlikeModel(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose parameters are not those of another, as DDP finds before the first step.

    With `counts` every rank says so that DDP has seen to differ from another: how many parameters each of the two has.
    Without, the rank holds its shapes against rank 0's.
    """

    rank: int | None
    what: str
    counts: dict[int, int] = {}
    where: Where


class PeerLost(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose connection to another broke: the other's process ended (`killed`), or its link did (`network`).

    The call is that in which it stood, and `of` the other, where the line says it.
    """

    rank: int | None
    kind: str
    where: Where
    of: int | None = None
    group_rank: int | None = None
    operation: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Work that keeps a rank from the others: its data are prepared (a progress bar before its end), or `kind`."""

    rank: int | None
    what: str
    where: Where
    kind: Literal["data", "host"] = "data"
    pid: int | None = None
    host: str = ""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The watchdog thread itself of a rank stood still: a host call holds it."""

    rank: int | None
    where: Where


class CodeFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a rank's traceback that calls a collective."""

    rank: int | None
    operation: str
    where: Where


class SizesDiffer(msgspec.Struct, frozen=True, kw_only=True):
    """A rank received another number of bytes than it expected, or was told of another argument."""

    rank: int | None
    where: Where
    came_bytes: int = 0
    expected_bytes: int = 0
    what: str = ""  # how they differ, where that is not a number of bytes


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """A call that TORCH_DISTRIBUTED_DEBUG=DETAIL compared, by rank in its group; NCCL names only a rank near it."""

    rank: int
    where: Where
    operation: str = ""
    shape: str = ""
    types: str = ""  # of the tensors and their device
    seq: int | None = None
    speaker: int | None = None  # the rank in the job whose own call it is, as the prefix of its line says


class CommunicatorCall(msgspec.Struct, frozen=True, kw_only=True):
    """One collective that NCCL_DEBUG_SUBSYS=COLL printed, of one process and communicator."""

    host: str
    pid: int
    device: int
    communicator: str
    operation: str
    seq: int
    count: int
    datatype: int
    where: Where
    ranks: int | None = None
    rank: int | None = None  # of the job, as newer NCCL says at the end of the line


class SlowRank(msgspec.Struct, frozen=True, kw_only=True):
    """A slow rank by a training framework's own detector, or a GPU that its driver slows down.

    `rank` is None where only a group of ranks is known, or a GPU (`device` of the `devices` of its `host`, `bus_id`).
    """

    rank: int | None
    what: str
    where: Where
    device: int | None = None
    devices: int = 0
    bus_id: str = ""
    host: str = ""


class SlowerSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A rank whose own work in a step became `ratio` times longer and stayed so; its clock, in MHz, before and since.

    Its own work is a step without the communication that the same line tells of: in that it may wait for others.
    """

    rank: int
    ratio: float
    where: Where
    clock_before_mhz: int | None = None
    clock_mhz: int | None = None


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The last steps of a rank by its own lines: its own work, and what it spends in communication, in one unit."""

    rank: int
    work: float
    waits: float
    where: Where


class TrainingEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A program's word that its training has come to its end; `exited` where its exit code of 0 follows.

    `is_last` where no step follows in its log: a part of a training ends as well.
    """

    rank: int | None
    where: Where
    exited: bool = False
    is_last: bool = False


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of NCCL of two ranks that differ, as (rank, version)."""

    versions: tuple[tuple[int, str], ...]
    where: Where


class VersionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The version of NCCL that a rank's error names, or that the processes of a host print; as NCCL counts, 22005."""

    version: str
    where: Where
    rank: int | None = None
    host: str = ""


class DumpOutlived(msgspec.Struct, frozen=True, kw_only=True):
    """A stack or a flight record that was dumped while a job trained, and the line of a later step or of its end."""

    where: Where
    of_record: bool = False


class Succeeded(msgspec.Struct, frozen=True, kw_only=True):
    """The word of a launcher or batch system on how a whole job, or one of its steps, ended: well, or not."""

    well: bool
    where: Where


class SharedMemoryFull(msgspec.Struct, frozen=True, kw_only=True):
    """A table of file systems (`df`) that shows /dev/shm full."""

    where: Where


class Shortened(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of several ranks were folded into one (Ray's "repeated 7x across cluster"): silence means nothing."""

    where: Where


class Frame(msgspec.Struct, frozen=True):
    """One function on a stack."""

    function: str
    file: str = ""
    line: int | None = None
    peer: int | None = None  # of a send or a receive, by its arguments
    transfer: str = ""  # send or recv, where an argument is the handle of one and says so

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})" if self.line is not None else self.function


class StackTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The main thread of a rank as py-spy, faulthandler or a debugger saw it, innermost function first.

    `local_rank` counts on its host, where nothing else says the rank; so does `device`, the number of its GPU.
    """

    rank: int | None
    frames: tuple[Frame, ...]
    where: Where
    pid: int | None = None
    host: str = ""
    local_rank: int | None = None
    device: int | None = None
    is_native: bool = False  # by a debugger that shows no function of Python
    is_momentary: bool = False  # of a job that a person interrupted, who may not have waited for it


class KernelTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a rank's GPU, by `nsys stats`: seconds in kernels that communicate and in kernels that compute."""

    rank: int | None
    where: Where
    communication_s: float
    communication_calls: int
    compute_s: float
    ranges: dict[str, float] = {}  # seconds of the host in each range of NVTX


Fact = (
    Identity
    | Timeout
    | GroupProgress
    | Failure
    | Exit
    | LinkUp
    | PortDown
    | DesyncReport
    | Absentees
    | Analysed
    | Arrived
    | NotifyWait
    | StoreWait
    | GroupJoin
    | Stalled
    | UnlikeModel
    | PeerLost
    | Busy
    | Heartbeat
    | CodeFrame
    | SizesDiffer
    | Entered
    | Fingerprint
    | CommunicatorCall
    | CountedCalls
    | LaunchCounts
    | LaunchedAlike
    | SlowRank
    | SlowerSteps
    | StepTimes
    | Pace
    | TrainingEnded
    | Stepped
    | DumpOutlived
    | OutlivedWait
    | Succeeded
    | Versions
    | VersionSeen
    | SharedMemoryFull
    | Shortened
    | Remark
    | StackTrace
    | KernelTimes
)


def of(facts: list[Fact], kind: type[T]) -> list[T]:
    """Return the facts of one kind, in the order in which they were read."""
    return [fact for fact in facts if isinstance(fact, kind)]
