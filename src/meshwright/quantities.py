"""Physical quantities as types with bounds, checked wherever a file becomes a noun.

The upper ends are far above anything that is built, and far below what would overflow: a figure beyond them is a slip
of a unit or a damaged file. NaN and the infinities are inside none of them. `checked` holds a noun that a program made
to the same bounds.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

MOST_RANKS = 2**23  # ranks, devices or nodes
MOST_SEQUENCES = 10**9  # of one step
MOST_BYTES = 2**60
MOST_COUNT = 10**18  # of parameters or tokens
MOST_RATE = 1e20  # bytes or operations per second
MOST_TIME_S = 1e10  # 300 years

Seconds = Annotated[float, Meta(ge=0, le=MOST_TIME_S)]  # a duration
PositiveSeconds = Annotated[float, Meta(gt=0, le=MOST_TIME_S)]  # of what took some time
Patience = Annotated[float, Meta(gt=0, le=1e8)]  # how long a program waits, in seconds: three years
Instant = Annotated[float, Meta(ge=-1e12, le=1e12)]  # on any clock, counted from 1970 too
SecondsPerByte = Annotated[float, Meta(ge=0, le=1e3)]
BytesPerSecond = Annotated[float, Meta(gt=0, lt=MOST_RATE)]  # of a link or memory, per direction
BytesPerSecondOrNone = Annotated[float, Meta(ge=0, lt=MOST_RATE)]  # 0: there is no such link
FlopsPerSecond = Annotated[float, Meta(gt=0, lt=MOST_RATE)]
PerSecond = Annotated[float, Meta(ge=0, lt=MOST_RATE)]  # tokens or operations, as measured
Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
FittedBytes = Annotated[float, Meta(ge=0, le=MOST_BYTES)]  # as a fit counts them
Share = Annotated[float, Meta(ge=0, le=1)]
Factor = Annotated[float, Meta(ge=0, le=1e9)]  # a multiple; a relative error
Oversubscription = Annotated[float, Meta(ge=1, le=1e6)]
Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
Count = Annotated[int, Meta(ge=1, le=MOST_RANKS)]  # of what there is at least one
CountOrNone = Annotated[int, Meta(ge=0, le=MOST_RANKS)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=0, lt=2**53)]  # a step, a port, a place in a list
ProcessId = Annotated[int, Meta(ge=1, le=2**22)]  # as far as Linux counts (PID_MAX_LIMIT)
Width = Annotated[int, Meta(ge=0, le=2**32)]  # of a layer: rows, heads, entries of a vocabulary
Layers = Annotated[int, Meta(ge=0, le=2**20)]
Base = Annotated[float, Meta(ge=0, le=1e15)]  # of rotary wavelengths
Sequences = Annotated[int, Meta(ge=1, le=MOST_SEQUENCES)]
Tokens = Annotated[int, Meta(ge=1, le=2**40)]

T = TypeVar("T", bound=msgspec.Struct)


def checked(value: T) -> T:
    """Return a noun unchanged; msgspec.ValidationError, a ValueError, names the first figure out of its bounds."""
    msgspec.convert(msgspec.to_builtins(value), type(value))
    return value
