"""Write a schedule as an MSCCL++ execution plan, one thread block a rank.

At first every rank tells its senders that it has begun. Then, round by round, it puts the chunks of the
round into the scratch of their receivers, tells them that they are there, waits until its senders have, and only then
stores or adds what came. Each transfer has scratch of its own, so that nothing is overwritten that is still needed, and
no slot changes while it is read. A nop, the barrier of a block's threads, stands where one operation needs what others
did (docs/collectives.md). Chunks are put and not got: the runtime swaps the two offsets of a get (handleGet of
src/core/include/execution_kernel.hpp).
"""

from collections.abc import Iterator
from typing import Any

from ...errors import InputError
from ..msccl.file import COLL
from ..schedules.schedule import Round, Schedule
from .file import MAX_BLOCK_OPS, MAX_CHANNELS, MAX_CHANNELS_OF_AN_OP

# the buffer that holds every chunk of the payload, in place
_WHOLE = {"all_reduce": "i", "reduce_scatter": "i", "broadcast": "i", "all_gather": "o"}
THREADS = 1024  # of a block; what the DSL writes by default
_NOP = {"name": "nop"}


def to_mscclpp(schedule: Schedule) -> dict[str, Any]:
    """Return the plan as plain data for JSON; InputError for a collective that plans of MSCCL++ do not have."""
    if schedule.collective not in _WHOLE:
        raise InputError(f"{schedule.collective}: expected one of {', '.join(sorted(_WHOLE))} for an MSCCL++ plan")
    landings, scratch = _landings(schedule)
    return {
        "name": schedule.name,
        "collective": COLL[schedule.collective],
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "gpus": [_Gpu(schedule, rank, landings, scratch).data() for rank in range(schedule.ranks)],
        "num_threads_per_block": THREADS,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 2**64 - 1,
    }


def runtime_fault(data: dict[str, Any]) -> str:
    """Return the first limit of the runtime (execution_common.hpp) that a plan exceeds, in words; "" for none."""
    for gpu in data["gpus"]:
        for block in gpu["threadblocks"]:
            where = f"block {block['id']} of gpu {gpu['id']}"
            if len(block["ops"]) > MAX_BLOCK_OPS:
                return f"{where} has {len(block['ops'])} operations, it takes {MAX_BLOCK_OPS}"
            for what in (*block["channels"], *block["remote_buffer_refs"]):
                used = len(what.get("channel_ids", what.get("remote_buffer_ids", ())))
                if used > MAX_CHANNELS:
                    return f"{where} has {used} channels or remote buffers, it takes {MAX_CHANNELS}"
    return ""


_Landings = list[list[int]]  # of each round, of each transfer


def _landings(schedule: Schedule) -> tuple[_Landings, int]:
    """Return where in the scratch of its receiver each transfer lands, and how much scratch a rank needs."""
    filled = dict.fromkeys(range(schedule.ranks), schedule.scratch)
    found: _Landings = []
    for transfers in schedule.rounds:
        found.append([])
        for t in transfers:
            found[-1].append(filled[t.dst])
            filled[t.dst] += len(t.chunks)
    return found, max(filled.values())


def _runs(slots: tuple[int, ...], border: int) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of slots that follow each other on one side of the border: place in the list, slot, length."""
    start = 0
    for i in range(1, len(slots) + 1):
        if i == len(slots) or slots[i] != slots[i - 1] + 1 or slots[i] == border:
            yield start, slots[start], i - start
            start = i


class _Gpu:
    """The operations of one rank, with the channels and remote buffers that they need."""

    def __init__(self, schedule: Schedule, rank: int, landings: _Landings, scratch: int) -> None:
        self.schedule, self.rank, self.scratch = schedule, rank, scratch
        self.whole = _WHOLE[schedule.collective]
        self.peers: dict[int, int] = {}
        self.remote: dict[tuple[int, str], int] = {}
        self.ops: list[dict[str, Any]] = []
        crossing = [t for transfers in schedule.rounds for t in transfers if not t.is_local]
        self._tell("signal", {t.src for t in crossing if t.dst == rank})
        self._tell("wait", {t.dst for t in crossing if t.src == rank})
        for transfers, places in zip(schedule.rounds, landings, strict=True):
            self._round(transfers, places)

    def data(self) -> dict[str, Any]:
        """Return the GPU of the plan."""
        chunks = self.schedule.chunks
        share = chunks // self.schedule.ranks
        channels, buffers = list(range(len(self.peers))), list(range(len(self.remote)))
        return {
            "id": self.rank,
            "input_chunks": share if self.schedule.collective == "all_gather" else chunks,
            "output_chunks": share if self.schedule.collective == "reduce_scatter" else chunks,
            "scratch_chunks": self.scratch,
            "threadblocks": [
                {
                    "id": 0,
                    "ops": self.ops,
                    "channels": [{"channel_type": "memory", "channel_ids": channels}],
                    "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": buffers}],
                }
            ],
            "channels": [{"channel_type": "memory", "connected_to": list(self.peers)}],
            "remote_buffers": [
                {"rank": rank, "type": buffer, "access_channel_types": ["memory"]} for rank, buffer in self.remote
            ],
            "semaphores": [],
        }

    def _round(self, transfers: Round, places: list[int]) -> None:
        landed = list(zip(transfers, places, strict=True))
        mine = [(t, at) for t, at in landed if self.rank in (t.src, t.dst)]
        if not mine:
            return
        self._sync()
        for t, at in mine:
            number = self.remote.setdefault((t.dst, "s"), len(self.remote)) if self.rank == t.src != t.dst else 0
            for i, slot, size in _runs(t.chunks, self.schedule.chunks):
                if t.is_local:
                    self._add("copy", [self._place(slot, size)], [_piece("s", at + i, size)])
                elif t.src == self.rank:
                    far = {"buffer_id": number, "index": at + i, "size": size}
                    self._add("put", [self._place(slot, size)], [far], channel_type="memory")
        self._sync()
        self._tell("signal", {t.dst for t, _ in mine if t.src == self.rank and not t.is_local})
        self._tell("wait", {t.src for t, _ in mine if t.dst == self.rank and not t.is_local})
        self._sync()
        summed: set[int] = set()
        for t, at in ((t, at) for t, at in mine if t.dst == self.rank):
            if t.reduce and summed & set(t.targets):  # a sum of what another sum of this round left there
                self._sync()
            summed |= set(t.targets) if t.reduce else set()
            for i, slot, size in _runs(t.targets, self.schedule.chunks):
                came, place = _piece("s", at + i, size), self._place(slot, size)
                if t.reduce:
                    self._add("re", [place, came], [place], reduce_op="sum")
                else:
                    self._add("copy", [came], [place])

    def _sync(self) -> None:
        """Append the barrier of the block's threads, unless nothing came since the last."""
        if self.ops and self.ops[-1] != _NOP:
            self.ops.append(_NOP)

    def _tell(self, name: str, peers: set[int]) -> None:
        numbers = [self.peers.setdefault(peer, len(self.peers)) for peer in sorted(peers)]
        for at in range(0, len(numbers), MAX_CHANNELS_OF_AN_OP):
            self._add(name, channel_type="memory", channel_ids=numbers[at : at + MAX_CHANNELS_OF_AN_OP])

    def _place(self, slot: int, size: int) -> dict[str, Any]:
        chunks = self.schedule.chunks
        return _piece(self.whole, slot, size) if slot < chunks else _piece("s", slot - chunks, size)

    def _add(
        self, name: str, sources: list[dict[str, Any]] | None = None, targets: list[dict[str, Any]] | None = None,
        **keys: Any,
    ) -> None:  # fmt: skip
        found: dict[str, Any] = {"name": name}
        if sources and targets:
            found |= {"src_buff": sources, "dst_buff": targets}
        self.ops.append(found | keys)


def _piece(buffer: str, index: int, size: int) -> dict[str, Any]:
    return {"type": buffer, "index": index, "size": size}
