"""The parameters that a rank of every layout has, as far as ZeRO, gradients and updates move them."""

import numpy as np

from .loads import is_folded
from .quantities import Grid, ModelQuantities, Number
from .sent import whole_parameters
from .states import end_parameters, further_parameters


def ends_meet(grid: Grid) -> Number:
    """Return 1 where the rank with the embedding has the output too: without a pipeline, or where stages lie in a V."""
    return np.where(grid.pp <= 1, 1.0, 1.0 * is_folded(grid))


def parameters_of_rank(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters of the rank that holds most: `layers` layers and the embedding, cut over tp."""
    ends = end_parameters(model, grid, embedding=1.0, output=ends_meet(grid))
    return parameters_of_layers(model, grid, layers) + ends


def parameters_of_layers(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters that a rank of tp has of some layers."""
    own = model.held_share * layers
    return own * _matrices(model, grid) / grid.tp + own * whole_parameters(model)


def gathered_again(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters that ZeRO-3 gathers for a layer though an earlier one, which holds them, had them too."""
    if np.all(np.equal(model.held_share, 1.0)):
        return 0.0
    borrowed = (1.0 - model.held_share) * layers
    each = _matrices(model, grid) / grid.tp + whole_parameters(model)
    return np.where(grid.zero == 3, borrowed * each, 0.0)


def _matrices(model: ModelQuantities, grid: Grid) -> Number:
    """Return the weights of a mean layer that tp cuts, before it does."""
    network = model.matrices * model.hidden * model.ffn
    expert = model.matrices * model.hidden * model.expert_ffn
    shared = model.matrices * model.hidden * model.shared_ffn
    routed = expert * model.experts / grid.expert_cut + shared
    return model.attention_weights + model.plain_share * network + model.moe_share * routed


def with_further(model: ModelQuantities, grid: Grid, most: Number, last: Number) -> tuple[Number, Number]:
    """Return the parameters of the rank that holds most, and those of routed experts among them.

    That is the one with `most` layers, or with the `last` ones and the modules that predict further tokens.
    """
    held, experts = parameters_of_rank(model, grid, most), experts_of_rank(model, grid, most)
    if model.mtp_layers is None:
        return held, experts
    dense, routed = further_parameters(model, grid)
    ending = parameters_of_rank(model, grid, last) + dense + routed
    more = (model.mtp > 0) & (ending > held)
    return np.where(more, ending, held), np.where(more, experts_of_rank(model, grid, last) + routed, experts)


def experts_of_rank(model: ModelQuantities, grid: Grid, layers: Number) -> Number:
    """Return the parameters of routed experts among those of a rank with this many layers."""
    expert = model.held_share * model.matrices * model.hidden * model.expert_ffn
    return layers * model.moe_share * expert * model.experts / grid.expert_cut / grid.tp
