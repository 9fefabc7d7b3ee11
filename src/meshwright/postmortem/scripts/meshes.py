"""Members of process groups by lines that print a mesh of ranks, or lists of the groups of one of its axes.

A group's own lines name its axis (mesh_tp, TENSOR_MODEL_PARALLEL_GROUP) and tell no rank but the speaker's; or they
have only its number, which counts the groups in the order in which they were made.
"""

import ast
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..nouns.facts import Fact, of
from ..nouns.identities import AxisGroups, MadeGroup
from ..nouns.where import GroupName
from ..nouns.world import MOST_RANKS, ranks_seen, world_of
from ..text.lines import LogMessage

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
_MADE = re.compile(  # DeepSpeed's
    r"\b(?P<name>(?:[A-Za-z]{1,20} ){1,6}group(?: named \S{1,80})?) with ranks:? "
    r"(?P<ranks>\[\d{1,6}(?:, ?\d{1,6})*\])"
)
GUID = "PG GUID "  # of torch, by which c10d's lines call a group, and the name of a group that is told by it
_OF_GUID = re.compile(
    r"\branks[ :=]{0,2}(?P<ranks>[\[(]\d{1,6}(?:, ?\d{1,6})*[\])])\W{1,6}PG GUID[ =:]{1,2}(?P<name>\w{1,40})\b"
)
_GUID_FIRST = re.compile(
    r"\bPG GUID[ =:]{1,2}(?P<name>\w{1,40})\)?[ :=]{1,3}(?:ranks[ :=]{0,2})?(?P<ranks>[\[(]\d{1,6}(?:, ?\d{1,6})*[\])])"
)
_RANKS = r"(?P<{0}>[\[({{]\d{{1,6}}(?:, ?\d{{1,6}})*[\])}}])"
_OF_NUMBER = re.compile(  # of a script: the number by which c10d's lines call the group, where that is its whole name
    rf"\b(?:PG|(?i:process[ _]group))[ _#:=]{{0,2}}(?P<number>\d{{1,5}})\b(?! Rank)"
    rf"(?:\([^()\[\]\d]{{0,40}}\)|[\])]|[^\[\](){{}}\d]){{0,60}}?{_RANKS.format('behind')}"
    rf"|\branks\b[ :=]{{0,3}}{_RANKS.format('before')}[^\d\[\]]{{1,30}}?\bPG[ _#:=]{{0,2}}(?P<last>\d{{1,5}})\b"
)
_BEFELL = re.compile(  # ranks of a group, of which the line then tells some
    r"wait|miss|time|lost|fail|dead|gone|kill|exit|expect|error|slow|warn|abort|stuck|restart|came|arriv|join|left|only",
    re.IGNORECASE,
)
_LEAST_NUMBERED = 2  # groups with numbers that must fit the list of all that were made
_FILLERS = re.compile(r"mesh_|all_|_?(?:model|parallel|process|group|ranks)s?\b|_?(?:model|parallel)(?=_)")
_SHORT = {"tensor": "tp", "data": "dp", "pipeline": "pp", "context": "cp", "expert": "ep"}


def read(messages: Sequence[LogMessage]) -> Iterator[AxisGroups | MadeGroup]:
    """Yield the groups of each axis that the lines of one file print, and each group that they tell of by itself."""
    for message in messages:
        text = message.text
        if message.is_of_library:
            continue
        if "mesh" in text or "Mesh" in text:
            for axis, groups in _of_mesh(text):
                yield AxisGroups(axis=axis, groups=groups, where=message.where)
        if GUID in text and (named := _OF_GUID.search(text) or _told_by_guid(text)):
            yield MadeGroup(name=f"{GUID}{named['name']}", ranks=_lists(named["ranks"])[0], where=message.where)
        elif ("PG" in text or "roup" in text) and (numbered := _numbered(text)):
            name = f"{GUID}{numbered['number'] or numbered['last']}"
            yield MadeGroup(name=name, ranks=_lists(numbered["behind"] or numbered["before"])[0], where=message.where)
        elif "with ranks" in text and (made := _MADE.search(text)):
            yield MadeGroup(name=made["name"], ranks=_lists(made["ranks"])[0], where=message.where)
        elif "group" in text or "ranks" in text:
            for named in _NAMED.finditer(text):
                yield AxisGroups(axis=_axis(named["axis"]), groups=_lists(named["ranks"]), where=message.where)


def _told_by_guid(text: str) -> re.Match[str] | None:
    """Return the name of a group and its ranks behind it, None of a line that tells what befell some of it."""
    found = _GUID_FIRST.search(text)
    return found if found and not _BEFELL.search(text) else None


def members_of_guid(facts: list[Fact], name: str, places: Mapping[int, int]) -> tuple[int, ...]:
    """Return the members of a group that lines tell by its name alike, () where they do not, or ranks stand elsewhere.

    Not by a list that counts its groups in its own way: torch's number 0 is the group of all ranks.
    """
    told = {(one.name, one.ranks) for one in of(facts, MadeGroup) if one.name.startswith(GUID)}
    own = [ranks for named, ranks in told if named == f"{GUID}{name}"]
    everyone = {rank for _, ranks in told for rank in ranks}
    is_torchs = all(set(ranks) == everyone for named, ranks in told if named == f"{GUID}0")
    is_one = len(own) == 1 and bool(name) and bool(places)
    return own[0] if is_one and (is_torchs or not name.isdecimal()) and _stand_in(own[0], places) else ()


def _numbered(text: str) -> re.Match[str] | None:
    """Return the number of a group and its ranks, None of a line that tells of no group, or what befell some of it."""
    found = _OF_NUMBER.search(text) if " ID" not in text else None
    return found if found and not _BEFELL.search(text) else None


def told_members(facts: list[Fact], purpose: str, places: dict[int, int]) -> tuple[int, ...]:
    """Return the members of the one group of an axis whose ranks stand at these places, () where no line tells them.

    `places` has the rank at each place of the group that is known. All lines must agree, and have each rank of the job
    once.
    """
    axis = _axis(purpose)
    told = {told.groups for told in of(facts, AxisGroups) if told.axis == axis} if purpose else set()
    if len(told) != 1 or not places:
        return ()
    groups = told.pop()
    if not _are_of_job([rank for group in groups for rank in group], facts):
        return ()
    own = [group for group in groups if _stand_in(group, places)]
    return own[0] if len(own) == 1 else ()


def places_in_groups(facts: list[Fact], places: Mapping[GroupName, dict[int, int]]) -> dict[GroupName, dict[int, int]]:
    """Return the rank at each place of each group, where lines of groups bear the job's ranks in place of places.

    They do where all numbers are the ranks themselves, and one is larger than any place in the groups of its axis.
    """
    told: dict[str, set[tuple[tuple[int, ...], ...]]] = {}
    for one in of(facts, AxisGroups):
        told.setdefault(one.axis, set()).add(one.groups)
    axes = {name: _axis(name.purpose) for name in places if name.purpose}
    groups = {name: next(iter(told[axis])) for name, axis in axes.items() if len(told.get(axis, ())) == 1}
    is_own = all(place == rank for name in groups for place, rank in places[name].items())
    beyond = any(place >= max(map(len, groups[name])) for name in groups for place in places[name])
    if not is_own or not beyond:
        return dict(places)
    found = dict(places)
    for name, lists in groups.items():
        own = [group for group in lists if set(places[name]) <= set(group)]
        found[name] = {own[0].index(rank): rank for rank in places[name]} if len(own) == 1 else {}
    return found


def numbered_members(facts: list[Fact], places: Mapping[GroupName, Mapping[int, int]]) -> dict[str, tuple[int, ...]]:
    """Return the members of groups that have only numbers, by these, where lines tell of the groups as they were made.

    Each rank counts all groups (torch's `new_group`), and the first number of those told is not known: it is the one
    with which the ranks stand at their `places` in two groups or more, all that are heard of, if no other fits.
    """
    every = {(one.name, one.ranks): one for one in of(facts, MadeGroup) if not one.name.startswith(GUID)}
    made = [group.ranks for group in every.values()]
    numbers = {int(name.name): at for name, at in places.items() if name.name.isdecimal() and not name.is_default}
    if len(numbers) < _LEAST_NUMBERED or not _are_of_job({rank for group in made for rank in group}, facts):
        return {}
    firsts = range(max(1, max(numbers) - len(made) + 1), min(numbers) + 1)
    fitting = [n for n in firsts if all(at and _stand_in(made[number - n], at) for number, at in numbers.items())]
    return {str(number): made[number - fitting[0]] for number in numbers} if len(fitting) == 1 else {}


def _are_of_job(ranks: Collection[int], facts: list[Fact]) -> bool:
    """Whether ranks are all of the job, each once, by what is known of how many it has."""
    whole = sorted(ranks) == list(range(len(ranks))) and len(ranks) > max(ranks_seen(facts), default=0)
    return whole and world_of(facts) in {None, len(ranks)}


def _stand_in(group: Sequence[int], places: Mapping[int, int]) -> bool:
    """Whether ranks stand at their places in a group."""
    return all(place < len(group) and group[place] == rank for place, rank in places.items())


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
