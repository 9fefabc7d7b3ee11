"""Limits of today's MSCCL runtimes: RCCL's reader and that of msccl-executor-nccl.

From their sources (src/include/msccl/msccl_struct.h and msccl_parser.h): names and values of at most 255 characters;
of the file of one rank 4,096 elements, of one element 1,024 children; 64 steps in a block; messages of fewer than 72
chunks; 32 peers to send to, and 32 to receive from, in a channel; 32 channels.
"""

from collections import defaultdict

import msgspec

from .msccl_file import Algo, read_algo

MAX_TEXT = 255


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one runtime takes."""

    steps: int = 64
    count: int = 71
    peers: int = 32
    channels: int = 32
    nodes: int = 4096
    children: int = 1024
    missing: tuple[str, ...] = ("copy",)  # collectives that it does not know

    def fault(self, text: str) -> str:
        """Return the first thing in a file that the runtime does not take, in words; "" where it takes all."""
        return self.fault_of(read_algo(text))

    def fault_of(self, algo: Algo) -> str:
        """Likewise of a program."""
        for rank, gpu in enumerate(algo.gpus):
            nodes = 1 + len(algo.gpus) + len(gpu.blocks) + sum(len(block.steps) for block in gpu.blocks)
            most = max(len(gpu.blocks), len(algo.gpus))
            if nodes > self.nodes or most > self.children:
                return f"gpu {rank} has {nodes} elements, it reads {self.nodes} and {self.children} in one"
            ends: dict[tuple[str, int], set[int]] = defaultdict(set)
            for number, block in enumerate(gpu.blocks):
                if len(block.steps) > self.steps:
                    return f"block {number} of gpu {rank} has {len(block.steps)} steps, it takes {self.steps}"
                large = max((step.count for step in block.steps), default=0)
                if large > self.count:
                    return f"block {number} of gpu {rank} sends {large} chunks at once, it takes {self.count}"
                for end, peer in (("send", block.send), ("recv", block.receive)):
                    if peer is not None:
                        ends[end, block.channel].add(peer)
                        if len(ends[end, block.channel]) > self.peers:
                            return f"gpu {rank} has more than {self.peers} peers on channel {block.channel}"
        used = 1 + max((block.channel for gpu in algo.gpus for block in gpu.blocks), default=0)
        return f"{used} channels, it has {self.channels}" if used > self.channels else ""


LIMITS = {"msccl": Limits(), "rccl": Limits()}
