"""Standard input, output and error, which a process may have been started without, or with a strict encoding."""

import io
import os
import sys


def open_standard_streams() -> None:
    """Have all three open: else the next file that is opened would get their number, and what libraries say.

    A file name that is not UTF-8 is printed with escapes. Output that Python does not buffer (`PYTHONUNBUFFERED`) is
    buffered by line: Python writes to such a stream once, and what a full disk did not take of it is lost in silence.
    """
    for number in range(3):
        if _is_open(number):
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115, as Python's own
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115, for the same reason
    if sys.stderr is None:
        sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = open(1, "w", buffering=1, encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115, as above
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def let_go_of_output() -> None:
    """Have what standard output still holds go nowhere, so that Python does not try again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
