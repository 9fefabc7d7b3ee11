"""Seeded damage to schedules and to rank programs: one step dropped, doubled, misdirected, moved or altered."""

import msgspec

from meshwright.collectives.catalogue import algorithm_names, build_schedule, hierarchical_of
from meshwright.collectives.schedules.programs import RoundTransfers
from meshwright.collectives.schedules.schedule import COLLECTIVES

replaced = msgspec.structs.replace


def random_schedule(rng, max_ranks=5):
    """Return one of our own schedules, of any collective, on up to `max_ranks` ranks."""
    collective = rng.choice(COLLECTIVES)
    ranks = rng.randint(2, max_ranks)
    name = rng.choice(algorithm_names(collective))
    if name == "hierarchical" and ranks == 4:
        inner, outer = (rng.choice(algorithm_names(collective)[:-1]) for _ in range(2))
        return hierarchical_of(collective, 4, rng.choice([1, 2, 4]), inner=inner, outer=outer)
    return build_schedule(collective, name, ranks, root=rng.randrange(ranks))


def mutated(rng, schedule):
    """Return `schedule` with one thing wrong, or None where that cannot be written down as a schedule."""
    rounds = [list(transfers) for transfers in schedule.rounds]
    busy = [number for number, transfers in enumerate(rounds) if transfers]
    if not busy:
        return None
    at = rng.choice(busy)
    i = rng.randrange(len(rounds[at]))
    t = rounds[at][i]
    kind = rng.choice(["drop", "double", "again", "dst", "src", "move", "swap", "reduce", "chunk", "lose chunk", "to"])
    if kind == "drop":
        del rounds[at][i]
    elif kind == "double":
        rounds[at].append(t)
    elif kind == "again":
        rounds[rng.randrange(len(rounds))].append(t)
    elif kind == "dst":
        rounds[at][i] = replaced(t, dst=rng.randrange(schedule.ranks))
    elif kind == "src":
        rounds[at][i] = replaced(t, src=rng.randrange(schedule.ranks))
    elif kind == "move":
        rounds[rng.randrange(len(rounds))].append(rounds[at].pop(i))
    elif kind == "swap":
        other = rng.randrange(len(rounds))
        rounds[at], rounds[other] = rounds[other], rounds[at]
    elif kind == "reduce":
        rounds[at][i] = replaced(t, reduce=not t.reduce)
    elif not t.chunks:
        return None
    elif kind == "chunk":
        rounds[at][i] = replaced(t, chunks=(rng.randrange(schedule.slots), *t.chunks[1:]))
    elif kind == "lose chunk":
        rounds[at][i] = replaced(t, chunks=t.chunks[1:], to=t.to[1:])
    else:
        to = (rng.randrange(schedule.slots), *t.targets[1:])
        rounds[at][i] = replaced(t, to=() if to == t.chunks else to)
    try:
        return replaced(schedule, rounds=tuple(map(tuple, rounds)))
    except ValueError:
        return None


def mutated_programs(rng, programs):
    """Return rank programs with one end of one message dropped, doubled, altered or moved within its rank."""
    ranks = [[[list(s.sends), list(s.receives)] for s in program] for program in programs]
    full = [(r, s, side) for r, p in enumerate(ranks) for s, st in enumerate(p) for side in (0, 1) if st[side]]
    if not full:
        return programs
    rank, stage, side = rng.choice(full)
    messages = ranks[rank][stage][side]
    i = rng.randrange(len(messages))
    kind = rng.choice(["drop", "double", "alter", "move", "swap", "reverse"])
    if kind == "drop":
        del messages[i]
    elif kind == "double":
        messages.append(messages[i])
    elif kind == "alter":
        key = "dst" if side == 0 else "src"
        messages[i] = replaced(messages[i], **{key: rng.choice([r for r in range(len(ranks)) if r != rank])})
    elif kind == "move":
        rng.choice(ranks[rank])[side].append(messages.pop(i))
    elif kind == "swap":
        other = rng.randrange(len(ranks[rank]))
        ranks[rank][stage], ranks[rank][other] = ranks[rank][other], ranks[rank][stage]
    else:
        messages.reverse()
    return tuple(
        tuple(RoundTransfers(tuple(sends), tuple(receives), ()) for sends, receives in program) for program in ranks
    )
