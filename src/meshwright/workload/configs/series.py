"""Models of series of numbers, a token of which is a patch of some values: TimesFM."""

import dataclasses

import msgspec

from ..architecture import Architecture
from ..kinds import Dense, LayerKind
from .decoders import attention_of_config
from .reader import ConfigReader
from .towers import Tower, alone

PATCHES = "a token is a patch of {size} values of a series (patch_length)"


def timesfm(c: ConfigReader) -> Architecture:
    """Return TimesFM with its output: the values to come and their quantiles, for each patch."""
    tower, inner, quantiles = _tower(c), c.whole("intermediate_size"), c.value("quantiles", [])
    if not isinstance(quantiles, list | tuple):
        raise ValueError(f"quantiles: expected a list of numbers, got {quantiles!r}")
    values = c.whole("horizon_length") * (1 + len(quantiles))
    met = tower.width * (inner + values)  # a network of two matrices, and one past it
    found = alone(dataclasses.replace(tower, held=tower.held + inner + values), values, each=True)
    return msgspec.structs.replace(
        found,
        embedding_size=0 if inner == tower.width else inner,
        beside_weights=found.beside_weights + met,
    )


def timesfm_alone(c: ConfigReader) -> Architecture:
    """Return it without an output."""
    c.skip("quantiles", "horizon_length")
    return alone(_tower(c), 0)


def _tower(c: ConfigReader) -> Tower:
    hidden, inner, size = (c.whole(name) for name in ("hidden_size", "intermediate_size", "patch_length"))
    if not size or c.whole("context_length") < size:
        raise ValueError(f"patch_length: {size} does not fit context_length {c.whole('context_length')}")
    c.skip("tolerance", "pad_val", "use_positional_embedding", "min_timescale", "max_timescale")
    c.assumed.append(PATCHES.format(size=size))
    mixer = attention_of_config(c)
    small = 3 * mixer.heads * mixer.head_dim + hidden + mixer.head_dim  # biases, and a scale a channel of queries
    small += inner + hidden + 2 * hidden + hidden
    return Tower(
        width=hidden,
        layers=[LayerKind(mixer=mixer, network=Dense(width=inner, gated=False), small=small)] * c.layers(),
        held=inner + 2 * hidden + c.whole("freq_size") * hidden,
        places=c.whole("context_length") // size,
        met=2 * size * (inner + hidden) + inner * hidden,  # values, and which of them are padding
    )
