"""The coordinator: membership, shares of the data, waiting, and when contributions are applied.

Every request of a worker runs on a thread of its own and under one lock; a request that must wait does so on one
condition.

Together (local SGD; a parameter server with staleness 0): exchange q closes when everybody who works has contributed
to it. Otherwise (staleness s > 0) each gradient is applied as it comes, and nobody starts on a share of step t before
all shares of step t - s - 1 are in the weights (bounded delay, Li et al. 2014), nor while a gradient under way could
come to be applied more than s steps of updates after its weights were read: a gradient is at most s steps old by both
counts. Since shares go to the workers that ask, one slow worker does fewer of them and need not hold up the others.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...errors import MeshwrightError
from .leases import Leases
from .ledger import DoneShare, Ledger
from .members import JoinedWorker, MemberChange, Members
from .messages import (
    Closed,
    Contribute,
    Done,
    Finish,
    Join,
    Joined,
    Lease,
    LeaseRequest,
    Message,
    Record,
    Refused,
    Scored,
    Validate,
)
from .server_group import ServerGroup

Rate = Callable[[int], float]  # the servers' learning rate, by the steps that are done


class _NotInError(Exception):
    """A worker that waited has been let go meanwhile."""


class RunTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a run's mode."""

    workers: int  # that the data are cut for; more or fewer may be in
    steps: int
    tokens_per_share: int
    shares_per_lease: int  # between two exchanges
    together: bool  # an exchange waits for all
    staleness: int | None = None  # steps that a gradient may be old; None: without bound
    gradients: bool = True  # contributions are gradients; otherwise, ways that weights went
    max_grad_norm: float = 0.0  # of summed gradients; 0: never clipped
    staleness_aware: bool = False  # divide the rate of a late gradient by its delay (Zhang et al. 2016)
    adapt: bool = False  # lease slow workers fewer shares between two exchanges
    validate_every: int
    checkpoint_every: int  # 0: only at the end
    silence_s: float  # after which a worker that is not heard is out
    patience_s: float  # how long the first worker waits for all others to come, before it starts without them


class Coordinator:
    """Answers workers; `rate`, `write`, `save`, `changed` and `clock` tie it to a run."""

    def __init__(
        self,
        terms: RunTerms,
        bank: ServerGroup,
        *,
        first_step: int,
        rate: Rate,
        write: Callable[[dict[str, Any]], None],
        save: Callable[[int], None],
        changed: Callable[[MemberChange], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.terms, self.bank = terms, bank
        self.members = Members()
        self.leases = Leases(first_step * terms.workers, terms.steps * terms.workers)
        self.ledger = Ledger(
            first_step=first_step, workers=terms.workers, tokens_per_share=terms.tokens_per_share, write=write
        )
        self.closed = 0  # exchanges, or updates, that are in the weights
        self.stopped = False  # before the data were over
        self.finished = False
        self.records: list[str] = []
        self.problem: BaseException | None = None  # what went wrong in a worker's thread, such as a full disk
        self._rate, self._save, self._changed, self._clock = rate, save, changed, clock
        self._state = threading.Condition()
        self._gathered = False  # all workers have come, or the ones that had could not wait any longer
        self._first_join_s: float | None = None
        self._open: dict[int, Contribute] = {}  # by member: contributions to the exchange that is open
        self._budget: tuple[int, int] = (-1, 0)  # exchange, shares of it that nobody has leased yet
        self._to_validate: list[int] = []  # steps whose rows are held
        self._last_step: int | None = None  # held too, until nothing can change the weights any more
        self._parts: list[int] = []  # of the first of them, not given out yet
        self._given: dict[int, int] = {}  # by member: the part that it evaluates
        self._part_count = 0
        self._score = 0.0

    # requests of workers

    def answer(self, message: Message) -> Message:
        """Carry out a worker's request and return the reply; blocks as long as the worker has to wait."""
        with self._state:
            number = getattr(message, "member", None)
            if number is not None and number not in self.members:
                if isinstance(message, Contribute):
                    self.bank.forget(number, 0)  # what it put after it had been let go
                return Refused("not in")
            if number is not None:
                self.members[number].heard_s = self._clock()
            try:
                match message:
                    case Join():
                        return self._join(message)
                    case LeaseRequest():
                        return self._next(self.members[message.member])
                    case Contribute():
                        return self._contribute(self.members[message.member], message)
                    case Scored():
                        return self._scored(message)
                    case Record():
                        self.records.append(message.record)
                        self.members[message.member].finished = True
                        self._state.notify_all()
                        return Done()
            except _NotInError:
                return Refused("not in")
            except BaseException as problem:
                self.problem = self.problem or problem
                self._state.notify_all()
                raise
        return Refused(f"{type(message).__name__}: not a worker's request")

    def beat(self, number: int) -> None:
        """Note that a worker is alive."""
        member = self.members.get(number)  # looked up once: another thread may let it go
        if member is not None:
            member.heard_s = self._clock()

    def leave(self, number: int, reason: str) -> None:
        """Let a worker go; the others do not wait for it any more."""
        with self._state:
            member = self.members.leave(number)
            if member is None:
                return
            if member.finished:
                self._state.notify_all()
                return
            self._changed(MemberChange(member.rank, member.pid, False, reason, len(self.members)))
            self.leases.give_back(number)
            if number in self._given:
                self._parts.append(self._given.pop(number))
            try:
                self.bank.forget(number, member.position)
                self._settle()
            except MeshwrightError as problem:
                self.problem = self.problem or problem
                self._state.notify_all()

    def tick(self) -> None:
        """Expire silent workers and start without late ones; called periodically."""
        with self._state:
            for member in self.members.silent_since(self._clock() - self.terms.silence_s):
                if not member.finished:
                    self.leave(member.number, f"not heard for {self.terms.silence_s:g} s")
            self._gather()
            self._settle()

    def stop(self) -> None:
        """Lease nothing any more; the run ends when what is leased is done."""
        with self._state:
            self.stopped = self.stopped or self.leases.left > 0
            self.leases.stop()
            self._settle()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so that requests change; return whether it is."""
        with self._state:
            return self._state.wait_for(until, timeout_s)

    # what they come to

    def _join(self, message: Join) -> Message:
        entered = self.closed
        # in the middle of an exchange there is no saying what a newcomer's weights would be: it waits for the next
        self._wait_for(
            lambda: not (self.terms.together and self._gathered) or not self.members.working or self.closed > entered
        )
        position = self.closed if self.terms.together else 0
        member = self.members.join(message.rank, message.pid, message.host, position, self._clock())
        self._changed(MemberChange(member.rank, member.pid, True, "", len(self.members)))
        self._gather()
        self._state.notify_all()
        return Joined(member.number, position)

    def _gather(self) -> None:
        now_s = self._clock()
        if self.members and self._first_join_s is None:
            self._first_join_s = now_s
        waited_s = now_s - self._first_join_s if self._first_join_s is not None else 0.0
        if not self._gathered and (len(self.members) >= self.terms.workers or waited_s > self.terms.patience_s):
            self._gathered = True
            self.ledger.start(now_s)
            self._state.notify_all()

    def _next(self, member: JoinedWorker) -> Message:
        while True:
            self._check_in(member)
            work = self._work_for(member)
            if work is not None:
                return work
            self._state.wait()

    def _work_for(self, member: JoinedWorker) -> Message | None:
        """Return what a member should do now, None if it has to wait."""
        if not self._gathered:
            return None
        if self._parts:
            part = self._parts.pop()
            self._given[member.number] = part
            return Validate(self._to_validate[0], part, self._part_count)
        if self.finished:
            return Finish()
        if self.leases.left:
            if self._must_wait():
                return None
            return self._lease(member)
        if member.unsynced:  # other fragments still hold progress
            member.unsynced -= 1
            member.leased += 1
            return Lease(0, 0, member.leased - 1)
        if not member.parked and member.leased == member.position:
            member.parked = True
            self._settle()
            if self._parts or self.finished:
                return self._work_for(member)
        return None

    def _must_wait(self) -> bool:
        terms = self.terms
        if terms.together or terms.staleness is None:
            return False
        if self.leases.reach(terms.workers) > terms.staleness:
            return True
        holders = self.leases.holders
        oldest = min((self.members[number].version for number in holders), default=self.closed)
        return self.closed - oldest + len(holders) >= (terms.staleness + 1) * terms.workers

    def _lease(self, member: JoinedWorker) -> Lease:
        missed = member.parked
        if member.parked:
            member.parked = False
            if self.terms.together:
                member.position = member.leased = self.closed
        run = self.leases.take(member.number, self._lease_size(member))
        assert run is not None
        member.unsynced = self.bank.fragments - 1
        member.version = self.closed
        member.leased += 1
        return Lease(run.first, run.count, member.leased - 1, read=missed)

    def _lease_size(self, member: JoinedWorker) -> int:
        """Return how many shares a member gets: in local SGD, by its pace, a part of those of an exchange."""
        if self.terms.gradients:
            return 1
        position = member.leased
        if self._budget[0] != position:  # exchanges are as long as was asked for, or a little longer at the end
            whole = len(self.members) * self.terms.shares_per_lease
            exchanges = max(1, round(self.leases.left / whole))
            self._budget = (position, -(-self.leases.left // exchanges))
        budget = self._budget[1]
        known = [other.shares_per_s for other in self.members if other.shares_per_s]
        usual = sum(known) / len(known) if known else 1.0
        waiting = [other for other in self.members if other.leased <= position and not other.finished]
        paces = [(other.shares_per_s or usual) if self.terms.adapt else 1.0 for other in waiting]
        size = max(1, math.ceil(budget * paces[waiting.index(member)] / sum(paces) - 1e-9))
        self._budget = (position, budget - size)
        return size

    def _contribute(self, member: JoinedWorker, message: Contribute) -> Message:
        if message.position != member.position:
            return Refused(f"exchange {message.position}: expected {member.position}")
        member.position += 1
        if message.losses:
            self.leases.finish(member.number, message.first)
            member.shares_per_s = len(message.losses) / max(message.seconds, 1e-9)
        if not self.terms.together:
            self._apply([(member, message)], fragment=0)
            self._settle()
            return Closed(message.position)
        self._open[member.number] = message
        self._settle()
        self._wait_for(lambda: self.closed > message.position)
        return Closed(message.position)

    def _settle(self) -> None:
        """Close the exchange if all who work have contributed, end the run if nothing is left to do."""
        open_to = [m for m in self.members.working if m.position <= self.closed]
        if self.terms.together and self._open and not open_to:
            # one that has left may have contributed before: what it did counts
            members = {n: self.members.get(n) for n in self._open}
            ready = sorted(self._open.items(), key=lambda item: (item[1].first, item[0]))
            self._open = {}
            self._apply([(members[n], message) for n, message in ready], fragment=self.closed % self.bank.fragments)
        over = self.leases.is_over and not self.members.working and not self._open
        if over and self._last_step is not None:
            self._to_validate.append(self._last_step)
            self._last_step = None
            self._start_validation()
        if over and not self._to_validate and not self.finished:
            self._save(self.ledger.step)
            self.finished = True
        self._state.notify_all()

    def _apply(self, contributions: Sequence[tuple[JoinedWorker | None, Contribute]], fragment: int) -> None:
        """Put contributions into the weights and their shares into the ledger."""
        terms = self.terms
        messages = [message for _, message in contributions]
        keys = [(message.member, message.position) for message in messages]
        late = terms.gradients and not terms.together
        delays = [self.closed - member.version if member and late else 0 for member, _ in contributions]
        rate = self._rate(self.ledger.step)
        if late:
            weights = [1.0]
            rate /= max(1, delays[0]) if terms.staleness_aware else terms.workers
        elif terms.gradients:  # gradients of sums over the global batch: the missing are made up for
            weights = [terms.workers * terms.tokens_per_share / sum(m.tokens for m in messages)] * len(messages)
        else:
            weights = [m.tokens / max(1, sum(m.tokens for m in messages)) for m in messages]
        norm = self.bank.apply(fragment, keys, weights, rate=rate, max_norm=terms.max_grad_norm)
        self.closed += 1
        shares: list[DoneShare] = []
        for message, delay in zip(messages, delays, strict=True):
            seen = norm if terms.gradients and terms.together else message.norm
            shares += [DoneShare(loss, rate, seen, delay // terms.workers, delay) for loss in message.losses]
        rows = self.ledger.add(
            shares,
            moved_bytes=sum(m.moved_bytes for m in messages),
            ranks=self.members.ranks,
            now_s=self._clock(),
        )
        for row in rows:
            step = row["step"] + 1
            if step == terms.steps:  # other fragments may still be to come
                self.ledger.hold(step - 1)
                self._last_step = step - 1
            elif step % terms.validate_every == 0:
                self.ledger.hold(step - 1)
                self._to_validate.append(step - 1)
            if terms.checkpoint_every and step % terms.checkpoint_every == 0 and step != terms.steps:
                self._save(step)
        self._start_validation()
        self.ledger.release()

    def _start_validation(self) -> None:
        if self._to_validate and not self._parts and not self._given:
            self.bank.snapshot()
            self._part_count = max(1, len(self.members))
            self._parts = list(range(self._part_count))
            self._score = 0.0

    def _scored(self, message: Scored) -> Message:
        if self._given.pop(message.member, None) != message.part:
            return Refused(f"part {message.part} was not given to this worker")
        self._score += message.loss
        if not self._parts and not self._given:
            self.ledger.let_go(self._to_validate.pop(0), validation_loss=self._score)
            self._start_validation()
            self.ledger.release()
        self._settle()
        return Done()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        self._state.wait_for(lambda: condition() or self.problem is not None)
        if self.problem is not None:
            raise RuntimeError("the run has failed") from self.problem

    def _check_in(self, member: JoinedWorker) -> None:
        if self.problem is not None:
            raise RuntimeError("the run has failed") from self.problem
        if member.number not in self.members:
            raise _NotInError
