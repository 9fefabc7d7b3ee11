"""Round trips of MSCCL files: read, proved, written for a runtime, read again and compared."""

import os
from pathlib import Path

import msgspec

from ...errors import InputError
from ...files import read_text
from ..proof.verify import ScheduleError, verify
from .file import MAX_FILE_BYTES, Algo, read_algo
from .importer import from_msccl_xml
from .limits import LIMITS, kept_apart
from .same import program_difference
from .write import write_algo


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one file.

    `proved`: its program does what its collective asks; else `fault` says why not, or why the file cannot be read.
    `difference` is the first difference after the program was written and read again, "" if there is none, None if no
    program could be read. `refusals` is, for each runtime, why its reader refuses the file, "" if it takes it.
    """

    file: str
    proved: bool = False
    fault: str = ""
    difference: str | None = None
    refusals: dict[str, str] = {}

    @property
    def is_equal(self) -> bool:
        """Whether the program came back unchanged."""
        return self.difference == ""


def round_trip(path: str | os.PathLike[str]) -> Trip:
    """Read a file, prove it, write it again and compare; a fault of the file is part of the result."""
    name = str(path)
    try:
        text = read_text(Path(path), max_bytes=MAX_FILE_BYTES)
        algo = read_algo(text, where=name)
    except InputError as error:
        return Trip(file=name, fault=str(error))
    again = write_algo(algo)
    difference = program_difference(algo, read_algo(again, where=f"{name}, written again"))
    refusals = {runtime: limits.fault_of(kept_apart(algo)) for runtime, limits in LIMITS.items()}
    try:
        schedule = from_msccl_xml(text, where=name)
        verify(schedule)
        difference = difference or _changed(schedule, again, algo)
    except (InputError, ScheduleError) as error:
        return Trip(file=name, fault=str(error), difference=difference, refusals=refusals)
    return Trip(file=name, proved=True, difference=difference, refusals=refusals)


def _changed(schedule: object, again: str, algo: Algo) -> str:
    return "" if from_msccl_xml(again) == schedule else f"{algo.name}: the schedules differ"
