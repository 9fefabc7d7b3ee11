"""Pairs of an encoder of sound and a decoder of text: Moonshine and Cohere's."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .conformers import PLACES
from .decoders import Traits, attention_of_config, even, made
from .pairs import NARROWER, SIDES, of_width
from .reader import ConfigReader
from .sound import parakeet_layer, parakeet_subsampling
from .towers import Tower, alone

AS_MANY = "an encoder has as many frames of sound as the text has tokens: a token, and its FLOPs, are one of each"


def moonshine(c: ConfigReader) -> Architecture:
    """Return Moonshine: three convolutions over sound, an encoder, a decoder with gated networks."""
    hidden, width = c.whole("hidden_size"), c.whole("intermediate_size")
    c.skip("pad_head_dim_to_multiple_of", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    c.tell_token(AS_MANY)
    layers: list[LayerKind] = []
    heads, few = _moonshines_heads(c)
    for side in SIDES:
        reads = side == "decoder"
        own = Attention(heads=heads, kv_heads=few, head_dim=even(hidden, heads), masked=reads)
        biases = (heads + 2 * few) * own.head_dim * c.flag("attention_bias")
        layer = LayerKind(
            mixer=own,
            beside=msgspec.structs.replace(own, masked=False) if reads else None,
            network=Dense(width=width, gated=reads),
            small=(1 + reads) * (hidden + biases) + hidden + (1 + reads) * width + hidden,
        )
        layers += [layer] * c.whole(f"{side}_num_hidden_layers")
    first, second, third = 127 * hidden, 7 * 2 * hidden * hidden, 3 * 2 * hidden * hidden
    heard = 6 * first + 2 * second + third  # the first two run at 6 and 2 times the encoder's frames
    held = first + second + third + 2 * hidden + hidden + 2 * hidden
    return made(
        *(c, Traits(tied=True, positions="none"), layers),
        beside_parameters=held - heard + hidden,
        beside_weights=heard,
    )


def _moonshines_heads(c: ConfigReader) -> tuple[int, int]:
    """Return the heads of both sides and those of keys; the class gives a decoder those of its encoder."""
    found = []
    for side in SIDES:
        heads = c.whole(f"{side}_num_attention_heads")
        found.append((heads, c.whole(f"{side}_num_key_value_heads", heads)))
    if found[0] != found[1]:
        raise ValueError(
            "decoder_num_attention_heads, decoder_num_key_value_heads: expected those of the encoder, which the class "
            f"gives both sides, {found[0]}, got {found[1]}"
        )
    return found[0]


def parakeet_tower(c: ConfigReader) -> Tower:
    """Return Parakeet's Conformer over frames of sound."""
    width, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    if c.given("num_key_value_heads") and c.whole("num_key_value_heads") != heads:
        raise ValueError(f"num_key_value_heads: expected num_attention_heads = {heads}; fewer are not counted")
    c.skip("max_position_embeddings", "num_key_value_heads", "scale_input", "dropout_positions", "layerdrop")
    c.skip("model_type")
    heard = LayerKind(
        mixer=Attention(heads=heads, kv_heads=heads, head_dim=even(width, heads), masked=False),
        network=Dense(width=2 * c.whole("intermediate_size"), gated=False),
    )
    multiplied, rest = parakeet_layer(c)
    heard = msgspec.structs.replace(heard, small=rest, more=multiplied - heard.weights(width))
    return Tower(width=width, layers=[heard] * c.layers(), held=parakeet_subsampling(c), places=0)


def parakeet_encoder(c: ConfigReader) -> Architecture:
    """Return that encoder alone."""
    c.assumed.append(PLACES)
    return alone(parakeet_tower(c), 0)


def parakeet_ctc(c: ConfigReader) -> Architecture:
    """Return that encoder with an output for CTC."""
    c.skip("ctc_loss_reduction", "ctc_zero_infinity", "encoder_config", "tied")
    c.assumed.append(PLACES)
    return alone(parakeet_tower(c.inside("encoder_config")), c.whole("vocab_size"), each=True)


def cohere_asr(c: ConfigReader) -> Architecture:
    """Return Cohere Transcribe: Parakeet's Conformer over sound, and a decoder with a table of positions."""
    own, sound = c.whole("hidden_size"), c.inside("encoder_config")
    tower = parakeet_tower(sound)
    wide = tower.width
    hidden = max(own, wide)
    c.tell_token(AS_MANY)
    c.assumed.append(PLACES)
    if own != wide:
        c.assumed.append(NARROWER.format(first=wide, second=own))
    layers = [of_width(heard, hidden, wide, wide) for heard in tower.layers]
    width, plain = c.whole("intermediate_size"), attention_of_config(c)
    biases = ((plain.heads + 2 * plain.kv_heads) * plain.head_dim + own) * c.flag("attention_bias", default=True)
    text = LayerKind(
        mixer=plain,
        beside=msgspec.structs.replace(plain, masked=False),
        network=Dense(width=width, gated=False),
        small=6 * own + 2 * biases + width + own,
    )
    layers += [of_width(text, hidden, own, own)] * c.layers()
    places, joined = c.whole("max_position_embeddings"), own * wide
    beside = tower.held + (places + 4 + 1) * own + c.whole("vocab_size")
    return made(
        *(c, Traits(layer_norm=True, positions="none"), layers),
        hidden_size=hidden,
        embedding_size=0 if own == hidden else own,
        beside_parameters=beside - 2 * hidden,
        beside_weights=joined,
    )
