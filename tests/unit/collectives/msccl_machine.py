"""A plain interpreter of MSCCL XML: thread blocks take turns at random, chunks are counted, nothing is clever.

It shares no code with the package: the standard library reads the file, buffers are lists of counters, and messages
wait in queues without end. Used on files of the tests only.
"""

import xml.etree.ElementTree as ET
from collections import Counter, deque

NOTHING = Counter({"nothing": 1})


def run(text, rng):
    """Return the buffers of every gpu when all blocks have ended; None if they wait for each other for ever."""
    root = ET.fromstring(text)
    coll, in_place, p = root.get("coll"), root.get("inplace") == "1", int(root.get("ngpus"))
    memory = [start(gpu, coll, in_place, p) for gpu in root]
    queues, done = {}, set()
    blocks = [
        {"gpu": g, "tb": int(tb.get("id")), "send": int(tb.get("send")), "recv": int(tb.get("recv")),
         "chan": int(tb.get("chan")), "steps": list(tb), "at": 0}
        for g, gpu in enumerate(root) for tb in gpu
    ]  # fmt: skip
    while any(b["at"] < len(b["steps"]) for b in blocks):
        able = [b for b in blocks if b["at"] < len(b["steps"]) and can_go(b, queues, done)]
        if not able:
            return None
        block = rng.choice(able)
        take(block, memory[block["gpu"]], queues)
        done.add((block["gpu"], block["tb"], block["at"]))
        block["at"] += 1
    return memory


def start(gpu, coll, in_place, p):
    """Return the buffers of a gpu at the beginning: which contribution is in each chunk."""
    rank = int(gpu.get("id"))
    sizes = {buffer: int(gpu.get(f"{buffer}_chunks")) for buffer in "ios"}
    memory = {buffer: [NOTHING] * size for buffer, size in sizes.items()}
    if coll == "allgather" and in_place:
        per_rank = sizes["o"] // p
        for i in range(per_rank):
            memory["o"][rank * per_rank + i] = Counter({(rank, i): 1})
    else:
        memory["i"] = [Counter({(rank, i): 1}) for i in range(sizes["i"])]
    return memory


def can_go(block, queues, done):
    step = block["steps"][block["at"]]
    waits = int(step.get("depid")) < 0 or (block["gpu"], int(step.get("depid")), int(step.get("deps"))) in done
    receives = step.get("type") in ("r", "rcs", "rrc", "rrs", "rrcs")
    return waits and (not receives or bool(queues.get((block["recv"], block["gpu"], block["chan"]))))


def take(block, memory, queues):
    step = block["steps"][block["at"]]
    kind, count = step.get("type"), int(step.get("cnt"))
    src, dst = ((step.get(f"{end}buf"), int(step.get(f"{end}off"))) for end in ("src", "dst"))

    def read(place):
        return memory[place[0]][place[1] : place[1] + count]

    def write(place, values):
        memory[place[0]][place[1] : place[1] + count] = values

    values = read(src) if kind in ("s", "cpy", "re") else []
    if kind in ("r", "rcs", "rrc", "rrs", "rrcs"):
        values = queues[block["recv"], block["gpu"], block["chan"]].popleft()
        assert len(values) == count
    if kind in ("rrc", "rrs", "rrcs"):
        values = [a + b for a, b in zip(values, read(src), strict=True)]
    if kind == "re":
        values = [a + b for a, b in zip(values, read(dst), strict=True)]
    if kind in ("r", "rcs", "rrc", "rrcs", "cpy", "re"):
        write(dst, values)
    if kind in ("s", "rcs", "rrs", "rrcs"):
        queues.setdefault((block["gpu"], block["send"], block["chan"]), deque()).append(values)


def is_right(text, rng):
    """Return whether one random run ends with what the collective promises."""
    root = ET.fromstring(text)
    coll, in_place, p = root.get("coll"), root.get("inplace") == "1", int(root.get("ngpus"))
    memory = run(text, rng)
    if memory is None:
        return False
    for rank in range(p):
        if coll == "allreduce":
            result = memory[rank]["i" if in_place else "o"]
            wanted = [Counter({(r, i): 1 for r in range(p)}) for i in range(len(result))]
        elif coll == "allgather":
            result = memory[rank]["o"]
            k = len(result) // p
            wanted = [Counter({(i // k, i % k): 1}) for i in range(len(result))]
        else:
            result = memory[rank]["o"]
            k = len(result) // p
            wanted = [Counter({(i // k, rank * k + i % k): 1}) for i in range(len(result))]
        if result != wanted:
            return False
    return True
