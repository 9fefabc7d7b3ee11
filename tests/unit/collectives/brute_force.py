"""A plain judge of schedules, written from the definitions alone: it counts each contribution in each slot.

A slot is one big integer with a field of 64 bits for each (rank, chunk): how many times that rank's data of that chunk
is in it. One more field counts what was never there. Copies store, reductions add, and the end is compared with what
the collective is defined to do. Nothing here is shared with the package but the schedule struct itself.
"""

import itertools

FIELD = 64


def is_right(schedule):
    """Return whether a schedule does what its collective says, whatever order the steps of a round happen in."""
    return not has_race(schedule) and ends_right(schedule)


def ends_right(schedule):
    """Return whether everybody ends with what the collective promises."""
    if schedule.collective in {"barrier", "signal"}:
        return everyone_heard(schedule)
    slots = run(schedule)
    return all(slots[rank][slot] == value for rank, slot, value in promised(schedule))


def field(schedule, rank, chunk):
    return 1 << (FIELD * (rank * schedule.chunks + chunk))


def start(schedule):
    """Return the slots of every rank at the beginning."""
    p, c, root = schedule.ranks, schedule.chunks, schedule.root
    nothing = 1 << (FIELD * p * c)
    slots = [[nothing] * (c + schedule.scratch) for _ in range(p)]
    for rank, chunk in itertools.product(range(p), range(c)):
        has = {
            "all_reduce": True,
            "reduce": True,
            "reduce_scatter": True,
            "broadcast": rank == root,
            "scatter": rank == root,
            "send": rank == root,
            "copy": rank == root and chunk < c // 2,
            "gather": chunk * p // c == rank,
            "all_gather": chunk * p // c == rank,
            "all_to_all": chunk * p // c == rank,
        }[schedule.collective]
        if has:
            slots[rank][chunk] = field(schedule, rank, chunk)
    return slots


def promised(schedule):
    """Yield (rank, slot, what must be in it)."""
    p, c, root = schedule.ranks, schedule.chunks, schedule.root
    for rank, chunk in itertools.product(range(p), range(c)):
        total = sum(field(schedule, r, chunk) for r in range(p))
        of_owner = field(schedule, chunk * p // c, chunk)
        of_root = field(schedule, root, chunk)
        match schedule.collective:
            case "all_reduce":
                yield rank, chunk, total
            case "reduce" if rank == root:
                yield rank, chunk, total
            case "reduce_scatter" if chunk * p // c == rank:
                yield rank, chunk, total
            case "broadcast":
                yield rank, chunk, of_root
            case "scatter" if chunk * p // c == rank:
                yield rank, chunk, of_root
            case "gather" if rank == root:
                yield rank, chunk, of_owner
            case "all_gather":
                yield rank, chunk, of_owner
            case "all_to_all" if chunk * p * p // c % p == rank:
                yield rank, chunk, of_owner
            case "send" if rank == schedule.target:
                yield rank, chunk, of_root
            case "copy" if rank == root:
                yield rank, chunk, field(schedule, root, chunk % (c // 2))


def run(schedule):
    """Return the slots of every rank at the end."""
    slots = start(schedule)
    for transfers in schedule.rounds:
        old = [list(row) for row in slots]
        for t in transfers:
            for source, target in zip(t.chunks, t.to or t.chunks, strict=True):
                if t.reduce:
                    slots[t.dst][target] += old[t.src][source]
                else:
                    slots[t.dst][target] = old[t.src][source]
    return slots


def has_race(schedule):
    """Return whether some round has a write that meets another write, a reduction or a read of the same slot."""
    for transfers in schedule.rounds:
        accesses = []
        for t in transfers:
            accesses += [("read", t.src, slot) for slot in t.chunks]
            accesses += [("reduce" if t.reduce else "write", t.dst, slot) for slot in t.to or t.chunks]
        for one, other in itertools.combinations(accesses, 2):
            if one[1:] == other[1:] and "write" in (one[0], other[0]):
                return True
    return False


def everyone_heard(schedule):
    """Return whether the ranks that must know of an entry do, for collectives without data."""
    knows = {rank: {rank} for rank in range(schedule.ranks)}
    for transfers in schedule.rounds:
        old = {rank: set(known) for rank, known in knows.items()}
        for t in transfers:
            knows[t.dst] |= old[t.src]
    if schedule.collective == "signal":
        return schedule.root in knows[schedule.target]
    return all(len(known) == schedule.ranks for known in knows.values())


def programs_end(programs):
    """Return whether rank programs end under rendezvous, trying every order in which messages can meet.

    A message meets its other end when both ranks are in the stages that hold them and all earlier messages between
    the two, in the same direction, have met; what meets must be the same transfer.
    """
    return _search(programs, tuple((0, frozenset()) for _ in programs), {})


def _search(programs, state, seen):
    """`state`: for each rank its stage and the messages of that stage that have met."""
    state = _advance(programs, state)
    if state in seen:
        return seen[state]
    meetings = list(_meetings(programs, state))
    if not meetings:
        seen[state] = all(stage == len(program) for (stage, _), program in zip(state, programs, strict=True))
        return seen[state]
    seen[state] = all(
        programs[src][state[src][0]].sends[i] == programs[dst][state[dst][0]].receives[j]
        and _search(programs, _met(_met(state, src, ("send", i)), dst, ("receive", j)), seen)
        for src, i, dst, j in meetings
    )
    return seen[state]


def _advance(programs, state):
    fresh = []
    for program, (stage, met) in zip(programs, state, strict=True):
        while stage < len(program) and len(met) == len(program[stage].sends) + len(program[stage].receives):
            stage, met = stage + 1, frozenset()
        fresh.append((stage, met))
    return tuple(fresh)


def _meetings(programs, state):
    """Yield (sender, number of its send, receiver, number of its receive) of each two ends that can meet now."""
    for src, (stage, met) in enumerate(state):
        if stage == len(programs[src]):
            continue
        seen_peers = set()
        for i, t in enumerate(programs[src][stage].sends):
            if ("send", i) in met or t.dst in seen_peers:
                continue
            seen_peers.add(t.dst)
            there, met_there = state[t.dst]
            if there == len(programs[t.dst]):
                continue
            for j, other in enumerate(programs[t.dst][there].receives):
                if ("receive", j) not in met_there and other.src == src:
                    yield src, i, t.dst, j
                    break


def _met(state, rank, event):
    stage, met = state[rank]
    return (*state[:rank], (stage, met | {event}), *state[rank + 1 :])
