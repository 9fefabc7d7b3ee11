"""The surroundings of a job: a standard error that nobody may hear, and signals that tell it to stop.

The reader of standard error may have left (`2>&1 | head`), the terminal may be gone, the disk of a log full: what
cannot be said is lost, and never why a job ends. SIGHUP is left alone where it is ignored already (`nohup`).
"""

import contextlib
import io
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from ...errors import InputError
from ...interruptible import interrupt
from ...units import counted

DESCRIPTORS, DESCRIPTORS_A_RANK = 24, 8  # that a launcher opens at once: counted, and some to spare
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def stop_signals() -> list[signal.Signals]:
    """Return the signals that tell this process to save and leave."""
    ignores_hangups = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signum for signum in STOP_SIGNALS if not (signum == signal.SIGHUP and ignores_hangups)]


@contextlib.contextmanager
def surroundings_of_a_job() -> Iterator[None]:
    """Be a job for the body of a `with`: nothing that is said fails, and a signal to stop is a KeyboardInterrupt.

    Raises InputError where the current folder has been removed: libraries do not load from nowhere.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(f"the current folder is gone ({error.strerror}): change to one that is there") from None
    with ignoring_stderr_errors(), handlers_kept():
        for signum in stop_signals() if threading.current_thread() is threading.main_thread() else ():
            if signum != signal.SIGINT:  # Python's own handler, or none where it is ignored
                signal.signal(signum, interrupt)
        yield


def have_descriptors(ranks: int) -> None:
    """Let this process open as many files as the launcher of `ranks` ranks does; InputError where it may not."""
    needed = DESCRIPTORS + DESCRIPTORS_A_RANK * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"ulimit -n {hard}: the launcher of {counted(ranks, 'rank')} needs {needed} open files; raise it"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Put the handlers of the signals to stop back after the body of a `with`, whatever it has set."""
    if threading.current_thread() is not threading.main_thread():  # which cannot set any
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in STOP_SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            if handler is not None:  # None: set by another language
                signal.signal(signum, handler)


@contextlib.contextmanager
def ignoring_stderr_errors() -> Iterator[None]:
    """Have writes to this process's own standard error never fail, in the body of a `with`."""
    before = sys.stderr
    sys.stderr = _forgiving(before)
    try:
        yield
    finally:
        sys.stderr = before


def _forgiving(stream: TextIO) -> TextIO:
    """Return a stream like standard error that never raises OSError; another one (of a test, say) as it is."""
    if stream is not sys.__stderr__ or not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _Forgiving(stream.fileno())
    return io.TextIOWrapper(
        raw,
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
        write_through=True,
    )


class _Forgiving(io.RawIOBase):
    """A descriptor to which nobody may listen any more."""

    name = "<stderr>"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]
        return size
