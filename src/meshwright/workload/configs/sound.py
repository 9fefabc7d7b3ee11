"""Encoders of sound and what projects them to the text model: how many parameters each has.

Each function takes the keys of `audio_config` and the width of the text model.
"""

from .reader import ConfigReader
from .vision import block


def whisper_layers(c: ConfigReader) -> int:
    """Return the parameters of the layers of Whisper's encoder, whose keys have no bias, and of the last norm."""
    width = c.whole("hidden_size")
    names = ("encoder_layers", "encoder_ffn_dim", "encoder_attention_heads")
    if not any(c.given(name) for name in names) and c.value("encoder_layers") is None:
        names = ("num_hidden_layers", "intermediate_size", "num_attention_heads")
    count, inner, _ = (c.whole(name) for name in names)
    return count * (block(width, inner) - width) + 2 * width


def whisper_sound(c: ConfigReader) -> int:
    """Return the parameters of Whisper's encoder: two convolutions and layers; its positions are no parameters."""
    width, bins = c.whole("hidden_size"), c.whole("num_mel_bins")
    c.skip("encoder_layerdrop", "layerdrop", "vocab_size")
    return width * (3 * bins + 1) + width * (3 * width + 1) + whisper_layers(c)


def inkling_sound(c: ConfigReader, text: int) -> int:
    """Return Inkling's table of quantized mel bins."""
    return c.whole("n_mel_bins") * c.whole("mel_vocab_size") * text + text


def muse_spark(c: ConfigReader, text: int) -> int:
    """Return Muse Spark's encoder: stages of convolutions, each behind a projection of joined frames."""
    patches, widths, depths = (c.numbers(name) or [] for name in ("patch_sizes", "hidden_sizes", "depths"))
    kernel, ratio = c.whole("conv_kernel_size"), c.value("mlp_ratio", 4.0)
    if not widths or not len(patches) == len(widths) == len(depths) or c.whole("num_hidden_layers") != len(widths):
        raise ValueError("patch_sizes, hidden_sizes, depths: expected as many numbers as num_hidden_layers")
    if c.whole("out_hidden_size", text) != text:
        raise ValueError(f"out_hidden_size: expected {text}, the width of the text model")
    found, before = 0, 1
    for patch, width, depth in zip(patches, widths, depths, strict=True):
        inner = int(width * float(ratio))
        conv_block = width * (kernel + 1) + width + 2 * width * inner + inner + width
        found += width * (patch * before + 1) + width + depth * conv_block
        before = width
    return found + before + text * (before + 1) + text


def qwen2_audio(c: ConfigReader, text: int) -> int:
    """Return Whisper's encoder with its table of positions, and one projection."""
    width = c.whole("hidden_size")
    return whisper_sound(c) + c.whole("max_source_positions") * width + text * (width + 1)


def voxtral(c: ConfigReader, text: int) -> int:
    """Return Whisper's encoder with its table of positions, and two projections of joined frames."""
    width = c.whole("hidden_size")
    return whisper_sound(c) + c.whole("max_source_positions") * width + text * (c.whole("intermediate_size") + text)


def qwen2_5_omni(c: ConfigReader, text: int) -> int:
    """Return Whisper's encoder, two vectors that begin and end sound, and one projection."""
    width, out = c.whole("hidden_size"), c.whole("output_dim")
    c.skip("max_source_positions", "n_window")
    del text
    return whisper_sound(c) + 2 * out + out * (width + 1)


def qwen3_omni(c: ConfigReader, text: int) -> int:
    """Return Qwen3-Omni's encoder: three convolutions over frames and bins, layers, two projections."""
    width, inner, out = c.whole("hidden_size"), c.whole("downsample_hidden_size"), c.whole("output_dim")
    bins = c.whole("num_mel_bins")
    c.skip("max_source_positions", "n_window", "n_window_infer", "conv_chunksize")
    del text
    for _ in range(3):  # convolutions of stride 2
        bins = (bins + 1) // 2
    convolutions = inner * (9 + 1) + 2 * inner * (9 * inner + 1) + width * inner * bins
    layers = whisper_layers(c) + c.whole("encoder_layers") * width  # whose keys have a bias
    return convolutions + layers + width * (width + 1) + out * (width + 1)
