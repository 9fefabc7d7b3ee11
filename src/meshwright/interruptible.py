"""Ctrl-C while the command starts: the process ends without a word, until the command line can say that it was stopped.

Python's own handler would print a traceback of whatever is being imported, and torch's C++ aborts the process where an
exception comes out of Python while it is loaded. Later, an exception that is raised in a callback of the import system
or in a destructor would be printed and lost: the signal comes again once that is left. Nothing is changed in other
programs that import this package, nor where the signal is ignored already (`nohup`, `command &` in a script).
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself takes milliseconds, in which Ctrl-C may come
import _thread
import sys
import time

LOOK_S = 0.02
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"  # it drops locks of modules in callbacks, which swallow exceptions


class ExitBySignal(SystemExit):
    """A signal to end, whose number is the exit code less 128."""


def until_ready() -> None:
    """Let Ctrl-C end this process at once, if it is the `meshwright` command."""
    if _is_command() and _signal.getsignal(_signal.SIGINT) in (_signal.default_int_handler, interrupt):
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def ready() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, where `until_ready` changed that; no destructor swallows it."""
    if _is_command():
        sys.unraisablehook = come_again
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, interrupt)


def interrupt(signum: int, frame: object) -> None:
    """Raise KeyboardInterrupt at a signal to stop; while torch is loaded, or in the import system, soon after."""
    if not _put_off(signum, frame):
        raise KeyboardInterrupt


def end(signum: int, frame: object) -> None:
    """Leave at a signal to end by way of all that cleans up, with 128 and its number; put off as `interrupt` is."""
    if not _put_off(signum, frame):
        _signal.signal(signum, _signal.SIG_IGN)  # once is enough: a second one would cut the cleaning short
        raise ExitBySignal(128 + signum)


def come_again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a signal again whose exception a destructor has swallowed; print what else is swallowed, as Python does."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_again, (_thread.get_ident(), _signal.SIGINT))
    elif isinstance(lost.exc_value, ExitBySignal):
        signum = int(str(lost.exc_value.code)) - 128
        _signal.signal(signum, end)
        _thread.start_new_thread(_interrupt_again, (_thread.get_ident(), signum))
    else:
        sys.__unraisablehook__(lost)


def _put_off(signum: int, frame: object) -> bool:
    """Return whether an exception would be lost here, or abort the process; the signal then comes again soon."""
    where = getattr(getattr(frame, "f_code", None), "co_filename", "")
    if where != IMPORT_SYSTEM and not _is_loading("torch"):
        return False
    _thread.start_new_thread(_interrupt_again, (_thread.get_ident(), signum))
    return True


def _interrupt_again(main_thread: int, signum: int) -> None:
    time.sleep(LOOK_S)
    while _is_loading("torch"):
        time.sleep(LOOK_S)
    _signal.pthread_kill(main_thread, signum)  # a real signal, which ends a wait too


def _is_command() -> bool:
    words = sys.orig_argv[1:3]
    return words == ["-m", "meshwright"] or bool(words and words[0].rpartition("/")[2] == "meshwright")


def _is_loading(name: str) -> bool:
    """Return whether a module is being imported, as importlib has it."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)
