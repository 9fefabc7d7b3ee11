"""Write an MSCCL program that was read: its blocks, channels and steps, with all attributes that runtimes need."""

from .msccl_export import slot_words
from .msccl_file import Algo, MscclStep, ThreadBlock
from .schedule import schedule_name


def write_algo(algo: Algo) -> str:
    """Return the XML; `read_algo` of it gives the same program, but for lines and what was passed over."""
    channels = algo.channels or 1 + max((block.channel for gpu in algo.gpus for block in gpu.blocks), default=0)
    per_loop = algo.chunks or max((max(gpu.sizes["i"], gpu.sizes["o"]) for gpu in algo.gpus), default=1)
    out_of_place = algo.out_of_place or not algo.in_place
    name = schedule_name(algo.name)
    collective = "reducescatter" if algo.collective == "reduce_scatter" else algo.collective
    waited_for = _waited_for(algo)
    lines = [
        f'<algo name="{name}" proto="{algo.protocol}" nchannels="{channels}" nchunksperloop="{per_loop}"'
        f' ngpus="{len(algo.gpus)}" coll="{collective}" inplace="{int(algo.in_place)}"'
        f' outofplace="{int(out_of_place)}" minBytes="{algo.sizes[0]}" maxBytes="{algo.sizes[1]}" root="{algo.root}"'
        f' target="{algo.target}">'
    ]
    for rank, gpu in enumerate(algo.gpus):
        sizes = " ".join(f'{buffer}_chunks="{count}"' for buffer, count in gpu.sizes.items())
        slots = "" if gpu.slots is None else slot_words(gpu.slots)
        lines.append(f'  <gpu id="{rank}" {sizes}{slots}>')
        for number, block in enumerate(gpu.blocks):
            lines += _block(number, block, {step for b, step in waited_for[rank] if b == number})
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _waited_for(algo: Algo) -> list[set[tuple[int, int]]]:
    return [{s.wait_for for block in gpu.blocks for s in block.steps if s.wait_for is not None} for gpu in algo.gpus]


def _block(number: int, block: ThreadBlock, waited_for: set[int]) -> list[str]:
    send, receive = (-1 if peer is None else peer for peer in (block.send, block.receive))
    steps = [_step(index, step, index in waited_for) for index, step in enumerate(block.steps)]
    return [f'    <tb id="{number}" send="{send}" recv="{receive}" chan="{block.channel}">', *steps, "    </tb>"]


def _step(index: int, step: MscclStep, is_waited_for: bool) -> str:
    depid, deps = step.wait_for or (-1, -1)
    told = is_waited_for if step.has_dependents is None else step.has_dependents
    tag = "" if step.tag is None else f' round="{step.tag[0]}.{step.tag[1]}"'
    return (
        f'      <step s="{index}" type="{step.type}" srcbuf="{step.src[0]}" srcoff="{step.src[1]}"'
        f' dstbuf="{step.dst[0]}" dstoff="{step.dst[1]}" cnt="{step.count}" depid="{depid}" deps="{deps}"'
        f' hasdep="{int(told)}"{tag}/>'
    )
