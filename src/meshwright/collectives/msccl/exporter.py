"""Write a schedule as MSCCL XML, so that MSCCL's runtimes can run it and `importer` reads it back unchanged.

Each rank gets a thread block for each peer that it sends to, one for each that it receives from, and one for its local
steps. Peers and messages beyond the runtime's limits for a channel and a block use further channels: the distance of
the two ranks and the number of the message determine the channel. A step waits for the steps of other blocks that
touched its chunks before; where it must wait for several, steps that do nothing wait for the rest. Attributes of our
own (round, root, target, s_slots) keep what the format has no place for; readers pass over them.
"""

from collections import Counter, defaultdict

from ...errors import InputError
from ..schedules.schedule import Schedule, Transfer
from .file import COLL, read_algo
from .limits import LIMITS, MAX_TEXT, Limits, kept_apart
from .write import slot_words, write_algo

Place = tuple[str, int]
At = tuple[int, int]  # thread block and step


def to_msccl_xml(schedule: Schedule, runtime: str | None = None, protocol: str = "Simple") -> str:
    """Return the XML; InputError for what the format cannot say, or for what `runtime` (of LIMITS) does not take."""
    if schedule.counts:
        raise InputError("counts: MSCCL's all-to-all is an even one; expected a schedule without them")
    if schedule.collective not in COLL:
        raise InputError(f"{schedule.collective}: MSCCL XML has no messages without chunks")
    if len(schedule.name) > MAX_TEXT:
        raise InputError(f"{schedule.name[:40]}...: a name of {len(schedule.name)} characters: expected {MAX_TEXT}")
    if runtime is None:
        return _xml(schedule, protocol, None, 0)
    limits = LIMITS[runtime]
    if schedule.collective in limits.missing:
        raise InputError(f"{schedule.collective}: {runtime} has no such collective")
    faults = []
    for messages in (limits.steps, limits.steps // 2, limits.steps // 4, limits.steps // 8):
        algo = kept_apart(read_algo(_xml(schedule, protocol, limits, messages)))
        fault = limits.fault_of(algo)
        if not fault:
            return write_algo(algo)
        faults.append(fault)
    raise InputError(f"{schedule.name}: {runtime} does not take it: {faults[0]}")


def _xml(schedule: Schedule, protocol: str, limits: Limits | None, messages: int) -> str:
    """Return the XML with at most `messages` messages of two ranks on one channel, where there are limits."""
    channels = _Channels(schedule.ranks, limits, messages)
    ranks = [_Rank(schedule, rank) for rank in range(schedule.ranks)]
    for number, transfers in enumerate(schedule.rounds):
        pieces = [(t, run, f"{number}.{i}") for i, t in enumerate(transfers) for run in _runs(schedule, t)]
        for t, run, tag in pieces:  # all reads of a round come before its writes
            if not t.is_local:
                ranks[t.src].step("send", t.dst, "s", run, tag, channels.next("send", t))
        for t, run, tag in pieces:
            if t.is_local:
                ranks[t.src].step("local", None, "re" if t.reduce else "cpy", run, tag)
        for t, run, tag in pieces:
            if not t.is_local:
                ranks[t.dst].step("recv", t.src, "rrc" if t.reduce else "r", run, tag, channels.next("recv", t))
    for rank in ranks:
        rank.keep_own_chunk()
    in_place = int(schedule.collective != "all_to_all")
    per_loop = max(max(rank.sizes["i"], rank.sizes["o"]) for rank in ranks)
    head = (
        f'<algo name="{schedule.name}" proto="{protocol}" nchannels="{channels.used}" nchunksperloop="{per_loop}"'
        f' ngpus="{schedule.ranks}" coll="{COLL[schedule.collective]}" inplace="{in_place}" outofplace="{1 - in_place}"'
        f' minBytes="0" maxBytes="0" root="{schedule.root}" target="{schedule.target}">'
    )
    return "\n".join([head, *(line for rank in ranks for line in rank.lines()), "</algo>", ""])


def _runs(schedule: Schedule, t: Transfer) -> list[tuple[list[Place], list[Place]]]:
    """Cut a transfer where its chunks do not follow each other in the buffers of both ranks."""
    runs: list[tuple[list[Place], list[Place]]] = []
    for a, b in zip(t.chunks, t.targets, strict=True):
        source, target = place_of(schedule, t.src, a), place_of(schedule, t.dst, b)
        if runs and _follows(runs[-1][0][-1], source) and _follows(runs[-1][1][-1], target):
            runs[-1][0].append(source)
            runs[-1][1].append(target)
        else:
            runs.append(([source], [target]))
    return runs


def _follows(before: Place, after: Place) -> bool:
    return before[0] == after[0] and before[1] + 1 == after[1]


def place_of(schedule: Schedule, rank: int, slot: int) -> Place:
    """Return buffer and offset of a slot; scratch is numbered by slots here, and packed by each rank in the end."""
    if schedule.collective == "all_to_all" and slot < schedule.chunks:
        per_pair = schedule.chunks // schedule.ranks**2
        pair, k = divmod(slot, per_pair)
        src, dst = divmod(pair, schedule.ranks)
        if dst == rank:
            return "o", src * per_pair + k
        return ("i", dst * per_pair + k) if src == rank else ("s", slot)
    if slot >= schedule.chunks:
        return "s", slot
    return ("o" if schedule.collective == "all_gather" else "i"), slot


class _Channels:
    """The channel of each message: a function of the distance of its ranks, and its number between them."""

    def __init__(self, ranks: int, limits: Limits | None, messages: int) -> None:
        self._ranks, self._limits, self._messages = ranks, limits, messages
        self._counts: Counter[tuple[str, int, int]] = Counter()
        self.used = 1

    def next(self, end: str, t: Transfer) -> int:
        """Return the channel of the next message of two ranks; both ends count alike."""
        if self._limits is None:
            return 0
        number = self._counts[end, t.src, t.dst]
        self._counts[end, t.src, t.dst] += 1
        groups = -(-(self._ranks - 1) // self._limits.peers)
        group = ((t.dst - t.src) % self._ranks - 1) // self._limits.peers
        channel = number // self._messages * groups + group
        self.used = max(self.used, channel + 1)
        return channel


class _Rank:
    """The thread blocks of one rank as they grow."""

    def __init__(self, schedule: Schedule, rank: int) -> None:
        self._schedule = schedule
        self._rank = rank
        self._blocks: list[tuple[str, int | None, int, list[dict[str, object]]]] = []
        self._numbers: dict[tuple[str, int | None, int], int] = {}
        self._written: dict[Place, At] = {}
        self._read: dict[Place, list[At]] = defaultdict(list)
        self._scratch: set[int] = set()
        self._waited_for: set[At] = set()

    def step(
        self, kind: str, peer: int | None, name: str, run: tuple[list[Place], list[Place]], tag: str, channel: int = 0
    ) -> None:
        """Add a step, which reads and writes as its type says, behind the steps that it must wait for."""
        sources, targets = run
        key = (kind, peer, channel)
        if key not in self._numbers:
            self._numbers[key] = len(self._blocks)
            self._blocks.append((kind, peer, channel, []))
        number = self._numbers[key]
        steps = self._blocks[number][3]
        reads = [] if kind == "recv" else sources
        writes = [] if kind == "send" else targets
        waits = {self._written[p] for p in (*reads, *writes) if p in self._written}
        waits |= {at for p in writes for at in self._read[p]}
        last: dict[int, int] = {}
        for block, at in waits:
            if block != number:
                last[block] = max(at, last.get(block, 0))
        order = sorted(last.items())
        for wait in order[:-1]:
            steps.append(_fields("nop", ("i", -1), ("o", -1), 0, wait, None))
        local = targets[0] if kind == "recv" else sources[0]
        other = sources[0] if kind == "send" else targets[0]
        steps.append(_fields(name, local, other, len(sources), order[-1] if order else None, tag))
        here = (number, len(steps) - 1)
        self._waited_for.update(order)
        for p in reads:
            self._read[p].append(here)
        for p in writes:
            self._written[p] = here
            self._read[p] = []
        self._scratch.update(offset for buffer, offset in (*reads, *writes) if buffer == "s")

    def keep_own_chunk(self) -> None:
        """Copy what an all-to-all leaves with its sender from the input to the output."""
        if self._schedule.collective == "all_to_all":
            per_pair = self._schedule.chunks // self._schedule.ranks**2
            own = range(self._rank * per_pair, (self._rank + 1) * per_pair)
            step = _fields("cpy", ("i", own[0]), ("o", own[0]), per_pair, None, None)
            self._blocks.append(("local", None, 0, [step]))

    @property
    def sizes(self) -> dict[str, int]:
        """Chunks of the three buffers."""
        schedule = self._schedule
        chunks, scratch = schedule.chunks, len(self._scratch)
        if schedule.collective == "all_to_all":
            return {"i": chunks // schedule.ranks, "o": chunks // schedule.ranks, "s": scratch}
        is_gather = schedule.collective == "all_gather"
        return {"i": 0 if is_gather else chunks, "o": chunks if is_gather else 0, "s": scratch}

    def lines(self) -> list[str]:
        """Return the lines of the gpu element."""
        slots = sorted(self._scratch)
        packed = {slot: index for index, slot in enumerate(slots)}
        sizes = " ".join(f'{buffer}_chunks="{count}"' for buffer, count in self.sizes.items())
        lines = [f'  <gpu id="{self._rank}" {sizes}{slot_words(slots)}>']
        for number, (kind, peer, channel, steps) in enumerate(self._blocks):
            send, receive = (peer if kind == end else -1 for end in ("send", "recv"))
            lines.append(f'    <tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">')
            for index, step in enumerate(steps):
                fields = dict(step)
                for end in ("src", "dst"):
                    # the place at the other rank is for the reader only: its scratch is packed over there
                    if fields[f"{end}buf"] == "s":
                        fields[f"{end}off"] = packed.get(int(str(fields[f"{end}off"])), 0)
                fields["hasdep"] = int((number, index) in self._waited_for)
                words = " ".join(f'{key}="{value}"' for key, value in fields.items())
                lines.append(f'      <step s="{index}" {words}/>')
            lines.append("    </tb>")
        return [*lines, "  </gpu>"]


def _fields(name: str, src: Place, dst: Place, count: int, wait: At | None, tag: str | None) -> dict[str, object]:
    block, step = wait or (-1, -1)
    fields: dict[str, object] = {
        "type": name, "srcbuf": src[0], "srcoff": src[1], "dstbuf": dst[0], "dstoff": dst[1], "cnt": count,
        "depid": block, "deps": step, "hasdep": 0,
    }  # fmt: skip
    return fields if tag is None else fields | {"round": tag}
