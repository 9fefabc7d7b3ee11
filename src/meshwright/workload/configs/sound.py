"""Encoders of sound and what projects them to the text model: how many parameters each has.

Each function takes the keys of `audio_config` and the width of the text model.
"""

from .decoders import even
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


def audio_flamingo(c: ConfigReader, text: int) -> int:
    """Return Whisper's encoder with its table of positions, and two projections."""
    width, bias = c.whole("hidden_size"), c.flag("projector_bias", default=True)
    places = c.whole("max_source_positions") * width
    c.skip(*OF_TIME)
    return whisper_sound(c) + places + text * (width + bias + text + bias)


OF_TIME = ("audio_frame_step", "head_dim")  # of MusicFlamingo's rotations by time


def glm_asr(c: ConfigReader, text: int) -> int:
    """Return Whisper's encoder with rotary positions, and two projections of joined frames."""
    c.skip("max_position_embeddings")
    inner = 2 * text
    return whisper_sound(c) + inner * (c.whole("intermediate_size") + 1) + text * (inner + 1)


def realtime_sound(c: ConfigReader, text: int) -> int:
    """Return Voxtral Realtime's encoder: gated networks, heads of any width, and two projections of joined frames."""
    width, inner, bins = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("num_mel_bins")
    wide = c.whole("num_attention_heads") * c.whole("head_dim")
    c.skip(
        "vocab_size", "max_position_embeddings", "sliding_window", "default_num_delay_tokens", "audio_length_per_tok"
    )
    layer = 4 * width * wide + 2 * wide + width + 3 * width * inner + width + 2 * width
    convolutions = width * (3 * bins + 1) + width * (3 * width + 1)
    joined = c.whole("downsample_factor", 4) * width
    return convolutions + c.layers() * layer + width + text * (joined + text)


def qwen3_asr(c: ConfigReader, text: int) -> int:
    """Return Qwen3-Omni's encoder with a table of positions that is no parameter."""
    c.skip("max_position_embeddings")
    return qwen3_omni(c, text)


def phi4_sound(c: ConfigReader, text: int) -> int:
    """Return the Conformer of Phi-4-multimodal, and two projections each for sound alone and beside images."""
    width, inner, count = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("num_blocks")
    deep, out, times = (c.whole(name) for name in ("depthwise_separable_out_channel", *PHI4_CONV))
    channels, bins, steps = (
        c.whole("nemo_conv_channels"),
        c.whole("input_size"),
        c.whole("time_reduction").bit_length() - 1,
    )
    if c.whole("time_reduction") != 2**steps or deep != width or out != width:
        raise ValueError("time_reduction: expected a power of 2, and as many channels of convolutions as hidden_size")
    c.skip("chunk_size", "left_chunk", "feature_layer", "nemo_final_size", "audio_token_id", "conv_glu_type")
    for _ in range(steps):
        bins = (bins - 1) // 2 + 1
    network = 2 * width + 2 * inner * (width + 1) + width * (inner + 1)
    attention = 4 * width * (width + 1) + 2 * width
    depthwise = times * width * (c.whole("kernel_size") + 1) + deep * (times * width + 1)
    convolution = 2 * width + 2 * out * (width + 1) + 2 * out + depthwise + out * (width + 1)
    layer = 2 * network + attention + convolution + 2 * width
    first = channels * (9 + 1) + (steps - 1) * channels * (9 + 1 + channels + 1) + width * (channels * bins + 1)
    buckets = c.whole("bias_max_distance") * (1 if c.flag("bias_symmetric") else 2)
    joined = width * c.whole("downsample_rate", 1)
    ends = buckets * c.whole("num_attention_heads") + 2 * text * (joined + 1 + text + 1)
    return first + count * layer + ends + c.whole("adapter_weights", 0)


PHI4_CONV = ("ext_pw_out_channel", "depthwise_multiplier")


def gemma3n_sound(c: ConfigReader, text: int) -> int:
    """Return Gemma 3n's Conformer behind two convolutions, and its table of hard tokens with a projection."""
    width, bins = c.whole("hidden_size"), c.whole("input_feat_size")
    channels, kernels, strides = (
        c.value(f"sscp_conv_{name}") for name in ("channel_size", "kernel_size", "stride_size")
    )
    if not all(isinstance(told, list | tuple) and len(told) == 2 for told in (channels, kernels, strides)):
        raise ValueError("sscp_conv_channel_size, sscp_conv_kernel_size, sscp_conv_stride_size: expected two of each")
    c.skip(*(f"conf_{name}" for name in ("reduction_factor", "residual_weight", "attention_logit_cap")))
    c.skip("conf_positional_bias_size")  # of published files; the class has sines in its place
    c.skip(*(f"conf_attention_{name}" for name in ("chunk_size", "context_left", "context_right")))
    c.skip("gradient_clipping", "vocab_offset", "sscp_conv_group_norm_eps")
    found, before = 0, 1
    for out, kernel, stride in zip(channels, kernels, strides, strict=True):
        found += out * before * kernel[0] * kernel[1] + out
        before, bins = out, (bins + 2 - kernel[1]) // stride[1] + 1
    heads = c.whole("conf_num_attention_heads")
    if not heads or width % heads:
        raise ValueError(f"conf_num_attention_heads: {heads} does not divide hidden_size {width}")
    network = 8 * width * width + 2 * width
    attention = 5 * width * width + width // heads + 2 * width
    convolution = 3 * width * width + width * c.whole("conf_conv_kernel_size") + 2 * width
    layers = c.whole("conf_num_hidden_layers") * (2 * network + attention + convolution + width)
    return found + width * before * bins + layers + hard_tokens(c, text)


def hard_tokens(c: ConfigReader, text: int) -> int:
    """Return a table of tokens that stand for images or sound, two norms, and what projects them."""
    width = c.whole("hidden_size")
    return c.whole("vocab_size") * width + 2 * width + width * text


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


def parakeet_layer(c: ConfigReader) -> tuple[int, int]:
    """Return the weights that a frame meets in a layer of Parakeet's Conformer, and its other parameters.

    Half of a network, attention, a gated convolution, the network's other half; a table of relative places, which no
    frame meets, and five norms.
    """
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    bias, convolved = c.flag("attention_bias", default=True), c.flag("convolution_bias", default=True)
    weights = 4 * width * inner + 4 * width * width + 3 * width * width
    biases = (2 * (inner + width) + 4 * width) * bias + (3 * width + width) * convolved
    places = width * width + 2 * width
    return weights, biases + places + c.whole("conv_kernel_size") * width + 2 * width + 5 * 2 * width


def parakeet_subsampling(c: ConfigReader) -> int:
    """Return the parameters of the convolutions that leave one of several frames, and of the projection behind them."""
    channels, kernel, stride = (c.whole(f"subsampling_conv_{name}") for name in ("channels", "kernel_size", "stride"))
    bins, times = c.whole("num_mel_bins"), c.whole("subsampling_factor")
    steps = times.bit_length() - 1
    if stride != 2 or times != 2**steps or not steps:
        raise ValueError("encoder_config: subsampling_factor, subsampling_conv_stride: expected a power of 2, and 2")
    first = channels * (kernel**2 + 1)
    later = (steps - 1) * (channels * (kernel**2 + 1) + channels * (channels + 1))
    return first + later + c.whole("hidden_size") * (channels * (bins // times) + 1)


def granite_speech(c: ConfigReader, text: int) -> int:
    """Return Granite's Conformer with an output of its own in the middle, and the Q-Former that projects it."""
    width, inner, out = (
        c.whole("hidden_dim"),
        c.whole("hidden_dim") * c.whole("feedforward_mult"),
        c.whole("output_dim"),
    )
    heads, expanded = c.whole("num_heads"), c.whole("hidden_dim") * c.whole("conv_expansion_factor")
    dim = c.whole("dim_head") if c.given("dim_head") else even(width, heads)
    c.skip("context_size", "has_lora_adapter")  # whose weights the class does not hold
    network = 2 * width + inner * (width + 1) + width * (inner + 1)
    attention = 2 * width + 4 * width * heads * dim + width + (2 * c.whole("max_pos_emb") + 1) * dim
    convolved = 2 * width + 2 * expanded * (width + 1) + expanded * c.whole("conv_kernel_size") + 2 * expanded
    layer = 2 * network + attention + convolved + width * (expanded + 1) + 2 * width
    ends = width * (c.whole("input_dim") + 1) + out * (width + 1) + width * (out + 1)
    joined = width * (1 + len(c.numbers("cat_hidden_layers") or []))
    queries = c.whole("window_size", 15) // max(c.whole("downsample_rate", 5), 1)
    return ends + c.whole("num_layers") * layer + q_former(c.inside("projector_config"), queries, joined, text)


GRANITE_BESIDE = ("projector_config", "downsample_rate", "window_size", "has_lora_adapter")


def q_former(c: ConfigReader, queries: int, read: int, text: int, *, follows: bool = False) -> int:
    """Return queries that attend to each other and to an encoder `read` wide, and what projects them to the text.

    `follows`: its class takes over the width of the encoder; others have a default of their own.
    """
    width, inner, every = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("cross_attention_frequency")
    c.fixed({"model_type": "blip_2_qformer"})
    part = c.where.rsplit(": ", 1)[-1]
    if c.given("encoder_hidden_size") and c.whole("encoder_hidden_size") != read:
        raise ValueError(f"{part}: encoder_hidden_size: expected {read}, as wide as what the encoder puts out")
    read = read if follows else c.whole("encoder_hidden_size")
    c.whole("num_attention_heads")
    c.skip("vocab_size", "max_position_embeddings")
    own = 4 * width * (width + 1) + 2 * width
    across = 2 * width * (width + 1) + 2 * width * (read + 1) + 2 * width
    network = inner * (width + 1) + width * (inner + 1) + 2 * width
    if not every:
        raise ValueError(f"{part}: cross_attention_frequency: expected 1 or more, got 0")
    crossed, count = -(-c.layers() // every), c.layers()
    layers = count * (own + network * (1 + c.flag("use_qformer_text_input"))) + crossed * across
    return queries * width + 2 * width + layers + text * (width + 1)
