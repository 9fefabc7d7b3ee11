"""Pairs in the style of BART with long inputs, with vocabularies apart, or with an encoder of sound."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, LayerKind
from .bert import BLOCKS
from .decoders import Traits, made
from .pairs import BOTH_SIDES, bart_like
from .reader import ConfigReader

STYLE = Traits(layer_norm=True, tied=True, positions="none")
FIXED = {"tie_word_embeddings": True, "is_encoder_decoder": True}
APART = {"tie_word_embeddings": False, "is_encoder_decoder": True}


def _without_biases(c: ConfigReader, layers: list[LayerKind]) -> list[LayerKind]:
    """Return layers whose attention has no biases."""
    four = 4 * c.whole("hidden_size")
    return [msgspec.structs.replace(layer, small=layer.small - four * len(layer.mixers)) for layer in layers]


def _windowed(layer: LayerKind, keys: int) -> LayerKind:
    assert isinstance(layer.mixer, Attention)
    return msgspec.structs.replace(layer, mixer=msgspec.structs.replace(layer.mixer, window=keys))


def bigbird_pegasus(c: ConfigReader) -> Architecture:
    """Return BigBird Pegasus: an encoder whose tokens meet a few blocks of keys, without biases of attention."""
    hidden, kind, first = c.whole("hidden_size"), c.value("attention_type"), c.whole("encoder_layers")
    size, random = c.whole("block_size"), c.whole("num_random_blocks")
    if kind not in ("block_sparse", "original_full"):
        raise ValueError(f"attention_type: expected block_sparse or original_full, got {kind!r}")
    c.fixed(FIXED)
    c.skip("num_hidden_layers", "classifier_dropout")
    c.tell_token(BOTH_SIDES)
    met = (5 + random) * size if kind == "block_sparse" else 0
    if met:
        c.assumed.append(BLOCKS.format(met=met, random=random))
    layers = bart_like(c)
    layers = layers if c.flag("use_bias") else _without_biases(c, layers)
    layers = [_windowed(layer, met) if i < first else layer for i, layer in enumerate(layers)]
    places = c.whole("max_position_embeddings")
    return made(c, STYLE, layers, beside_parameters=2 * places * hidden + 4 * hidden - 2 * hidden)


def pegasus_x(c: ConfigReader) -> Architecture:
    """Return PEGASUS-X: an encoder whose tokens meet their block and a few tokens that stand for the whole."""
    hidden, first, marks = c.whole("hidden_size"), c.whole("encoder_layers"), c.whole("num_global_tokens")
    c.fixed(FIXED)
    c.skip("num_hidden_layers", "stagger_local_blocks", "max_position_embeddings")
    c.tell_token(BOTH_SIDES)
    met = c.whole("block_size") + marks
    layers = _without_biases(c, bart_like(c))
    of_encoder = [
        msgspec.structs.replace(_windowed(layer, met), small=layer.small + 2 * hidden) for layer in layers[:first]
    ]
    beside = marks * hidden + 4 * hidden - 2 * hidden
    return made(c, STYLE, [*of_encoder, *layers[first:]], beside_parameters=beside)


def fsmt(c: ConfigReader) -> Architecture:
    """Return FSMT: fairseq's translation, with a table of words for each side and an output apart from both."""
    hidden, source = c.whole("hidden_size"), c.whole("src_vocab_size")
    c.fixed(APART)
    c.skip("langs", "num_hidden_layers", "decoder", "vocab_size", "classifier_dropout")
    c.tell_token(BOTH_SIDES)
    padding = c.value("pad_token_id", 1)
    rows = c.whole("max_position_embeddings") + (padding if type(padding) is int else 1) + 1
    changed = c.changed({"vocab_size": c.whole("tgt_vocab_size")})
    beside = source * hidden + 2 * rows * hidden - 2 * hidden
    return made(changed, STYLE, bart_like(c), tied=False, beside_parameters=beside)


SOUND = (
    "each sequence has an encoder's {frames} positions of sound (max_source_positions, behind {count} convolutions "
    "that halve them) beside its text, however long that is; FLOPs are those of a token of text"
)


def speech_to_text(c: ConfigReader) -> Architecture:
    """Return Speech2Text: an encoder of sound behind convolutions that halve its length, and a decoder of text."""
    hidden, middle, count = c.whole("hidden_size"), c.whole("conv_channels"), c.whole("num_conv_layers")
    kernels, first = c.numbers("conv_kernel_sizes"), c.whole("encoder_layers")
    if not count or kernels is None or len(kernels) != count:
        raise ValueError(f"conv_kernel_sizes: expected one for each of {count} convolutions, got {kernels!r}")
    c.fixed(FIXED)
    c.skip("num_hidden_layers", "max_position_embeddings")
    frames = -(-c.whole("max_source_positions") // 2**count)
    c.tell_token(SOUND.format(frames=f"{frames:,}", count=count))
    takes = c.whole("input_feat_per_channel") * c.whole("input_channels")
    weights = biases = 0
    for i, kernel in enumerate(kernels):
        out = middle if i < count - 1 else 2 * hidden
        weights, biases = weights + takes * out * kernel, biases + out
        takes = middle // 2
    layers = [_of_sound(layer, frames, i < first) for i, layer in enumerate(bart_like(c))]
    layers[0] = msgspec.structs.replace(layers[0], more=weights, small=layers[0].small + biases)
    longest = c.whole("max_target_positions")
    return made(c, STYLE, layers, beside_parameters=4 * hidden - 2 * hidden, max_position_embeddings=longest)


def _of_sound(layer: LayerKind, frames: int, hears: bool) -> LayerKind:
    """Return a layer over a fixed number of positions of sound, or one that reads them."""
    if hears:
        return msgspec.structs.replace(layer, length=frames)
    assert isinstance(layer.beside, Attention)
    return msgspec.structs.replace(layer, beside=msgspec.structs.replace(layer.beside, reads=frames))


OLDER_PAIRS = {
    "bigbird_pegasus": bigbird_pegasus,
    "pegasus_x": pegasus_x,
    "fsmt": fsmt,
    "speech_to_text": speech_to_text,
}
