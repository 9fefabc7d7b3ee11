"""The one function that fills a `StepProgram`, from the parts of each stage and what it does once a step.

`stages` makes the parts from a graph of operators, `plan.search.simulated` from the quantities of a model; what they
send of weights and gradients, and when, is decided here and in `weight_traffic`, of both alike.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..layout import Layout
from ..mesh import size
from .conventions import Conventions
from .program import Comm, Number, Pass, Stage, StepProgram, Unit
from .split import LayerTraffic, partial_sums, stage_message
from .weight_traffic import WeightTraffic, called, outside_of_layers

NOTHING = LayerTraffic((), ())


class Part(NamedTuple):
    """Equal units in a row of the chain of embedding, layers and output, on one stage."""

    units: int = 1  # of embedding or output 0 where their work is within the layers': then only their parameters count
    name: str = ""
    exchange: LayerTraffic = NOTHING  # of each, what it waits for; `again` where recomputation sends it once more
    beside: LayerTraffic = NOTHING  # likewise, beside its computation
    dense: Number = 0  # parameters of all of them, routed experts left out
    routed: Number = 0  # of routed experts, which fewer ranks share
    staying: Number = 0  # of the dense ones, what ZeRO 3 leaves whole from forward to backward
    is_end: bool = False  # whether it is the embedding or the output
    forward_s: float = 0.0  # computation of all of them
    backward_s: float = 0.0


class Once(NamedTuple):
    """The parameters of a stage, or of all stages of its rank, by what is sent of them once a step."""

    buckets: Sequence[tuple[Number, Number]] = ()  # dense and routed ones whose gradients travel together, in turn
    dense: Number = 0
    routed: Number = 0
    tied: Number = 0  # of a matrix that another stage has too
    of_rows: Number = 0  # of norms and routers, which see their rank's rows alone under sequence parallelism
    is_whole: bool = False  # whether these are all of the rank: what it does for all of them comes behind them


class StageParts(NamedTuple):
    """One stage, as it is filled in."""

    parts: tuple[Part, ...]
    once: Once = Once()


def filled(
    layout: Layout, c: Conventions, micro_batches: int, stages: Sequence[StageParts], residual: Number, *,
    adding: int = 1, **rest: Any,
) -> StepProgram:  # fmt: skip
    """Return the program of a step; `residual` are the elements that pass from stage to stage.

    `adding`: the micro-batches whose gradients a host adds up while backward waits, 1 for an engine that waits by
    itself. `rest` are further fields of the program.
    """
    message = _bytes(stage_message(residual, layout, c))
    return StepProgram(
        layout=layout,
        micro_batches=micro_batches,
        stages=tuple(
            _stage(layout, c, stage, message if number + 1 < len(stages) else 0, adding)
            for number, stage in enumerate(stages)
        ),
        **rest,
    )


def _stage(layout: Layout, c: Conventions, stage: StageParts, message: int, adding: int) -> Stage:
    gradients, sums, parameters = _once(layout, c, stage.once)
    units = _units(layout, c, stage.parts, adding)
    return Stage(units=units, output_bytes=message, gradients=gradients, sums=sums, parameters=parameters)


def as_unit(layout: Layout, c: Conventions, part: Part, *, adding: int = 1) -> Unit:
    """Return a part as a unit that gathers and scatters its own parameters."""
    many = max(part.units, 1)
    traffic = WeightTraffic.of(
        layout, c, part.dense / many if many > 1 else part.dense, part.routed / many if many > 1 else part.routed,
        staying=part.staying, micro_batches=adding,
    )  # fmt: skip
    weights, exchange, beside = traffic.unit(), part.exchange, part.beside
    return Unit(
        name=part.name,
        forward=Pass(
            compute_s=part.forward_s,
            layers=many,
            comms=_whole(exchange.forward),
            ahead=_whole((*beside.forward, *weights.forward.ahead)),
        ),
        backward=Pass(
            compute_s=part.backward_s,
            layers=many,
            comms=_whole((*exchange.again, *exchange.backward, *weights.backward.comms)),
            ahead=_whole((*beside.again, *beside.backward, *weights.backward.ahead)),
            behind=_whole(weights.backward.behind),
        ),
    )


def _units(layout: Layout, c: Conventions, parts: Sequence[Part], adding: int) -> tuple[Unit, ...]:
    """Return the units of a stage: what is outside of the layers in units of its own where a stack gathers it so.

    Elsewhere its parameters are a part of the layers', since nothing is gathered before them.
    """
    ends = [part for part in parts if part.is_end]
    outside, staying = (sum(getattr(part, name) for part in ends) for name in ("dense", "staying"))
    before, behind = outside_of_layers(layout, c, outside, staying, micro_batches=adding)
    others = sum(not part.is_end for part in parts)
    found = []
    for part in (part for part in parts if part.units):
        if part.is_end:
            part = part if not (before or behind or others) else part._replace(dense=0, staying=0)
        elif outside and not (before or behind):
            part = part._replace(dense=part.dense + outside / others)
        found.append(as_unit(layout, c, part, adding=adding))
    return (*map(_rounded, before), *found, *map(_rounded, behind))


def _once(layout: Layout, c: Conventions, once: Once) -> tuple[tuple[Comm, ...], tuple[Comm, ...], tuple[Comm, ...]]:
    """Return what a stage sends once a step: buckets of gradients, sums after them, weights after the update."""
    every = WeightTraffic.of(layout, c, once.dense, once.routed)
    buckets = [WeightTraffic.of(layout, c, *bucket) for bucket in once.buckets]
    sums: tuple[Comm, ...] = ()
    if once.is_whole and c.ends_sent:
        shards, away = size(layout, "shard"), layout.offloaded
        sums = partial_sums(layout, c, tied=once.tied, of_rows=once.of_rows, shards=shards, offload=away)
    back = () if c.host_overlaps else every.returning  # else within the update's time
    updated = [comm for bucket in buckets for comm in bucket.updated] if layout.zero < 2 else every.updated
    gradients = _whole(comm for bucket in buckets for comm in bucket.bucket)
    return gradients, _whole(called(sums) + every.leaving), _whole((*back, *updated))


def _rounded(unit: Unit) -> Unit:
    """Return a unit whose collectives have whole numbers of bytes."""
    passes = (
        replace(one, comms=_whole(one.comms), ahead=_whole(one.ahead), behind=_whole(one.behind)) for one in unit.both
    )
    forward, backward = passes
    return replace(unit, forward=forward, backward=backward)


def _whole(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return the collectives that are called at all, of whole numbers of bytes."""
    return tuple(replace(comm, bytes=_bytes(comm.bytes)) for comm in called(comms))


def _bytes(number: Number) -> int:
    return number if isinstance(number, int) else round(float(number))
