"""Execution plans of MSCCL++ as its DSL writes them today (JSON): the nouns of the file, checked.

Each GPU has thread blocks; a block carries out its operations in order. Channels, remote buffers and semaphores are
numbered by GPU, and a block lists the ones that it uses: an operation's numbers are positions in the block's own lists.
Format from the reader of the runtime (src/executor/execution_plan.cc, 0.7 and later).
"""

from typing import Annotated, Any, Literal

import msgspec

from ...errors import InputError, nearest
from ...files import convert

MAX_CHUNKS = 2**16
MAX_OPS = 20_000  # in all: the order between any two is kept

# of today's runtime (src/core/include/execution_common.hpp): of a block, of a block, of an operation
MAX_BLOCK_OPS, MAX_CHANNELS, MAX_CHANNELS_OF_AN_OP = 64, 16, 8

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_CHUNKS)]
Buffer = Literal["i", "o", "s"]

# what an operation does with its sources and destinations
MOVES = frozenset({"copy", "put", "pws", "pwsf", "get", "ppkt", "rppkt", "cpkt", "upkt", "tpkt"})
SUMS = frozenset({"re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt"})
PACKETS = frozenset({"ppkt", "rppkt", "cpkt", "upkt", "tpkt", "repkt", "respkt", "recpkt", "recspkt"})
SIGNALS = frozenset({"signal", "rlxsignal", "pws", "pwsf"})
WAITS = frozenset({"wait", "rlxwait"})
NOTHING = frozenset({"nop", "flush"})  # order inside a block, which the order of its operations gives already
_REFUSED = {
    "glre": "a sum in the switch", "glres": "a sum in the switch", "gstore": "a store by the switch",
    "pipeline": "a pipeline loop",
}  # fmt: skip
KNOWN = MOVES | SUMS | SIGNALS | WAITS | NOTHING | {"barrier", "sem_acquire", "sem_release"}


class ChunkRun(msgspec.Struct, frozen=True):
    """A run of chunks of a buffer: of the GPU's own (`type`) or of another's (`buffer_id`)."""

    index: Count
    size: Count = 1
    type: Buffer | None = None
    buffer_id: Count | None = None


class BlockShare(msgspec.Struct, frozen=True):
    """Of each run, only the part of one of several blocks."""

    tb_id: Count
    tbg_size: Annotated[int, msgspec.Meta(ge=1, le=64)]


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a block."""

    name: str
    src_buff: tuple[ChunkRun, ...] = ()
    dst_buff: tuple[ChunkRun, ...] = ()
    channel_ids: tuple[Count, ...] = ()
    channel_type: str = "none"
    barrier_id: Count = 0
    num_threadblocks: Count = 0
    semaphore_ids: tuple[Count, ...] = ()
    tbg_info: BlockShare | None = None


class BlockChannels(msgspec.Struct, frozen=True):
    """Channels of the GPU that a block uses."""

    channel_type: str
    channel_ids: tuple[Count, ...] = ()


class BlockBuffers(msgspec.Struct, frozen=True):
    """Remote buffers of the GPU that a block uses."""

    access_channel_type: str
    remote_buffer_ids: tuple[Count, ...] = ()


class PlanBlock(msgspec.Struct, frozen=True):
    """A thread block."""

    id: Count
    ops: tuple[Op, ...]
    channels: tuple[BlockChannels, ...] = ()
    remote_buffer_refs: tuple[BlockBuffers, ...] = ()


class Channels(msgspec.Struct, frozen=True):
    """Channels of one type: one for each peer that is listed. The first reader of the format called the key `type`."""

    channel_type: str
    connected_to: tuple[Count, ...] = ()


class RemoteBuffer(msgspec.Struct, frozen=True):
    """A buffer of another GPU."""

    rank: Count
    type: Buffer


class Semaphore(msgspec.Struct, frozen=True):
    """A counter that blocks of one GPU share."""

    init_value: Count = 0


class PlanGpu(msgspec.Struct, frozen=True):
    """The operations of one rank."""

    id: Count
    input_chunks: Count
    output_chunks: Count
    scratch_chunks: Count
    threadblocks: tuple[PlanBlock, ...]
    channels: tuple[Channels, ...] = ()
    remote_buffers: tuple[RemoteBuffer, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()

    def chunks_of(self, buffer: Buffer) -> int:
        """Return how many chunks a buffer has."""
        return {"i": self.input_chunks, "o": self.output_chunks, "s": self.scratch_chunks}[buffer]


class MscclppPlan(msgspec.Struct, frozen=True):
    """A plan."""

    name: str | None  # null where the DSL was given none
    collective: str
    inplace: bool
    gpus: tuple[PlanGpu, ...]


def is_execution_plan(data: Any) -> bool:
    """Return whether the value of a JSON file is such a plan."""
    return isinstance(data, dict) and isinstance(data.get("gpus"), list) and "rounds" not in data


def read_plan(data: dict[str, Any], where: str) -> MscclppPlan:
    """Return the plan; InputError for what is none, is of an older MSCCL++, or needs what no schedule can say."""
    first = data["gpus"][0] if data["gpus"] else {}
    if isinstance(first, dict) and "inputChunks" in first:
        raise InputError(
            f"{where}: a plan of MSCCL++ before 0.7 (inputChunks): expected input_chunks; build it again with the DSL"
        )
    plan: MscclppPlan = convert(_renamed(data), MscclppPlan, where=where)
    total = 0
    for rank, gpu in enumerate(plan.gpus):
        if gpu.id != rank:
            raise InputError(f"{where}: gpus[{rank}]: id {gpu.id}: expected {rank}")
        if len({block.id for block in gpu.threadblocks}) < len(gpu.threadblocks):
            raise InputError(f"{where}: gpu {rank}: two blocks have one id")
        for block in gpu.threadblocks:
            total += len(block.ops)
            for number, op in enumerate(block.ops):
                _check_name(op, f"{where}: gpu {rank} block {block.id} op {number}")
    if not 0 < len(plan.gpus) <= MAX_CHUNKS or total > MAX_OPS:
        raise InputError(f"{where}: expected 1 to {MAX_CHUNKS:,} GPUs and at most {MAX_OPS:,} operations")
    return plan


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Return the plan with the one key that was renamed, `type` of a GPU's channels, as today's reader has it."""

    def channel(one: Any) -> Any:
        if isinstance(one, dict) and "type" in one and "channel_type" not in one:
            return {"channel_type" if key == "type" else key: value for key, value in one.items()}
        return one

    def gpu(one: Any) -> Any:
        if isinstance(one, dict) and isinstance(one.get("channels"), list):
            return one | {"channels": [channel(each) for each in one["channels"]]}
        return one

    return data | {"gpus": [gpu(one) for one in data["gpus"]]}


def _check_name(op: Op, at: str) -> None:
    if op.name in _REFUSED:
        raise InputError(f"{at}: {op.name}: {_REFUSED[op.name]}, which no schedule can say")
    if op.name not in KNOWN:
        raise InputError(f"{at}: operation {op.name[:20]!r}: unknown ({nearest(op.name, sorted(KNOWN))})")
