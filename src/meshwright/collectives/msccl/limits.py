"""Limits of today's MSCCL runtimes: RCCL's reader and that of msccl-executor-nccl.

From their sources (src/include/msccl/msccl_struct.h and msccl_parser.h): names and values of at most 255 characters;
of the file of one rank 4,096 elements, of one element 1,024 children; 64 steps in a block; messages of fewer than 72
chunks; 32 blocks that send, and 32 that receive, in a channel; 32 channels; what a step waits for is a block up to 127.

The readers keep a nop as a wait of the next step, which must wait for something too, and count steps by the waits that
they kept. Reductions one after another into one place, from one buffer, are one to them, until one waits or tells
others or is the 16th of its block; the number of chunks is then that of the last. So a reduction that tells others,
whether somebody waits for it or not, is joined with none after it.
"""

import itertools
from collections import Counter

import msgspec

from .file import Algo, MscclGpu, MscclStep, ThreadBlock

replace = msgspec.structs.replace

MAX_TEXT = 255
_MAX_BLOCK = 127  # an 8-bit number with a sign
_MAX_OFFSET = 2**15 - 1  # one of 16 bits
_JOINED = 16  # reductions


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one runtime."""

    steps: int = 64
    count: int = 71
    peers: int = 32
    channels: int = 32
    nodes: int = 4096
    children: int = 1024
    missing: tuple[str, ...] = ("copy",)  # collectives that it does not know

    def fault_of(self, algo: Algo) -> str:
        """Return the first thing in a program that the runtime does not take, in words; "" where it takes all."""
        if len(algo.name) > MAX_TEXT:
            return f"the name has {len(algo.name)} characters, it takes {MAX_TEXT}"
        for rank, gpu in enumerate(algo.gpus):
            fault = self._fault_of_gpu(rank, gpu, len(algo.gpus)) or _misread(rank, gpu)
            if fault:
                return fault
        used = 1 + max((block.channel for gpu in algo.gpus for block in gpu.blocks), default=0)
        return f"{used} channels, it has {self.channels}" if used > self.channels else ""

    def _fault_of_gpu(self, rank: int, gpu: MscclGpu, ranks: int) -> str:
        nodes = 1 + ranks + len(gpu.blocks) + sum(len(block.steps) for block in gpu.blocks)
        if nodes > self.nodes or max(len(gpu.blocks), ranks) > self.children:
            return f"gpu {rank} has {nodes} elements, it reads {self.nodes} and {self.children} in one"
        ends: Counter[tuple[str, int]] = Counter()
        for number, block in enumerate(gpu.blocks):
            if len(block.steps) > self.steps:
                return f"block {number} of gpu {rank} has {len(block.steps)} steps, it takes {self.steps}"
            large = max((step.count for step in block.steps), default=0)
            if large > self.count:
                return f"block {number} of gpu {rank} sends {large} chunks at once, it takes {self.count}"
            for end, peer in (("send", block.send), ("recv", block.receive)):
                ends[end, block.channel] += peer is not None
                if ends[end, block.channel] > self.peers:
                    return f"gpu {rank} has more than {self.peers} peers on channel {block.channel}"
        return ""


def _misread(rank: int, gpu: MscclGpu) -> str:
    """Return the first step of a rank that the readers take for something else, in words; "" where there is none."""
    for number, block in enumerate(gpu.blocks):
        waited_for = gpu.waited_for(number)
        told = max(waited_for, default=-1)
        reductions = 0  # of the block so far
        before: list[MscclStep] = []  # the reductions that the next one may be joined with
        pending = False  # whether a nop has waits that no step has taken over
        for index, step in enumerate(block.steps):
            place = f"step {index} of block {number} of gpu {rank}"
            if max(step.src[1], step.dst[1]) > _MAX_OFFSET:
                return f"{place}: its offsets go up to {_MAX_OFFSET}"
            if step.wait_for is not None and step.wait_for[0] > _MAX_BLOCK:
                return f"{place} waits for block {step.wait_for[0]}, it keeps blocks up to {_MAX_BLOCK}"
            if step.type == "nop":
                if step.wait_for is None and index <= told:
                    return (
                        f"{place} is a nop that waits for nothing: it does not count it, and later steps are one less"
                    )
                pending = pending or step.wait_for is not None
                continue
            joined = bool(before) and _is_joined(before[-1], step)
            if joined and before[-1].count != step.count:
                return (
                    f"{place} is joined with the reduction before it, of {before[-1].count} chunks and not {step.count}"
                )
            if pending and (joined or step.wait_for is None):
                return f"{place} waits for nothing, but the nop before it does: the wait is lost"
            pending = pending and joined
            before = [*(before if joined else []), step] if step.type == "re" else []
            reductions += step.type == "re"
            if step.tells(waited_for=index in waited_for) or reductions == _JOINED:
                before = []
    return ""


def _is_joined(before: MscclStep, step: MscclStep) -> bool:
    return step.type == "re" and step.wait_for is None and (before.dst, before.src[0]) == (step.dst, step.src[0])


def kept_apart(algo: Algo) -> Algo:
    """Return the program with a hasdep on each reduction that readers would join with the next, of another size."""
    gpus = [replace(gpu, blocks=tuple(map(_block_kept_apart, gpu.blocks))) for gpu in algo.gpus]
    return replace(algo, gpus=tuple(gpus))


def _block_kept_apart(block: ThreadBlock) -> ThreadBlock:
    steps = list(block.steps)
    counted = [place for place, step in enumerate(steps) if step.type != "nop"]  # readers pass over a nop
    for place, after in itertools.pairwise(counted):
        before = steps[place]
        if before.type == "re" and before.count != steps[after].count and _is_joined(before, steps[after]):
            steps[place] = replace(before, has_dependents=True)
    return replace(block, steps=tuple(steps))


LIMITS = {"msccl": Limits(), "rccl": Limits()}
