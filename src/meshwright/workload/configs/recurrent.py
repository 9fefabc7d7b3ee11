"""Decoders of recurrences without state-space layers: RG-LRU, RWKV, xLSTM."""

from ..architecture import Architecture
from ..kinds import Attention, ChannelRecurrence, Dense, LayerKind, Lightning, Mixer
from .decoders import Traits, even, made
from .reader import ConfigReader


def recurrent_gemma(c: ConfigReader) -> Architecture:
    """Return RecurrentGemma (Griffin): two layers of a gated linear recurrence for each in a window."""
    count, hidden, heads = c.layers(), c.whole("hidden_size"), c.whole("num_attention_heads")
    width, kernel, inner = c.whole("lru_width", hidden), c.whole("conv1d_width"), c.whole("intermediate_size") // 2
    kinds = c.value("block_types")
    if not isinstance(kinds, list) or not kinds or not set(kinds) <= {"recurrent", "attention"}:
        raise ValueError(f"block_types: expected words recurrent and attention, got {kinds!r}")
    if c.given("head_dim") and c.whole("head_dim") != even(hidden, heads):
        raise ValueError("head_dim: expected hidden_size / num_attention_heads")
    full = Attention(
        heads=heads,
        kv_heads=c.whole("num_key_value_heads", heads),
        head_dim=even(hidden, heads),
        window=c.whole("attention_window_size"),
    )
    lru = ChannelRecurrence(width=width, matrices=2, gate_heads=heads, conv_kernel=kernel)
    network = Dense(width=inner)
    small = 2 * hidden + 2 * inner + hidden
    biases = (full.heads + 2 * full.kv_heads) * full.head_dim
    of_lru = 2 * width + hidden + width * (kernel + 1) + 3 * width  # projections, convolution, decay and gates
    layers = []
    for i in range(count):
        recurs = kinds[i % len(kinds)] == "recurrent"
        mixer: Mixer = lru if recurs else full
        of_mixer = of_lru if recurs else hidden + biases * c.flag("attention_bias")
        layers.append(LayerKind(mixer=mixer, network=network, small=small + of_mixer))
    return made(c, Traits(tied=True), layers)


def rwkv(c: ConfigReader) -> Architecture:
    """Return RWKV-4: a recurrence a channel, and networks whose output is gated."""
    count, hidden = c.layers(), c.whole("hidden_size")
    width = c.whole("attention_hidden_size", hidden)
    inner = c.whole("intermediate_size", 4 * hidden) if c.given("intermediate_size") else 4 * hidden
    c.skip("rescale_every")
    mixer = ChannelRecurrence(width=width, matrices=3)
    small = 4 * hidden + 2 * width + 5 * hidden  # norms, decay and bonus, mixes with the token before
    layer = LayerKind(mixer=mixer, network=Dense(width=inner, gated=False), small=small, more=hidden * hidden)
    longest = c.whole("context_length")
    return made(
        *(c, Traits(layer_norm=True, positions="none"), [layer] * count),
        beside_parameters=2 * hidden,
        max_position_embeddings=longest,
    )


def xlstm(c: ConfigReader) -> Architecture:
    """Return xLSTM: linear attention with gates and a state of key x value a head."""
    count, hidden, heads = c.layers(), c.whole("hidden_size"), c.whole("num_attention_heads")
    keys, values = (_rounded(hidden, c.value(name), 64) for name in ("qk_dim_factor", "v_dim_factor"))
    inner = _rounded(hidden, c.value("ffn_proj_factor"), c.whole("ffn_round_up_to_multiple_of"))
    if keys % heads or values % heads:
        raise ValueError(f"num_heads: {heads} does not divide {keys} and {values}, the widths of keys and values")
    last = c.flag("add_out_norm", default=True)
    if c.value("weight_mode", "single") not in ("single", "fused"):
        raise ValueError("weight_mode: expected single or fused")
    if c.value("embedding_dim", hidden) != hidden or c.value("num_blocks", count) != count:
        raise ValueError("embedding_dim, num_blocks: expected hidden_size and num_hidden_layers")
    if c.flag("tied"):
        raise ValueError("tie_word_embeddings: expected false: its class has an output of its own")
    c.fixed({"head_dim": values // heads})
    if c.whole("mlstm_round_up_to_multiple_of", 64) != 64:
        raise ValueError("mlstm_round_up_to_multiple_of: expected 64, which its class takes")
    if c.flag("add_post_blocks_norm", default=last) != last:
        raise ValueError("add_post_blocks_norm: expected what add_out_norm says")
    biased = c.flag("use_bias")
    c.skip(
        "chunkwise_kernel",
        "sequence_kernel",
        "step_kernel",
        "mode",
        "return_last_states",
        "norm_reduction_force_float32",
    )
    c.skip("inference_state_dtype", "max_inference_chunksize", "autocast_kernel_dtype")
    mixer = Lightning(heads=heads, head_dim=values // heads, key_dim=keys // heads, block=c.whole("chunk_size"))
    small = 2 * hidden + 2 * heads + values
    small += (2 * keys + 2 * values + hidden + 2 * inner + hidden) * biased
    layer = LayerKind(mixer=mixer, network=Dense(width=inner), small=small, more=2 * hidden * heads)
    beside = 0 if last else -hidden
    vocab = c.whole("vocab_size")
    return made(c, Traits(positions="none"), [layer] * count, beside_parameters=beside + vocab * biased)


def _rounded(hidden: int, factor: object, multiple: int) -> int:
    """Return a width that is a multiple, at least `factor` times the residual stream's."""
    if not isinstance(factor, int | float) or not multiple:
        raise ValueError(f"qk_dim_factor, v_dim_factor, ffn_proj_factor: expected numbers, got {factor!r}")
    return int((hidden * factor + multiple - 1) // multiple * multiple)
