"""Write an MSCCL program that was read: its blocks, channels and steps, with all attributes that runtimes need."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from .file import Algo, MscclStep, ThreadBlock
from .limits import MAX_TEXT

_ESCAPES = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


def write_algo(algo: Algo) -> str:
    """Return the XML; `read_algo` of it gives the same program (`program_difference`)."""
    lines = [
        f'<algo name="{escape(algo.name, _ESCAPES)}" proto="{algo.protocol}" nchannels="{algo.channel_count}"'
        f' nchunksperloop="{algo.chunks_of_a_loop}" ngpus="{len(algo.gpus)}" coll="{algo.collective_name}"'
        f' inplace="{int(algo.in_place)}" outofplace="{int(algo.is_for_out_of_place)}"'
        f' minBytes="{algo.sizes[0]}" maxBytes="{algo.sizes[1]}" root="{algo.root}" target="{algo.target}">'
    ]
    for rank, gpu in enumerate(algo.gpus):
        sizes = " ".join(f'{buffer}_chunks="{count}"' for buffer, count in gpu.sizes.items())
        slots = "" if gpu.slots is None else slot_words(gpu.slots)
        lines.append(f'  <gpu id="{rank}" {sizes}{slots}>')
        for number, block in enumerate(gpu.blocks):
            lines += _block(number, block, gpu.waited_for(number))
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _block(number: int, block: ThreadBlock, waited_for: frozenset[int]) -> list[str]:
    send, receive = (-1 if peer is None else peer for peer in (block.send, block.receive))
    steps = [_step(index, step, index in waited_for) for index, step in enumerate(block.steps)]
    return [f'    <tb id="{number}" send="{send}" recv="{receive}" chan="{block.channel}">', *steps, "    </tb>"]


def _step(index: int, step: MscclStep, is_waited_for: bool) -> str:
    depid, deps = step.wait_for or (-1, -1)
    told = step.tells(waited_for=is_waited_for)
    tag = "" if step.tag is None else f' round="{step.tag[0]}.{step.tag[1]}"'
    return (
        f'      <step s="{index}" type="{step.type}" srcbuf="{step.src[0]}" srcoff="{step.src[1]}"'
        f' dstbuf="{step.dst[0]}" dstoff="{step.dst[1]}" cnt="{step.count}" depid="{depid}" deps="{deps}"'
        f' hasdep="{int(told)}"{tag}/>'
    )


def slot_words(slots: Sequence[int]) -> str:
    """Return the slots as attributes of at most MAX_TEXT characters: runs such as 8-15, more in s_slots_1."""
    runs: list[list[int]] = []
    for slot in slots:
        if runs and runs[-1][1] + 1 == slot:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    pieces = [""]
    for first, last in runs:
        word = str(first) if first == last else f"{first}-{last}"
        if len(pieces[-1]) + len(word) >= MAX_TEXT:
            pieces.append("")
        pieces[-1] += f" {word}" if pieces[-1] else word
    return "".join(f' s_slots{f"_{i}" if i else ""}="{piece}"' for i, piece in enumerate(pieces))
