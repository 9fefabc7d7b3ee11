"""Collectives that reduce, over the shared memory of one host.

Every result is the reduction in rank order, whichever way it is computed, so that all ranks hold the same bits and the
size of a tensor does not change the result of an element. Addresses are of contiguous memory of the caller.
"""

from collections.abc import Sequence
from ctypes import memmove

import numpy as np

from .memory import SLOTS
from .ranks import LINE_BYTES, LocalGroup
from .reductions import Block, Reduction


def all_reduce(group: LocalGroup, address: int, count: int, kind: Reduction) -> None:
    """Reduce `count` elements at `address` over all ranks, in place. Blocks; all ranks."""
    if group.size == 1 or count == 0:
        return
    if group.native is not None and kind.native is not None:
        group.native.all_reduce(address, count, kind)
        return
    group.begin()
    if count * kind.item_bytes <= group.whole_bytes:
        _one_shot(group, address, count, count * kind.item_bytes, kind)
    else:
        _in_pieces(group, address, count, kind, None)


def reduce(group: LocalGroup, address: int, count: int, kind: Reduction, root: int) -> None:
    """Reduce over all ranks into the memory of `root`; the others keep theirs. Blocks; all ranks."""
    if group.size > 1:
        group.begin()
        _in_pieces(group, address, count, kind, root)


def _one_shot(group: LocalGroup, address: int, count: int, size_bytes: int, kind: Reduction) -> None:
    """Every rank posts its whole tensor and reduces all of them itself."""
    plan = group.plans.get((count, kind))
    if plan is None:
        plan = _one_shot_plan(group, count, kind)
    turn = group.free_slots()
    owner = group.broadcast_slot_owner(group.rank, turn)
    memmove(group.slot_address[owner][turn], address, size_bytes)
    group.wait_all(group.post())
    first, second, others, result, result_address = plan[turn]
    if owner != group.rank:
        first, second = second, first
    if kind.wide is None:
        kind.combine(first, second, result)
        for block in others:
            kind.combine(result, block, result)
        if kind.finish is not None:
            kind.finish(result, group.size)
    else:
        kind.reduce([first, second, *others], result, group.size)
    memmove(address, result_address, size_bytes)
    group.flip_parity(turn)
    group.pass_slots(turn)


def _one_shot_plan(
    group: LocalGroup, count: int, kind: Reduction
) -> list[tuple[Block, Block, list[Block], Block, int]]:
    if len(group.plans) >= 256:
        group.plans.clear()
    scratch = np.empty(count * kind.item_bytes, np.uint8)
    result = kind.view(scratch, 0, count)
    plan = []
    for turn in range(SLOTS):
        first, second, *others = [kind.view(group.buffer, offsets[turn], count) for offsets in group.slot_offset]
        plan.append((first, second, others, result, scratch.ctypes.data))
    group.plans[count, kind] = plan
    return plan


def _in_pieces(group: LocalGroup, address: int, count: int, kind: Reduction, root: int | None) -> None:
    """Chunk by chunk, each rank reduces one piece and the others (or the root) fetch it from their own slots.

    (1) post the pieces that others reduce, (2) wait for all, (3) reduce the own piece, and write the result into the
    slots of the ranks that want it, (4) post again, (5) fetch each piece as soon as its owner has posted it. The last
    chunk comes first: its end is what the caller has written last.
    """
    item, size, rank = kind.item_bytes, group.size, group.rank
    tensor = kind.at(address, count) if count else None
    slots = group.typed(kind)
    wanting = [peer for peer in group.peers if root in {None, peer}]
    per_chunk = group.chunk_bytes(count * item) // item
    for start in reversed(range(0, count, per_chunk)):
        length = min(per_chunk, count - start)
        bounds = piece_bounds(length, size, item)
        low, high = bounds[rank], bounds[rank + 1]
        turn = group.free_slots()
        slot, source = group.slot_address[rank][turn], address + start * item
        memmove(slot, source, low * item)
        memmove(slot + high * item, source + high * item, (length - high) * item)
        group.wait_all(group.post())
        if high > low:
            assert tensor is not None
            inputs = [
                tensor[start + low : start + high] if r == rank else slots[r][turn][low:high] for r in range(size)
            ]
            kind.reduce(inputs, slots[rank][turn][low:high], size)
        for peer in wanting:
            memmove(group.slot_address[peer][turn] + low * item, slot + low * item, (high - low) * item)
        number = group.post()
        if root is None or root == rank:
            memmove(source + low * item, slot + low * item, (high - low) * item)
            for peer in group.peers:
                low, high = bounds[peer], bounds[peer + 1]
                group.wait(peer, number)
                memmove(source + low * item, slot + low * item, (high - low) * item)
            group.seen = number
        group.flip_parity(turn)
        if root is not None:  # the others have not waited for the last step
            group.pass_slots(turn)
    if root is None:
        group.pass_slots(turn)


def piece_bounds(count: int, pieces: int, item_bytes: int) -> list[int]:
    """Cut `count` elements into pieces on cache lines and return the bounds, `pieces` + 1 numbers."""
    line = max(1, LINE_BYTES // item_bytes)
    piece = -(-count // (pieces * line)) * line
    return [min(i * piece, count) for i in range(pieces + 1)]


def reduce_scatter(
    group: LocalGroup, sources: Sequence[int], target: int, counts: Sequence[int], kind: Reduction
) -> None:
    """Reduce block i of every rank, at `sources[i]`, into `target` on rank i. Blocks; all ranks, the same `counts`."""
    item, size, rank = kind.item_bytes, group.size, group.rank
    if size == 1:
        memmove(target, sources[0], counts[0] * item)
        return
    if group.native is not None and kind.native is not None and any(counts):
        group.native.reduce_scatter(sources, target, counts, kind)
        return
    group.begin()
    block = group.block_bytes // item
    slots = group.typed(kind)
    own = kind.at(sources[rank], counts[rank]) if counts[rank] else None
    out = kind.at(target, counts[rank]) if counts[rank] else None
    aliased = rank >= 2 and sources[rank] <= target < sources[rank] + counts[rank] * item
    for start in range(0, max(counts), block):
        turn = group.free_slots()
        for peer in group.peers:
            length = min(block, counts[peer] - start)
            if length > 0:
                memmove(group.address_between(rank, peer, turn), sources[peer] + start * item, length * item)
        group.wait_all(group.post())
        length = min(block, counts[rank] - start)
        if length > 0:
            assert own is not None
            assert out is not None
            inputs = []
            for r in range(size):
                if r == rank:
                    inputs.append(own[start : start + length])
                else:
                    owner, offset = group.shared_slot_of(r, rank, turn)
                    inputs.append(slots[owner][turn][offset // item : offset // item + length])
            if aliased:
                inputs[rank] = inputs[rank].copy() if isinstance(inputs[rank], np.ndarray) else inputs[rank].clone()
            kind.reduce(inputs, out[start : start + length], size)
        group.flip_parity(turn)
    if any(counts):
        group.pass_slots(turn)
