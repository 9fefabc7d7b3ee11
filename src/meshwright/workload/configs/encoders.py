"""Encoders of text beside BERT's own style."""

from ..architecture import Architecture
from ..kinds import Attention, Dense, DynamicConv, Experts, LayerKind
from .bert import places_behind_padding
from .decoders import Traits, attention_of_config, made
from .reader import ConfigReader

STYLE = Traits(layer_norm=True, tied=True, positions="none")


def deberta_layer(c: ConfigReader, places: int) -> tuple[LayerKind, int, int]:
    """Return a layer of DeBERTa, the parameters of tables of relative places, and the weights of a convolution."""
    hidden, width = c.whole("hidden_size"), c.whole("intermediate_size")
    relative, kernel = c.flag("relative_attention"), c.whole("conv_kernel_size", 0)
    sides = _sides(c)
    span = _span(c, places)
    c.skip("pooler_hidden_size", "legacy", "max_relative_positions", "conv_groups")
    shared = c.flag("share_att_key")
    scored = len(sides) * relative
    plain = attention_of_config(c)
    table = 2 * span * hidden
    mixer = Attention(
        heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False, places=scored * table
    )
    apart = ("c2p" in sides) + ("p2c" in sides) if relative and not shared else 0
    small = 4 * hidden + 3 * hidden + hidden + width + hidden + apart * hidden * (hidden + 1)
    normed = "layer_norm" in str(c.value("norm_rel_ebd", "none"))
    groups = c.whole("conv_groups", 1) or 1
    convolved = hidden * hidden // groups * kernel
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    return layer, table * relative + 2 * hidden * normed * relative, convolved


def deberta_v2(c: ConfigReader) -> Architecture:
    """Return DeBERTa v2 and v3: scores with a table of relative places, from either side."""
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    types, places = c.whole("type_vocab_size", 0), c.whole("max_position_embeddings")
    if c.whole("embedding_size", hidden) != hidden:
        raise ValueError(f"embedding_size: expected {hidden}, hidden_size")
    layer, relative, convolved = deberta_layer(c, places)
    tables = (types + places * c.flag("position_biased_input", default=True) + 2) * hidden + relative
    return made(
        *(c, STYLE, [layer] * c.layers()),
        beside_parameters=tables + vocab + 3 * hidden - 2 * hidden + (3 * hidden if convolved else 0),
        beside_weights=hidden * hidden + convolved,
    )


def deberta(c: ConfigReader) -> Architecture:
    """Return DeBERTa of 2020: queries, keys and values in one matrix without biases of keys, tables without norms."""
    hidden, vocab, width = c.whole("hidden_size"), c.whole("vocab_size"), c.whole("intermediate_size")
    narrow, places = c.whole("embedding_size", hidden), c.whole("max_position_embeddings")
    sides, span = _sides(c), _span(c, places)
    plain, relative = attention_of_config(c), c.flag("relative_attention")
    c.skip("pooler_hidden_size", "max_relative_positions", "padding_idx")
    if not c.flag("legacy", default=True):
        raise ValueError("legacy: expected true; the other output over words is not counted")
    table = 2 * span * hidden * relative
    mixer = Attention(
        heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False, places=len(sides) * table
    )
    apart = hidden * hidden * ("c2p" in sides) + hidden * (hidden + 1) * ("p2c" in sides)
    talks = 2 * plain.heads**2 * c.flag("talking_head")
    small = 4 * hidden + 2 * hidden + hidden + width + hidden + apart * relative + talks
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    rows = c.whole("type_vocab_size", 0) + places * c.flag("position_biased_input", default=True)
    projected = hidden * narrow if narrow != hidden else 0
    return made(
        *(c, STYLE, [layer] * c.layers()),
        embedding_size=narrow,
        beside_parameters=rows * narrow + 2 * hidden + table + vocab + 3 * narrow - 2 * hidden,
        beside_weights=hidden * narrow + projected,
    )


def _sides(c: ConfigReader) -> set[str]:
    """Return from which sides scores with relative places are counted."""
    sides = c.value("pos_att_type", [])
    sides = sides.split("|") if isinstance(sides, str) else sides
    if not isinstance(sides, list) or not set(sides) <= {"c2p", "p2c", ""}:
        raise ValueError(f"pos_att_type: expected c2p and p2c, got {sides!r}")
    return set(sides) - {""}


def _span(c: ConfigReader, places: int) -> int:
    """Return how many relative places a table has on each side."""
    buckets, most = c.value("position_buckets", -1), c.value("max_relative_positions", -1)
    buckets, most = (number if type(number) is int and number >= 1 else 0 for number in (buckets, most))
    c.skip("position_buckets")
    return buckets or most or places


def convbert_layers(c: ConfigReader) -> list[LayerKind]:
    """Return the layers of ConvBERT: fewer heads, half as wide together as the stream, beside a dynamic convolution."""
    hidden, width, kernel = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("conv_kernel_size")
    heads = max(1, c.whole("num_attention_heads") // max(1, c.whole("head_ratio")))
    half, groups = hidden // 2, c.whole("num_groups")
    if hidden % (2 * heads) or not groups or hidden % groups or width % groups:
        raise ValueError(
            f"num_attention_heads, head_ratio, num_groups: {2 * heads} or {groups} divides no hidden_size {hidden}"
        )
    if groups > 1:
        c.assumed.append(f"networks of {groups} groups are counted as one as wide as a group")
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=half // heads, masked=False)
    convolved = DynamicConv(width=half, heads=heads, kernel=kernel)
    small = 3 * half + 2 * half + heads * kernel + hidden * kernel  # of queries to values, and of the convolution
    small += hidden + 4 * hidden + width + hidden
    network = Dense(width=width // groups, gated=False)
    return [LayerKind(mixer=mixer, beside=convolved, network=network, small=small)] * c.layers()


def esm(c: ConfigReader) -> Architecture:
    """Return ESM: norms before both halves and behind the last layer, and a regression of contacts."""
    hidden, vocab, width, count = (
        c.whole("hidden_size"),
        c.whole("vocab_size"),
        c.whole("intermediate_size"),
        c.layers(),
    )
    if c.flag("is_folding_model"):
        raise ValueError("is_folding_model: expected false")
    plain = attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=4 * hidden + 5 * hidden + width)
    places = c.whole("max_position_embeddings") * (c.value("position_embedding_type", "absolute") == "absolute")
    c.skip("token_dropout", "esmfold_config", "vocab_list")
    before = 2 * hidden * c.flag("emb_layer_norm_before")
    contacts = count * plain.heads + 1
    beside = places * hidden + before + contacts + vocab + 3 * hidden
    longest = places_behind_padding(c)
    layers = [layer] * count
    return made(
        *(c, STYLE, layers), beside_parameters=beside, beside_weights=hidden * hidden, max_position_embeddings=longest
    )


GATES = ("glu", "swiglu", "geglu")
NOMICS = dict.fromkeys(("prenorm", "parallel_block", "use_rms_norm", "causal", "expert_choice_router"), False) | {
    "num_shared_experts": 0,
    "ffn_div": 1,
}


def nomic_bert(c: ConfigReader) -> Architecture:
    """Return Nomic BERT: rotated queries and keys, norms behind both halves, in some files experts in some layers.

    What its class in the library lacks, biases, networks without a gate and experts, is as in the code beside the
    weights (nomic-ai/nomic-bert-2048:modeling_hf_nomic_bert.py), whose keys tell it.
    """
    c.fixed(NOMICS)
    if not c.value("rotary_emb_fraction", 1.0):
        raise ValueError("rotary_emb_fraction: expected more than 0: a table of positions is not counted")
    c.skip("dense_seq_output", "fused_bias_fc", "max_trained_positions", "use_xentropy", "moe_impl")
    rows = max(c.whole("pad_vocab_size_multiple", 1), 1)
    c = c.changed({"vocab_size": -(-c.whole("vocab_size") // rows) * rows})
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    beside = c.whole("type_vocab_size") * hidden + 2 * hidden + vocab + 3 * hidden - 2 * hidden
    c.skip("classifier_dropout")
    traits = Traits(layer_norm=True, tied=True)
    return made(c, traits, _nomics_layers(c), beside_parameters=beside, beside_weights=hidden * hidden)


def _nomics_layers(c: ConfigReader) -> list[LayerKind]:
    """Return the layers of Nomic BERT, every so-many-th of them with experts (NomicBertEncoder, NomicMoELayer)."""
    hidden, width, plain = c.whole("hidden_size"), c.whole("intermediate_size"), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    named = c.value("activation_function", "swiglu")
    if named not in (*GATES, "gelu"):
        raise ValueError(f"activation_function: expected one of {', '.join((*GATES, 'gelu'))}, got {named!r}")
    gated = named in GATES
    small = 4 * hidden + 4 * hidden * c.flag("qkv_proj_bias")
    biases = width * (1 + gated) * c.flag("mlp_fc1_bias") + hidden * c.flag("mlp_fc2_bias")
    dense = LayerKind(mixer=mixer, network=Dense(width=width, gated=gated), small=small + biases)
    every, count = c.whole("moe_every_n_layers", 0), c.whole("num_experts", 0)
    if not every:
        c.skip("num_experts", "moe_top_k")
        return [dense] * c.layers()
    top = c.whole("moe_top_k")
    if every < 2 or gated or not 1 <= top <= count:
        raise ValueError(
            f"moe_every_n_layers, num_experts, moe_top_k: expected 2 or more, and {top} of {count} experts without a "
            f"gate, got {every} and {named}"
        )
    experts = Experts(count=count, top=top, width=width, gated=False)
    routed = LayerKind(mixer=mixer, network=experts, small=small + hidden)  # one bias for all of them together
    return [routed if i % every == 1 else dense for i in range(c.layers())]


def roformer(c: ConfigReader) -> Architecture:
    """Return RoFormer: BERT with rotated queries and keys, by a table that is stored and not trained."""
    hidden, vocab, width = c.whole("hidden_size"), c.whole("vocab_size"), c.whole("intermediate_size")
    narrow, plain = c.whole("embedding_size", hidden), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    small = 4 * hidden + 3 * hidden + hidden + width + hidden
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    c.skip("rotary_value")
    tables = (c.whole("type_vocab_size") + 2) * narrow + c.whole("max_position_embeddings") * plain.head_dim
    projected = hidden * narrow if narrow != hidden else 0
    beside = tables + vocab + 3 * narrow - 2 * hidden + (hidden if projected else 0)
    return made(
        *(c, STYLE, [layer] * c.layers()),
        embedding_size=narrow,
        beside_parameters=beside,
        beside_weights=hidden * narrow + projected,
    )
