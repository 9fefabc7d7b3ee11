"""Faults in accepted input: figures that are not finite, wrong signs, references that lead nowhere."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from meshwright.cluster.graph import Cluster, consistent
from meshwright.quantities import checked

NEVER_NEGATIVE = ("_s_per_byte", "bytes_per_s", "_flops_per_s", "_bytes", "latency_s", "_time_s", "duration_s")
COUNTS = frozenset({"ranks", "gpus", "count", "tp", "pp", "dp", "cp", "ep", "mbs", "seq_len", "global_batch", "world"})
MOST_VALUES = 200_000


def faults(value: Any) -> Iterator[str]:
    """Yield what is wrong, in words that name the way to it."""
    pending: list[tuple[str, Any]] = [("", value)]
    seen: set[int] = set()
    for _ in range(MOST_VALUES):
        if not pending:
            return
        way, one = pending.pop()
        if isinstance(one, float | np.floating):
            yield from _number(way, float(one))
        elif isinstance(one, int) and not isinstance(one, bool):
            yield from _number(way, one)
        elif isinstance(one, np.ndarray):
            if one.dtype.kind == "f" and not np.isfinite(one).all():
                yield f"{way}: an array with figures that are not finite"
        elif id(one) not in seen:
            seen.add(id(one))
            yield from _noun(way, one)
            pending += [(f"{way}.{name}".lstrip("."), inner) for name, inner in _inside(one)]


def _number(way: str, number: float) -> Iterator[str]:
    name = way.rpartition(".")[2]
    if isinstance(number, int) and abs(number) > 2**64:
        yield f"{way}: a whole number of {number.bit_length()} bits"
    elif not math.isfinite(number):
        if name == "loss":  # of a run that diverged
            return
        yield f"{way}: {number}"
    elif number < 0 and name.endswith(NEVER_NEGATIVE):
        yield f"{way}: {number} is negative"
    elif name in COUNTS and number < 0:
        yield f"{way}: {number}, expected a count"


def _noun(way: str, noun: Any) -> Iterator[str]:
    if isinstance(noun, Cluster):
        try:
            consistent(checked(noun))
        except ValueError as error:
            yield f"{way}: {error}"


def _inside(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(str(key)[:40], inner) for key, inner in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(str(place), inner) for place, inner in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return []
