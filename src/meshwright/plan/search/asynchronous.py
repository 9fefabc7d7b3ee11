"""Bytes and time of a step under every mode of data parallelism, on the same axes: synchronous, served, local.

W workers compute a share of the global batch each, in `compute_s` seconds: those of a worker's own program, as the
engine at hand prices it (`WorkerStep`). N is the bytes of the weights, E those of N on the wire (`wire`), B the rate of
a link per direction. Per step, both ways and over all workers:

    synchronous         2 (W-1) N            a ring's all-reduce; its time is 2 (W-1)/W N / B
    parameter server    W (E + N)            gradients up, weights down
    local SGD, DiLoCo   2 W E / H            the way that weights went, and the update that comes back, every H steps

The servers' links carry the traffic of all workers on other machines. With one server, W (E + N) bytes a step cross
one link, which limits the number of workers; `servers` links share that load.
"""

import bisect
import heapq
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...layout import Layout
from ...timeline import Performance
from ...workload.elements import HALF_BYTES, LOW_BYTES, SINGLE_BYTES

Mode = Literal["sync", "parameter_server", "local_sgd", "diloco"]
Wire = Literal["full", "bf16", "int8"]
INT8_BLOCK = 1024  # elements that share a float32 scale: 0.4 % of overhead
SIMULATED_STEPS = 60  # of a parameter server, from which the pace of its steps is taken
WARM_UP_STEPS = 20


class AsynchronousMode(msgspec.Struct, frozen=True, kw_only=True):
    """One way to share out the work; keys as in the configuration's section `data_parallel`."""

    mode: Mode = "sync"
    wire: Wire = "full"
    staleness: int | None = 1  # None: unbounded
    servers: int = 1
    sync_every: int = 50
    fragments: int = 1
    stream: bool = True
    adapt: bool = True

    @property
    def is_local(self) -> bool:
        """Whether workers update weights of their own between two exchanges."""
        return self.mode in {"local_sgd", "diloco"}

    @property
    def is_served(self) -> bool:
        """Whether servers alone update the weights, so that workers have no optimiser."""
        return self.mode == "parameter_server"


class WorkerStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step of one worker on its share of the batch, a synchronous job of its own that an engine has priced."""

    layout: Layout  # of its own ranks: no axis leads to another worker
    workers: int  # that train so at once
    predicted: Performance

    def share_s(self, mode: AsynchronousMode) -> float:
        """Return the seconds of a share: of the step, without the update where servers do it."""
        return self.predicted.step_time_s - (self.predicted.optimizer_s if mode.is_served else 0.0)


def worker_layout(layout: Layout, workers: int) -> Layout:
    """Return the layout of one of the workers among whom the data ranks of a layout are shared out.

    InputError where they do not divide.
    """
    if layout.dp % workers:
        raise InputError(f"{layout}: dp={layout.dp} does not divide over {workers} workers")
    return msgspec.structs.replace(layout, dp=layout.dp // workers)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of a mode: parameters, workers, links."""

    parameters: int
    element_bytes: int = SINGLE_BYTES
    compute_s: tuple[float, ...]  # of a share, for each worker
    bandwidth_bytes_per_s: float  # of a link, per direction
    latency_s: float = 0.0
    far_workers: int | None = None  # workers whose traffic crosses the links of a server; None: all
    all_reduce_s: float | None = None  # of the gradients, where it was measured; None: a ring over the links


class AsyncPrice(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a step."""

    step_time_s: float
    exposed_comm_s: float  # that no worker computes meanwhile, on average
    wire_bytes: float  # per step, both ways, of all workers
    server_link_bytes: float  # per step, both ways, through the busiest server's link


def encoded_bytes(count: int, element_bytes: int, wire: Wire) -> int:
    """Return the bytes of `count` elements on the wire."""
    if wire == "int8":
        return LOW_BYTES * count + SINGLE_BYTES * -(-count // INT8_BLOCK)
    return count * (HALF_BYTES if wire == "bf16" else element_bytes)


def price_mode(mode: AsynchronousMode, around: Surroundings) -> AsyncPrice:
    """Return what a step costs under a mode."""
    compute_s = np.asarray(around.compute_s, dtype=float)
    workers, weights = len(compute_s), around.parameters * around.element_bytes
    encoded = encoded_bytes(around.parameters, around.element_bytes, mode.wire)
    if mode.mode == "sync":
        return _synchronous(around, compute_s, weights)
    far = workers if around.far_workers is None else around.far_workers
    if mode.is_served:
        up_s = _transfer_s(around, encoded, far)
        down_s = _transfer_s(around, weights, far)
        step_s = _served_step_s(compute_s, up_s + down_s, mode.staleness)
        wire_bytes = float(workers * (encoded + weights))
        busiest = far * (encoded + weights) / mode.servers
        step_s = max(step_s, far * max(encoded, weights) / mode.servers / around.bandwidth_bytes_per_s)
    else:
        step_s = _local_step_s(mode, around, compute_s, encoded, far)
        wire_bytes = 2.0 * workers * encoded / mode.sync_every
        busiest = 2.0 * far * encoded / mode.sync_every / mode.servers
    exposed_s = max(0.0, step_s - _ideal_step_s(compute_s, balanced=_is_balanced(mode)))
    return AsyncPrice(step_time_s=step_s, exposed_comm_s=exposed_s, wire_bytes=wire_bytes, server_link_bytes=busiest)


def run_bytes(mode: AsynchronousMode, around: Surroundings, *, steps: int, validations: int) -> float:
    """Return the bytes that an asynchronous run moves before its last contribution, both ways, of all workers.

    Besides the steps: each worker reads the weights where it enters (local SGD) and for each validation on the way.
    """
    workers, weights = len(around.compute_s), around.parameters * around.element_bytes
    entering = workers * weights if mode.is_local else 0
    encoded = encoded_bytes(around.parameters, around.element_bytes, mode.wire)
    # of the last exchange, what comes back is read after the run's last word
    last = workers * encoded if mode.is_local else 0
    return price_mode(mode, around).wire_bytes * steps + entering - last + validations * workers * weights


def _synchronous(around: Surroundings, compute_s: npt.NDArray[np.float64], weights: int) -> AsyncPrice:
    workers = len(compute_s)
    steps = 2 * (workers - 1)
    ring_s = steps * (weights / workers / around.bandwidth_bytes_per_s + around.latency_s)
    comm_s = ring_s if around.all_reduce_s is None else around.all_reduce_s
    return AsyncPrice(
        step_time_s=float(compute_s.max()) + comm_s,
        exposed_comm_s=comm_s,
        wire_bytes=float(steps * weights),
        server_link_bytes=0.0,
    )


def _is_balanced(mode: AsynchronousMode) -> bool:
    """Return whether a slow worker does less rather than be waited for."""
    return mode.adapt if mode.is_local else mode.staleness != 0


def _ideal_step_s(compute_s: npt.NDArray[np.float64], *, balanced: bool) -> float:
    """Return a step's seconds with nothing to send: as fast as all together, or as the slowest."""
    return len(compute_s) / float((1 / compute_s).sum()) if balanced else float(compute_s.max())


def _transfer_s(around: Surroundings, size_bytes: float, far: int) -> float:
    """Return the seconds in which one worker's message is across its own link."""
    own_s = size_bytes / around.bandwidth_bytes_per_s
    return 2 * around.latency_s + (own_s if far else 0.0)


def _served_step_s(compute_s: npt.NDArray[np.float64], comm_s: float, staleness: int | None) -> float:
    """Return the pace of a parameter server: shares go to the workers that ask, under the coordinator's two bounds."""
    workers = len(compute_s)
    free = [(0.0, worker) for worker in range(workers)]  # when each worker asks for work
    ends: dict[int, float] = {}  # by share: when it is in the weights
    done_s = [0.0] * SIMULATED_STEPS  # by step: when all of its shares are
    sorted_ends: list[float] = []
    versions: list[int] = []  # by share: updates in the weights that it was computed with
    old, old_end_s = 0, 0.0  # shares whose weights would be too old by now, and when the last of them is in
    for share in range(SIMULATED_STEPS * workers):
        asked_s, worker = heapq.heappop(free)
        step = share // workers
        start_s = asked_s
        if staleness is not None:
            while old < share and versions[old] <= share - (staleness + 1) * workers:
                old, old_end_s = old + 1, max(old_end_s, ends[old])
            start_s = max(start_s, old_end_s, done_s[step - staleness - 1] if step > staleness else 0.0)
        versions.append(bisect.bisect_right(sorted_ends, start_s))
        ends[share] = start_s + float(compute_s[worker]) + comm_s
        bisect.insort(sorted_ends, ends[share])
        done_s[step] = max(done_s[step], ends[share])
        heapq.heappush(free, (ends[share], worker))
    in_order = sorted(ends.values())
    first, last = in_order[WARM_UP_STEPS * workers - 1], in_order[(SIMULATED_STEPS - 5) * workers - 1]
    return (last - first) / (SIMULATED_STEPS - 5 - WARM_UP_STEPS)


def _local_step_s(
    mode: AsynchronousMode, around: Surroundings, compute_s: npt.NDArray[np.float64], encoded: int, far: int
) -> float:
    """Return the seconds of a step: computing, and what of an exchange the computing until the next does not hide."""
    compute_step_s = _ideal_step_s(compute_s, balanced=mode.adapt)
    between_s = compute_step_s * mode.sync_every / mode.fragments
    size_bytes = encoded / mode.fragments
    links = max(1.0, far / mode.servers) if far else 0.0
    exchange_s = 2 * (2 * around.latency_s + links * size_bytes / around.bandwidth_bytes_per_s)
    exposed_s = max(0.0, exchange_s - between_s) if mode.stream else exchange_s
    return compute_step_s + exposed_s * mode.fragments / mode.sync_every
