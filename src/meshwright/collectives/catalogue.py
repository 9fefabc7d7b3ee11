"""The algorithms by name: one dict literal a collective, and `build_schedule`, which makes a schedule from a name."""

from collections.abc import Callable
from functools import partial
from math import isqrt

from ..errors import InputError, nearest
from .algorithms import decentralised, direct, dissemination, halving, hierarchical, primitives, ring, rings, trees
from .schedules.schedule import COLLECTIVES, ROOTED, Schedule

Flat = dict[str, Callable[[int], Schedule]]  # from ranks
Rooted = dict[str, Callable[[int, int], Schedule]]  # from ranks and root
Directed = dict[str, Callable[[int, int, int], Schedule]]  # from ranks, root and target

ALL_REDUCE: Flat = {
    "parameter_server": direct.parameter_server,
    "naive": decentralised.naive,
    "staggered": decentralised.staggered,
    "partitioned": direct.partitioned,
    "partitioned_staggered": direct.partitioned_staggered,
    "ring": ring.ring_all_reduce,
    "halving_doubling": halving.halving_doubling,
    "recursive_doubling": halving.recursive_doubling,
    "tree": trees.double_tree,
    "tree_pipelined": trees.pipelined_double_tree,
    "one_shot": direct.one_shot,
}
ALL_GATHER: Flat = {
    "direct": direct.direct_all_gather,
    "pairwise": direct.pairwise_all_gather,
    "ring": ring.ring_all_gather,
    "doubling": halving.doubling_all_gather,
    "dissemination": dissemination.dissemination_all_gather,
}
REDUCE_SCATTER: Flat = {
    "direct": direct.direct_reduce_scatter,
    "pairwise": direct.pairwise_reduce_scatter,
    "ring": ring.ring_reduce_scatter,
    "halving": halving.halving_reduce_scatter,
    "dissemination": dissemination.dissemination_reduce_scatter,
}
ALL_TO_ALL: Flat = {
    "linear": direct.linear_all_to_all,
    "pairwise": direct.pairwise_all_to_all,
    "bruck": dissemination.bruck_all_to_all,
}
BARRIER: Flat = {
    "central": primitives.central_barrier,
    "dissemination": dissemination.dissemination_barrier,
}
BROADCAST: Rooted = {
    "linear": direct.linear_broadcast,
    "binomial": trees.binomial_broadcast,
    "scatter_gather": trees.scatter_gather_broadcast,
    "chain": trees.chain_broadcast,
}
REDUCE: Rooted = {
    "linear": direct.linear_reduce,
    "binomial": trees.binomial_reduce,
    "chain": trees.chain_reduce,
}
SCATTER: Rooted = {"linear": direct.linear_scatter, "binomial": trees.binomial_scatter}
GATHER: Rooted = {"linear": direct.linear_gather, "binomial": trees.binomial_gather}
COPY: Rooted = {"local": primitives.copy}
SEND: Directed = {"direct": primitives.send}
SIGNAL: Directed = {"direct": primitives.signal}

FLAT: dict[str, Flat] = {
    "all_reduce": ALL_REDUCE,
    "all_gather": ALL_GATHER,
    "reduce_scatter": REDUCE_SCATTER,
    "all_to_all": ALL_TO_ALL,
    "barrier": BARRIER,
}
ROOTED_BY_NAME: dict[str, Rooted] = {
    "broadcast": BROADCAST,
    "reduce": REDUCE,
    "scatter": SCATTER,
    "gather": GATHER,
    "copy": COPY,
}
DIRECTED: dict[str, Directed] = {"send": SEND, "signal": SIGNAL}

# what an all-reduce algorithm does inside a node: scatter its parts and gather them, or reduce to a leader and back
SCATTERING: dict[str, tuple[Callable[[int], Schedule], Callable[[int], Schedule]]] = {
    "ring": (ring.ring_reduce_scatter, ring.ring_all_gather),
    "partitioned": (direct.direct_reduce_scatter, direct.direct_all_gather),
    "halving_doubling": (halving.halving_reduce_scatter, halving.doubling_all_gather),
    "partitioned_staggered": (direct.pairwise_reduce_scatter, direct.pairwise_all_gather),
    "naive": (decentralised.naive, direct.direct_all_gather),
    "staggered": (decentralised.staggered, direct.direct_all_gather),
    "one_shot": (direct.one_shot, direct.direct_all_gather),
    "recursive_doubling": (halving.recursive_doubling, direct.direct_all_gather),
}
LEADING: dict[str, tuple[Callable[[int, int], Schedule], Callable[[int, int], Schedule]]] = {
    "parameter_server": (direct.linear_reduce, direct.linear_broadcast),
    "tree": (trees.binomial_reduce, trees.binomial_broadcast),
    "tree_pipelined": (trees.chain_reduce, trees.chain_broadcast),
}
HIERARCHICAL = {
    "all_reduce": ("ring", "ring"),
    "all_gather": ("direct", "ring"),
    "reduce_scatter": ("direct", "ring"),
    "all_to_all": ("linear", "pairwise"),
}  # the inner and outer algorithm of plain "hierarchical"
RINGS: Flat = {
    "all_reduce": ring.ring_all_reduce,
    "all_gather": ring.ring_all_gather,
    "reduce_scatter": ring.ring_reduce_scatter,
}  # the ring of which "rings" places one on each rank of a node


def algorithm_names(collective: str) -> list[str]:
    """Return the names of the algorithms of a collective; "hierarchical" stands for every pair inner/outer."""
    table = FLAT.get(collective) or ROOTED_BY_NAME.get(collective) or DIRECTED.get(collective)
    if table is None:
        raise InputError(f"collective {collective!r}: unknown ({nearest(collective, COLLECTIVES)})")
    return [*table, *(["hierarchical"] if collective in HIERARCHICAL else [])]


def describe_algorithm(collective: str, name: str) -> str:
    """Return what an algorithm does, in a line."""
    if name == "hierarchical":
        inner, outer = HIERARCHICAL[collective]
        return f"Any two, inside nodes and between them: hierarchical:INNER/OUTER; plain: {inner}/{outer}."
    table: dict[str, Callable[..., Schedule]] = {
        **FLAT.get(collective, {}),
        **ROOTED_BY_NAME.get(collective, {}),
        **DIRECTED.get(collective, {}),
    }
    return (table[name].__doc__ or "").strip().splitlines()[0]


def build_schedule(
    collective: str,
    name: str,
    ranks: int,
    *,
    root: int = 0,
    target: int | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """Return the schedule of a named algorithm.

    `name` is one of `names(collective)`, or "hierarchical:INNER/OUTER", or "rings", the last two perhaps followed by
    ":RANKS_PER_NODE".
    """
    known = algorithm_names(collective)
    if ranks < 1:
        raise InputError(f"ranks: expected 1 or more, got {ranks}")
    if not 0 <= root < ranks:
        raise InputError(f"root: expected 0 to {ranks - 1}, got {root}")
    if name.partition(":")[0] == "hierarchical" and collective in HIERARCHICAL:
        return _hierarchical(collective, name, ranks, ranks_per_node)
    if name.partition(":")[0] == "rings" and collective in RINGS:
        return rings.rings(RINGS[collective], ranks, rings_node_size(name, ranks, ranks_per_node))
    if name not in known:
        known += ["rings"] * (collective in RINGS)
        raise InputError(f"{collective} algorithm {name!r}: unknown ({nearest(name, known)})")
    if collective in DIRECTED:
        target = (root + 1) % ranks if target is None else target
        if not 0 <= target < ranks:
            raise InputError(f"target: expected 0 to {ranks - 1}, got {target}")
        return DIRECTED[collective][name](ranks, root, target)
    if collective in ROOTED:
        return ROOTED_BY_NAME[collective][name](ranks, root)
    return FLAT[collective][name](ranks)


def hierarchical_of(
    collective: str, ranks: int, ranks_per_node: int, *, inner: str | None = None, outer: str | None = None
) -> Schedule:
    """Return the hierarchical form of a collective with the named algorithms inside and between nodes."""
    inner, outer = inner or HIERARCHICAL[collective][0], outer or HIERARCHICAL[collective][1]
    table = FLAT[collective]
    for key, name in (("inner", inner), ("outer", outer)):
        if name not in table:
            raise InputError(f"hierarchical {collective}: {key} {name!r}: unknown ({nearest(name, table)})")
    label = f"hierarchical:{inner}/{outer}:{ranks_per_node}"
    if collective == "all_reduce" and inner in LEADING:
        reduce, broadcast = LEADING[inner]
        return hierarchical.led_all_reduce(
            ranks, ranks_per_node, reduce=reduce, outer=table[outer], broadcast=broadcast, name=label
        )
    if collective == "all_reduce":
        scatter, gather = SCATTERING[inner]
        return hierarchical.hierarchical_all_reduce(
            ranks, ranks_per_node, scatter=scatter, outer=table[outer], gather=gather, name=label
        )
    form = {
        "all_gather": hierarchical.hierarchical_all_gather,
        "reduce_scatter": hierarchical.hierarchical_reduce_scatter,
        "all_to_all": hierarchical.hierarchical_all_to_all,
    }[collective]
    return partial(form, inner=table[inner], outer=table[outer], name=label)(ranks, ranks_per_node)


def usual_ranks_per_node(ranks: int) -> int:
    """Return the node size that "hierarchical" takes where none is given: the least divisor from sqrt(P) up."""
    return next(size for size in range(max(isqrt(ranks - 1) + 1, 1), ranks + 1) if ranks % size == 0)


def rings_node_size(name: str, ranks: int, ranks_per_node: int | None) -> int:
    """Return the ranks of a node: as "rings:8" says, else as given, else as usual."""
    size = name.partition(":")[2]
    if size and not size.isdecimal():
        raise InputError(f"{name}: expected rings:RANKS_PER_NODE")
    return int(size) if size else ranks_per_node or usual_ranks_per_node(ranks)


def _hierarchical(collective: str, name: str, ranks: int, ranks_per_node: int | None) -> Schedule:
    _, _, pair = name.partition(":")
    pair, _, size = pair.partition(":")
    inner, _, outer = pair.partition("/")
    if size and not size.isdecimal():
        raise InputError(f"{name}: expected hierarchical:INNER/OUTER:RANKS_PER_NODE")
    per_node = int(size) if size else ranks_per_node or usual_ranks_per_node(ranks)
    return hierarchical_of(collective, ranks, per_node, inner=inner, outer=outer)
