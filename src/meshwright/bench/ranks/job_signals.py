"""Signals that a terminal or a scheduler sends to all processes of a job."""

import contextlib
import signal
import threading
from collections.abc import Iterator

JOB_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Put off signals of the job to the end of the block; do nothing outside of the main thread, which handles them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []  # not by a mask: another thread of the process would take the signal
    before = {number: signal.signal(number, lambda got, _: pending.append(got)) for number in JOB_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for got in pending:
            signal.raise_signal(got)
