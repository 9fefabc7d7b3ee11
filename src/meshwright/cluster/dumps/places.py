"""Places of nodes in a network that labels or a cloud tell one by one, made a cluster of placements only."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...errors import InputError
from ...units import first_few
from ..graph import Cluster, Placement
from .hostlist import MAX_NAMES

_UNSET = frozenset({"", "null", "none", "<none>", "nil", "n/a", "-"})  # of a value that a command prints as a text
_SHOWN = 4  # types that a note names
_MORE = ("NextToken", "nextToken", "nextPageToken", "opc-next-page", "continue")  # of AWS, Google, OCI, Kubernetes


def from_places(places: Sequence[Placement], where: str, none: str) -> Cluster:
    """Return the nodes that have a place; InputError with `none` where no node has one, or where they contradict."""
    if len(places) > MAX_NAMES:
        raise InputError(f"{where}: more than {MAX_NAMES} nodes")
    twice = next((name for name, count in Counter(place.node for place in places).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{where}: node {twice[:60]} stands twice")
    places = [_without_unset(place) for place in places]
    known = tuple(place for place in places if place.switches)
    if not known:
        raise InputError(f"{where}: {none}")
    _one_parent(known, where)
    bare = [place.node for place in places if not place.switches]
    notes = (f"{len(bare)} of {len(places)} nodes have no label of their place: {', '.join(bare[:3])}",) if bare else ()
    return Cluster(name=where, placements=known, warnings=notes)


def said_types(types: Sequence[str]) -> tuple[str, ...]:
    """Return the note on the machine types of instances, whose GPUs and NICs the catalogue has, () for none."""
    often = Counter(name for name in types if name)
    if not often:
        return ()
    shown = first_few([f"{name} ({count})" for name, count in often.most_common()], _SHOWN)
    first = next(iter(often))
    return (f"by their types the nodes are {shown}: `meshwright topo --catalogue {first}` has what one holds",)


def _without_unset(place: Placement) -> Placement:
    """Return a place without the names that stand for nothing: a block called "null" is no block."""
    switches = tuple(name for name in place.switches if name.strip().lower() not in _UNSET)
    return Placement(place.node, switches, "" if place.block.strip().lower() in _UNSET else place.block)


def _one_parent(places: Sequence[Placement], where: str) -> None:
    """Raise InputError where one switch hangs on two: then labels of two networks are mixed."""
    above: dict[str, str] = {}
    for place in places:
        for low, high in zip(place.switches, place.switches[1:], strict=False):
            if above.setdefault(low, high) != high:
                raise InputError(f"{where}: {low[:60]} is below {above[low][:60]} and, by {place.node}, {high[:60]}")


def missing_pages(data: object) -> tuple[str, ...]:
    """Return the warning that a list goes on where it says so itself: a service gave a page of it, () elsewhere."""
    told = [data, data.get("metadata")] if isinstance(data, Mapping) else []
    names = [key for part in told if isinstance(part, Mapping) for key in _MORE if part.get(key)]
    return (f"the list goes on ({names[0]} is set): its other pages are not in this file",) if names else ()
