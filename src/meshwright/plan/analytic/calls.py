"""The collectives that the closed formulas time in a step of one layout, as `StepProgram.calls` lists a program's.

They come from the same functions as what `step` and `layer` time: rules of `workload.split` with the quantities of a
model. `step` takes the calls of layers that follow each other for one of all their bytes, and of a pipeline the rank
that has most; here each rank has its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...layout import Layout, micro_batches
from ...mesh import Axis
from ...pipelines import even_stages
from ...workload.program import Comm, Number
from ...workload.split import (
    context_exchange,
    expert_exchange,
    stage_message,
    stage_sends,
    tensor_exchange,
)
from ...workload.stages import rank_of_stages
from .by_stage import layers_of_stages
from .coefficients import Coefficients
from .layer import copies_sent, expert_span, sent_again
from .price import Setting, coefficients_of, machine_of
from .quantities import Grid, Machine, ModelQuantities
from .rank_parameters import experts_of_rank, gathered_again, parameters_of_layers
from .sent import RankParameters, buckets, ends_traffic, host_sent, layer_sizes, sharers, sums_sent, weights_sent
from .states import end_parameters, staying_parameters

Call = tuple[Axis, str, int]  # axis, collective, bytes


class _Part(NamedTuple):
    """The part of the model on a rank: 1 where it has an end of it, or two stages that follow each other."""

    layers: int
    embedding: int
    output: int
    turns: int


class _Called(NamedTuple):
    comm: Comm
    times: Number  # in a step


class _Case(NamedTuple):
    """One layout and what it is priced by."""

    machine: Machine
    c: Coefficients
    model: ModelQuantities
    grid: Grid
    seq_len: float
    micro: int
    shard: float


def calls_of_ranks(setting: Setting, layout: Layout, stages: Sequence[int] = ()) -> list[Counter[Call]]:
    """Return how often a rank at each place of the pipeline calls which collective, with how many bytes, in a step.

    `stages` are the layers of the virtual stages in the order of the model; by default as the stack cuts them.
    """
    c, model = coefficients_of(setting), ModelQuantities.of(setting.architecture)
    micro, shard = micro_batches(layout, setting.global_batch), layout.dp * layout.cp / layout.replicas
    case = _Case(machine_of(setting), c, model, Grid.of([layout]), float(setting.seq_len), micro, shard)
    even = even_stages(int(model.layers), layout.pp * layout.vpp)
    counts = tuple(stages) or layers_of_stages(setting, layout) or even
    holders = rank_of_stages(layout, micro)
    found = []
    for rank in range(layout.pp):
        mine = [stage for stage, holder in enumerate(holders) if holder == rank]
        part = _Part(
            layers=sum(counts[stage] for stage in mine),
            embedding=1 * (0 in mine),
            output=1 * (len(holders) - 1 in mine),
            turns=sum(stage + 1 in mine for stage in mine) if layout.pp > 1 else 0,
        )
        counted: Counter[Call] = Counter()
        for comm, times in (*_activations(case, part), *_weights(case, part), *_once(case, part)):
            if count := round(_one(times)):
                counted[comm.axis, comm.collective, round(_one(comm.bytes))] += count
        found.append(counted)
    return found


def _activations(case: _Case, part: _Part) -> Iterator[_Called]:
    """Yield what layers, embedding and output send of activations, and messages to other stages."""
    machine, c, model, grid, seq_len, micro, _ = case
    sizes = layer_sizes(model, grid, grid.mbs * model.rows(seq_len) / grid.cp)
    repeated, of_experts = sent_again(c, model, grid)
    share = copies_sent(c, model, expert_span(machine, c, grid))[0]
    for exchange, of_layers, again in (
        (tensor_exchange, 1.0, repeated),
        (context_exchange, 1.0, repeated),
        (expert_exchange, model.moe_share, repeated + of_experts),
    ):
        for comms, often in zip(exchange(sizes, grid, c), (1.0, 1.0, again), strict=True):
            for comm in comms:
                sent = Comm(axis=comm.axis, collective=comm.collective, bytes=comm.bytes * share)
                times = comm.in_step(micro) * part.layers * of_layers * often
                yield _Called(sent if comm.axis == "ep" else comm, times)
    for end, there in zip(ends_traffic(c, model, grid, seq_len), (part.embedding, part.output), strict=True):
        yield from _in_step((comm for way in end for comm in way), micro, c.ends_sent * there)
    message = stage_message(sizes.residual, grid, c)
    ends = {"first": part.embedding, "last": part.output, "turns": part.turns}
    yield from _in_step(stage_sends(message, grid, **ends), micro)


def _weights(case: _Case, part: _Part) -> Iterator[_Called]:
    """Yield what is sent of weights and gradients: layer by layer where ZeRO shards them, else all together."""
    _, c, _, grid, _, micro, shard = case
    among = sharers(c, grid, shard)
    for count, own in _units(case, part):
        for sent, of_experts in zip(weights_sent(c, grid, own, among), (False, True), strict=True):
            held = own.experts if of_experts else own.held - own.experts
            if np.any(held > 0):
                group = among.expert_group if of_experts else among.group
                many = buckets(c, grid, held, group)
                for comm in sent:
                    each = Comm(axis=comm.axis, collective=comm.collective, bytes=comm.bytes / many)
                    yield _Called(each, comm.in_step(micro) * count * many)
        for crossing in host_sent(c, grid, own, among):
            yield from _in_step((crossing.fetch, crossing.again, crossing.leave), micro, count)


def _units(case: _Case, part: _Part) -> list[tuple[int, RankParameters]]:
    """Return the parameters of a rank that travel together, and how many times as many there are."""
    _, _, model, grid, *_ = case
    layer = _layers(model, grid, 1)
    outside, staying = _outside(case, part)
    if np.all(grid.zero < 2):
        whole = _layers(model, grid, part.layers)
        return [(1, whole._replace(held=whole.held + outside, staying=staying))]
    lone = outside - staying
    apart = [RankParameters(lone, 0.0, 0.0), RankParameters(staying, 0.0, staying)]
    return [(part.layers, layer), *((1, one) for one in apart if np.any(one.held > 0))]


def _layers(model: ModelQuantities, grid: Grid, layers: int) -> RankParameters:
    held = parameters_of_layers(model, grid, layers) + gathered_again(model, grid, layers)
    return RankParameters(held, np.where(grid.ep > 1, experts_of_rank(model, grid, layers), 0.0), 0.0)


def _outside(case: _Case, part: _Part) -> tuple[Number, Number]:
    _, c, model, grid, *_ = case
    ends = {"embedding": 1.0 * part.embedding, "output": 1.0 * part.output}
    return end_parameters(model, grid, **ends), staying_parameters(c, model, grid, **ends)


def _once(case: _Case, part: _Part) -> Iterator[_Called]:
    """Yield the sums after the backward, and what crosses to the host and back around the update."""
    _, c, model, grid, _, micro, shard = case
    ends = {"embedding": 1.0 * part.embedding, "output": 1.0 * part.output}
    yield from _in_step(sums_sent(c, model, grid, part.layers, shard, **ends), micro, c.ends_sent)
    outside, staying = _outside(case, part)
    whole = _layers(model, grid, part.layers)
    own = whole._replace(held=whole.held + outside, staying=staying)
    crossing = host_sent(c, grid, own, sharers(c, grid, shard))
    for name in ("leave_once", "back"):  # of dense parameters and experts together
        comms: list[Comm] = [getattr(one, name) for one in crossing]
        called = [comm for comm in comms if _one(comm.once) and _one(comm.bytes)]
        if called:
            yield _Called(
                Comm(axis="host", collective=called[0].collective, bytes=sum(comm.bytes for comm in called)), 1
            )


def _in_step(comms: Iterable[Comm], micro: int, count: Number = 1) -> Iterator[_Called]:
    for comm in comms:
        yield _Called(comm, comm.in_step(micro) * count * np.greater(comm.bytes, 0))


def _one(number: Number) -> float:
    return float(np.ravel(number)[0])
