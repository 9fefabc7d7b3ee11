"""One launcher of a job on a machine: torch would take a second for a spare machine, which waits without a word.

Nothing here imports torch: a second launcher is refused before it has waited for that.
"""

import contextlib
import errno
import hashlib
import hmac
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ...backend.hosts.machine_names import HOST_VARIABLE
from ...errors import InputError
from ...sockets import is_here
from ..job.config import JobConfig
from .run_folder import RunFolder


def hosts_rendezvous(config: JobConfig) -> bool:
    """Return whether this machine is the one of several where all meet: it has the run folder, for all of them."""
    return is_here(config.launch.rendezvous.rpartition(":")[0])


@contextlib.contextmanager
def alone_here(path: Path) -> Iterator[None]:
    """Be the only launcher of a run on this machine for the body of a `with`; InputError where there is another.

    By a name that this machine's kernel gives once: an abstract Unix socket, on which nobody listens. It follows from
    the secret of the run, and goes with the process, however that ends.
    """
    host = os.environ.get(HOST_VARIABLE) or socket.gethostname()
    name = hmac.digest(RunFolder(path).secret(), f"launcher on {host}".encode(), hashlib.sha256).hex()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(f"\0meshwright-{name}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise InputError(
                f"{path}: this job has another launcher on this machine ({host}), which runs the ranks here; wait for "
                "its end or stop it"
            ) from None
        yield
