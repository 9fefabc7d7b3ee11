"""Where processes of a job meet: stores that listen on one interface only, never on all.

torch's own stores listen on every interface. Ours are given a socket that is bound already, to the address that the
others use (the loopback one on a single machine), and serve only clients that know the secret of the job. The word that
the transports between hosts ask for is handed out through the store.
"""

import contextlib
import os
import socket
import stat
from datetime import timedelta

from torch.distributed import TCPStore

from ...errors import InputError
from ...sockets import resend_soon
from .store import LEAST_SILENCE_S, SealedStore, notice_silence
from .store_server import StoreServer

BACKLOG = 1024  # connections that wait to be accepted: the ranks of a job, and strangers


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the interface of `host` alone; `port` 0 is a free one. InputError if taken."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        where = f"{host}:{port}"
        raise InputError(f"{where}: {error.strerror or error}; choose another port, or 0 for a free one") from None


def host_store(host: str, port: int, timeout_s: float, secret: bytes) -> SealedStore:
    """Return a store that this process hosts on the interface of `host`, for clients that know the secret."""
    server = StoreServer(listening_socket(host, port), secret)
    store = SealedStore(host, server.port, timeout_s, secret)
    store.server = server
    return store


def join_torchruns(host: str, port: int, timeout_s: float) -> TCPStore:
    """Return the store that torchrun's agent hosts, which has no password.

    A machine that does not answer for `timeout_s` (10 s at least) is lost: waiters for the store get a
    DistNetworkError.
    """
    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))
    for connection in connections_to(port):
        with connection:
            notice_silence(connection, max(timeout_s, LEAST_SILENCE_S))
            resend_soon(connection)
    return store


def connections_to(port: int) -> list[socket.socket]:
    """Return handles of this process's TCP connections to a port: the store keeps its own to itself."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed by now
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
            if _leads_to(connection, port):
                found.append(connection)
            else:
                connection.close()
    return found


def _leads_to(connection: socket.socket, port: int) -> bool:
    try:
        return connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getpeername()[1] == port
    except OSError:  # not connected
        return False


def address_towards(host: str) -> str:
    """Return the address of this machine's interface that leads to `host`; InputError if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent: the kernel picks the route
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise InputError(f"{host}: no route ({error.strerror or error})") from None
        return str(probe.getsockname()[0])
