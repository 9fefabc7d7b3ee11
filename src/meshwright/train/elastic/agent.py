"""torchrun's agent with what a job of ours needs: one interface, an end where starting again is no use, and a word.

Underscored names of torch's agent are used here and nowhere else.
"""

import contextlib
import hashlib
import hmac
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, cast

import msgspec
from torch.distributed import DistError, Store
from torch.distributed.elastic.agent.server import WorkerSpec
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout

from ...errors import InputError, MeshwrightError
from ...sockets import is_here
from ..integrity.corruption import CorruptionError, excluded_rank
from ..integrity.finite import NotFinite
from ..run.events import Event, EventLog, this_host
from .clock import JobClock, heartbeats_by, skew
from .meeting import address_towards, host_store
from .rank_exit import RanksHere, ranks_that_end
from .store import SealedStore, StoreEnded
from .surroundings import stop_signals

STOPPED_EXIT_CODE = 130
MEETING_S = 600.0  # the least that machines wait for each other at first
FIRST_CALL_S, LAST_CALL_S = 30.0, 3.0  # how long machines that are enough wait for one more: at first, and later
HEARTBEAT_S, HEARTBEATS = 1, 5  # a machine that is silent for so long is taken for dead


class AgentStart(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks to start on this machine, and with whom they meet."""

    name: str  # of the job: the same on all machines
    ranks: int  # on this machine
    nodes: int = 1
    min_nodes: int = 1
    host: str = "127.0.0.1"  # that hosts the rendezvous
    port: int = 0
    max_restarts: int = 0
    timeout_s: float = 600.0
    rejoin_s: float = 60.0  # the least that machines wait for each other later
    grace_s: int = 30  # for ranks that are told to stop
    logs: str = ""
    is_complete: Callable[[], bool] = lambda: False  # whether all is trained and saved
    secret: bytes = b""  # what is written at the rendezvous is sealed with it


class SealedBackend(C10dRendezvousBackend):
    """The state of the rendezvous, sealed: torch keeps it as a pickle, which must never be another's."""

    def __init__(self, store: Store, name: str, secret: bytes) -> None:
        super().__init__(store, name)
        self._secret = secret
        self._clock: JobClock | None = None

    def get_state(self) -> tuple[bytes, Any] | None:
        """Return the state and its token, None where there is none; RendezvousStateError if a stranger wrote it."""
        if self._clock is not None:
            self._clock.keep()
        found = super().get_state()
        return (self._opened(found[0]), found[1]) if found else None

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        """Write the state unless another has been written since `token`; return what is there now."""
        found = super().set_state(self._seal(state) + state, token)
        return (self._opened(found[0]), *found[1:]) if found else None

    def clock(self) -> JobClock:
        """Return the clock of the store's host; from now on it is kept right."""
        self._clock = JobClock(lambda: cast(bytes, self._call_store("clock")))
        return self._clock

    def _seal(self, state: bytes) -> bytes:
        return hmac.digest(self._secret, state, hashlib.sha256)

    def _opened(self, sealed: bytes) -> bytes:
        size = hashlib.sha256().digest_size
        seal, state = sealed[:size], sealed[size:]
        if not hmac.compare_digest(seal, self._seal(state)):
            raise RendezvousStateError("the state of the rendezvous was not written by this job")
        return state


def run_agent(start: AgentStart, main: Callable[..., None], arguments: tuple[Any, ...], events: EventLog) -> None:
    """Run `main(*arguments)` on the ranks of this machine until all have ended, starting them again as allowed.

    Raises ChildFailedError where ranks failed for good, SignalException where this process was told to stop.
    """
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ",".join(signum.name for signum in stop_signals())
    here = is_here(start.host)
    local_addr = start.host if here else address_towards(start.host)
    store, backend, clock = _reached(start, here=here)
    patience = RendezvousTimeout(
        join=timedelta(seconds=max(start.timeout_s, MEETING_S)), last_call=timedelta(seconds=FIRST_CALL_S)
    )
    said = skew(clock.wall_ahead_s, this_host(), f"{start.host}, where all meet")
    if said:
        events.record(Event(kind="clock", message=said, host=this_host()))
    handler = DynamicRendezvousHandler.from_backend(
        start.name,
        store,
        backend,
        start.min_nodes,
        start.nodes,
        local_addr=local_addr,
        timeout=patience,
        keep_alive_interval=HEARTBEAT_S,
        keep_alive_max_attempt=HEARTBEATS,
    )
    spec = WorkerSpec(
        role="default",
        local_world_size=start.ranks,
        entrypoint=main,
        args=arguments,
        rdzv_handler=handler,
        max_restarts=start.max_restarts,
        monitor_interval=0.1,
        local_addr=local_addr,
    )
    with heartbeats_by(clock), _until_the_end(start, handler, store):
        result: RunResult | None = _agent(start, spec, patience, events).run()
        if result is None:  # torch's word for a machine that was one too many all the time
            raise MeshwrightError(
                f"{start.host}:{start.port}: the job has ended without this machine: {start.nodes} others were enough "
                "(launch.nodes)"
            )
        if result.is_failed():
            raise ChildFailedError(name="meshwright.train", failures=result.failures)


def _reached(start: AgentStart, *, here: bool) -> tuple[SealedStore, SealedBackend, JobClock]:
    """Return the store where all meet, what torch asks it through, and the clock of its host."""
    try:
        store = (host_store if here else SealedStore)(start.host, start.port, start.timeout_s, start.secret)
        backend = SealedBackend(store, start.name, start.secret)
        return store, backend, backend.clock()
    except DistError as error:
        raise MeshwrightError(f"{error}; nothing answers where all meet (launch.rendezvous)") from None


@contextlib.contextmanager
def _until_the_end(start: AgentStart, handler: DynamicRendezvousHandler, store: SealedStore) -> Iterator[None]:
    """Say in our words what a rendezvous raises, and leave it at the end."""
    where, told_to_stop = f"{start.host}:{start.port}", False
    few = f"fewer than {start.min_nodes} machines came in time (launch.min_nodes)"
    try:
        yield
    except SignalException:
        told_to_stop = True
        raise
    except RendezvousTimeoutError:
        raise MeshwrightError(f"{where}: {few}") from None
    except RendezvousClosedError:  # the first waiter to give up closes it for the others
        raise MeshwrightError(f"{where}: the others wait no longer: {few}, or the job has ended") from None
    except (RendezvousConnectionError, RendezvousStateError, DistError) as error:
        why = str(error.__cause__ or error).splitlines()[0]
        if isinstance(error.__cause__ or error, StoreEnded):
            raise MeshwrightError(f"{where}: the launcher where all meet has ended the job: {why}") from None
        raise MeshwrightError(f"{where}: lost the machine where all meet ({why})") from None
    finally:
        if not told_to_stop:  # a rendezvous that is shut down takes in nobody any more
            handler.shutdown()
        store.close(farewell=_farewell(sys.exc_info()[1]))


def _farewell(error: BaseException | None) -> str:
    """Return in one line why a launcher ends."""
    if error is None:
        return "all is done"
    if isinstance(error, SignalException):
        return "it was told to stop"
    if isinstance(error, ChildFailedError):
        return first_failure(error.failures)
    return " ".join(f"{error}".split()) or type(error).__name__


def _agent(start: AgentStart, spec: WorkerSpec, patience: RendezvousTimeout, events: EventLog) -> "Agent":
    agent = Agent(
        spec,
        DefaultLogsSpecs(log_dir=start.logs),
        start_method="forkserver",
        exit_barrier_timeout=start.timeout_s,
    )
    agent.events, agent.patience = events, patience
    agent.grace_s, agent.rejoin_s = start.grace_s, start.rejoin_s
    agent.min_nodes, agent.is_complete = start.min_nodes, start.is_complete
    return agent


class Agent(LocalElasticAgent):
    """An agent that starts ranks again only where that may help, and writes down why it does."""

    events: EventLog
    patience: RendezvousTimeout
    grace_s: int  # for ranks that are told to stop
    rejoin_s: float
    min_nodes: int
    is_complete: Callable[[], bool]

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        super()._rendezvous(worker_group)
        check_machines(worker_group.group_world_size or 0, self.min_nodes)
        self.patience._last_call = timedelta(
            seconds=LAST_CALL_S
        )  # a machine that is not there then may not come at all
        self.patience._join = timedelta(seconds=max(self._exit_barrier_timeout, self.rejoin_s))

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        with ranks_that_end():
            pids: dict[int, Any] = super()._start_workers(worker_group)
        assert isinstance(self._pcontext, RanksHere)
        self._pcontext.timeout_s = self._exit_barrier_timeout
        self._pcontext.said = lambda text: self.events.record(Event(kind="failure", message=text))
        return pids

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """Tell the ranks to save and leave; a second Ctrl-C ends them at once.

        They are always told by SIGTERM, since ranks take a second SIGINT for a person who does not want to wait; and
        have `grace_s`, which torch 2.11 does not know.
        """
        try:
            self._end(signal.SIGTERM, self.grace_s)
        except SignalException as again:
            if again.sigval == signal.SIGINT:
                self._end(signal.SIGKILL, 1)
                raise
            self._end(signal.SIGTERM, self.grace_s)

    def _end(self, told: signal.Signals, timeout_s: int) -> None:
        if self._pcontext is not None:
            self._pcontext.close(told, timeout_s)
        super()._shutdown(told)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state in {WorkerState.FAILED, WorkerState.UNHEALTHY}:
            if not self._keep_excluding(worker_group, result.failures):
                self._remaining_restarts = 0
            elif worker_group.spec.rdzv_handler.num_nodes_waiting() > 0:  # another machine has begun the restart
                self._remaining_restarts += 1  # torch takes one off
            elif not worth_a_restart(result.failures) or self.is_complete():
                self._remaining_restarts = 0
            elif self._remaining_restarts:
                number = worker_group.spec.max_restarts - self._remaining_restarts + 1
                count = f"{number} of {worker_group.spec.max_restarts}"
                text = f"{first_failure(result.failures)}; starting again ({count})"
                self.events.record(Event(kind="restart", message=text))
        return result

    def _keep_excluding(self, group: WorkerGroup, failures: Mapping[int, ProcessFailure]) -> bool:
        """Start one rank fewer here where one of ours is to be left out; return whether any is left."""
        named = {excluded_rank(failure_text(failure)) for failure in failures.values()}
        ours = [worker for worker in group.workers if worker.global_rank in named]
        group.spec.local_world_size -= len(ours)
        return group.spec.local_world_size > 0


def check_machines(machines: int, least: int) -> None:
    """Raise MeshwrightError where fewer machines came out of a meeting than the job needs.

    torch drops a machine that has been silent also out of a meeting that is complete.
    """
    if machines < least:
        raise MeshwrightError(
            f"{machines} machines have met, {least} are needed (launch.min_nodes); one was lost on the way: it was "
            f"silent for {HEARTBEAT_S * HEARTBEATS} s; look whether it is up, or so busy that its launcher cannot run"
        )


def worth_a_restart(failures: Mapping[int, ProcessFailure]) -> bool:
    """Return whether ranks that are started again may do better: not after bad input, nor where they were stopped."""
    hopeless = tuple(f"{kind.__name__}: " for kind in (InputError, NotFinite, CorruptionError))
    return not any(
        failure.exitcode == STOPPED_EXIT_CODE or failure_text(failure).startswith(hopeless)
        for failure in failures.values()
    )


def first_failure(failures: Mapping[int, ProcessFailure]) -> str:
    """Return in one line what happened first: a rank that a signal ended comes before the ranks that blame it."""
    killed = {rank: failure for rank, failure in failures.items() if failure.exitcode < 0}
    rank, first = min((killed or failures).items(), key=lambda item: item[1].timestamp)
    if first.exitcode < 0:
        number = -first.exitcode
        name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else f"signal {number}"
        return f"rank {rank} (pid {first.pid}) was ended by {name}"
    text = failure_text(first)
    blamed = re.search(r"\bRankFailure: (.*?)(?: At: |$)", text)  # what a rank says of another; torch may wrap it
    return blamed[1] if blamed else f"rank {rank} failed: {text}"


def failure_text(failure: ProcessFailure) -> str:
    """Return in one line what a rank raised: "TypeName: text"."""
    message: Any = failure.message  # of a rank that raised: a dict
    return " ".join(str(message["message"] if isinstance(message, dict) else message).split())
