"""Seeded damage to execution plans of MSCCL++: operations lost, doubled or exchanged, another index or peer."""

import copy


def blocks_of(value):
    return [block for g in value["gpus"] for block in g["threadblocks"] if block["ops"]]


def lost(rng, value):
    ops = rng.choice(blocks_of(value))["ops"]
    del ops[rng.randrange(len(ops))]


def lost_order(rng, value):
    """Without a signal, a wait, a release, an acquire or a barrier of threads or blocks."""
    names = {"signal", "wait", "rlxsignal", "rlxwait", "sem_release", "sem_acquire", "nop", "barrier"}
    found = [(b["ops"], n) for b in blocks_of(value) for n, one in enumerate(b["ops"]) if one["name"] in names]
    ops, number = rng.choice(found)
    del ops[number]


def lost_channel(rng, value):
    found = [one for b in blocks_of(value) for one in b["ops"] if len(one.get("channel_ids", ())) > 1]
    if found:
        one = rng.choice(found)
        one["channel_ids"] = [n for n in one["channel_ids"] if n != rng.choice(one["channel_ids"])]


def doubled(rng, value):
    ops = rng.choice(blocks_of(value))["ops"]
    number = rng.randrange(len(ops))
    ops.insert(rng.randrange(len(ops) + 1), copy.deepcopy(ops[number]))


def neighbours(rng, value):
    ops = rng.choice(blocks_of(value))["ops"]
    number = rng.randrange(len(ops))
    ops[number - 1], ops[number] = ops[number], ops[number - 1]


def exchanged(rng, value):
    ops = rng.choice(blocks_of(value))["ops"]
    one, other = rng.randrange(len(ops)), rng.randrange(len(ops))
    ops[one], ops[other] = ops[other], ops[one]


def pieces(value):
    return [part for b in blocks_of(value) for one in b["ops"] for end in ("src_buff", "dst_buff")
            for part in one.get(end, ())]  # fmt: skip


def other_index(rng, value):
    part = rng.choice(pieces(value))
    part["index"] = max(0, part["index"] + rng.choice([-2, -1, 1, 2]))


def other_buffer(rng, value):
    part = rng.choice(pieces(value))
    if "buffer_id" in part:
        part["buffer_id"] = rng.randrange(part["buffer_id"] + 2)
    else:
        part["type"] = rng.choice("ios")


def other_peer(rng, value):
    g = rng.choice(value["gpus"])
    peers = g["channels"][0]["connected_to"]
    if peers:
        peers[rng.randrange(len(peers))] = rng.randrange(len(value["gpus"]))


def other_owner(rng, value):
    g = rng.choice(value["gpus"])
    if g["remote_buffers"]:
        rng.choice(g["remote_buffers"])["rank"] = rng.randrange(len(value["gpus"]))


def other_channel(rng, value):
    found = [one for b in blocks_of(value) for one in b["ops"] if one.get("channel_ids")]
    if found:
        one = rng.choice(found)
        one["channel_ids"] = [*one["channel_ids"]]
        one["channel_ids"][rng.randrange(len(one["channel_ids"]))] = rng.randrange(max(one["channel_ids"]) + 2)


def other_name(rng, value):
    one = rng.choice([one for b in blocks_of(value) for one in b["ops"]])
    names = {
        "re": "copy", "copy": "put", "put": "copy", "signal": "wait", "wait": "signal", "rlxsignal": "signal",
        "sem_release": "sem_acquire", "sem_acquire": "sem_release", "rres": "re", "upkt": "copy", "respkt": "repkt",
    }  # fmt: skip
    one["name"] = names.get(one["name"], one["name"])


KINDS = (
    lost, lost_order, lost_order, lost_channel, doubled, neighbours, neighbours, exchanged, other_index, other_index,
    other_buffer, other_peer, other_owner, other_channel, other_name,
)  # fmt: skip


def mutated(rng, value):
    """Return the plan with one thing wrong, and the name of the damage."""
    made = copy.deepcopy(value)
    kind = rng.choice(KINDS)
    kind(rng, made)
    return made, kind.__name__
