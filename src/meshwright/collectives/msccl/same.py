"""Equality of two MSCCL programs: for runtimes, not by their text.

Equal are the blocks of every rank with their peers and channels, the steps in their order with type, places, number of
chunks, what they wait for and whether they tell others, the sizes of the buffers, and of the whole file the name,
collective, protocol, channels, chunks of a loop, range of sizes, root and whether it is meant in place and out of
place. What a file leaves out counts as what readers take for it; lines and foreign elements are no part of a program.
"""

from collections.abc import Iterator

from .file import Algo, MscclGpu, ThreadBlock


def program_difference(one: Algo, other: Algo) -> str:
    """Return the first thing in which two programs differ, in words; "" where they are equal."""
    for (place, value), (_, its) in zip(_parts(one), _parts(other), strict=False):
        if value != its:
            return f"{place}: {value} and {its}"
    return ""


def _parts(algo: Algo) -> Iterator[tuple[str, object]]:
    """Yield all that counts, each with its place; what decides how much follows comes before it."""
    yield "name", algo.name
    yield "coll", algo.collective_name
    yield "proto", algo.protocol
    yield "nchannels", algo.channel_count
    yield "nchunksperloop", algo.chunks_of_a_loop
    yield "inplace, outofplace", (algo.in_place, algo.is_for_out_of_place)
    yield "minBytes, maxBytes", algo.sizes
    yield "root, target", (algo.root, algo.target)
    yield "ngpus", len(algo.gpus)
    for rank, gpu in enumerate(algo.gpus):
        yield from _of_gpu(f"gpu {rank}", gpu)


def _of_gpu(place: str, gpu: MscclGpu) -> Iterator[tuple[str, object]]:
    yield f"{place}: chunks", gpu.sizes
    yield f"{place}: s_slots", gpu.slots
    yield f"{place}: blocks", len(gpu.blocks)
    for number, block in enumerate(gpu.blocks):
        yield from _of_block(f"{place}, block {number}", block, gpu.waited_for(number))


def _of_block(place: str, block: ThreadBlock, waited_for: frozenset[int]) -> Iterator[tuple[str, object]]:
    yield f"{place}: send, recv, chan", (block.send, block.receive, block.channel)
    yield f"{place}: steps", len(block.steps)
    for index, step in enumerate(block.steps):
        at = f"{place}, step {index}"
        yield f"{at}: type", step.type
        yield f"{at}: src", step.src
        yield f"{at}: dst", step.dst
        yield f"{at}: cnt", step.count
        yield f"{at}: depid, deps", step.wait_for
        yield f"{at}: hasdep", step.tells(waited_for=index in waited_for)
        yield f"{at}: round", step.tag
