"""Asynchronous modes of data parallelism beside the best synchronous layout, on the same axes.

A worker is a node, split inside by the layout that is best there (where there is one node, a GPU); what the workers
send each other crosses the links between them. Convergence is not priced: a mode that is faster here may need more
tokens (`python -m benchmarks async` shows what that came to).
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...errors import InputError
from ...layout import Layout
from ...timeline import Performance
from ...units import counted, format_time
from ..analytic import Setting
from ..analytic.price import coefficients_of, machine_of
from ..analytic.step import SENDS
from ..clusters.machines import node
from .asynchronous import AsynchronousMode, Surroundings, WorkerStep, price_mode
from .explore import explore

MODES = (
    AsynchronousMode(mode="parameter_server", staleness=0),
    AsynchronousMode(mode="parameter_server", staleness=4),
    AsynchronousMode(mode="parameter_server", staleness=None, wire="bf16"),
    AsynchronousMode(mode="local_sgd", sync_every=10),
    AsynchronousMode(mode="diloco", sync_every=50),
    AsynchronousMode(mode="diloco", sync_every=50, wire="int8", fragments=4),
)


class ModePrice(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a step of the whole global batch under a mode; bytes go both ways and are those of all workers."""

    name: str
    layout: Layout  # of a worker; of all GPUs in the synchronous row
    workers: int
    step_time_s: float
    tokens_per_s_per_gpu: float
    exposed_comm_s: float
    waited_s: float = 0.0  # of it, for the slow worker
    wire_bytes: float  # a step, between workers
    server_link_bytes: float  # a step, through the busiest server's link
    error_band: float | None  # of the synchronous step that it is made of, relative
    calibration: tuple[str, ...]  # where the constants come from, the most particular first


def priced_modes(setting: Setting, *, slow: float = 1.0) -> tuple[ModePrice, ...]:
    """Return the best synchronous layout, then each mode with one server a worker; one worker is `slow` times slower.

    InputError where the global batch does not divide over the workers, or the model fits on none of them.
    """
    if slow < 1:
        raise InputError(f"--slow: expected 1 or more, got {slow:g}")
    island = min(node(setting.cluster).gpus, setting.gpus)
    island = 1 if island == setting.gpus else island
    workers = setting.gpus // island
    if workers < 2 or setting.global_batch % workers:
        raise InputError(
            f"--modes: {counted(setting.global_batch, 'sequence')} {'does' if setting.global_batch == 1 else 'do'} "
            f"not divide over {counted(workers, 'worker')}, 2 or more"
        )
    alone = explore(replace(setting, gpus=island, global_batch=setting.global_batch // workers)).best
    together = explore(setting).best
    worker = WorkerStep(layout=alone.layout, workers=workers, predicted=alone.predicted)
    machine = machine_of(setting)
    links = Surroundings(
        parameters=setting.architecture.parameters,
        compute_s=(),
        bandwidth_bytes_per_s=float(machine.link_rate if island == 1 else machine.node_rate),
        latency_s=message_latency_s(setting, inside=island == 1),
    )
    tokens = setting.global_batch * setting.seq_len
    waited_s = alone.predicted.step_time_s * (slow - 1)  # synchronous steps end with the slowest
    step_s = together.predicted.step_time_s + waited_s
    found = [
        ModePrice(
            name="synchronous",
            layout=together.layout,
            workers=1,
            step_time_s=step_s,
            tokens_per_s_per_gpu=tokens / step_s / setting.gpus,
            exposed_comm_s=together.predicted.exposed_comm_s + waited_s,
            waited_s=waited_s,
            wire_bytes=0.0,
            server_link_bytes=0.0,
            **_held(together.predicted),
        )
    ]
    for mode in MODES:
        share_s = worker.share_s(mode)
        around = replace(links, compute_s=(share_s * slow, *[share_s] * (workers - 1)))
        cost = price_mode(replace(mode, servers=workers), around)
        found.append(
            ModePrice(
                name=_name(mode),
                layout=worker.layout,
                workers=workers,
                step_time_s=cost.step_time_s,
                tokens_per_s_per_gpu=tokens / cost.step_time_s / setting.gpus,
                exposed_comm_s=cost.exposed_comm_s + worker.predicted.exposed_comm_s,
                wire_bytes=cost.wire_bytes,
                server_link_bytes=cost.server_link_bytes,
                **_held(worker.predicted),
            )
        )
    return tuple(found)


def _held(predicted: Performance) -> dict[str, Any]:
    """Return how far off the step that a mode is made of may be, and where its constants come from."""
    return {"error_band": predicted.error_band, "calibration": predicted.calibration}


def message_latency_s(setting: Setting, *, inside: bool) -> float:
    """Return the latency of a message between two workers: the one given, else that of the cluster's own links.

    Between nodes it is no less than the planner takes for a step that leaves a node, since a NIC's figure has no
    software in it, and has the switches above the leaves; `inside` a node it is the GPUs' link's.
    """
    group, c, machine = node(setting.cluster), coefficients_of(setting), machine_of(setting)
    if inside:
        return group.gpu_latency_s or float(c.small_s / SENDS)
    if setting.latency_s is not None:
        return setting.latency_s
    switches_s = 2.0 * float(machine.hop_latency_s) if group.count > machine.nodes_per_leaf else 0.0
    return max(group.nic_latency_s or 0.0, float(c.network_latency_s)) + switches_s


def fastest_mode(modes: Sequence[ModePrice]) -> ModePrice:
    """Return the mode with the shortest step."""
    return min(modes, key=lambda mode: mode.step_time_s)


def without_slow_text(modes: Sequence[ModePrice]) -> str:
    """Return how long the workers take that are not slow, for the same batch; "" where none is waited for."""
    sync, workers = modes[0], modes[-1].workers
    if not sync.waited_s:
        return ""
    others = workers - 1
    step_s = (sync.step_time_s - sync.waited_s) * workers / others
    each = counted(modes[-1].layout.world_size, "GPU")
    waited = (
        f"one of {workers} workers, of {each} each, is waited for {format_time(sync.waited_s)} of a synchronous step"
    )
    return f"{waited}; the other {others} alone take about {format_time(step_s)} for the same batch"


def _name(mode: AsynchronousMode) -> str:
    wire = "" if mode.wire == "full" else f", {mode.wire} on the wire"
    if mode.mode == "parameter_server":
        return f"parameter server, s = {'inf' if mode.staleness is None else mode.staleness}{wire}"
    parts = f", {mode.fragments} parts" if mode.fragments > 1 else ""
    return f"{'DiLoCo' if mode.mode == 'diloco' else 'local SGD'}, H = {mode.sync_every}{parts}{wire}"
