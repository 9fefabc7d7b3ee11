"""Labels that say a rank's place along each axis of a mesh, `(pp=2, dp=1, tp=1)`, and the rank that stands there.

Megatron counts ranks along its axes in an order that it is given, the first axis fastest: tensor parallel before data
before pipeline by default. A DeviceMesh counts its last axis fastest.
"""

import math
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from .lines import LogMessage

_AXIS = r"(?:tp|pp|dp|cp|ep|fsdp|dp_shard|dp_replicate)"
_LABEL = re.compile(
    rf"^[\[(](?P<places>{_AXIS}[=: ]?\d{{1,5}}(?:(?:, ?|[ /|_-]){_AXIS}[=: ]?\d{{1,5}}){{1,4}})[\])]:? ?", re.IGNORECASE
)
_PLACE = re.compile(rf"({_AXIS})[=: ]?(\d+)", re.IGNORECASE)
_SIZE = re.compile(r"(?<![\w-])(?P<axis>tensor|pipeline|data|context)(?:-model)?-parallel size: (?P<size>\d{1,6})\b")
_WORLD = re.compile(r"\busing world size: (?P<ranks>\d{1,6}),")
_SHORT = {"tensor": "tp", "pipeline": "pp", "data": "dp", "context": "cp"}
_ORDER = re.compile(rf"\brank order[:=] ?(?P<order>{_AXIS}(?:-{_AXIS})+)\b")
_MAPPING = re.compile(r"\buse_tp_pp_dp_mapping\b[ .:=]{1,60}(?P<is_other>True|False)\b")
_ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")  # Megatron's own, and with --use-tp-pp-dp-mapping
_MESH = re.compile(rf"\bDeviceMesh\(\((?P<sizes>{_AXIS}=\d{{1,6}}(?:, {_AXIS}=\d{{1,6}})+)\)")
_GROUP = re.compile(rf"\[PG [^\]]{{0,60}}?\((?:mesh_)?(?P<axis>{_AXIS})(?:_\w{{1,20}})?\) Rank (?P<place>\d{{1,5}})\]")

Layout = dict[str, int]  # how many ranks further the next place along each axis is


def placed(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages of a log, those behind a place along all axes of a mesh without it, and with their rank.

    Not where the log does not tell how ranks are counted, or c10d's own lines give a rank another place in a group.
    """
    labels = [_LABEL.match(one.text) if one.rank is None and one.text[:1] in "[(" else None for one in found]
    if not any(labels):
        return found
    layouts = [layout for sizes in _sizes(found) for layout in _layouts(sizes, found)]
    places = [_places(label) if label else {} for label in labels]
    if any(_is_elsewhere(one, place) for one, place in zip(found, places, strict=True) if place):
        return found
    whole = []
    for one, label, place in zip(found, labels, places, strict=True):
        ranks = {_rank_at(place, sizes, steps) for sizes, steps in layouts} if label else set()
        rank = ranks.pop() if len(ranks) == 1 else None
        if label and rank is not None:
            one = replace(one, text=one.text[label.end() :], rank=rank, where=one.where.by(rank))
        whole.append(one)
    return whole


def _places(label: re.Match[str]) -> dict[str, int]:
    return {axis.lower(): int(place) for axis, place in _PLACE.findall(label["places"])}


def _sizes(found: Sequence[LogMessage]) -> list[tuple[Layout, bool]]:
    """Return the sizes of the axes that lines tell, and whether these count as a DeviceMesh does."""
    told: list[tuple[Layout, bool]] = []
    for one in found:
        if "DeviceMesh((" in one.text and (mesh := _MESH.search(one.text)):
            told.append(({axis: int(n) for axis, n in (part.split("=") for part in mesh["sizes"].split(", "))}, True))
        elif "world size" in one.text and (world := _WORLD.search(one.text)):
            sizes = {_SHORT[size["axis"]]: int(size["size"]) for size in _SIZE.finditer(one.text)}
            told += [(sizes, False)] if math.prod(sizes.values()) == int(world["ranks"]) else []
    return told


def _layouts(told: tuple[Layout, bool], found: Sequence[LogMessage]) -> list[tuple[Layout, Layout]]:
    """Return the sizes of axes, with the steps by which ranks may be counted along them."""
    sizes, is_mesh = told
    orders = [list(sizes)[::-1]] if is_mesh else [order.split("-") for order in _orders(found)]
    layouts = []
    for order in orders:
        steps = {axis: math.prod(sizes.get(inner, 1) for inner in order[:at]) for at, axis in enumerate(order)}
        layouts.append((sizes, steps))
    return layouts


def _orders(found: Sequence[LogMessage]) -> Sequence[str]:
    """Return the orders in which Megatron may count, one where a line tells it."""
    for one in found:
        if "rank order" in one.text and (order := _ORDER.search(one.text)):
            return [order["order"]]
        if "use_tp_pp_dp_mapping" in one.text and (mapping := _MAPPING.search(one.text)):
            return [_ORDERS[mapping["is_other"] == "True"]]
    return _ORDERS


def _rank_at(places: Mapping[str, int], sizes: Layout, steps: Layout) -> int | None:
    """Return the rank at a place, None where that lacks an axis or is beyond its end."""
    whole = {axis for axis, size in sizes.items() if size > 1}
    if not whole <= places.keys() or not whole <= steps.keys():
        return None
    if any(place >= sizes.get(axis, 1) for axis, place in places.items()):
        return None
    return sum(place * steps.get(axis, 0) for axis, place in places.items())


def _is_elsewhere(message: LogMessage, places: Mapping[str, int]) -> bool:
    """Whether c10d's own line gives a rank another place in the group of an axis than its label does."""
    group = _GROUP.search(message.text) if "[PG " in message.text else None
    return group is not None and places.get(group["axis"].lower(), int(group["place"])) != int(group["place"])
