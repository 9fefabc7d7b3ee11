"""Decoders whose layers differ in width, as lists in their files say: OpenELM and Nemotron-NAS."""

from typing import Any

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import Traits, head_dim, made
from .reader import ConfigReader


def openelm(c: ConfigReader) -> Architecture:
    """Return OpenELM: heads and networks grow from layer to layer (apple/OpenELM-270M:configuration_openelm.py)."""
    sizes = {
        "hidden_size": c.whole("model_dim"),
        "num_hidden_layers": c.whole("num_transformer_layers"),
        "max_position_embeddings": c.whole("max_context_length", 2048),
    }
    c.fixed(sizes)
    shared = {"tie_word_embeddings": c.flag("share_input_output_layers")}
    c.skip("rope_freq_constant", "rope_max_length", "activation_fn_name", "tie_word_embeddings")
    c.fixed({"normalization_layer_name": "rms_norm"})
    c = c.changed(sizes | shared)
    count, hidden, dim = c.layers(), c.whole("hidden_size"), c.whole("head_dim", 128)
    groups, step = max(c.whole("num_gqa_groups", 1), 1), max(c.whole("ffn_dim_divisor", 256), 1)
    gated, normed = c.flag("ffn_with_glu", default=True), c.flag("normalize_qk_projections")
    if not dim:
        raise ValueError("head_dim: expected 1 or more, got 0")
    queries = [divisible(m * hidden, dim * groups) // dim for m in _factors(c, "qkv_multipliers", 1.0, count)]
    widths = [divisible(m * hidden, step) for m in _factors(c, "ffn_multipliers", 4.0, count)]
    for name, found in (("num_query_heads", queries), ("num_kv_heads", [heads // groups for heads in queries])):
        if (c.numbers(name) or found) != found:
            raise ValueError(f"{name}: expected {found}, which the class works out from qkv_multipliers")
    layers = [
        LayerKind(
            mixer=Attention(heads=heads, kv_heads=heads // groups, head_dim=dim),
            network=Dense(width=width, gated=gated),
            small=2 * hidden + 2 * dim * normed,
        )
        for heads, width in zip(queries, widths, strict=True)
    ]
    return made(c, Traits(), layers)


def _factors(c: ConfigReader, name: str, default: float, count: int) -> list[float]:
    """Return a factor of the width for each layer: one for all, two between which they grow, or a list of them."""
    told = c.value(name, default)
    given = told if isinstance(told, list) else [told] * count
    if len(given) not in {2, count} or not all(type(each) in {int, float} and each > 0 for each in given):
        raise ValueError(f"{name}: expected a number above 0, two, or one for each of the {count} layers")
    if len(given) == count:
        return [float(each) for each in given]
    first, last = given
    between = [round(first + i * (last - first) / (count - 1), 2) for i in range(count - 1)]
    return [*between, round(float(last), 2)]


def divisible(size: float, by: int) -> int:
    """Return the nearest multiple of a number, the next one where that is less than nine tenths of the size."""
    found = max(by, int(size + by / 2) // by * by)
    return found + by * (found < 0.9 * size)


NOTHING = "{none} of the {count} layers hold neither attention nor a network, and are left out"


def nemotron_nas(c: ConfigReader) -> Architecture:
    """Return what NVIDIA's search leaves of a Llama, block by block (Llama-3_3-Nemotron-Super-49B: modeling_decilm.py).

    A block's attention and network each are as the block says, a single matrix in their place, or left out.
    """
    count, blocks = c.layers(), c.value("block_configs")
    if not isinstance(blocks, list) or len(blocks) != count:
        raise ValueError(f"block_configs: expected an object for each of the {count} layers")
    c.skip("num_key_value_heads", "intermediate_size")
    layers = []
    for place, block in enumerate(blocks):
        if not isinstance(block, dict) or not {*block} <= {"attention", "ffn", "parallel_blocks"}:
            raise ValueError(f"block_configs: {place}: expected attention and ffn")
        if block.get("parallel_blocks"):
            raise ValueError(f"block_configs: {place}: parallel_blocks: expected none")
        mixing, working = (_part(c, block, place, name) for name in ("attention", "ffn"))
        layers.append(LayerKind(**_join(_mixing(c, mixing), _working(c, working))))
    held = [layer for layer in layers if layer != LayerKind()]
    if not held:
        raise ValueError("block_configs: expected a layer that holds something")
    if len(held) < count:
        c.assumed.append(NOTHING.format(none=count - len(held), count=count))
    return made(c, Traits(), held)


def _part(c: ConfigReader, block: dict[str, Any], place: int, name: str) -> ConfigReader:
    """Return the reader of one half of a block, whose keys must be understood as those of the file."""
    given, where = block.get(name) or {}, f"block_configs: {place}: {name}"
    if not isinstance(given, dict):
        raise ValueError(f"{where}: expected an object")
    part = ConfigReader(given, {}, f"{c.where}: {where}")
    c.take(f"block_configs.{place}.{name}", part)
    return part


def _mixing(c: ConfigReader, part: ConfigReader) -> dict[str, Any]:
    """Return what the attention of a block adds to its layer."""
    found = _instead(c, part, "attention_bias", passed=("n_heads_in_group", "window_length"))
    if found is not None:
        return found
    hidden, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    group = part.whole("n_heads_in_group")
    if not group or heads % group:
        raise ValueError(f"n_heads_in_group: {group} does not divide num_attention_heads {heads}")
    dim = head_dim(c, hidden, heads)
    mixer = Attention(heads=heads, kv_heads=heads // group, head_dim=dim, window=part.whole("window_length", 0))
    biases = (mixer.heads + 2 * mixer.kv_heads) * dim + hidden
    return {"mixer": mixer, "small": hidden + biases * c.flag("attention_bias")}


def _working(c: ConfigReader, part: ConfigReader) -> dict[str, Any]:
    """Return what the network of a block adds to its layer."""
    found = _instead(c, part, "mlp_bias", passed=("ffn_mult",))
    if found is not None:
        return found
    hidden, factor = c.whole("hidden_size"), part.value("ffn_mult")
    if type(factor) not in {int, float} or not factor > 0:
        raise ValueError(f"ffn_mult: expected a number above 0, got {factor!r}")
    width = -(-int(2 * factor * hidden / 3) // 256) * 256
    return {"network": Dense(width=width), "small": hidden + (2 * width + hidden) * c.flag("mlp_bias")}


def _instead(c: ConfigReader, part: ConfigReader, bias: str, passed: tuple[str, ...]) -> dict[str, Any] | None:
    """Return what stands in place of one half of a block: nothing, or one matrix behind a norm; None if it is whole."""
    left_out, single = part.flag("no_op"), part.flag("replace_with_linear")
    if not left_out and not single:
        return None
    part.skip(*passed)
    if left_out:
        return {}
    if c.flag(bias):
        raise ValueError(f"{bias}: expected false beside replace_with_linear")
    hidden = c.whole("hidden_size")
    return {"more": hidden * hidden, "small": hidden}


def _join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what two halves say of a layer, numbers of both added up."""
    sums = {key: one.get(key, 0) + other.get(key, 0) for key in ("small", "more")}
    return one | other | sums
