"""What a split step sends: the one place that knows which collective travels on which axis, with how many bytes, when.

Written for one layout or for arrays of many (`Number`), by the facts of a stack (`Conventions`). C are the elements of
the residual stream [rows, features] on a rank of cp:

    tp    an all-reduce of C after attention and after the network, one before each in backward; the embedding one, the
          output one. Under sequence parallelism each is a reduce-scatter and, where rows are wanted whole, an
          all-gather; once a step the gradients of the norms are summed
    cp    an all-gather of keys and values forwards, a reduce-scatter of their gradients backwards
    ep    rows to their experts and back, forwards and backwards
    zero  1: gradients scattered in buckets and weights gathered, once a step; 2: weights gathered once a step,
          gradients scattered in each micro-batch; 3: weights gathered twice in each micro-batch, those outside of the
          stack of layers (the root: embedding, last norm and output, in one piece) once
    pp    C at every cut, forwards and backwards; once a step the gradient of a matrix that two stages use
    world the gradient's norm
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from ..layout import Layout
from ..mesh import Axis, size
from ..pipelines import schedule
from .conventions import ENGINE, SINGLE_BYTES, Conventions
from .graph import Layer, Workload
from .program import Comm, Number, Pass, Stage, StepProgram, Unit

NORM_BYTES = 8  # the sum of squares of a gradient
COUNT_BYTES = 8  # the number of rows for one expert, the number of one expert
LOSS_VALUES = 3  # single ones of a row travel where the vocabulary is cut: highest logit, sum, chosen logit
ROOT = "root"


class Degrees(Protocol):
    """The degrees and switches of one layout, or of many as arrays."""

    @property
    def tp(self) -> Number:
        """Ranks of tensor parallelism."""

    @property
    def cp(self) -> Number:
        """Ranks of context parallelism."""

    @property
    def ep(self) -> Number:
        """Ranks of expert parallelism."""

    @property
    def pp(self) -> Number:
        """Ranks of a pipeline."""

    @property
    def zero(self) -> Number:
        """Level of ZeRO."""

    @property
    def sp(self) -> Number:
        """1 for sequence parallelism."""


class Sizes(NamedTuple):
    """What one micro-batch has on one rank, in elements; 0 where there are no experts."""

    residual: Number  # rows of a rank of cp x features
    keys_values: Number  # of the whole sequence, of the heads of a rank of tp
    routed: Number = 0  # rows for experts x features: each row as often as it has experts
    chosen: Number = 0  # rows x experts of each
    experts: Number = 0


class Exchange(NamedTuple):
    """What one layer sends forwards, backwards, and once more backwards where it is recomputed."""

    forward: tuple[Comm, ...]
    backward: tuple[Comm, ...]
    again: tuple[Comm, ...] = ()


def tensor_exchange(s: Sizes, split: Degrees, c: Conventions) -> Exchange:
    """Return what a layer sends along tp."""
    summed, cut = 2 * (split.tp > 1) * (split.sp == 0), 2 * (split.tp > 1) * (split.sp > 0)
    entering = s.residual * c.residual_bytes
    leaving = entering if np.all(c.product_bytes == c.residual_bytes) else s.residual * c.product_bytes
    forward = (
        Comm(axis="tp", collective="all_gather", bytes=entering, calls=cut),
        Comm(axis="tp", collective="all_reduce", bytes=leaving, calls=summed),
        Comm(axis="tp", collective="reduce_scatter", bytes=leaving, calls=cut),
    )
    backward = (
        Comm(axis="tp", collective="all_reduce", bytes=entering, calls=summed),
        Comm(axis="tp", collective="all_gather", bytes=leaving, calls=cut),
        Comm(axis="tp", collective="reduce_scatter", bytes=entering, calls=cut),
    )
    fewer = c.stops_early * (split.tp > 1)
    again = (
        forward[0],
        msgspec.structs.replace(forward[1], calls=summed - fewer * (split.sp == 0)),
        msgspec.structs.replace(forward[2], calls=cut - fewer * (split.sp > 0)),
    )
    return Exchange(forward, backward, again)


def context_exchange(s: Sizes, split: Degrees, c: Conventions) -> Exchange:
    """Return what a layer sends along cp: keys and values, gathered or passed round."""
    bytes_ = s.keys_values * c.residual_bytes
    many = 1 * (split.cp > 1)
    gather = Comm(axis="cp", collective="all_gather", bytes=bytes_, calls=many)
    backward = (
        msgspec.structs.replace(gather, calls=2 * many * c.keys_ring),
        Comm(axis="cp", collective="reduce_scatter", bytes=bytes_, calls=many * (1 - c.keys_ring)),
    )
    return Exchange((gather,), backward, (gather,))


def expert_exchange(s: Sizes, split: Degrees, c: Conventions) -> Exchange:
    """Return what a layer of experts sends: rows there and back (ep), what the router chose (tp)."""
    rows = part(s.routed, where((split.sp > 0) & (c.routed_cut > 0), split.tp, 1))
    many = 1 * (split.ep > 1)
    there = Comm(axis="ep", collective="all_to_all", bytes=rows * c.residual_bytes, calls=many)
    narrower = not np.all(c.product_bytes == c.residual_bytes)
    back = Comm(axis="ep", collective="all_to_all", bytes=rows * c.product_bytes, calls=many) if narrower else there
    told = c.router_messages * (s.experts > 0)
    counts = Comm(axis="ep", collective="all_to_all", bytes=COUNT_BYTES * s.experts, calls=told * many)
    cut, whole = told * (split.tp > 1) * (split.sp > 0), told * (split.tp > 1) * (split.sp == 0)
    weights = Comm(axis="tp", collective="all_gather", bytes=SINGLE_BYTES * s.chosen, calls=cut)
    choices = Comm(axis="tp", collective="all_gather", bytes=COUNT_BYTES * s.chosen, calls=cut)
    forward = (weights, choices, counts, there, back)
    backward = (
        back,
        there,
        Comm(axis="tp", collective="reduce_scatter", bytes=SINGLE_BYTES * s.chosen, calls=cut),
        Comm(axis="tp", collective="all_reduce", bytes=SINGLE_BYTES * s.chosen, calls=whole),
    )
    return Exchange(forward, backward, forward)


class Sharding(NamedTuple):
    """What data parallelism and ZeRO send of some parameters."""

    gather: Comm  # ZeRO 2, 3: weights, for the forward
    again: Comm  # ZeRO 3: for the backward
    scatter: Comm  # ZeRO 2, 3: gradients
    copies: Comm  # gradients, summed over the copies of a sharded model
    reduce: Comm  # gradients, where nothing is sharded
    scatter_once: Comm  # ZeRO 1
    spread: Comm  # ZeRO 1: weights, after the update


def sharding(
    held: Number, split: Degrees, c: Conventions, *, shards: Number, copies: Number = 1, over: Axis = "shard"
) -> Sharding:
    """Return what is sent of `held` parameters, of which each of `copies` lies on `shards` ranks.

    In a pipeline a stack may do once a step what it does in each micro-batch without one (`reshards`).
    """
    weights, gradients = c.weight_bytes * held, c.gradient_bytes * held
    zero, many = split.zero, shards * copies > 1
    each = 1 * ((split.pp <= 1) | (c.reshards > 0))
    both, three = 1 * ((zero >= 2) & (shards > 1)), 1 * ((zero == 3) & (shards > 1)) * each
    whole: Axis = "data" if over == "shard" else over

    def comm(axis: Axis, collective: str, size_bytes: Number, calls: Number, once: Number = 0) -> Comm:
        return Comm(axis=axis, collective=collective, bytes=size_bytes, calls=calls, once=once)

    return Sharding(
        gather=comm(over, "all_gather", weights, three, both - three),
        again=comm(over, "all_gather", weights, three),
        scatter=comm(over, "reduce_scatter", gradients, both * each, both * (1 - each)),
        copies=comm("replica", "all_reduce", part(gradients, shards), 0, 1 * ((zero >= 2) & (copies > 1))),
        reduce=comm(whole, "all_reduce", gradients, 0, 1 * ((zero == 0) & many)),
        scatter_once=comm(whole, "reduce_scatter", gradients, 0, 1 * ((zero == 1) & many)),
        spread=comm(whole, "all_gather", weights, 0, 1 * ((zero == 1) & many)),
    )


def stage_message(residual: Number, split: Degrees, c: Conventions) -> Number:
    """Return the bytes of activations that a rank sends to the next stage for each micro-batch."""
    return part(residual * c.residual_bytes, where((split.sp > 0) | (c.sends_cut > 0), split.tp, 1))


def where(condition: Number, yes: Number, no: Number) -> Number:
    """Return one of two numbers, or of each pair of elements one."""
    if np.ndim(condition):
        return np.where(condition, yes, no)
    return yes if condition else no


def part(whole: Number, parts: Number) -> Number:
    """Return the quotient, a whole number where both are."""
    return whole // parts if isinstance(whole, int) and isinstance(parts, int) else whole / parts


def step_program(
    workload: Workload, layout: Layout, micro_batches: int, *, bucket_bytes: int = 2**62, bounds: Sequence[int] = (),
    c: Conventions = ENGINE,
) -> StepProgram:  # fmt: skip
    """Return what a step of one rank of tp, cp and dp sends, stage by stage of its pipeline.

    `workload` is what the layout leaves of a micro-batch to one rank (`transformer.describe`). Stage s has the units
    `bounds[s]` to `bounds[s + 1]` of the chain of embedding, layers and output.
    """
    chain = units(workload, layout, c)
    bounds = bounds or (0, len(chain))
    holders = rank_of_stages(layout, micro_batches)
    message = int(stage_message(_sizes(workload, layout).residual, layout, c))
    stages = []
    for number, rank in enumerate(holders):
        gradients: tuple[Comm, ...] = ()
        sums: tuple[Comm, ...] = ()
        if number == holders.index(rank):  # the stage of the rank whose backward ends last
            held = [n for stage, holder in enumerate(holders) if holder == rank for n in _span(bounds, stage)]
            gradients = _buckets(workload, layout, held, bucket_bytes, c)
            sums = _sums(workload, layout, held, c)
        stages.append(
            Stage(
                units=rooted([chain[n] for n in _span(bounds, number)]),
                output_bytes=message if number + 1 < len(holders) else 0,
                gradients=gradients,
                sums=sums,
                parameters=tuple(map(_spread, gradients)) if layout.zero == 1 else (),
            )
        )
    return StepProgram(layout=layout, micro_batches=micro_batches, stages=tuple(stages))


def rank_of_stages(layout: Layout, micro_batches: int) -> tuple[int, ...]:
    """Return the pipeline rank of each stage."""
    return schedule(layout.schedule, layout.pp, layout.vpp, micro_batches).rank_of_stage if layout.pp > 1 else (0,)


def units(workload: Workload, layout: Layout, c: Conventions = ENGINE) -> list[Unit]:
    """Return what each unit of the chain sends: the embedding, every layer for itself, the output.

    Where a pipeline has a tied matrix twice, the output's unit has the copy.
    """
    found = []
    for layer in workload.layers:
        exchange = layer_exchange(workload, layout, layer, c)
        held = layer.parameters
        if layer is workload.layers[-1] and is_tied(workload) and layout.pp > 1 and holds_copy(layout):
            held += workload.layers[0].parameters
        spread = _sharded(layer, layout, held, c)
        again = [one.again for one in spread] if layer.recomputable else []
        backward = exchange.again + exchange.backward if layout.recompute != "none" else exchange.backward
        unit = Unit(
            name=layer.name,
            forward=Pass(comms=called(exchange.forward), ahead=called(one.gather for one in spread)),
            backward=Pass(
                comms=called(backward),
                ahead=called(again),
                behind=called(comm for one in spread for comm in (one.scatter, one.copies)),
            ),
        )
        found += [unit] * layer.count
    return found


def rooted(chain: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return units of which those outside of the stack of layers have their weights in one piece, the first unit.

    FSDP2 gathers them at the beginning of forward and scatters their gradients at the end of backward.
    """
    outside = [unit for unit in chain if unit.forward.ahead and not unit.backward.ahead and _is_end(unit)]
    if not outside:
        return tuple(chain)
    root = Unit(
        name=ROOT,
        forward=Pass(ahead=_added(unit.forward.ahead for unit in outside)),
        backward=Pass(behind=_added(unit.backward.behind for unit in outside)),
    )
    return (root, *(_without_weights(unit) if _is_end(unit) else unit for unit in chain))


ENDS = frozenset({"embedding", "output"})


def _is_end(unit: Unit) -> bool:
    return unit.name in ENDS


def _without_weights(unit: Unit) -> Unit:
    forward, backward = (msgspec.structs.replace(one, ahead=(), behind=()) for one in (unit.forward, unit.backward))
    return msgspec.structs.replace(unit, forward=forward, backward=backward)


def _added(several: Iterable[tuple[Comm, ...]]) -> tuple[Comm, ...]:
    """Return collectives of several units as one each."""
    columns = list(zip(*several, strict=True))
    return tuple(msgspec.structs.replace(c[0], bytes=sum(comm.bytes for comm in c)) for c in columns)


def layer_exchange(workload: Workload, layout: Layout, layer: Layer, c: Conventions = ENGINE) -> Exchange:
    """Return what activations one layer, the embedding or the output sends."""
    sizes = _sizes(workload, layout, layer)
    if not layer.recomputable:
        return _end_exchange(sizes, layout, c, rows=sizes.residual // hidden_size(workload), layer=layer)
    if any(operator.kind == "dropout" for operator in layer.operators):  # which comes after the last sum
        c = msgspec.structs.replace(c, stops_early=0)
    parts = [exchange(sizes, layout, c) for exchange in (tensor_exchange, context_exchange)]
    parts += [expert_exchange(sizes, layout, c)] if sizes.experts else []
    return Exchange(*(tuple(comm for each in parts for comm in each[way]) for way in range(3)))


def _end_exchange(s: Sizes, layout: Layout, c: Conventions, *, rows: Number, layer: Layer) -> Exchange:
    """Return what the embedding or the output with its loss sends along tp."""
    if layout.tp == 1:
        return Exchange((), ())
    whole = Comm(axis="tp", collective="all_reduce", bytes=s.residual * c.residual_bytes)
    gather, scatter = (msgspec.structs.replace(whole, collective=name) for name in ("all_gather", "reduce_scatter"))
    if layer.name == "embedding":
        return Exchange((scatter,), (gather,)) if layout.sp else Exchange((whole,), ())
    values = Comm(axis="tp", collective="all_reduce", bytes=SINGLE_BYTES * rows, calls=LOSS_VALUES)
    return Exchange((gather, values), (scatter,)) if layout.sp else Exchange((values,), (whole,))


def _sizes(workload: Workload, layout: Layout, layer: Layer | None = None) -> Sizes:
    hidden = hidden_size(workload)
    residual = workload.micro_batch * (workload.seq_len // layout.cp) * hidden
    keys_values = chosen = 0
    for operator in layer.operators if layer is not None else ():
        if operator.kind == "context_attention":
            batch, _, kv_heads, length, width, ranks = operator.shape
            keys_values = 2 * batch * length * ranks * kv_heads * width
        if operator.kind == "swiglu" and layer is not None and layer.experts:
            chosen = operator.shape[0]
    return Sizes(residual, keys_values, chosen * hidden, chosen, layer.experts if layer is not None else 0)


def hidden_size(workload: Workload) -> int:
    """Return the features of the residual stream."""
    return workload.parameter_shapes[0][1]


def is_tied(workload: Workload) -> bool:
    """Return whether the output uses the embedding's matrix."""
    return workload.layers[-1].parameters < workload.layers[0].parameters


def holds_copy(layout: Layout) -> bool:
    """Return whether the last stage of a pipeline is on another rank than the first."""
    return not (layout.schedule == "zb" and layout.vpp > 1)


def _sharded(layer: Layer, layout: Layout, held: int, c: Conventions) -> list[Sharding]:
    """Return what ZeRO 2 and 3 send of a layer's weights: the dense ones, then its experts."""
    if layout.zero < 2:
        return []
    experts = layer.expert_parameters if layout.ep > 1 else 0
    copies, shards = layout.replicas, size(layout, "shard")
    found = [sharding(held - experts, layout, c, shards=shards, copies=copies)]
    if experts:
        found.append(sharding(experts, layout, c, shards=size(layout, "edp"), over="edp"))
    return found


def called(comms: Iterable[Comm]) -> tuple[Comm, ...]:
    """Return the collectives of one layout that are called at all."""
    return tuple(comm for comm in comms if comm.calls or comm.once)


def _span(bounds: Sequence[int], stage: int) -> range:
    return range(bounds[stage], bounds[stage + 1])


def shapes_of(workload: Workload, layout: Layout, held: Sequence[int]) -> list[tuple[tuple[int, ...], Axis]]:
    """Return the shapes of the parameters of some units of the chain, in the module's order, and who shares them."""
    shapes, count = list(workload.parameter_shapes), workload.layers[1].count
    tail = 1 if is_tied(workload) else 2
    each = (len(shapes) - 1 - tail) // count
    found: list[tuple[tuple[int, ...], Axis]] = []
    for number in held:
        if number == 0:
            mine = shapes[:1]
        elif number <= count:
            mine = shapes[1 + (number - 1) * each : 1 + number * each]
        else:
            mine = shapes[-tail:] + (shapes[:1] if is_tied(workload) and 0 not in held else [])
        found += [(shape, "edp" if layout.ep > 1 and len(shape) == 3 else "data") for shape in mine]
    return found


def _buckets(
    workload: Workload, layout: Layout, held: Sequence[int], bucket_bytes: int, c: Conventions
) -> tuple[Comm, ...]:
    """Return the buckets of gradients of the units on a rank, in the order in which backward fills them."""
    if layout.zero >= 2:
        return ()
    kind = "reduce_scatter" if layout.zero else "all_reduce"
    current: dict[Axis, int] = {}
    found: list[Comm] = []

    def close(axis: Axis) -> None:
        ranks, elements = size(layout, axis), current.pop(axis)
        padded = -(-elements // ranks) * ranks if layout.zero else elements
        if ranks > 1:
            found.append(Comm(axis=axis, collective=kind, bytes=c.gradient_bytes * padded, calls=0, once=1))

    for shape, axis in reversed(shapes_of(workload, layout, held)):
        current[axis] = current.get(axis, 0) + math.prod(shape)
        if c.gradient_bytes * current[axis] >= bucket_bytes:
            close(axis)
    for axis in list(current):
        close(axis)
    return tuple(found)


def _spread(bucket: Comm) -> Comm:
    """Return the gather of the weights of a bucket (ZeRO 1)."""
    return msgspec.structs.replace(bucket, collective="all_gather")


def _sums(workload: Workload, layout: Layout, held: Sequence[int], c: Conventions) -> tuple[Comm, ...]:
    """Return the sums after backward of the units on a rank.

    Of gradients of which ranks hold parts: of a matrix that two stages use, of norms and routers under sequence
    parallelism; and the norm of the whole gradient.
    """
    found: list[tuple[Axis, int]] = []
    last = sum(layer.count for layer in workload.layers) - 1
    if layout.pp > 1 and is_tied(workload) and (0 in held) != (last in held):
        shards = size(layout, "shard") if layout.zero >= 2 else 1
        found.append(("pp", int(c.gradient_bytes) * workload.layers[0].parameters // shards))
    if layout.sp:
        of_rows = sum(shape[0] for shape, _ in shapes_of(workload, layout, held) if len(shape) == 1)
        of_rows += sum(workload.layers[1].experts * hidden_size(workload) for number in held if 0 < number < last)
        shards = size(layout, "data") // layout.replicas if layout.zero else 1
        found.append(("tp", int(c.gradient_bytes) * of_rows // shards))
    if layout.world_size > 1 and not layout.is_plain:
        found.append(("world", NORM_BYTES))
    return tuple(Comm(axis=axis, collective="all_reduce", bytes=bytes_, calls=0, once=1) for axis, bytes_ in found)
