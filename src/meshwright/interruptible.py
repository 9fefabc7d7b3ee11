"""Ctrl-C while the command starts: the process ends without a word, until the command line can say that it was stopped.

Python's own handler would print a traceback of whatever is being imported. Nothing is changed in other programs that
import this package, nor where the signal is ignored already (`nohup`, `command &` in a script).
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself takes milliseconds, in which Ctrl-C may come
import sys


def until_ready() -> None:
    """Let Ctrl-C end this process at once, if it is the `meshwright` command."""
    words = sys.orig_argv[1:3]
    is_command = words == ["-m", "meshwright"] or (words and words[0].rpartition("/")[2] == "meshwright")
    if is_command and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def ready() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, where `until_ready` changed that."""
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
