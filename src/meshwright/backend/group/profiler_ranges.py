"""Marks of collectives for torch.profiler: "meshwright:all_reduce", as Gloo and NCCL mark theirs.

A name that `torch.distributed.record_comm` gives is a mark of its own around it.

A Python process group is not called through torch's dispatcher, so the profiler would see nothing of it. A caller that
marks looks at the profiler's own flag first, which is all that a mark costs without one.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from torch.autograd.profiler import record_function
from torch.futures import Future

from .c10d_operators import OPERATOR_OF_CALL
from .torch_compat import callers_name
from .work import PendingWork

LIBRARY = "meshwright"


def marked(name: str, call: Callable[..., object]) -> Callable[..., None]:
    """Return `call`, marked in a profile as a collective of the calling thread."""

    def recorded(*arguments: Any) -> None:
        with ExitStack() as marks:
            for title in (_operator(name), *_titles(name)):
                marks.enter_context(record_function(title))
            call(*arguments)

    return recorded


def mark_until_done(name: str, work: PendingWork) -> None:
    """Mark the time from now, on the caller's thread, until another thread finishes `work`.

    The mark ends before any waiter of the work is woken, since that may end the profiler.
    """
    ended: Future[None] = Future()
    for title in _titles(name):
        mark: Any = record_function(title)
        mark.__enter__()
        mark._call_end_callbacks_on_future(ended)
    work.end_mark = partial(ended.set_result, None)


def mark_issue(name: str, work: PendingWork, submit: Callable[[PendingWork], None]) -> None:
    """Submit `work`, its time marked and that for which the caller is taken, as torch's dispatcher marks a call."""
    with record_function(_operator(name)):
        mark_until_done(name, work)
        submit(work)


def _titles(name: str) -> Iterator[str]:
    """Return the name that the caller gave its collectives, if any (from torch 2.13 on), and the library's."""
    if given := callers_name():
        yield given
    yield f"{LIBRARY}:{name}"


def _operator(name: str) -> str:
    return f"c10d::{OPERATOR_OF_CALL.get(name, name)}"
