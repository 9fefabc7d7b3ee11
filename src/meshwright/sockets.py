"""Options of the connections of a job: a message goes at once, and what a cable has lost goes again soon.

Beside them, which addresses are those of this machine, and which ports are free.
"""

import contextlib
import socket

from .errors import InputError

RESEND_S = 1.0  # at most, before what nobody has acknowledged is sent again
_RTO_MAX_MS = 44  # TCP_RTO_MAX_MS of linux/tcp.h, of which Python has no name


def send_promptly(connection: socket.socket) -> None:
    """Send small messages at once, and what was lost again within `RESEND_S`.

    TCP doubles the time before it sends once more, up to two minutes, so that a connection over a cable that was out
    for 6.5 s stays silent for as long again: longer than a rank waits for another, though the cable is back. Kernels
    before Linux 6.15 do not let a connection have a bound; there it stays so.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    resend_soon(connection)


def resend_soon(connection: socket.socket) -> None:
    """Bound the time before what was lost is sent again, where the kernel can."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, round(1000 * RESEND_S))


def is_here(host: str) -> bool:
    """Return whether `host` is an address of this machine."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def check_port(port: int) -> None:
    """Raise InputError if `port` (0: any) cannot be listened on."""
    if not port:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(f"launch.port: {port}: {error.strerror}; choose another, or 0 for a free one") from None
