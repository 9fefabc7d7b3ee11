"""Write a schedule as an MSCCL++ execution plan, one thread block a rank.

Round by round: a rank tells its receivers that its chunks are ready, waits for its senders, reads their chunks into
scratch, tells its senders that it has read, waits until its receivers have, and only then stores or adds what it read.
So no slot changes while another rank reads it, whatever a schedule does in one round.
"""

from typing import Any

from ..errors import InputError
from .msccl_export import COLL
from .schedule import Round, Schedule, Transfer

# the buffer that holds every chunk of the payload, in place
_WHOLE = {"all_reduce": "i", "reduce_scatter": "i", "broadcast": "i", "all_gather": "o"}
THREADS = 1024  # of a block; what the DSL writes by default


def to_mscclpp(schedule: Schedule) -> dict[str, Any]:
    """Return the plan as plain data for JSON; InputError for a collective that plans of MSCCL++ do not have."""
    if schedule.collective not in _WHOLE:
        raise InputError(f"{schedule.collective}: expected one of {', '.join(sorted(_WHOLE))} for an MSCCL++ plan")
    room = max(
        (_incoming(transfers, rank) for transfers in schedule.rounds for rank in range(schedule.ranks)), default=0
    )
    return {
        "name": schedule.name,
        "collective": COLL[schedule.collective],
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "gpus": [_Gpu(schedule, rank, room).data() for rank in range(schedule.ranks)],
        "num_threads_per_block": THREADS,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 2**64 - 1,
    }


def _incoming(transfers: Round, rank: int) -> int:
    return sum(len(t.chunks) for t in transfers if t.dst == rank)


class _Gpu:
    """The operations of one rank, with the channels and remote buffers that they need."""

    def __init__(self, schedule: Schedule, rank: int, room: int) -> None:
        self.schedule, self.rank, self.room = schedule, rank, room
        self.whole = _WHOLE[schedule.collective]
        self.peers: dict[int, int] = {}
        self.remote: dict[tuple[int, str], int] = {}
        self.ops: list[dict[str, Any]] = []
        for transfers in schedule.rounds:
            self._round(transfers)

    def data(self) -> dict[str, Any]:
        """Return the GPU of the plan."""
        chunks = self.schedule.chunks
        share = chunks // self.schedule.ranks
        channels, buffers = list(range(len(self.peers))), list(range(len(self.remote)))
        return {
            "id": self.rank,
            "input_chunks": share if self.schedule.collective == "all_gather" else chunks,
            "output_chunks": share if self.schedule.collective == "reduce_scatter" else chunks,
            "scratch_chunks": self.schedule.scratch + self.room,
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

    def _round(self, transfers: Round) -> None:
        own = [t for t in transfers if t.dst == self.rank]
        senders = sorted({t.src for t in own if not t.is_local})
        receivers = sorted({t.dst for t in transfers if t.src == self.rank and not t.is_local})
        self._tell("signal", receivers)
        self._tell("wait", senders)
        landed: list[tuple[Transfer, int]] = []
        at = self.schedule.scratch
        for t in own:
            for offset, slot in enumerate(t.chunks):
                self._read(t.src, slot, at + offset)
            landed.append((t, at))
            at += len(t.chunks)
        self._tell("signal", senders)
        self._tell("wait", receivers)
        for t, first in landed:
            for offset, slot in enumerate(t.targets):
                came, place = _piece("s", first + offset), self._place(slot)
                if t.reduce:
                    self._add("re", [place, came], [place], reduce_op="sum")
                else:
                    self._add("copy", [came], [place])

    def _read(self, source: int, slot: int, landing: int) -> None:
        target = _piece("s", landing)
        if source == self.rank:
            self._add("copy", [self._place(slot)], [target])
            return
        buffer, index = self._local(slot)
        number = self.remote.setdefault((source, buffer), len(self.remote))
        far = {"buffer_id": number, "index": index, "size": 1}
        self._add("get", [far], [target], channel_type="memory", channel_ids=[self._channel(source)])

    def _tell(self, name: str, peers: list[int]) -> None:
        if peers:
            self._add(name, channel_type="memory", channel_ids=[self._channel(peer) for peer in peers])

    def _channel(self, peer: int) -> int:
        return self.peers.setdefault(peer, len(self.peers))

    def _local(self, slot: int) -> tuple[str, int]:
        chunks = self.schedule.chunks
        return (self.whole, slot) if slot < chunks else ("s", slot - chunks)

    def _place(self, slot: int) -> dict[str, Any]:
        return _piece(*self._local(slot))

    def _add(
        self, name: str, sources: list[dict[str, Any]] | None = None, targets: list[dict[str, Any]] | None = None,
        **keys: Any,
    ) -> None:  # fmt: skip
        """Append an operation, and the barrier of its block's threads that the next one needs."""
        found: dict[str, Any] = {"name": name}
        if sources and targets:
            found |= {"src_buff": sources, "dst_buff": targets}
        self.ops += [found | keys, {"name": "nop"}]


def _piece(buffer: str, index: int) -> dict[str, Any]:
    return {"type": buffer, "index": index, "size": 1}
