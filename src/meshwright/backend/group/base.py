"""The base of every call of the process group "meshwright": run now or later, its name, its end."""

import functools
import os
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch._C._distributed_c10d import DebugLevel, Store, get_debug_level
from torch.autograd import profiler
from torch.distributed import Work

from ..faults.agreement import agree, call_text
from ..faults.blame_board import PROCESS_BLAME
from ..faults.failures import ArgumentError, CollectiveError
from ..faults.flight import forget_groups
from ..hosts.link_rates import LinkRates
from ..local.engine import GroupEngine, LocalEngine
from ..local.reductions import Reduction, reduction
from ..local.weak import weakly
from .fast_path import NoFastPath, PythonFastPath
from .monitored import MonitoredBarrier
from .native_calls import native_fast_path
from .profiler_ranges import mark_issue, marked
from .signature import COMPARISON, Signature
from .tensors import operator_of
from .torch_group import NAME, TorchGroup
from .work import DONE, CollectiveWorker, PendingWork, Tensors, limit_seconds

Method = TypeVar("Method", bound=Callable[..., Work])
PATIENCE_S = 0.05  # how long the caller of an asynchronous collective waits for it where no processor is free


def refusable(method: Method) -> Method:
    """Return a method of a group which, where it raises before its collective was started, lets the next one tell."""

    @functools.wraps(method)
    def asked(self: "GroupBase", *given: Any, **named: Any) -> Work:
        started = self._started
        try:
            return method(self, *given, **named)
        except Exception:
            if self._started == started:
                self._refused()
            raise

    return cast(Method, asked)


class GroupBase(TorchGroup):
    """A group of ranks without its collectives.

    A call that is refused has no place in the order of collectives, so that nobody waits for it. But another rank may
    have made it: then a next one of the same kind would be paired with that. So the signature of the next says how
    many were refused before it, and the ranks disagree unless all have refused as many.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout_s: float, engine: GroupEngine) -> None:
        super().__init__(store, rank, size)
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._engine = engine
        self._worker = CollectiveWorker(f"{NAME}-{rank}")
        self._lock: Any = threading.Lock()  # held during each call
        self._kinds: dict[tuple[int, torch.dtype], Reduction] = {}
        self._monitored = MonitoredBarrier(store, engine.members, rank)
        self._compares = get_debug_level() == DebugLevel.DETAIL
        self._started = self._refusals = 0  # calls that came to be started; that were refused since the last of them
        self._usual: PythonFastPath | NoFastPath = self._way_of_usual_calls()
        self._usual_else = self._usual  # where nothing was refused
        _groups.add(self)

    def _way_of_usual_calls(self) -> Any:
        if self._compares:
            return NoFastPath()
        if isinstance(self._engine, LocalEngine):
            way = native_fast_path(self._engine.group, self._worker, weakly(self._stopped), inline=self._engine.inline)
            if way is not None:
                self._lock = way
                return way
        return PythonFastPath(self._engine, self._worker, self._kinds, weakly(self._now), self._rank)

    # ---- running

    def _refused(self) -> None:
        """Note that a call was refused; the next goes the long way, which tells the others."""
        self._refusals += 1
        self._usual = NoFastPath()

    def _after_refusals(self, asked: Signature) -> Signature:
        """Return the signature of a call before which some were refused."""
        asked = asked.after(self._refusals)
        self._refusals, self._usual = 0, self._usual_else
        return asked

    def _start(
        self,
        name: str,
        asked: Signature,
        moved_bytes: int,
        call: Callable[[], object],
        result: Tensors,
        options: Any,
        compared: Tensors | None = None,
        land: Callable[[], object] | None = None,
    ) -> Work:
        """Run `call` now, or hand it to the group's thread, as the options ask; then `land`, which is local.

        `asked` is what all ranks must call alike. In debug mode they compare `compared` too, the tensors whose types
        and shapes must be the same on all, if they are not the result.
        """
        self._started += 1
        if self._refusals:
            asked = self._after_refusals(asked)
        if self._compares:
            call = self._comparing(name, asked, call, result if compared is None else compared, options)
        if not options.asyncOp and self._worker.idle:
            self._now(name, asked, moved_bytes, options, call)
            if land is not None:
                land()
            return DONE

        def run() -> None:
            self._now(name, asked, moved_bytes, options, call)
            if land is not None:
                land()

        work = PendingWork(run, result)
        if profiler._is_profiler_enabled:
            mark_issue(name, work, self._submit)
        elif moved_bytes and self._engine.inline and self._worker.idle:
            self._run_or_submit(work)
        else:
            self._submit(work)
        return work

    def _run_or_submit(self, work: PendingWork) -> None:
        """Run a call on this thread if all ranks are in it: then nothing that this rank does later can hold it up."""
        if self._engine.announce_and_poll(PATIENCE_S):
            work.run()
        else:
            self._worker.submit(work)

    def _submit(self, work: PendingWork) -> None:
        self._worker.submit(work)
        if self._engine.inline:
            work.patient(PATIENCE_S)

    def _now(
        self,
        name: str,
        asked: Signature,
        moved_bytes: int,
        options: Any,
        call: Callable[..., object],
        *arguments: Any,
    ) -> Work:
        """Run a call of the engine on this thread."""
        engine = self._engine
        if profiler._is_profiler_enabled and not self._worker.is_current:  # the worker's was marked when it was issued
            call = marked(name, call)
        with self._lock:
            if engine.broken is not None:
                raise engine.broken.of_later_call(name)
            engine.flight.begin(name, moved_bytes, options)
            engine.ask(asked)
            try:
                call(*arguments)
            except BaseException as error:
                self._stopped(name, error)
                raise
            engine.flight.end()
        return DONE

    def _stopped(self, name: str, error: BaseException) -> None:
        """Tell the other ranks when this one stops in the middle of a collective for a reason of its own."""
        if isinstance(error, CollectiveError):
            self._engine.stopped(error)
        else:
            self._engine.give_up(f"stopped in the middle of {name}: {type(error).__name__}: {error}")

    def _comparing(
        self, name: str, asked: Signature, call: Callable[[], object], tensors: Tensors, options: Any
    ) -> Callable[[], object]:
        """Return `call`, preceded by the comparison of what the ranks call."""

        def checked() -> None:
            text = call_text(name, self._engine.flight.sequence, tensors, options)
            self._engine.ask(COMPARISON)
            agree(self._engine.all_gather, self._engine.members, text)
            self._engine.ask(asked)
            call()

        return checked

    def _kind(self, code: Any, dtype: torch.dtype) -> Reduction:
        key = (hash(code), dtype)
        kind = self._kinds.get(key)
        if kind is None:
            operator = operator_of(code)
            if dtype.is_floating_point and dtype.itemsize == 1 and not isinstance(self._engine, LocalEngine):
                raise ArgumentError(f"reduction {operator} of {dtype}: not between hosts; reduce it as bfloat16")
            if operator == "premul_sum":  # not remembered: it is a sum of something else than the tensor
                return reduction(dtype, "sum")
            kind = self._kinds[key] = reduction(dtype, operator)
        return kind

    # ---- what a watcher asks

    @property
    def broken(self) -> CollectiveError | None:
        """The error that broke the group, if one has."""
        return self._engine.broken

    def current_call(self) -> str:
        """Return the collective that this rank is in, such as "all_reduce #17", or the last one; from any thread."""
        name, sequence, _ = self._engine.flight.current()
        return f"{name} #{sequence}"

    def link_rates(self) -> LinkRates:
        """Return the rates of the links to ranks of other hosts, counted from now on."""
        return LinkRates(self._engine.connections)

    # ---- what torch asks of a group beside its collectives

    def _get_sequence_number_for_group(self) -> int:
        return self._engine.flight.sequence

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: numbers start at one on every rank."""

    def set_timeout(self, timeout: timedelta | float) -> None:
        """Set the time that a collective may take before it names the rank that did not arrive."""
        self._timeout_s = limit_seconds(timeout)
        self._engine.set_timeout(self._timeout_s)

    _set_default_timeout = set_timeout

    def setGroupName(self, name: str) -> None:
        """Set the name that torch gives the group."""
        super().setGroupName(name)
        self._engine.flight.group = name

    def setGroupDesc(self, description: str) -> None:
        """Set the description of the group."""
        super().setGroupDesc(description)
        self._engine.flight.description = description

    def _wait_for_pending_works(self) -> None:
        last = PendingWork(lambda: None, ())
        self._worker.submit(last)
        last.wait()

    def monitored_barrier(self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks, or raise a CollectiveError that names all who do not come in time.

        It always waits for all; torch's `wait_all_ranks` makes the message begin with all of them. A number is seconds.
        """
        if os.getpid() != self._pid and self.broken is not None:
            raise self.broken
        limit_s = self._timeout_s if timeout is None else limit_seconds(timeout)
        self._monitored.wait(limit_s, name_all=wait_all_ranks)

    def disown(self) -> None:
        """Refuse every call from now on, in a forked child: it would take its parent's place among the ranks."""
        rank = self._engine.members[self._rank].world_rank
        self._usual = self._usual_else = NoFastPath()
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._worker.disown()
        self._engine.disown(
            CollectiveError(f"this process was forked from rank {rank} (pid {self._pid}) and is no rank")
        )

    def shutdown(self) -> None:
        """Finish what was issued, and leave; nothing in a forked child, which is no rank."""
        if os.getpid() != self._pid:
            return
        self._worker.close(timeout_s=self._timeout_s)
        self._engine.close()

    def abort(self) -> None:
        """Leave at once; collectives of other ranks that wait for this one fail. Nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        self._engine.give_up("aborted the group")
        self._worker.close(timeout_s=1.0)
        self._engine.close()


def _disown_groups() -> None:
    """Have a child that was just forked refuse the calls of all groups, which are its parent's."""
    PROCESS_BLAME.forget_boards()
    forget_groups()
    for group in list(_groups):
        group.disown()
    _groups.clear()


_groups: weakref.WeakSet[GroupBase] = weakref.WeakSet()
os.register_at_fork(after_in_child=_disown_groups)
