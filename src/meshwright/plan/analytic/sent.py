"""The traffic of a rank in a step, of many layouts at once: rules of `workload.split` with the quantities of a model.

`step` and `layer` time it; `calls` lists it for one layout.
"""

from typing import NamedTuple

import numpy as np

from ...workload.program import Comm
from ...workload.split import (
    EndTraffic,
    HostTraffic,
    Sharding,
    Sizes,
    end_exchange,
    expert_traffic,
    host_traffic,
    partial_sums,
    sharding,
)
from .coefficients import Coefficients
from .loads import is_folded
from .quantities import Grid, ModelQuantities, Number
from .states import has_tied_output

# of a bucket, as Megatron-LM fills them: a minimum, and an amount for each data-parallel rank
BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK = 40e6, 1e6


class RankParameters(NamedTuple):
    """Parameters of a rank, or of some layers of it."""

    held: Number  # all of them
    experts: Number  # of these, routed experts'
    staying: Number  # what ZeRO 3 gathers once and keeps until backward


class Sharers(NamedTuple):
    """The ranks that share parameters: those of one copy that ZeRO shards, and the copies; all ranks without ZeRO."""

    group: Number
    copies: Number
    expert_group: Number
    expert_copies: Number


def layer_sizes(model: ModelQuantities, grid: Grid, tokens: Number) -> Sizes:
    """Return the elements of what the average layer sends; `tokens` of a micro-batch on a rank of cp."""
    return Sizes(
        residual=tokens * model.hidden,
        keys_values=tokens * grid.cp * 2.0 * model.kv_heads * model.head_dim / grid.tp,
        routed=tokens * np.maximum(model.experts_per_token, 1.0) * model.hidden * model.stream,
        chosen=tokens * model.experts_per_token,
        experts=model.experts,
        queries=tokens * model.heads * model.head_dim / grid.tp,
    )


def ends_traffic(c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> EndTraffic:
    """Return what embedding and output send in each micro-batch."""
    tokens = grid.mbs * seq_len / grid.cp
    return end_exchange(layer_sizes(model, grid, tokens), grid, c, rows=tokens)


def sharers(c: Coefficients, grid: Grid, shard: Number) -> Sharers:
    """Return who shares parameters, where ZeRO 2 and 3 shard over `shard` ranks."""
    every = grid.dp * grid.cp
    group, experts = grid.sharing(np.where(grid.zero >= 2, shard, every), copied=c.experts_copied)
    return Sharers(group, every / group, experts, grid.sharing(every)[1] / experts)


def weights_sent(c: Coefficients, grid: Grid, own: RankParameters, among: Sharers) -> tuple[Sharding, Sharding]:
    """Return what is sent of weights and gradients: of dense parameters, and of routed experts."""
    dense = sharding(own.held - own.experts, grid, c, shards=among.group, copies=among.copies, staying=own.staying)
    return dense, sharding(own.experts, grid, c, shards=among.expert_group, copies=among.expert_copies, over="edp")


def host_sent(c: Coefficients, grid: Grid, own: RankParameters, among: Sharers) -> tuple[HostTraffic, HostTraffic]:
    """Return what crosses between a device and its host: of dense parameters, and of routed experts."""
    away = grid.offload
    dense = host_traffic(
        own.held - own.experts, grid, c, offload=away, shards=among.group, copies=among.copies, staying=own.staying
    )
    experts = expert_traffic(own.experts, grid, c, offload=away, shards=among.expert_group, copies=among.expert_copies)
    return dense, experts


def buckets(c: Coefficients, grid: Grid, held: Number, ranks: Number) -> Number:
    """Return how many messages `held` parameters travel in that `ranks` ranks share; under ZeRO 3 each layer is one."""
    many = np.maximum(held / bucket_parameters(c, ranks), 1.0)
    return np.where(np.greater(c.bucket, 0) & (grid.zero < 3), many, 1.0)


def bucket_parameters(c: Coefficients, ranks: Number) -> Number:
    """Return the parameters of a bucket that `ranks` ranks sum: the stack's own, or as Megatron-LM fills it.

    Each bucket starts anew, and a ring's start grows with its ranks; so does Megatron-LM's bucket.
    """
    usual = np.maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_A_RANK * ranks)
    return np.where(np.greater(c.bucket, 0), c.bucket, usual)


def sums_sent(
    c: Coefficients, model: ModelQuantities, grid: Grid, layers: Number, shard: Number, *, embedding: Number,
    output: Number,
) -> tuple[Comm, ...]:  # fmt: skip
    """Return the sums of gradients that ranks hold parts of, of a rank with `layers` and, where 1, with either end."""
    return partial_sums(
        grid, c, tied=tied_parameters(model, grid) * (embedding != output),
        of_rows=rows_parameters(model, layers, output), shards=shard, offload=grid.offload,
    )  # fmt: skip


def tied_parameters(model: ModelQuantities, grid: Grid) -> Number:
    """Return the parameters of a matrix that the first and the last rank of a pipeline both have."""
    twice = np.logical_and(has_tied_output(model), np.logical_and(grid.pp > 1, np.logical_not(is_folded(grid))))
    return np.where(twice, model.vocab * model.hidden / grid.tp, 0.0)


def rows_parameters(model: ModelQuantities, layers: Number, output: Number) -> Number:
    """Return the parameters of norms and routers of some layers, and of the norm before the output where it is 1."""
    return layers * whole_parameters(model) + output * model.hidden


def whole_parameters(model: ModelQuantities) -> Number:
    """Return the parameters of a mean layer that every rank of tp has: norms, biases and a router."""
    return model.small_parameters + model.hidden * model.experts * model.moe_share
