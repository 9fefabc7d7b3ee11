"""Collectives that only move bytes, over the shared memory of one host. Addresses are of contiguous memory."""

from collections.abc import Callable, Sequence
from ctypes import memmove

from .memory import SHORT_BYTES
from .ranks import STEPS, LocalGroup


def barrier(group: LocalGroup) -> None:
    """Return when every rank has called it."""
    group.begin()
    group.wait_all(group.post())


def broadcast(group: LocalGroup, address: int, size_bytes: int, root: int) -> None:
    """Copy the bytes at `address` on `root` to `address` on every rank. Blocks; all ranks.

    The root is ahead of the slowest reader by at most as many chunks as there are slots. A small message takes short
    slots, of which there are more, so the root seldom waits for readers.
    """
    short = size_bytes <= SHORT_BYTES
    chunk = SHORT_BYTES if short else group.slot_bytes
    if group.native is not None:
        group.native.broadcast(address, size_bytes, root)
        return
    group.begin()
    for start in range(0, size_bytes, chunk):
        length = min(chunk, size_bytes - start)
        if group.rank == root:
            turn = group.free_slots(short=short)
            memmove(group.slot_address[root][turn], address + start, length)
            group.post()
        else:
            turn = group.next_slots(short=short)
            group.wait(root, group.post())
            memmove(address + start, group.slot_address[root][turn], length)
        group.pass_slots(turn)


def all_gather(group: LocalGroup, source: int, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
    """Copy the bytes at `source` on rank i to `targets[i]` on every rank. Blocks; all ranks, the same sizes."""
    rank, own, pair = group.rank, sizes_bytes[group.rank], group.size == 2
    chunk = group.block_bytes if pair else group.slot_bytes
    if group.native is not None and any(sizes_bytes):
        group.native.all_gather(source, targets, sizes_bytes)
        return
    group.begin()
    for start in range(0, max(sizes_bytes), chunk):
        turn = group.free_slots()
        length = min(chunk, own - start)
        if length > 0:
            memmove(group.slot_address[group.broadcast_slot_owner(rank, turn)][turn], source + start, length)
        number = group.post()
        if length > 0 and targets[rank] != source:
            memmove(targets[rank] + start, source + start, length)
        for peer in group.peers:
            group.wait(peer, number)
            length = min(chunk, sizes_bytes[peer] - start)
            if length > 0:
                owner = group.broadcast_slot_owner(peer, turn)
                memmove(targets[peer] + start, group.slot_address[owner][turn], length)
        group.seen = number
        group.flip_parity(turn)
        if not pair:
            group.pass_slots(turn)
    if pair and any(sizes_bytes):
        group.pass_slots(turn)


def gather(group: LocalGroup, source: int, targets: Sequence[int], size_bytes: int, root: int) -> None:
    """Copy the bytes at `source` on rank i to `targets[i]` on `root`. Blocks; all ranks."""
    chunk, copy = group.slot_bytes, _copy_of(group, size_bytes * group.size)
    group.begin()
    for start in range(0, size_bytes, chunk):
        length = min(chunk, size_bytes - start)
        if group.rank == root:
            turn = group.next_slots()
            number = group.post()
            copy(targets[root] + start, source + start, length)
            for peer in group.peers:
                group.wait(peer, number)
                copy(targets[peer] + start, group.slot_address[peer][turn], length)
            group.seen = number
        else:
            turn = group.free_slots()
            memmove(group.slot_address[group.rank][turn], source + start, length)
            group.post()
        group.pass_slots(turn)
    if size_bytes and group.rank != root:
        group.wait_to_come([root])


def scatter(group: LocalGroup, sources: Sequence[int], target: int, size_bytes: int, root: int) -> None:
    """Copy the bytes at `sources[i]` on `root` to `target` on rank i. Blocks; all ranks."""
    block, copy = group.block_bytes, _copy_of(group, size_bytes)
    group.begin()
    for start in range(0, size_bytes, block):
        length = min(block, size_bytes - start)
        if group.rank == root:
            turn = group.free_slots()
            for peer in group.peers:
                memmove(group.address_between(root, peer, turn), sources[peer] + start, length)
            group.post()
            copy(target + start, sources[root] + start, length)
        else:
            turn = group.next_slots()
            group.wait(root, group.post())
            copy(target + start, group.address_between(root, group.rank, turn), length)
        group.pass_slots(turn)
    if size_bytes and group.rank == root:
        group.wait_to_come(group.peers)


def all_to_all(
    group: LocalGroup,
    sources: Sequence[int],
    sent_bytes: Sequence[int],
    targets: Sequence[int],
    received_bytes: Sequence[int],
) -> None:
    """Copy the bytes at `sources[j]` on rank i to `targets[i]` on rank j. Blocks; all ranks, any sizes.

    No rank knows all sizes, so each says beside its counter how many steps it needs; the largest number counts.
    """
    rank, block = group.rank, group.part_bytes
    if group.native is not None:
        group.native.all_to_all(sources, sent_bytes, targets, received_bytes)
        return
    group.begin()
    needed = max([1, *(-(-sent_bytes[peer] // block) for peer in group.peers)])
    step = 0
    while step < needed:
        start = step * block
        turn = group.free_slots()
        if step == 0:
            group.counters[group.mine + STEPS + turn] = group.calls.say_sent(turn, needed, sent_bytes)
        for peer in group.peers:
            length = min(block, sent_bytes[peer] - start)
            if length > 0:
                memmove(group.address_between(rank, peer, turn), sources[peer] + start, length)
        number = group.post()
        if step == 0:
            memmove(targets[rank], sources[rank], sent_bytes[rank])
        for peer in group.peers:
            group.wait(peer, number)
            if step == 0:
                needed = max(needed, group.needed_by(peer, turn, received_bytes[peer]))
            length = min(block, received_bytes[peer] - start)
            if length > 0:
                memmove(targets[peer] + start, group.address_between(peer, rank, turn), length)
        group.seen = number
        group.flip_parity(turn)
        step += 1
    group.pass_slots(turn)


def _copy_of(group: LocalGroup, received_bytes: int) -> Callable[[int, int, int], object]:
    """Return what copies results of this size to where the caller wants them: (target, source, bytes)."""
    return group.native.stream if group.native is not None and received_bytes >= group.stream_bytes else memmove
