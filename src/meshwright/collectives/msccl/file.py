"""MSCCL XML as plain data: read strictly, with a line for every fault; no entities, no document types.

Elements that are not of the format, such as the `copy` of TACCL and TE-CCL, are passed over, as the runtimes do.

An `algo` has a `gpu` for each rank, that has thread blocks `tb`, each with one peer to send to and one to receive from,
and `step`s that it takes one after another: s (send), r (receive), c (copy), r before c (reduce) in their combinations
r, s, rcs, rrc, rrs, rrcs, and the local ones cpy, re (reduce) and nop. A step may wait for one step of another block.
"""

from collections.abc import Callable
from typing import Any
from xml.parsers import expat

import msgspec

from ...errors import InputError, nearest
from ..schedules.schedule import Collective

MAX_FILE_BYTES = 64 * 2**20
MAX_NUMBER = 2**24
BUFFERS = ("i", "o", "s")  # input, output, scratch
PROTOCOLS = ("Simple", "LL", "LL128")
STEPS = ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop")
COLL: dict[Collective, str] = {  # as both formats of MSCCL have it
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "gather": "gather",
    "send": "send",
    "copy": "copy",
}
# the first runtime (msccl, src/graph/connect.cc) has an underscore in one of them
COLLECTIVE_OF = {coll: collective for collective, coll in COLL.items()} | {"reduce_scatter": "reduce_scatter"}
_PARENTS = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}


class MscclStep(msgspec.Struct, frozen=True):
    """One step of a thread block; `tag` is what our own export adds: the round and the place in it."""

    line: int
    type: str
    src: tuple[str, int]  # buffer and offset in chunks
    dst: tuple[str, int]
    count: int
    wait_for: tuple[int, int] | None  # thread block and step
    has_dependents: bool | None  # that the step tells others when it is done; None where the file does not say
    tag: tuple[int, int] | None

    @property
    def receives(self) -> bool:
        """Whether a message comes in."""
        return self.type.startswith("r") and self.type != "re"

    @property
    def sends(self) -> bool:
        """Whether a message goes out."""
        return self.type.endswith("s")

    @property
    def reduces(self) -> bool:
        """Whether what comes in is reduced with what is there."""
        return self.type.startswith("rr")

    def tells(self, *, waited_for: bool) -> bool:
        """Return whether the file says so; where it does not, a step tells others if they wait for it."""
        return waited_for if self.has_dependents is None else self.has_dependents

    @property
    def can_tell(self) -> bool:
        """Whether a waiting block can learn that it is done; runtimes drop what a nop says."""
        return self.has_dependents is not False and self.type != "nop"


class ThreadBlock(msgspec.Struct, frozen=True):
    """One thread block."""

    line: int
    send: int | None
    receive: int | None
    channel: int
    steps: tuple[MscclStep, ...]


class MscclGpu(msgspec.Struct, frozen=True):
    """One rank; `sizes` are the chunks of its three buffers, `slots` what slots its scratch chunks stand for."""

    line: int
    sizes: dict[str, int]
    blocks: tuple[ThreadBlock, ...]
    slots: tuple[int, ...] | None

    def waited_for(self, block: int) -> frozenset[int]:
        """Return the steps of one block that steps of this rank wait for."""
        waits = (step.wait_for for other in self.blocks for step in other.steps if step.wait_for is not None)
        return frozenset(step for number, step in waits if number == block)


class Algo(msgspec.Struct, frozen=True):
    """A whole file."""

    name: str
    collective: str
    in_place: bool
    gpus: tuple[MscclGpu, ...]
    chunks: int | None
    root: int
    target: int
    says_root: bool = True
    protocol: str = "Simple"
    channels: int | None = None  # that the file declares
    out_of_place: bool | None = None  # that it says it is right out of place too; None where it does not say
    sizes: tuple[int, int] = (0, 0)  # least and most bytes that it is meant for; 0 is no limit
    ignored: tuple[str, ...] = ()  # elements that are none of the format

    @property
    def is_for_out_of_place(self) -> bool:
        """Whether it is meant out of place; where the file does not say, if it is not meant in place."""
        return not self.in_place if self.out_of_place is None else self.out_of_place

    @property
    def collective_name(self) -> str:
        """The collective as the runtimes spell it."""
        return COLL[COLLECTIVE_OF[self.collective]] if self.collective in COLLECTIVE_OF else self.collective

    @property
    def channel_count(self) -> int:
        """Channels that are declared, else those in use."""
        return self.channels or 1 + max((block.channel for gpu in self.gpus for block in gpu.blocks), default=0)

    @property
    def buffer_chunks(self) -> int:
        """Chunks of the largest input or output."""
        return max((max(gpu.sizes["i"], gpu.sizes["o"]) for gpu in self.gpus), default=1)

    @property
    def chunks_of_a_loop(self) -> int:
        """Chunks that the payload is cut into: as declared, else those of the largest buffer."""
        return self.chunks or self.buffer_chunks


class _Node:
    def __init__(self, tag: str, attributes: dict[str, str], line: int) -> None:
        self.tag, self.attributes, self.line = tag, attributes, line
        self.children: list[_Node] = []
        self.ignored: set[str] = set()  # of the whole file, at its top


def read_algo(text: str, *, where: str = "MSCCL XML") -> Algo:
    """Return the algorithm that a text describes."""
    return _Reader(where).algo(_parse(text, where))


def _parse(text: str, where: str) -> _Node:
    """Return the tree of the four elements that exist, each in its place; others are passed over with all inside."""
    parser = expat.ParserCreate()
    stack: list[_Node] = []
    roots: list[_Node] = []
    foreign: list[str] = []  # elements of no meaning that are open

    def fail(reason: str) -> InputError:
        return InputError(f"{where}:{parser.CurrentLineNumber}: {reason}")

    def start(tag: str, attributes: dict[str, str]) -> None:
        parent = stack[-1].tag if stack else None
        if foreign or (stack and tag not in _PARENTS):
            foreign.append(tag)
            roots[0].ignored.add(tag[:40])
            return
        if tag not in _PARENTS or _PARENTS[tag] != parent:
            raise fail(f"<{tag[:40]}> {f'in <{parent}>' if parent else 'at the top'}; expected algo > gpu > tb > step")
        node = _Node(tag, attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(node)
        stack.append(node)

    def end(_tag: str) -> None:
        (foreign or stack).pop()

    def characters(data: str) -> None:
        if data.strip() and not foreign:
            raise fail(f"text {data.strip()[:40]!r}; expected elements only")

    def refuse(*_: Any) -> None:
        raise fail("document types and entities are not accepted")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except LookupError as error:  # an encoding that is not there
        raise InputError(f"{where}: not XML: {error}") from None
    except expat.ExpatError as error:
        raise InputError(f"{where}:{error.lineno}: not XML: {expat.ErrorString(error.code)}") from None
    return roots[0]


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where

    def algo(self, node: _Node) -> Algo:
        gpus = self._numbered(node, "id", self._gpu)
        declared = self._number(node, "ngpus", 1, default=len(gpus))
        if declared != len(gpus) or not gpus:
            raise self._fault(node, f"ngpus is {declared}, but there are {len(gpus)} gpus")
        return Algo(
            name=node.attributes.get("name") or "msccl",
            collective=self._collective(node),
            in_place=bool(self._number(node, "inplace", 0, 1, default=0)),
            gpus=gpus,
            chunks=self._number(node, "nchunksperloop", 1, default=0) or None,
            root=self._number(node, "root", 0, len(gpus) - 1, default=0),
            target=self._number(node, "target", 0, len(gpus) - 1, default=0),
            says_root="root" in node.attributes,
            protocol=self._protocol(node),
            channels=self._channels(node, gpus),
            out_of_place=self._flag(node, "outofplace"),
            sizes=(self._bytes(node, "minBytes"), self._bytes(node, "maxBytes")),
            ignored=tuple(sorted(node.ignored)),
        )

    def _collective(self, node: _Node) -> str:
        if "coll" not in node.attributes:
            raise self._fault(node, f"<algo> without coll: expected one of {', '.join(COLL.values())}")
        return node.attributes["coll"]

    def _flag(self, node: _Node, key: str) -> bool | None:
        return bool(self._number(node, key, 0, 1)) if key in node.attributes else None

    def _protocol(self, node: _Node) -> str:
        name = node.attributes.get("proto") or "Simple"
        if name not in PROTOCOLS:
            raise self._fault(node, f"proto {name[:20]!r}: unknown ({nearest(name, PROTOCOLS)})")
        return name

    def _channels(self, node: _Node, gpus: tuple[MscclGpu, ...]) -> int | None:
        """Return nchannels; a channel past it does not exist in the runtimes."""
        declared = self._number(node, "nchannels", 1, default=0) or None
        for gpu in gpus:
            for block in gpu.blocks:
                if declared is not None and block.channel >= declared:
                    raise InputError(
                        f"{self._where}:{block.line}: chan {block.channel}, but nchannels is {declared}: expected 0 to "
                        f"{declared - 1}"
                    )
        return declared

    def _bytes(self, node: _Node, key: str) -> int:
        """Return a size that may be large; MSCCL's schedulers read 64 bits."""
        text = node.attributes.get(key, "0")
        if not text.isdecimal() or len(text) > 18:
            raise self._fault(node, f"{key}: expected bytes, got {text[:20]!r}")
        return int(text)

    def _gpu(self, node: _Node) -> MscclGpu:
        sizes = {buffer: self._number(node, f"{buffer}_chunks", 0) for buffer in BUFFERS}
        slots = self._slots(node, sizes["s"])
        if slots is not None and (len(slots) != sizes["s"] or min(slots, default=0) < 0):
            raise self._fault(node, f"s_slots: expected {sizes['s']} slots")
        return MscclGpu(node.line, sizes, self._numbered(node, "id", self._block), slots)

    def _slots(self, node: _Node, count: int) -> tuple[int, ...] | None:
        """Return what slots our own export noted, in s_slots, s_slots_1 and on: numbers and runs such as 8-15."""
        keys = ["s_slots", *(f"s_slots_{i}" for i in range(1, 12))]
        texts = [node.attributes[key] for key in keys if key in node.attributes]
        if not texts:
            return None
        slots: list[int] = []
        for word in " ".join(texts).split():
            first, _, last = word.partition("-")
            start, end = self._integer(node, "s_slots", first), self._integer(node, "s_slots", last or first)
            if not 0 <= end - start <= count:
                raise self._fault(node, f"s_slots: expected {count} slots")
            slots += range(start, end + 1)
        return tuple(slots)

    def _block(self, node: _Node) -> ThreadBlock:
        ends = [self._number(node, key, -1) for key in ("send", "recv")]
        send, receive = (end if end >= 0 else None for end in ends)
        steps = self._numbered(node, "s", self._step)
        for step in steps:
            if (step.sends and send is None) or (step.receives and receive is None):
                raise InputError(f"{self._where}:{step.line}: step {step.type} in a block without that peer")
        return ThreadBlock(node.line, send, receive, self._number(node, "chan", 0, default=0), steps)

    def _step(self, node: _Node) -> MscclStep:
        kind = self._text(node, "type")
        if kind not in STEPS:
            raise self._fault(node, f"step type {kind[:20]!r}: unknown ({nearest(kind, STEPS)})")
        block, step = (self._number(node, key, -1, default=-1) for key in ("depid", "deps"))
        tag = None
        if "round" in node.attributes:
            words = node.attributes["round"].split(".")
            if len(words) != 2:
                raise self._fault(node, "round: expected ROUND.PLACE")
            tag = (self._integer(node, "round", words[0]), self._integer(node, "round", words[1]))
        return MscclStep(
            line=node.line,
            type=kind,
            src=self._place(node, "src", kind),
            dst=self._place(node, "dst", kind),
            count=self._number(node, "cnt", 0 if kind == "nop" else 1),
            wait_for=(block, step) if block >= 0 else None,
            has_dependents=self._flag(node, "hasdep"),
            tag=tag,
        )

    def _place(self, node: _Node, end: str, kind: str) -> tuple[str, int]:
        buffer = self._text(node, f"{end}buf")
        if buffer not in BUFFERS:
            raise self._fault(node, f"{end}buf {buffer[:20]!r}: expected i, o or s")
        return buffer, self._number(node, f"{end}off", -1 if kind == "nop" else 0)

    def _numbered(self, node: _Node, key: str, read: Callable[[_Node], Any]) -> tuple[Any, ...]:
        """Read the children, whose numbers must be 0, 1, 2 and on."""
        for index, child in enumerate(node.children):
            if self._number(child, key, 0) != index:
                raise self._fault(child, f"{child.tag} {key}: expected {index}, got {child.attributes[key]}")
        return tuple(read(child) for child in node.children)

    def _number(self, node: _Node, key: str, least: int, most: int = MAX_NUMBER, default: int | None = None) -> int:
        if default is not None and key not in node.attributes:
            return default
        value = self._integer(node, key, self._text(node, key))
        if not least <= value <= most:
            raise self._fault(node, f"{key}: expected {least} to {most}, got {value}")
        return value

    def _integer(self, node: _Node, key: str, text: str) -> int:
        try:
            return int(text) if len(text) < 10 else int("x")
        except ValueError:
            raise self._fault(node, f"{key}: expected a number, got {text[:20]!r}") from None

    def _text(self, node: _Node, key: str) -> str:
        if key not in node.attributes:
            raise self._fault(node, f"<{node.tag}> without {key}")
        return node.attributes[key]

    def _fault(self, node: _Node, reason: str) -> InputError:
        return InputError(f"{self._where}:{node.line}: {reason}")
