"""The protocol of launcher and supervisor: one JSON object a packet, with file handles beside it."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

from ...errors import InputError, MeshwrightError
from ...files import parse_json
from ...units import counted

MAX_BYTES = 2**18
_MAX_HANDLES = 4


class NoAnswerError(MeshwrightError):
    """An emulation that does not answer: it is not up yet, or has ended meanwhile."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends with packets large enough for a command and its environment."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        enlarge(end)
    return ours, theirs


@contextlib.contextmanager
def control_path(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Yield a short path of the folder's `control.sock`: a socket's own may have 107 characters at most."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/control.sock"
    finally:
        os.close(handle)


def enlarge(end: socket.socket) -> None:
    """Let one packet of MAX_BYTES pass."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES * 2)


def send_message(end: socket.socket, message: dict[str, Any], handles: tuple[int, ...] = ()) -> None:
    """Send one message; InputError if it is too long, which only a huge command line is."""
    data = json.dumps(message).encode()
    if len(data) > MAX_BYTES:
        raise InputError(
            f"the command and its variables take {counted(len(data), 'byte')}; expected at most {MAX_BYTES}"
        )
    socket.send_fds(end, [data], list(handles))


def receive(end: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its handles, or None when the other side is gone; InputError for junk."""
    try:
        data, handles, flags, _ = socket.recv_fds(end, MAX_BYTES, _MAX_HANDLES)
    except ConnectionError:
        return None, []
    for handle in handles:
        os.set_inheritable(handle, False)
    if not data and not handles:
        return None, []
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise InputError("a packet that is too long")
        message = parse_json(data, where="a packet")
        if not isinstance(message, dict):
            raise InputError("a packet that is no JSON object")
    except InputError:
        for handle in handles:
            os.close(handle)
        raise
    return message, handles


def failure(error: MeshwrightError) -> dict[str, Any]:
    """Return an error as a message that `check` turns back into the same error."""
    return {"error": str(error), "input": isinstance(error, InputError)}


def checked_reply(message: dict[str, Any] | None) -> dict[str, Any]:
    """Return a reply, or raise the error that it carries; NoAnswerError if there is none."""
    if message is None:
        raise NoAnswerError("the emulation has ended")
    if "error" in message:
        raise (InputError if message["input"] else MeshwrightError)(message["error"])
    return message
