"""Decoders with a part that no other family has: differential attention, prompts in the embedding, cycles of stacks."""

import msgspec

from ..architecture import MOST_LAYERS, Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import Traits, attention_of_config, decoder, made
from .reader import ConfigReader

DIFFERENTIAL = "values are attended to twice, by halves of the heads: their scores are counted once"


def diffllama(c: ConfigReader) -> Architecture:
    """Return DiffLlama: the difference of two attentions, weighed by four vectors a layer (arXiv 2410.05258)."""
    traits = Traits(network_bias=False)
    few = c.whole("num_key_value_heads", c.whole("num_attention_heads"))
    if few % 2:
        raise ValueError(f"num_key_value_heads: expected an even number, got {few}")
    c.skip("lambda_std_dev")
    c.assumed.append(DIFFERENTIAL)
    layers = []
    for run in decoder(c, traits).runs:
        assert isinstance(run.layer.mixer, Attention)
        small = run.layer.small + 4 * run.layer.mixer.head_dim
        layers += [msgspec.structs.replace(run.layer, small=small)] * run.count
    return made(c, traits, layers)


def cpmant(c: ConfigReader) -> Architecture:
    """Return CPM-Ant: prompts that are rows of the embedding, scores with buckets of relative places and segments."""
    hidden, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    segments, prompts = c.whole("segment_types"), c.whole("prompt_types") * c.whole("prompt_length")
    c.skip("position_bias_max_distance", "tie_word_embeddings")  # an output without the prompts' rows, never tied
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=c.whole("dim_head"))
    layer = LayerKind(mixer=mixer, network=Dense(width=c.whole("dim_ff")), small=2 * hidden)
    buckets = (c.whole("position_bias_num_buckets") + segments**2) * heads
    beside = (segments + prompts) * hidden + buckets
    traits = Traits(positions="none")
    return made(c, traits, [layer] * c.layers(), tied=False, beside_parameters=beside)


USUAL = 16  # layers of a stack where nothing is said (configuration_hrm_text.py)
CYCLES = (
    "two stacks of {each} layers run in {high} cycles: the first {low} times in each, the second once; passes that "
    "train without gradients (L_bp_cycles) are counted as if they had them"
)


def hrm_text(c: ConfigReader) -> Architecture:
    """Return HRM-Text: two stacks of layers that run over and over (sapientinc/HRM-Text-1B)."""
    hidden, high, low = c.whole("hidden_size"), c.whole("H_cycles"), c.whole("L_cycles")
    said = c.given("num_hidden_layers") and not c.given("num_layers_per_stack")
    each = c.whole("num_hidden_layers") if said else c.whole("num_layers_per_stack", USUAL)
    times = high * (low + 1)
    if not high or not low or not 1 <= each * times <= MOST_LAYERS:
        raise ValueError(f"H_cycles, L_cycles: expected 1 or more, and at most {MOST_LAYERS} layers in all")
    c.skip("num_hidden_layers", "L_bp_cycles", "embedding_scale", "prefix_lm")
    c.assumed.append(CYCLES.format(each=each, high=high, low=low))
    mixer = msgspec.structs.replace(attention_of_config(c), gate=True)
    width, queries = c.whole("intermediate_size"), mixer.heads * mixer.head_dim
    biases = (4 * queries + hidden) * c.flag("attention_bias") + (2 * width + hidden) * c.flag("mlp_bias")
    own = LayerKind(mixer=mixer, network=Dense(width=width), small=biases)
    again = msgspec.structs.replace(own, borrowed=own.parameters(hidden))
    first, second = [own] * each, [own] * each
    layers = first + [again] * (each * (low - 1)) + second + [again] * (each * (times - low - 1))
    return made(c, Traits(norm_weights=False), layers, beside_parameters=hidden - hidden)
