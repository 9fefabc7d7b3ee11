"""Requests to the supervisor of an emulation: one JSON object a packet, from the launcher or another terminal.

A process that may write to the socket is the same user, but may run another version, or none of ours.
"""

import os
import signal
from typing import Annotated, Any

import msgspec

from ...errors import InputError
from ...files import convert

HANDLES = 3  # that come with a Start: stdin, stdout, stderr


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="start"):
    """Run a program on a node, as a rank or for the node; reply with its number and pid."""

    node: str
    rank: int | None
    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    env: dict[str, str]
    cwd: str

    def __post_init__(self) -> None:
        """Refuse what the kernel cannot take."""
        for text in (*self.argv, self.cwd, *self.env, *self.env.values()):
            try:
                is_plain = b"\0" not in os.fsencode(text)
            except UnicodeEncodeError:
                is_plain = False
            if not is_plain:
                raise ValueError(f"{text!r}: no text that a program can be given")
        wrong = next((name for name in self.env if not name or "=" in name), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r}: no name of a variable")


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="signal"):
    """Send a signal to programs that still run; reply with their pids."""

    ids: list[int]
    number: Annotated[int, msgspec.Meta(ge=1, le=64)]

    def __post_init__(self) -> None:
        if self.number not in signal.valid_signals():  # 32 and 33 are the C library's own
            raise ValueError(f"number: expected a signal that programs can be sent, got {self.number}")


class Break(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="fault"):
    """Break or mend something (faults.py); reply with what was done."""

    text: str


class Status(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="status"):
    """Reply with the spec and all programs."""


class Close(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="close"):
    """End the emulation."""


Request = Start | Signal | Break | Status | Close


def parse_request(message: dict[str, Any], handles: int, *, ranks: int) -> Request:
    """Return the request of a message that came with `handles` handles; InputError where it is none."""
    kind: Any = Request  # for msgspec a type like any other
    request: Request = convert(message, kind, where="request")
    if isinstance(request, Start):
        if handles != HANDLES:
            raise InputError(f"start: {handles} handles, expected {HANDLES}")
        if request.rank is not None and not 0 <= request.rank < ranks:
            raise InputError(f"start: rank {request.rank}, expected 0 to {ranks - 1}")
    return request
