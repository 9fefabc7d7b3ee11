"""Execution plans of MSCCL++ made for the tests, and a machine that runs the threads of one in a random order."""

import json
import random

from meshwright.collectives.mscclpp.file import PACKETS, SIGNALS, SUMS, WAITS


def piece(buffer, index, size=1):
    """A run of chunks: of the own buffer "i", "o" or "s", or of the block's remote buffer with a number."""
    key = "buffer_id" if isinstance(buffer, int) else "type"
    return {key: buffer, "index": index, "size": size}


def op(name, sources=(), targets=(), **keys):
    """An operation over memory channels."""
    return {"name": name, "src_buff": list(sources), "dst_buff": list(targets), "channel_type": "memory"} | keys


def synced(ops):
    """Operations with the barrier of a block's threads between them."""
    return [one for found in ops for one in (found, {"name": "nop"})][:-1]


def gpu(rank, blocks, peers, remote, *, inputs, outputs, scratch=0, semaphores=0):
    """A GPU; each block may use all channels (one a peer) and all remote buffers, its threads wait for each other."""
    return {
        "id": rank,
        "input_chunks": inputs,
        "output_chunks": outputs,
        "scratch_chunks": scratch,
        "threadblocks": [
            {
                "id": number,
                "ops": synced(ops),
                "channels": [{"channel_type": "memory", "channel_ids": list(range(len(peers)))}],
                "remote_buffer_refs": [
                    {"access_channel_type": "memory", "remote_buffer_ids": list(range(len(remote)))}
                ],
            }
            for number, ops in enumerate(blocks)
        ],
        "channels": [{"channel_type": "memory", "connected_to": peers}],
        "remote_buffers": [{"rank": r, "type": t, "access_channel_types": ["memory"]} for r, t in remote],
        "semaphores": [{"init_value": 0}] * semaphores,
    }


def plan(collective, gpus, *, inplace=True, protocol="Simple"):
    """A plan."""
    return {"name": "made", "collective": collective, "protocol": protocol, "inplace": inplace, "gpus": gpus}


def all_gather(ranks, *, inplace=True):
    """Every rank puts its chunk into the outputs of the others."""
    gpus = []
    for rank in range(ranks):
        peers = [other for other in range(ranks) if other != rank]
        own = piece("i", 0)
        ops = [] if inplace else [op("copy", [own], [piece("o", rank)])]
        ops += [
            op("rlxsignal", channel_ids=list(range(len(peers)))),
            op("rlxwait", channel_ids=list(range(len(peers)))),
        ]
        ops += [op("put", [own], [piece(n, rank)]) for n in range(len(peers))]
        ops += [op("signal", channel_ids=list(range(len(peers)))), op("wait", channel_ids=list(range(len(peers))))]
        gpus.append(gpu(rank, [ops], peers, [(p, "o") for p in peers], inputs=1, outputs=ranks))
    return plan("allgather", gpus, inplace=inplace)


def all_reduce(ranks):
    """Every rank reads its chunk from the others, sums it, and puts the sum into their inputs."""
    gpus = []
    for rank in range(ranks):
        peers = [other for other in range(ranks) if other != rank]
        every = list(range(len(peers)))
        remote = [piece(n, rank) for n in every]
        ops = [
            op("signal", channel_ids=every),
            op("wait", channel_ids=every),
            op("rres", [piece("i", rank), *remote], [piece("i", rank), *remote], reduce_op="sum"),
            op("signal", channel_ids=every),
            op("wait", channel_ids=every),
        ]
        gpus.append(gpu(rank, [ops], peers, [(p, "i") for p in peers], inputs=ranks, outputs=ranks))
    return plan("allreduce", gpus)


def all_reduce_packets(ranks):
    """The same with packets in scratch: one block sends, one sums and sends on, one unpacks."""
    gpus = []
    for rank in range(ranks):
        peers = [other for other in range(ranks) if other != rank]
        slot = {other: (other if other < rank else other - 1) for other in peers}  # of `other` in my scratch
        theirs = {other: (rank if rank < other else rank - 1) for other in peers}  # mine in that of `other`
        sends = [op("ppkt", [piece("i", other)], [piece(n, theirs[other])]) for n, other in enumerate(peers)]
        sums = [
            op(
                "respkt",
                [piece("i", rank), *(piece("s", slot[other]) for other in peers)],
                [piece("i", rank), *(piece(n, ranks - 1 + theirs[other]) for n, other in enumerate(peers))],
            )
        ]
        takes = [op("upkt", [piece("s", ranks - 1 + slot[other])], [piece("i", other)]) for other in peers]
        gpus.append(
            gpu(rank, [sends, sums, takes], peers, [(p, "s") for p in peers], inputs=ranks, outputs=ranks,
                scratch=2 * (ranks - 1))
        )  # fmt: skip
    return plan("allreduce", gpus, protocol="LL")


def all_to_all(ranks):
    """Every rank puts its part for another into that one's output."""
    gpus = []
    for rank in range(ranks):
        peers = [other for other in range(ranks) if other != rank]
        every = list(range(len(peers)))
        ops = [op("copy", [piece("i", rank)], [piece("o", rank)])]
        ops += [op("put", [piece("i", other)], [piece(n, rank)]) for n, other in enumerate(peers)]
        ops += [op("signal", channel_ids=every), op("wait", channel_ids=every)]
        gpus.append(gpu(rank, [ops], peers, [(p, "o") for p in peers], inputs=ranks, outputs=ranks))
    return plan("alltoall", gpus, inplace=False)


def shared_blocks(*, released=True, acquired=True):
    """Two GPUs: one block copies into scratch, another waits for it and puts it to the peer."""
    gpus = []
    for rank in (0, 1):
        first = [op("copy", [piece("i", 0, 2)], [piece("s", 0, 2)])]
        first += [op("sem_release", semaphore_ids=[0])] if released else []
        second = [op("sem_acquire", semaphore_ids=[0])] if acquired else []
        second += [op("put", [piece("s", 0, 2)], [piece(0, 2, 2)]), op("signal", channel_ids=[0])]
        second += [op("wait", channel_ids=[0]), op("re", [piece("i", 0, 2), piece("s", 2, 2)], [piece("i", 0, 2)])]
        gpus.append(gpu(rank, [first, second], [1 - rank], [(1 - rank, "s")], inputs=2, outputs=2, scratch=4,
                        semaphores=1))  # fmt: skip
    return plan("allreduce", gpus)


def packets_between_two():
    """Two GPUs: each sends the chunk that the other sums, gets the sum back, with a block for each of the three."""
    gpus = []
    for rank in (0, 1):
        other = 1 - rank
        sends = [op("ppkt", [piece("i", other)], [piece(0, other)])]
        sums = [op("respkt", [piece("i", rank), piece("s", rank)], [piece("i", rank), piece(0, rank)])]
        if rank:  # the other way to write it keeps the packets of the sum, too
            sums = [op("recspkt", [piece("i", 1), piece("s", 1)], [piece("i", 1), piece("s", 2), piece(0, 1)])]
        takes = [op("upkt", [piece("s", other)], [piece("i", other)])]
        gpus.append(gpu(rank, [sends, sums, takes], [other], [(other, "s")], inputs=2, outputs=2, scratch=3))
    return plan("allreduce", gpus, protocol="LL")


def ports_between_two():
    """Two GPUs that gather over port channels: one by two blocks (put and signal; both in one), one by one block."""
    ready = [op("signal", channel_ids=[0]), op("wait", channel_ids=[0])]
    put = [op("put", [piece("o", 0)], [piece(0, 0)], channel_ids=[0]), op("signal", channel_ids=[0])]
    put += [op("flush", channel_ids=[0]), op("wait", channel_ids=[0])]
    both = [op("pws", [piece("o", 1)], [piece(0, 1)], channel_ids=[0]), op("flush", channel_ids=[0])]
    back = [op("pwsf", [piece("o", 2, 2)], [piece(0, 2, 2)], channel_ids=[0]), op("wait", channel_ids=[0])]
    blocks = [[ready + put, ready + both], [ready + back, [*ready, op("wait", channel_ids=[0])]]]
    gpus = []
    for rank in (0, 1):
        made = gpu(rank, blocks[rank], [1 - rank, 1 - rank], [(1 - rank, "o")], inputs=2, outputs=4)
        for number, block in enumerate(made["threadblocks"]):
            block["channels"][0]["channel_ids"] = [number]
        gpus.append(json.loads(json.dumps(made).replace('"memory"', '"port"')))
    return plan("allgather", gpus)


def shared(block):
    """Which part of a run a block of two makes."""
    return {"tb_id": block, "tbg_size": 2}


def shared_packets():
    """Two blocks send halves of a chunk as packets, two others take them (transfer_pack_tbg of mscclpp's tests)."""
    gpus = []
    for rank in (0, 1):
        sent = [[op("ppkt", [piece("i", 0)], [piece(0, rank)], tbg_info=shared(b))] for b in (0, 1)]
        taken = [[op("upkt", [piece("s", 1 - rank)], [piece("o", 1 - rank)], tbg_info=shared(b))] for b in (0, 1)]
        gpus.append(gpu(rank, [*sent, *taken], [1 - rank], [(1 - rank, "s")], inputs=1, outputs=2, scratch=2))
    return plan("allgather", gpus, protocol="LL")


def shared_copies(*, waits_for_both=True):
    """Two blocks copy a run of two chunks together, a chunk each; each block of the peer gets what one of them made.

    It waits for both, or for the block with its own number only, which made the other chunk (as in reduce_tbg of
    mscclpp's tests). Channel 2a + b goes from block a to block b.
    """
    gpus = []
    for rank in (0, 1):
        blocks = []
        for b in (0, 1):
            far = 2 * (1 - rank) + 1 - b
            to, of = ([2 * b, 2 * b + 1], [b, 2 + b]) if waits_for_both else ([3 * b], [3 * b])
            blocks.append(
                [
                    op("copy", [piece("i", 0, 2)], [piece("s", 2 * rank, 2)], tbg_info=shared(b)),
                    op("signal", channel_ids=to),
                    op("wait", channel_ids=of),
                    op("get", [piece(0, far)], [piece("o", far)], channel_ids=[3 * b]),
                ]
            )
        gpus.append(gpu(rank, blocks, [1 - rank] * 4, [(1 - rank, "s")], inputs=2, outputs=4, scratch=4))
    return plan("allgather", gpus)


class Machine:
    """Threads that go on one at a time, at random; a chunk is two halves, moved by the first thread and the last.

    Which of the two moves which half changes from one operation to the next.

    Threads do their block's operations in order. The first ones of a signal or a wait have a channel each, the others
    pass; a nop lets nobody pass before all have come. Memory is sets of contributions; what an operation writes it has
    read some time before. Packets are there when they were written.
    """

    def __init__(self, value, seed):
        self.value, self.gpus, self.rng = value, value["gpus"], random.Random(seed)
        self.kind, self.inplace, self.mode = value["collective"], value["inplace"], seed % 3
        self.blocks = {(g["id"], b["id"]): b for g in self.gpus for b in g["threadblocks"]}
        self.threads = {
            (*key, n): 0 for key, block in self.blocks.items() for n in range(1 + max([1, *map(width, block["ops"])]))
        }
        self.last = {key: max(n for *k, n in self.threads if tuple(k) == key) for key in self.blocks}
        self.signals, self.here, self.memory, self.left, self.turned, self.moving = {}, set(), {}, {}, {}, {}
        self.semaphores = {
            (g["id"], n): found["init_value"] for g in self.gpus for n, found in enumerate(g["semaphores"])
        }
        for g in self.gpus:
            for chunk in range(g["input_chunks"]):
                for half in (0, 1):
                    self.memory[(*where(self.kind, self.inplace, g, "i", chunk), half)] = {(g["id"], chunk)}

    def run(self):
        """Return whether the plan ends, with the right result in both halves."""
        urgency = {key: self.rng.random() for key in self.threads}
        while True:
            ready = [key for key in self.threads if self.can_go(key)]
            if not ready:
                break
            if self.mode == 2 and self.rng.random() < 0.1:
                urgency[self.rng.choice(ready)] = self.rng.random()
            chosen = self.rng.choice(ready) if self.mode == 0 else max(ready, key=urgency.__getitem__)
            self.go(chosen)
            if all(self.done(key) for key in self.threads if key[0] == chosen[0]):  # a GPU has what is there at its end
                self.left[chosen[0]] = {place: v for place, v in self.memory.items() if place[0] == chosen[0]}
        return len(self.left) == len(self.gpus) and all(
            result(self.kind, self.inplace, self.gpus, self.left, len(self.gpus), half) for half in (0, 1)
        )

    def done(self, key):
        return self.threads[key] == len(self.blocks[key[:2]]["ops"])

    def channels(self, key, this):
        """The peers of the channels of an operation, each with which of the channels to that peer it is."""
        g, block = self.gpus[key[0]], self.blocks[key[:2]]
        if not this.get("channel_ids"):
            return []
        peers, own = g["channels"][0]["connected_to"], block["channels"][0]["channel_ids"]
        return [(peers[own[n]], peers[: own[n]].count(peers[own[n]])) for n in this.get("channel_ids", ())]

    def can_go(self, key):
        if self.done(key):
            return False
        rank, block, thread = key
        at = self.threads[key]
        this = self.blocks[rank, block]["ops"][at]
        if this["name"] == "nop":
            return all(self.threads[rank, block, n] >= at for n in range(self.last[rank, block] + 1))
        if this["name"] == "barrier":
            return self.all_came(rank, block, at, this)
        if this["name"] in WAITS:
            mine = self.channels(key, this)[thread : thread + 1]
            return all(self.signals.get((peer, rank, n), 0) > 0 for peer, n in mine)
        if this["name"] == "sem_acquire":
            return all(self.semaphores[rank, n] > 0 for n in this["semaphore_ids"][thread : thread + 1])
        if this["name"] in PACKETS and self.half(key) is not None:
            return all(
                place in self.here
                for part in this["src_buff"] if part.get("type") == "s"
                for place in halves([(rank, "s", part["index"] + k) for k in range(part["size"])], self.half(key), this)
            )  # fmt: skip
        return True

    def all_came(self, rank, block, at, this):
        """Whether as many blocks as it takes have come to the same barrier, with all their threads."""
        same = [n for n, o in enumerate(self.blocks[rank, block]["ops"]) if is_same(o, this)].index(at)
        came = 0
        for key, other in self.blocks.items():
            places = [n for n, o in enumerate(other["ops"]) if is_same(o, this)]
            if key[0] == rank and len(places) > same:
                came += all(self.threads[(*key, n)] >= places[same] for n in range(self.last[key] + 1))
        return came == this["num_threadblocks"]

    def half(self, key):
        """The half of each chunk that a thread moves, None for none; another one with each operation.

        Over a port channel the first thread has both moved, and of blocks that share a run each has its part moved so.
        """
        this = self.blocks[key[:2]]["ops"][self.threads[key]]
        if this.get("channel_type") == "port" or "tbg_info" in this:
            return None if key[2] else 2
        turned = self.turned.setdefault((*key[:2], self.threads[key]), self.rng.random() < 0.5)
        return {0: turned, self.last[key[:2]]: not turned}.get(key[2])

    def go(self, key):
        rank, block, thread = key
        this = self.blocks[rank, block]["ops"][self.threads[key]]
        half = self.half(key)
        if half is not None and this.get("dst_buff") and key not in self.moving:
            self.moving[key] = self.taken(key, this, half)
            return  # what it took is written when it goes on
        self.threads[key] += 1
        for peer, n in self.channels(key, this)[thread : thread + 1]:
            if this["name"] in SIGNALS:
                self.signals[rank, peer, n] = self.signals.get((rank, peer, n), 0) + 1
            elif this["name"] in WAITS:
                self.signals[peer, rank, n] -= 1
        for n in this.get("semaphore_ids", ())[thread : thread + 1]:
            self.semaphores[rank, n] += 1 if this["name"] == "sem_release" else -1
        for place, content in self.moving.pop(key, ()):
            self.memory[place] = content
            if this["name"] in PACKETS and place[1] == "s":
                self.here.add(place)

    def taken(self, key, this, half):
        """What an operation writes where: its sources, or their sum."""
        g, block = self.gpus[key[0]], self.blocks[key[:2]]
        sources, targets = (
            [halves(run, half, this) for run in runs(self.gpus, g, block, this[end], self.kind, self.inplace)]
            for end in ("src_buff", "dst_buff")
        )
        contents = [[self.memory.get(place) for place in run] for run in sources]
        if this["name"] in SUMS:
            contents = [[added(values) for values in zip(*contents, strict=True)]]
        return [
            pair
            for n, run in enumerate(targets)
            for pair in zip(run, contents[n if len(contents) > 1 else 0], strict=True)
        ]


def halves(run, half, this):
    """The halves of a run's chunks that are moved: the given one of each, or (2) all; of a shared run its part."""
    every = [(*place, one) for place in run for one in ((0, 1) if half == 2 else (half,))]
    share = this.get("tbg_info")
    if share is None:
        return every
    count = len(every) // share["tbg_size"]
    return every[share["tb_id"] * count :][:count]


def width(this):
    """How many threads an operation takes, data apart."""
    return len(this.get("channel_ids", this.get("semaphore_ids", ())))


def is_same(this, barrier):
    return this["name"] == "barrier" and this["barrier_id"] == barrier["barrier_id"]


def right(value, seed):
    """Return whether a plan that runs in a random order ends with the right result; KeyError outside its buffers."""
    return Machine(value, seed).run()


def where(kind, inplace, g, buffer, index):
    """The memory of a chunk: in place, inputs and outputs share theirs."""
    size = g[{"i": "input_chunks", "o": "output_chunks", "s": "scratch_chunks"}[buffer]]
    if not 0 <= index < size:
        raise KeyError((g["id"], buffer, index))
    if inplace and buffer == "o" and kind in {"allreduce", "alltoall", "broadcast"}:
        return g["id"], "i", index
    if inplace and buffer == "i" and kind == "allgather":
        return g["id"], "o", g["id"] * g["input_chunks"] + index
    if inplace and buffer == "o" and kind == "reducescatter":
        return g["id"], "i", g["id"] * g["output_chunks"] + index
    return g["id"], buffer, index


def runs(gpus, g, block, pieces, kind, inplace):
    """The memory of each run of an operation."""
    refs = [n for ref in block["remote_buffer_refs"] for n in ref["remote_buffer_ids"]]
    for part in pieces:
        if "buffer_id" in part:
            remote = g["remote_buffers"][refs[part["buffer_id"]]]
        else:
            remote = {"rank": g["id"], "type": part["type"]}
        owner = gpus[remote["rank"]]
        yield [where(kind, inplace, owner, remote["type"], part["index"] + k) for k in range(part["size"])]


def added(values):
    """A sum of contributions; None for what is no sum: something missing, or a contribution twice."""
    total = set()
    for value in values:
        if value is None or total & value:
            return None
        total |= value
    return total


def result(kind, inplace, gpus, memory, ranks, half):
    """Whether a half of every output is what the collective asks for."""
    for g in gpus:
        rank = g["id"]
        for index in range(g["output_chunks"]):
            got = memory[rank].get((*where(kind, inplace, g, "o", index), half))
            each = g["output_chunks"] // ranks if kind in {"allgather", "alltoall"} else g["output_chunks"]
            wanted = {
                "allreduce": {(r, index) for r in range(ranks)},
                "reducescatter": {(r, rank * each + index) for r in range(ranks)},
                "allgather": {(index // max(each, 1), index % max(each, 1))},
                "alltoall": {(index // max(each, 1), rank * each + index % max(each, 1))},
                "broadcast": {(0, index)},
            }[kind]
            if got != wanted:
                return False
    return True
