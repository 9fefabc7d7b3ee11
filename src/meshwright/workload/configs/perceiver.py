"""Models whose layers work on a fixed number of vectors that read the text: Perceiver."""

import msgspec

from ..architecture import MOST_LAYERS, Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import Traits, made
from .reader import ConfigReader

READ = (
    "{count} latent vectors read the text, pass the layers and are read by as many places of output as the text has "
    "tokens; the class puts out all of max_position_embeddings, however long a text is"
)
DECODERS_HEADS, DECODERS_KEYS = 8, 256  # of the layer that reads the latents, which the class fixes


def perceiver(c: ConfigReader) -> Architecture:
    """Return Perceiver with an output over words: latents read the text, pass layers, and are read by a last one.

    Scores between text and latents are as many from either side: the layer in which latents read the text is one of
    the text whose queries are the latents' keys.
    """
    latents, wide, narrow = c.whole("num_latents"), c.whole("d_latents"), c.whole("d_model")
    blocks, each, hidden = c.whole("num_blocks"), c.whole("num_self_attends_per_block"), max(wide, narrow)
    heads, crossed = c.whole("num_self_attention_heads"), c.whole("num_cross_attention_heads")
    keys, read = c.whole("qk_channels", wide), c.whole("qk_channels", narrow)
    values, seen = c.whole("v_channels", keys), c.whole("v_channels", read)
    if values != wide:
        raise ValueError(f"v_channels: expected d_latents, {wide}, got {values}")
    if (
        not latents
        or not heads
        or not crossed
        or any(size % heads for size in (keys, values))
        or read % crossed
        or seen % crossed
    ):
        raise ValueError("num_latents, num_self_attention_heads, num_cross_attention_heads: expected divisors, not 0")
    if not 1 <= blocks * each <= MOST_LAYERS or narrow % DECODERS_HEADS:
        raise ValueError(
            f"num_blocks, num_self_attends_per_block, d_model: expected 1 to {MOST_LAYERS} layers, and 8 x"
        )
    c.fixed({"cross_attention_shape_for_attention": "kv", "tie_word_embeddings": True})
    c.skip(*OF_OTHER_INPUTS, "use_query_residual")
    c.assumed.append(READ.format(count=latents))
    inner, first = wide * c.whole("self_attention_widening_factor"), wide * c.whole("cross_attention_widening_factor")
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=keys // heads, value_dim=values // heads, masked=False)
    own = LayerKind(
        mixer=mixer,
        network=Dense(width=inner, gated=False),
        small=4 * wide + 2 * keys + values + wide + inner + wide,
        length=latents,
    )
    own = _as_wide(own, own.weights(wide), hidden)
    again = msgspec.structs.replace(own, borrowed=own.parameters(hidden))
    last = _crossed(DECODERS_HEADS, DECODERS_KEYS, narrow, latents)
    behind = LayerKind(network=Dense(width=first, gated=False), small=2 * wide + first + wide, length=latents)
    layers = [
        _between(_crossed(crossed, read, seen, latents), hidden, narrow, wide, small=2 * read + seen + wide),
        _as_wide(behind, behind.weights(wide), hidden),
        *[own] * each,
        *[again] * (each * (blocks - 1)),
        _between(last, hidden, narrow, wide, small=2 * DECODERS_KEYS + 2 * narrow + 4 * narrow, width=narrow),
    ]
    places = c.whole("max_position_embeddings")
    return made(
        *(c, Traits(layer_norm=True, tied=True, positions="none"), layers),
        tied=True,
        hidden_size=hidden,
        embedding_size=narrow,
        beside_parameters=latents * wide + 2 * places * narrow + c.whole("vocab_size") - 2 * hidden,
    )


def _as_wide(layer: LayerKind, weights: int, hidden: int) -> LayerKind:
    """Return a layer with as many weights as said in a model that is `hidden` wide."""
    return msgspec.structs.replace(layer, more=layer.more + weights - layer.weights(hidden))


def _crossed(heads: int, keys: int, values: int, latents: int) -> Attention:
    """Return attention between a text and latents, whose keys and values are `keys` and `values` wide together."""
    return Attention(
        heads=heads, kv_heads=heads, head_dim=keys // heads, value_dim=values // heads, masked=False, reads=latents
    )


def _between(mixer: Attention, hidden: int, text: int, wide: int, *, small: int, width: int = 0) -> LayerKind:
    """Return a layer between a text `text` wide and latents `wide` wide, with a network of the text's or none."""
    columns = mixer.heads * (mixer.head_dim + mixer.values)
    network = Dense(width=width, gated=False) if width else None
    layer = LayerKind(mixer=mixer, network=network, small=small + 2 * text + 2 * wide)
    return _as_wide(layer, columns * (text + wide) + 2 * text * width, hidden)


OF_OTHER_INPUTS = (
    *("image_size", "train_size", "num_frames", "audio_samples_per_frame", "samples_per_patch", "output_shape"),
    *("output_num_channels", "_label_trainable_num_channels"),
)
