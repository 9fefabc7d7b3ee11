"""`meshwright collectives verify --round-trip`: files of MSCCL proved, written again and compared."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from ..collectives.msccl.limits import LIMITS
from ..collectives.msccl.trip import Trip, round_trip
from ..errors import InputError
from ..files import to_json
from ..units import counted


def round_trips(paths: Sequence[Path], *, as_json: bool) -> int:
    """Print what came of each file and a count; 0 if all are proved and come back equal, else 1."""
    trips = [round_trip(path) for path in _files(paths)]
    if as_json:
        click.echo(to_json(trips))
    else:
        for trip in trips:
            click.echo(_line(trip))
        click.echo(_count(trips))
    return 0 if all(trip.proved and trip.is_equal for trip in trips) else 1


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*.xml")) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path}: no file ends in .xml")
        found += inside
    return found


def _line(trip: Trip) -> str:
    words = ["proved" if trip.proved else f"not proved: {trip.fault}"]
    if trip.difference is not None:
        words.append("comes back equal" if trip.is_equal else f"comes back changed: {trip.difference}")
    words += [f"{runtime} does not take it: {fault}" for runtime, fault in sorted(trip.refusals.items()) if fault]
    return f"{trip.file}: {'; '.join(words)}"


def _count(trips: Sequence[Trip]) -> str:
    taken = ", ".join(f"{sum(t.refusals.get(name) == '' for t in trips)} within {name}" for name in sorted(LIMITS))
    return (
        f"{counted(len(trips), 'file')}: {sum(t.proved for t in trips)} proved, "
        f"{sum(t.is_equal for t in trips)} come back equal, "
        f"{taken}"
    )
