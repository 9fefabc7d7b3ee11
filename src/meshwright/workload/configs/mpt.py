"""Files of MPT, whose own code (mosaicml/llm-foundry) reads keys that the library's class passes over."""

from collections.abc import Mapping
from typing import Any, Literal

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import Traits, even, made
from .reader import ConfigReader


def mpt(c: ConfigReader) -> Architecture:
    """Return MPT: keys of the attention in an object of their own."""
    hidden, inside = c.whole("hidden_size"), c.part("attn_config")
    heads = c.whole("num_attention_heads")
    head_dim, kv_heads = even(hidden, heads), _kv_heads_of_mpt(c, inside, heads)
    if (factor := c.value("expansion_ratio", 4)) != 4:
        raise ValueError(
            f"expansion_ratio: expected 4, which the library's class takes whatever it says, got {factor!r}"
        )
    if inside.get("qk_ln") or inside.get("qk_gn"):
        raise ValueError("attn_config.qk_ln, qk_gn: expected false: norms of queries and keys are not counted")
    network = c.part("ffn_config")
    if network.get("ffn_type", "mptmlp") != "mptmlp" or network.get("ffn_hidden_size"):
        raise ValueError(f"ffn_config: expected ffn_type mptmlp and no ffn_hidden_size, got {dict(network)}")
    mixer = Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    if c.value("embedding_fraction", 1.0) != 1.0:
        raise ValueError("embedding_fraction: expected 1.0")
    c.skip("emb_pdrop", "logit_scale", "init_device", "init_config", "verbose")
    biases = _biases_of_mpt(c, hidden, kv_heads * head_dim)
    layer = LayerKind(mixer=mixer, network=Dense(width=4 * hidden, gated=False), small=2 * hidden + biases)
    traits = Traits(layer_norm=biases > 0, tied=True, positions=_positions_of_mpt(c, inside))
    return made(c, traits, [layer] * c.layers(), norm="layer" if biases else "rms")


def _biases_of_mpt(c: ConfigReader, hidden: int, kv_width: int) -> int:
    """Return the elements of a layer's biases, which MPT's own code has in every product and norm where no_bias is
    false (mosaicml/llm-foundry:llmfoundry/models/mpt/modeling_mpt.py).
    """
    if c.flag("no_bias", default=True):
        return 0
    c.assumed.append("no_bias: biases, as MPT's own code has them; the library's class has none")
    return (hidden + 2 * kv_width) + hidden + 4 * hidden + hidden + 2 * hidden


def _positions_of_mpt(c: ConfigReader, inside: Mapping[str, Any]) -> Literal["learned", "rotary", "alibi", "none"]:
    """Return the positions of MPT's own code (llmfoundry/models/mpt/configuration_mpt.py): a table where nothing else
    tells them.
    """
    table = c.flag("learned_pos_emb", default=True)
    if inside.get("alibi", True):
        return "alibi"
    if inside.get("rope") or not table:
        return "rotary" if inside.get("rope") else "none"
    c.assumed.append("learned_pos_emb: a table of positions, as MPT's own code has it; the library's class has none")
    return "learned"


OWN_HEADS = "attn_config: {words}, {count} key-value heads, as MPT's own code has them; the library's class has {heads}"


def _kv_heads_of_mpt(c: ConfigReader, inside: Mapping[str, Any], heads: int) -> int:
    """Return the key-value heads of MPT's own code (mosaicml/llm-foundry:llmfoundry/models/layers/attention.py)."""
    words, said = inside.get("attn_type", "multihead_attention"), inside.get("kv_n_heads")
    found = {"multihead_attention": heads, "multiquery_attention": 1, "grouped_query_attention": said}
    if words not in found:
        raise ValueError(f"attn_config.attn_type: expected one of {', '.join(found)}, got {words!r}")
    count = found[words]
    if type(count) is not int or count < 1 or heads % count or said not in (None, count):
        raise ValueError(f"attn_config.kv_n_heads: expected those of {words} with {heads} heads, got {said!r}")
    if count != heads:
        c.assumed.append(OWN_HEADS.format(words=words, count=count, heads=heads))
    return count
