"""Members of process groups by lines that print a mesh of ranks, or lists of the groups of one of its axes.

A group's own lines name its axis (mesh_tp, TENSOR_MODEL_PARALLEL_GROUP) and tell no rank but the speaker's.
"""

import ast
import itertools
import math
import re
from collections.abc import Iterator, Sequence

from .facts import Fact, of
from .identities import AxisGroups
from .lines import LogMessage
from .world import MOST_RANKS, ranks_seen, world_of

_LISTS = r"\[?(?:[\[({]\d{1,6}(?:, ?\d{1,6})*[\])}],? ?){2,}"
_ARRAY = re.compile(  # torch before 2.9
    r"DeviceMesh\('\w+', (?:tensor\()?(?P<ranks>[\[\]\d, ]{3,20000})\)?, mesh_dim_names=\((?P<names>[^()]{1,200})\)"
)
_SIZES = re.compile(  # since, with its stride between names or behind a word; in words of torchtitan
    r"DeviceMesh\(\((?P<sizes>\w+=\d{1,6}(?:, \w+=\d{1,6})*)\)(?:[^()]{0,40}stride[=:] ?\((?P<stride>[\d, ]{1,60})\))?"
    r"|-D device mesh with \[(?P<names>[^\[\]]{1,200})\], \[(?P<of>[\d, ]{1,80})\]"
)
_NAMED = re.compile(
    r"\b(?P<axis>[A-Za-z][\w-]{0,40}?(?: (?:model )?parallel)?)[ _-](?:groups?|group_ranks|ranks|process groups?)\b"
    rf"[ :=]{{0,3}}(?P<ranks>{_LISTS})"
)
_FILLERS = re.compile(r"mesh_|all_|_?(?:model|parallel|process|group|ranks)s?\b|_?(?:model|parallel)(?=_)")
_SHORT = {"tensor": "tp", "data": "dp", "pipeline": "pp", "context": "cp", "expert": "ep"}


def read(messages: Sequence[LogMessage]) -> Iterator[AxisGroups]:
    """Yield the groups of each axis that the lines of one file print."""
    for message in messages:
        text = message.text
        if message.is_of_library:
            continue
        if "mesh" in text or "Mesh" in text:
            for axis, groups in _of_mesh(text):
                yield AxisGroups(axis=axis, groups=groups, where=message.where)
        if "group" in text or "ranks" in text:
            for named in _NAMED.finditer(text):
                yield AxisGroups(axis=_axis(named["axis"]), groups=_lists(named["ranks"]), where=message.where)


def told_members(facts: list[Fact], purpose: str, places: dict[int, int]) -> tuple[int, ...]:
    """Return the members of the one group of an axis whose ranks stand at these places, () where no line tells them.

    `places` has the rank at each place of the group that is known. All lines must agree, and have each rank of the job
    once.
    """
    axis, world = _axis(purpose), world_of(facts)
    told = {told.groups for told in of(facts, AxisGroups) if told.axis == axis} if purpose else set()
    if len(told) != 1 or not places:
        return ()
    groups = told.pop()
    everyone = sorted(rank for group in groups for rank in group)
    if everyone != list(range(len(everyone))) or len(everyone) <= max(ranks_seen(facts), default=0):
        return ()
    if world is not None and world != len(everyone):
        return ()
    own = [g for g in groups if all(place < len(g) and g[place] == rank for place, rank in places.items())]
    return own[0] if len(own) == 1 else ()


def _axis(name: str) -> str:
    """Return an axis in few letters: `mesh_tp`, `TENSOR_MODEL_PARALLEL_GROUP` and `tensor-parallel` are tp."""
    bare = _FILLERS.sub("", re.sub("[- ]", "_", name.lower())).strip("_ ")
    return _SHORT.get(bare, bare)


def _of_mesh(text: str) -> Iterator[tuple[str, tuple[tuple[int, ...], ...]]]:
    """Yield the axes of a mesh with their groups."""
    if array := _ARRAY.search(text):
        ranks, sizes = _flat(array["ranks"])
        yield from _axes(_words(array["names"]), sizes, ranks)
    elif mesh := _SIZES.search(text):
        pairs = [pair.split("=") for pair in (mesh["sizes"] or "").split(", ") if pair]
        names = [name for name, _ in pairs] or _words(mesh["names"])
        sizes = [int(size) for _, size in pairs] or [int(size) for size in mesh["of"].split(",") if size.strip()]
        count = math.prod(sizes)
        steps = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
        stride = [int(step) for step in (mesh["stride"] or "").split(",") if step.strip()]
        if 1 < count <= MOST_RANKS and stride in ([], steps):  # a part of a larger mesh has other ranks
            yield from _axes(names, sizes, list(range(count)))


def _axes(
    names: Sequence[str], sizes: Sequence[int], ranks: Sequence[int]
) -> Iterator[tuple[str, tuple[tuple[int, ...], ...]]]:
    if len(names) != len(sizes) or len(ranks) != math.prod(sizes):
        return
    for at, name in enumerate(names):
        step, size = math.prod(sizes[at + 1 :]), sizes[at]
        starts = (
            outer * step * size + inner
            for outer, inner in itertools.product(range(len(ranks) // (step * size)), range(step))
        )
        yield _axis(name), tuple(tuple(ranks[start + place * step] for place in range(size)) for start in starts)


def _flat(text: str) -> tuple[list[int], list[int]]:
    """Return the numbers of nested lists of equal lengths, and these lengths; none where the text is no such lists."""
    try:
        values = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return [], []
    sizes: list[int] = []
    while isinstance(values, list) and values:
        sizes.append(len(values))
        if not all(isinstance(value, list) for value in values):
            break
        values = [one for value in values for one in value]
    flat = [value for value in values if isinstance(value, int)] if isinstance(values, list) else []
    for at in range(1, len(sizes)):
        sizes[at] //= math.prod(sizes[:at])
    return flat, sizes


def _lists(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(int(rank) for rank in group.split(",") if rank.strip()) for group in re.findall(r"\d[\d, ]*", text)
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
