"""Encoders of text in the style of BERT."""

from collections.abc import Callable

import msgspec

from ..architecture import MOST_LAYERS, Architecture
from ..kinds import Attention, Dense, LayerKind, runs_of
from .decoders import Traits, attention_of_config, made
from .reader import ConfigReader


def bert_layer(c: ConfigReader) -> LayerKind:
    """Return a layer of BERT, with biases everywhere."""
    hidden, width, plain = c.whole("hidden_size"), c.whole("intermediate_size"), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    small = 4 * hidden + 3 * hidden + hidden + width + hidden
    return LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)


def bert_layers(c: ConfigReader) -> list[LayerKind]:
    """Return the layers of BERT."""
    return [bert_layer(c)] * c.layers()


def places_behind_padding(c: ConfigReader) -> int:
    """Return the tokens of the longest sequence, the first of which has the row behind padding's.

    As create_position_ids_from_input_ids has it (huggingface/transformers: modeling_roberta.py): of 514 rows with 1
    for padding, a sequence has 512.
    """
    padding = c.value("pad_token_id", 1)
    first = padding + 1 if type(padding) is int and padding >= 0 else 0
    return max(c.whole("max_position_embeddings") - first, 0)


# keys of the first files (google-research/bert: bert_config.json of multilingual_L-12_H-768_A-12), which no code reads
BERTS_FIRST = (
    *("directionality", "pooler_type", "pooler_fc_size", "pooler_num_fc_layers"),
    *("pooler_num_attention_heads", "pooler_size_per_head"),
)


def encoder(
    c: ConfigReader,
    *,
    token_types: bool = True,
    rows: int = 0,
    last_norm: bool = False,
    projects: bool = False,
    behind_padding: bool = False,
    layers: Callable[[ConfigReader], list[LayerKind]] = bert_layers,
) -> Architecture:
    """Return an encoder in the style of BERT, with the transform before its output.

    `last_norm`: norms come before attention and network, and one more after the last layer. `projects`: the embedding
    is projected to the width of the layers even where it has that width. `behind_padding`: places are counted from
    behind the number of the token of padding.
    """
    if c.flag("use_task_id"):
        raise ValueError("use_task_id: expected false; a table of tasks is not counted")
    c.skip("task_type_vocab_size", *BERTS_FIRST)
    c.fixed({"position_embedding_type": "absolute", "tie_weights_": True})
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    narrow = c.whole("embedding_size", hidden)
    types = c.whole("type_vocab_size", 2) if token_types else 0
    positions = c.whole("max_position_embeddings") + rows
    tables = (types + positions + 2) * narrow
    projected = hidden * narrow if projects or narrow != hidden else 0
    beside = tables + 2 * hidden * last_norm + vocab + 3 * narrow - 2 * hidden + (hidden if projected else 0)
    c.skip("classifier_dropout", "summary_last_dropout", "sinusoidal_pos_embds", "qa_dropout", "seq_classif_dropout")
    return made(
        c,
        Traits(layer_norm=True, tied=True, positions="none"),
        layers(c),
        embedding_size=narrow,
        max_position_embeddings=places_behind_padding(c) if behind_padding else positions,
        beside_parameters=beside,
        beside_weights=hidden * narrow + projected,
    )


def roc_bert(c: ConfigReader) -> Architecture:
    """Return RoCBERT: BERT with tables of shapes and sounds of the signs, joined to the words' before the layers."""
    hidden, found, joined, held = c.whole("hidden_size"), encoder(c), 0, 0
    for what in ("pronunciation", "shape"):
        width = c.whole(f"{what}_embed_dim")
        held += c.whole(f"{what}_vocab_size") * width
        joined += width * c.flag(f"enable_{what}", default=True)
    concat = c.flag("concat_input", default=True)
    return msgspec.structs.replace(
        found,
        beside_parameters=found.beside_parameters + held + hidden * concat,
        beside_weights=found.beside_weights + hidden * (hidden + joined) * concat,
    )


def mpnet(c: ConfigReader) -> Architecture:
    """Return MPNet: BERT without token types, and a table of relative places for all layers."""
    found, buckets = encoder(c, token_types=False, behind_padding=True), c.whole("relative_attention_num_buckets")
    table = buckets * c.whole("num_attention_heads")
    return msgspec.structs.replace(found, beside_parameters=found.beside_parameters + table)


def layoutlm(c: ConfigReader) -> Architecture:
    """Return LayoutLM: BERT with tables of where a word stands on its page, and how large it is."""
    found, hidden = encoder(c), c.whole("hidden_size")
    tables = 4 * c.whole("max_2d_position_embeddings") * hidden
    pooled = hidden * (hidden + 1)  # of the first token, which the output over words does not use
    return msgspec.structs.replace(found, beside_parameters=found.beside_parameters + tables + pooled)


def layoutlmv3(c: ConfigReader) -> Architecture:
    """Return LayoutLMv3: BERT over words and the patches of their page, scores with tables of relative places."""
    found, hidden, heads = encoder(c, behind_padding=True), c.whole("hidden_size"), c.whole("num_attention_heads")
    if not c.flag("text_embed", default=True) or not c.flag("visual_embed", default=True):
        raise ValueError("text_embed, visual_embed: expected true")
    image, patch = c.whole("input_size"), c.whole("patch_size")
    if not patch or image < patch:
        raise ValueError(f"patch_size: {patch} does not fit input_size {image}")
    c.skip("max_rel_pos", "max_rel_2d_pos", "second_input_size")
    tables = 2 * c.whole("max_2d_position_embeddings") * (c.whole("coordinate_size") + c.whole("shape_size"))
    biases = c.whole("rel_pos_bins") * c.flag("has_relative_attention_bias", default=True)
    biases += 2 * c.whole("rel_2d_pos_bins") * c.flag("has_spatial_attention_bias", default=True)
    places = (image // patch) ** 2 + 1
    c.assumed.append(PATCHES_BESIDE.format(count=places))
    sight = hidden * (c.whole("channels", 3) * patch**2 + 1 + 1 + places + 4)
    return msgspec.structs.replace(found, beside_parameters=found.beside_parameters + tables + biases * heads + sight)


PATCHES_BESIDE = (
    "a sequence has {count} vectors of its page's image beside its text; FLOPs are those of a token of text"
)


def albert(c: ConfigReader) -> Architecture:
    """Return ALBERT: an encoder whose layers use the weights of one group of layers, or of a few, over and over."""
    times, groups, inner = c.layers(), c.whole("num_hidden_groups"), c.whole("inner_group_num")
    if not 1 <= groups <= times or not 1 <= inner <= MOST_LAYERS // times:
        raise ValueError(f"num_hidden_groups, inner_group_num: expected 1 to {times}, and 1 or more")
    if not c.flag("tied", default=True):
        raise ValueError("tie_word_embeddings: expected true; an output apart is not counted")
    c.fixed({"net_structure_type": 0, "num_memory_blocks": 0, "gap_size": 0, "down_scale_factor": 1})
    whole = encoder(c, projects=True)
    own = whole.runs[0].layer
    again = msgspec.structs.replace(own, borrowed=own.parameters(whole.hidden_size))
    of_group = [int(place / (times / groups)) for place in range(times)]  # as the class works it out
    layers = [own if of_group.index(of_group[i]) == i else again for i in range(times) for _ in range(inner)]
    return msgspec.structs.replace(whole, num_hidden_layers=len(layers), stack=runs_of(layers))


GLOBALLY = "no token attends to all others: projections for such tokens are held, and multiplied with nothing"


def longformer(c: ConfigReader) -> Architecture:
    """Return Longformer: attention in windows, with projections of their own for tokens that meet all."""
    hidden, windows, count = c.whole("hidden_size"), c.value("attention_window"), c.layers()
    listed = windows if isinstance(windows, list) else [windows] * count
    if len(listed) != count or not all(type(window) is int and window > 0 for window in listed):
        raise ValueError(f"attention_window: expected a number, or one for each of the {count} layers")
    c.skip("attention_mode", "ignore_attention_mask")
    c.assumed.append(GLOBALLY)
    plain = bert_layer(c)
    assert isinstance(plain.mixer, Attention)
    layers = [
        msgspec.structs.replace(
            plain,
            mixer=msgspec.structs.replace(plain.mixer, window=window + 1),  # half of it on each side, and itself
            small=plain.small + 3 * hidden * (hidden + 1),
        )
        for window in listed
    ]
    return encoder(c, behind_padding=True, layers=lambda _: layers)


BLOCKS = "each token meets {met:,} keys: of its block, two beside it, the first, the last, and {random} drawn ones"


def big_bird(c: ConfigReader) -> Architecture:
    """Return BigBird: BERT whose tokens meet the keys of a few blocks (Zaheer et al. 2020, arXiv 2007.14062)."""
    hidden, kind = c.whole("hidden_size"), c.value("attention_type")
    size, random = c.whole("block_size"), c.whole("num_random_blocks")
    if kind not in ("block_sparse", "original_full"):
        raise ValueError(f"attention_type: expected block_sparse or original_full, got {kind!r}")
    plain = bert_layer(c)
    assert isinstance(plain.mixer, Attention)
    met = (5 + random) * size if kind == "block_sparse" else 0
    if met:
        c.assumed.append(BLOCKS.format(met=met, random=random))
    biases = 3 * hidden * (not c.flag("use_bias", default=True))
    mixer = msgspec.structs.replace(plain.mixer, window=met)
    layer = msgspec.structs.replace(plain, mixer=mixer, small=plain.small - biases)
    found, pooled = encoder(c, layers=lambda _: [layer] * c.layers()), hidden * (hidden + 1)
    return msgspec.structs.replace(found, beside_parameters=found.beside_parameters + pooled)


REPLACED = (
    "an output of one number a token is counted: whether it was replaced; the generator that replaces tokens is a "
    "model of its own, and not counted"
)


def electra_discriminator(c: ConfigReader) -> Architecture:
    """Return ELECTRA's discriminator, which tells of each token whether it was replaced."""
    found, hidden = encoder(c), c.whole("hidden_size")
    narrow = found.embedding_width
    c.assumed.append(REPLACED)
    held = found.vocab_size * narrow - (found.vocab_size + 3 * narrow)  # the table is kept, the output's rest is not
    return msgspec.structs.replace(
        found,
        vocab_size=1,
        embeds=False,
        tied=False,
        embedding_size=0,
        beside_parameters=found.beside_parameters + held + hidden + 1,
        beside_weights=found.beside_weights - hidden * narrow + hidden * hidden,
    )
