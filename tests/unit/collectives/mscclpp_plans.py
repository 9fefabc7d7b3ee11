"""Execution plans of MSCCL++ made for the tests, and a machine that runs one in a random order of its steps."""

import random

from meshwright.collectives.mscclpp_file import PACKETS, SIGNALS, SUMS, WAITS


def piece(buffer, index, size=1):
    """A run of chunks: of the own buffer "i", "o" or "s", or of the block's remote buffer with a number."""
    key = "buffer_id" if isinstance(buffer, int) else "type"
    return {key: buffer, "index": index, "size": size}


def op(name, sources=(), targets=(), **keys):
    """An operation over memory channels."""
    return {"name": name, "src_buff": list(sources), "dst_buff": list(targets), "channel_type": "memory"} | keys


def gpu(rank, blocks, peers, remote, *, inputs, outputs, scratch=0, semaphores=0):
    """A GPU; each block may use all channels (one a peer) and all remote buffers."""
    return {
        "id": rank,
        "input_chunks": inputs,
        "output_chunks": outputs,
        "scratch_chunks": scratch,
        "threadblocks": [
            {
                "id": number,
                "ops": ops,
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


def right(value, seed):
    """Run a plan whose operations go on one at a time in a random order; whether it ends with the right result.

    Memory is numbers; each operation happens at once, packets are there when they were written.
    """
    rng = random.Random(seed)
    gpus, ranks = value["gpus"], len(value["gpus"])
    memory, here = {}, set()
    for g in gpus:
        for buffer, key in (("i", "input_chunks"), ("o", "output_chunks"), ("s", "scratch_chunks")):
            for index in range(g[key]):
                memory[g["id"], buffer, index] = None
    kind, inplace = value["collective"], value["inplace"]
    for g in gpus:
        for index in range(g["input_chunks"]):
            memory[where(kind, inplace, g, "i", index)] = {(g["id"], index)}
    signals, semaphores, left = {}, {}, {}
    counters = {(g["id"], b["id"]): 0 for g in gpus for b in g["threadblocks"]}
    while True:
        ready = [key for key in counters if can_go(gpus, counters, key, signals, semaphores, here)]
        if not ready:
            break
        go(gpus, counters, rng.choice(ready), memory, signals, semaphores, here, kind, inplace)
        for g in gpus:  # a GPU has what is there when it ends
            done = all(counters[g["id"], b["id"]] == len(b["ops"]) for b in g["threadblocks"])
            if done and g["id"] not in left:
                left[g["id"]] = dict(memory)
    return len(left) == ranks and result(kind, inplace, gpus, left, ranks)


def where(kind, inplace, g, buffer, index):
    """The memory of a chunk: in place, inputs and outputs share theirs."""
    if inplace and buffer == "o" and kind in {"allreduce", "alltoall", "broadcast"}:
        return g["id"], "i", index
    if inplace and buffer == "i" and kind == "allgather":
        return g["id"], "o", g["id"] * g["input_chunks"] + index
    if inplace and buffer == "o" and kind == "reducescatter":
        return g["id"], "i", g["id"] * g["output_chunks"] + index
    return g["id"], buffer, index


def runs(gpus, g, pieces, kind, inplace):
    """The memory of each run of an operation."""
    for part in pieces:
        remote = (
            g["remote_buffers"][part["buffer_id"]] if "buffer_id" in part else {"rank": g["id"], "type": part["type"]}
        )
        owner = gpus[remote["rank"]]
        yield [where(kind, inplace, owner, remote["type"], part["index"] + k) for k in range(part["size"])]


def can_go(gpus, counters, key, signals, semaphores, here):
    g = gpus[key[0]]
    ops = next(b["ops"] for b in g["threadblocks"] if b["id"] == key[1])
    if counters[key] == len(ops):
        return False
    this = ops[counters[key]]
    if this["name"] in WAITS:
        peers = g["channels"][0]["connected_to"]
        return all(signals.get((peers[n], key[0]), 0) > 0 for n in this["channel_ids"])
    if this["name"] == "sem_acquire":
        return all(semaphores.get((key[0], n), 0) > 0 for n in this["semaphore_ids"])
    if this["name"] in PACKETS:
        found = [(key[0], "s", part["index"] + k) for part in this["src_buff"] if part.get("type") == "s"
                 for k in range(part["size"])]  # fmt: skip
        return all(place in here for place in found)
    return True


def go(gpus, counters, key, memory, signals, semaphores, here, kind, inplace):
    g = gpus[key[0]]
    this = next(b["ops"] for b in g["threadblocks"] if b["id"] == key[1])[counters[key]]
    counters[key] += 1
    peers = g["channels"][0]["connected_to"]
    sources = [[memory[place] for place in run] for run in runs(gpus, g, this["src_buff"], kind, inplace)]
    targets = list(runs(gpus, g, this["dst_buff"], kind, inplace))
    if this["name"] in SUMS:
        sources = [[added(values) for values in zip(*sources, strict=True)]]
    for n, run in enumerate(targets):
        for place, content in zip(run, sources[n if len(sources) > 1 else 0], strict=True):
            memory[place] = content
            if this["name"] in PACKETS and place[1] == "s":
                here.add(place)
    for n in this.get("channel_ids", ()):
        if this["name"] in SIGNALS:
            signals[key[0], peers[n]] = signals.get((key[0], peers[n]), 0) + 1
        elif this["name"] in WAITS:
            signals[peers[n], key[0]] -= 1
    for n in this.get("semaphore_ids", ()):
        semaphores[key[0], n] = semaphores.get((key[0], n), 0) + (1 if this["name"] == "sem_release" else -1)


def added(values):
    """A sum of contributions; None for what is no sum: something missing, or a contribution twice."""
    total = set()
    for value in values:
        if value is None or total & value:
            return None
        total |= value
    return total


def result(kind, inplace, gpus, memory, ranks):
    """Whether every output is what the collective asks for."""
    for g in gpus:
        rank = g["id"]
        for index in range(g["output_chunks"]):
            got = memory[rank][where(kind, inplace, g, "o", index)]
            each = g["output_chunks"] // ranks if kind in {"allgather", "alltoall"} else g["output_chunks"]
            wanted = {
                "allreduce": {(r, index) for r in range(ranks)},
                "reducescatter": {(r, rank * each + index) for r in range(ranks)},
                "allgather": {(index // max(each, 1), index % max(each, 1))},
                "alltoall": {(index // max(each, 1), rank * each + index % max(each, 1))},
            }[kind]
            if got != wanted:
                return False
    return True
