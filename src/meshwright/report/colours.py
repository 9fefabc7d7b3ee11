"""One colour for each meaning, in every figure of every page, and the order in which things are named.

Computation has saturated colours, communication red and its neighbours, waiting greys; beside a measurement the
prediction is grey. All stand out on the light and on the dark page.
"""

from collections.abc import Iterable

COLOURS = {  # in the order of a step: tables and legends keep it
    "data": "#b279a2",
    "forward": "#4c78a8",
    "recompute": "#a0c4e8",
    "backward": "#f58518",
    "backward_input": "#f58518",
    "backward_weight": "#eeca3b",
    "optimizer": "#54a24b",
    "all_reduce": "#e45756",
    "reduce_scatter": "#b83a4b",
    "all_gather": "#ff9da6",
    "all_to_all": "#c44ec9",
    "broadcast": "#8c3f8f",
    "collectives": "#d97a9c",
    "send": "#2a9d8f",
    "send_activation": "#2a9d8f",
    "send_gradient": "#7d6b3d",
    "recv": "#9fd8cb",
    "recv_activation": "#9fd8cb",
    "recv_gradient": "#c9b98a",
    "drain": "#8a7fd1",
    "wait": "#bab0ac",
    "idle": "#d0d4da",
}
PREDICTED, MEASURED = "#98a2b3", "#6b7fd7"
SERIES = ("#6b7fd7", "#d1699e", "#3a9d7c", "#c98a1b", "#4fb3d9", "#9c6ade", "#a3b844", "#7a5c4a")
PARTS = {  # of a step, by their name in the tables
    "data loading": COLOURS["data"],
    "forward": COLOURS["forward"],
    "backward": COLOURS["backward"],
    "optimizer": COLOURS["optimizer"],
    "exposed communication": COLOURS["all_reduce"],
    "pipeline bubble": COLOURS["idle"],
}
_ORDER = {name: place for place, name in enumerate(COLOURS)}


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of a step; unknown names come last, in alphabetical order."""
    return sorted(set(names), key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return the colour of each name: the one of its meaning, or one of the series that no other here has yet.

    More unknown names than the series has start it again.
    """
    found, free = {}, 0
    for name in in_order(names):
        if name in COLOURS:
            found[name] = COLOURS[name]
        else:
            found[name] = SERIES[free % len(SERIES)]
            free += 1
    return found
