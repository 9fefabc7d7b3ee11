"""Where processes of a job meet: stores that listen on one interface only, never on all.

torch's own stores listen on every interface. A `TCPStore` has no password: whoever reaches its port can read and write
it. So each is given a socket that is bound already, to the address that the others use (the loopback one on a single
machine). The word that the transports between hosts ask for is handed out through the store.
"""

import socket
from datetime import timedelta

from torch.distributed import TCPStore

from ..errors import InputError

BACKLOG = 1024  # connections that wait to be accepted: the ranks of a job, and strangers


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the interface of `host` alone; `port` 0 is a free one. InputError if taken."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        where = f"{host}:{port}"
        raise InputError(f"{where}: {error.strerror or error}; choose another port, or 0 for a free one") from None


def serve(host: str, port: int, timeout_s: float) -> TCPStore:
    """Return a store that this process hosts on the interface of `host`."""
    listener = listening_socket(host, port)
    chosen = listener.getsockname()[1]
    return TCPStore(
        host,
        chosen,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=listener.detach(),
    )


def join(host: str, port: int, timeout_s: float) -> TCPStore:
    """Return a store that another process hosts, once it does."""
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout_s))


def address_towards(host: str) -> str:
    """Return the address of this machine's interface that leads to `host`; InputError if there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent: the kernel picks the route
        try:
            probe.connect((host, 9))
        except OSError as error:
            raise InputError(f"{host}: no way there ({error.strerror or error})") from None
        return str(probe.getsockname()[0])


def is_here(host: str) -> bool:
    """Return whether `host` is an address of this machine."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
