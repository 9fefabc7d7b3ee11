"""Ctrl-C while the command starts: the process ends without a word, until the command line can say that it was stopped.

Python's own handler would print a traceback of whatever is being imported, and torch's C++ aborts the process where an
exception comes out of Python while it is loaded. Later, an exception that is raised in a callback of the import system
would be printed and lost: the signal comes again once that is left. Nothing is changed in other programs that import
this package, nor where the signal is ignored already (`nohup`, `command &` in a script).
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself takes milliseconds, in which Ctrl-C may come
import _thread
import sys
import time

LOOK_S = 0.02
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"  # it drops locks of modules in callbacks, which swallow exceptions


def until_ready() -> None:
    """Let Ctrl-C end this process at once, if it is the `meshwright` command."""
    words = sys.orig_argv[1:3]
    is_command = words == ["-m", "meshwright"] or (words and words[0].rpartition("/")[2] == "meshwright")
    if is_command and _signal.getsignal(_signal.SIGINT) in (_signal.default_int_handler, interrupt):
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def ready() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, where `until_ready` changed that."""
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, interrupt)


def interrupt(signum: int, frame: object) -> None:
    """Raise KeyboardInterrupt at a signal to stop; while torch is loaded, or in the import system, soon after."""
    where = getattr(getattr(frame, "f_code", None), "co_filename", "")
    if where != IMPORT_SYSTEM and not _is_loading("torch"):
        raise KeyboardInterrupt
    _thread.start_new_thread(_interrupt_again, (_thread.get_ident(), signum))


def _interrupt_again(main_thread: int, signum: int) -> None:
    time.sleep(LOOK_S)
    while _is_loading("torch"):
        time.sleep(LOOK_S)
    _signal.pthread_kill(main_thread, signum)  # a real signal, which ends a wait too


def _is_loading(name: str) -> bool:
    """Return whether a module is being imported, as importlib has it."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)
