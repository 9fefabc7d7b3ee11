"""Beside the training of a rank: a thread that sees the others die and signals arrive, whatever the rank is busy with.

The processes of the ranks on this host are watched through their pidfds, so that the end of one is written down at
once, also while this rank computes. A rank of another host is named by the collective that waits for it.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable

import msgspec
import torch.distributed as dist

from ...backend.faults.failures import RankFailure
from ...backend.faults.flight import has_given_up, write_flights
from ...backend.group.base import GroupBase
from ...backend.hosts.placement import GroupMember, exchange_placements
from ...cluster.doctor.stacks import SIGNAL as ASKED
from ..run.events import Event, EventLog
from .agent import STOPPED_EXIT_CODE

LEAVE_S = 0.5  # for a rank that is told to leave now to do so by itself


class Watch:
    """A context in which one rank watches the others of its host."""

    def __init__(self, events: EventLog, step: Callable[[], int], *, rank: int, ranks: int) -> None:
        self._events, self._step = events, step
        self._rank, self._ranks = rank, ranks
        self._peers: dict[int, GroupMember] = {}  # by the file descriptor of the process
        if ranks > 1:
            members = exchange_placements(
                dist.PrefixStore("watch", dist.distributed_c10d._get_default_store()), rank, ranks
            )
            for member in members:
                if member.rank != rank and member.shares_pids_with(members[rank]):
                    with contextlib.suppress(OSError):  # its end is noticed by the next collective
                        self._peers[os.pidfd_open(member.pid)] = member
        self._named = {rank}  # a rank that was stopped and hears that it is to blame leaves it to the others to say so
        self._failed = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._end_read, self._end_write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        signal.set_wakeup_fd(self._before)
        for descriptor in (*self._peers, self._wake_read, self._wake_write, self._end_read):
            os.close(descriptor)

    def end(self) -> None:
        """Stop watching: the others may leave from now on."""
        if self._thread.is_alive():
            os.close(self._end_write)
            self._thread.join()

    def failed(self, error: BaseException) -> None:
        """Write down what kept this rank from going on, with the rank that is to blame where that is known."""
        self._failed = True  # ranks that end from now on do so for the same reason
        failure = error if isinstance(error, RankFailure) else _broken()
        if not isinstance(failure, RankFailure):
            if self._named == {self._rank}:
                self._record(Event(kind="failure", message=str(error).splitlines()[0] if str(error) else repr(error)))
        elif failure.rank not in self._named:
            call = f"{failure.operation} #{failure.sequence}"
            self._record(
                Event(kind="failure", message=str(failure), culprit=failure.rank, host=failure.host, operation=call)
            )

    def _run(self) -> None:
        poll = select.poll()
        for descriptor in (*self._peers, self._wake_read, self._end_read):
            poll.register(descriptor, select.POLLIN | select.POLLHUP)
        interrupted = False
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._end_read in ready:
                return
            gone = ready & self._peers.keys()
            if gone:  # ranks that end from now on do so because of the first
                for descriptor in self._peers:
                    poll.unregister(descriptor)
                for descriptor in gone:
                    self._died(self._peers[descriptor])
            if self._wake_read in ready:
                interrupted = self._signalled(os.read(self._wake_read, 64), interrupted)

    def _died(self, member: GroupMember) -> None:
        if self._failed or has_given_up(member.world_rank):  # then the collective tells because of whom
            return
        group = _group()
        operation = group.current_call() if group is not None else ""
        where = f", in {operation}" if operation else ""
        self._named.add(member.rank)
        text = f"{member} died{where}"
        self._record(Event(kind="failure", message=text, culprit=member.rank, host=member.host, operation=operation))
        write_flights(text)

    def _signalled(self, signals: bytes, interrupted: bool) -> bool:
        """Write the flight record when told to stop or asked; at a second Ctrl-C leave, whatever the rank does."""
        told = [signal.Signals(s) for s in signals if s in {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}]
        if told or ASKED in signals:
            write_flights(f"got {told[0].name}" if told else "")
        if signal.SIGINT not in told:
            return interrupted
        if interrupted:
            time.sleep(LEAVE_S)
            os._exit(STOPPED_EXIT_CODE)
        return True

    def _record(self, event: Event) -> None:
        self._events.record(msgspec.structs.replace(event, step=self._step()))


def _group() -> GroupBase | None:
    """Return the group of all ranks if it is ours."""
    group = dist.distributed_c10d._get_default_group() if dist.is_initialized() else None
    return group if isinstance(group, GroupBase) else None


def _broken() -> BaseException | None:
    group = _group()
    return group.broken if group is not None else None
