"""Model types with keys or layers of their own: older decoders, encoders, and pairs of both."""

from collections.abc import Callable
from functools import partial

import msgspec

from ..architecture import MOST_LAYERS, Architecture
from ..kinds import Attention, Dense, Experts, LayerKind, runs_of
from .decoders import Traits, attention_of_config, decoder, even, made
from .encoders import convbert_layer, deberta_v2, esm, nomic_bert, roformer
from .images import Sight, beit, dinov2, dinov3, image_encoder
from .mpt import mpt
from .pairs import (
    BOTH_SIDES,
    gated_as_t5,
    layers_as_t5,
    led,
    longt5,
    nllb_moe,
    prophetnet,
    switch_transformers,
    t5gemma,
)
from .reader import MOST, ConfigReader
from .speech_to_text import cohere_asr, moonshine


def falcon(c: ConfigReader) -> Architecture:
    """Return Falcon: one key head where multi_query says so, unless the newer architecture gives their number."""
    count, hidden, heads = c.layers(), c.whole("hidden_size"), c.whole("num_attention_heads")
    new, parallel, bias = c.flag("new_decoder_architecture"), c.flag("parallel_attn", default=True), c.flag("bias")
    many, single = c.whole("num_key_value_heads", heads), c.flag("multi_query", default=True)
    kv_heads = many if new else 1 if single else heads
    mixer = Attention(heads=heads, kv_heads=kv_heads, head_dim=even(hidden, heads))
    c.skip("ffn_hidden_size", "num_ln_in_parallel_attn")
    width = c.whole("ffn_hidden_size", 4 * hidden) if c.given("ffn_hidden_size") else 4 * hidden
    c.fixed({"ff_factor": width / hidden})  # of tiiuae/falcon-11B, beside the width
    two = not parallel or c.whole("num_ln_in_parallel_attn", 2 if new else 1) == 2
    norms = 2 if two else 1
    biases = (heads + 2 * kv_heads) * mixer.head_dim + hidden + width + hidden
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=2 * norms * hidden + biases * bias)
    traits = Traits(layer_norm=True, tied=True, positions="alibi" if c.flag("alibi") else "rotary")
    return made(c, traits, [layer] * count)


def opt(c: ConfigReader) -> Architecture:
    """Return OPT: an embedding that may be narrower, with projections around the layers."""
    count, hidden = c.layers(), c.whole("hidden_size")
    narrow = c.whole("word_embed_proj_dim", hidden)
    bias, before = c.flag("enable_bias", default=True), c.flag("do_layer_norm_before", default=True)
    mixer, width = attention_of_config(c), c.whole("intermediate_size")
    affine = c.flag("layer_norm_elementwise_affine", default=True)
    small = 4 * hidden * affine + (3 * hidden + hidden + width + hidden) * bias
    last = before and affine and not c.flag("_remove_final_layer_norm")
    beside = 2 * hidden - (0 if last else 2 * hidden)
    return made(
        c,
        Traits(layer_norm=True, tied=True, positions="learned"),
        [LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)] * count,
        embedding_size=narrow,
        beside_parameters=beside,
        beside_weights=2 * hidden * narrow if narrow != hidden else 0,
    )


def openai_gpt(c: ConfigReader, traits: Traits) -> Architecture:
    """Return the first GPT: norms behind attention and network, none after the last layer."""
    c.skip("afn", "n_special", "predict_special_tokens")
    whole = decoder(c, traits)
    layers = [run.layer for run in whole.runs for _ in range(run.count)]
    return made(c, traits, layers, beside_parameters=-2 * c.whole("hidden_size"))


def molmo2(c: ConfigReader, traits: Traits) -> Architecture:
    """Return Molmo 2: an embedding with rows that the output lacks."""
    if c.value("qk_norm_type", "qwen3") != "qwen3":
        raise ValueError("qk_norm_type: expected qwen3")
    c.skip("rope_scaling_layers", "norm_after")
    whole, rows = decoder(c, traits), c.whole("additional_vocab_size")
    layers = [run.layer for run in whole.runs for _ in range(run.count)]
    return made(c, traits, layers, beside_parameters=rows * c.whole("hidden_size"))


def realtime_text(c: ConfigReader, traits: Traits) -> Architecture:
    """Return the text model of Voxtral Realtime: each layer scales its stream by the delay, through 32 columns."""
    hidden = c.whole("hidden_size")
    layers = [
        msgspec.structs.replace(run.layer, small=run.layer.small + 2 * 32 * hidden)  # of one delay, not of tokens
        for run in decoder(c, traits).runs
        for _ in range(run.count)
    ]
    return made(c, traits, layers)


def gpt_neox_japanese(c: ConfigReader) -> Architecture:
    """Return GPT-NeoX Japanese: no biases but one behind the attention of the last layer."""
    hidden, mixer = c.whole("hidden_size"), attention_of_config(c)
    width = hidden * c.whole("intermediate_multiple_size")
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=4 * hidden)
    last = msgspec.structs.replace(layer, small=5 * hidden)
    return made(c, Traits(layer_norm=True, tied=True), [layer] * (c.layers() - 1) + [last])


def gpt_bigcode(c: ConfigReader) -> Architecture:
    """Return GPT-BigCode (StarCoder): one key head where multi_query says so."""
    hidden, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    kv_heads = 1 if c.flag("multi_query", default=True) else heads
    c.skip("num_key_value_heads")
    mixer = Attention(heads=heads, kv_heads=kv_heads, head_dim=even(hidden, heads))
    width = c.whole("intermediate_size", 4 * hidden)
    small = 4 * hidden + (heads + 2 * kv_heads) * mixer.head_dim + hidden + width + hidden
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    c.skip("attention_softmax_in_fp32", "inference_runner", "pad_key_length", "max_batch_size", "validate_runner_input")
    return made(c, Traits(layer_norm=True, tied=True, positions="learned"), [layer] * c.layers())


def dbrx(c: ConfigReader) -> Architecture:
    """Return DBRX: keys of attention and experts in objects of their own."""
    hidden, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    inside, network = c.part("attn_config"), c.part("ffn_config")
    sizes = {}
    for part, key, default in (
        (inside, "kv_n_heads", 1),
        (network, "ffn_hidden_size", 3584),
        (network, "moe_num_experts", 4),
        (network, "moe_top_k", 1),
    ):
        value = part.get(key, default)
        if type(value) is not int or not 1 <= value < MOST:
            raise ValueError(f"{key}: expected a whole number of 1 or more, got {value!r}")
        sizes[key] = value
    if c.given("num_key_value_heads") and c.whole("num_key_value_heads") != sizes["kv_n_heads"]:
        raise ValueError(f"num_key_value_heads: expected attn_config.kv_n_heads = {sizes['kv_n_heads']}")
    mixer = Attention(heads=heads, kv_heads=sizes["kv_n_heads"], head_dim=even(hidden, heads))
    routed = Experts(count=sizes["moe_num_experts"], top=sizes["moe_top_k"], width=sizes["ffn_hidden_size"])
    layer = LayerKind(mixer=mixer, network=routed, small=2 * hidden)
    return made(c, Traits(), [layer] * c.layers())


def bert_layer(c: ConfigReader) -> LayerKind:
    """Return a layer of BERT, with biases everywhere."""
    hidden, width, plain = c.whole("hidden_size"), c.whole("intermediate_size"), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    small = 4 * hidden + 3 * hidden + hidden + width + hidden
    return LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)


# keys of the first files (google-research/bert: bert_config.json of multilingual_L-12_H-768_A-12), which no code reads
BERTS_FIRST = ("directionality", "pooler_type", "pooler_fc_size", "pooler_num_fc_layers") + (
    "pooler_num_attention_heads",
    "pooler_size_per_head",
)


def encoder(
    c: ConfigReader,
    *,
    token_types: bool = True,
    rows: int = 0,
    last_norm: bool = False,
    projects: bool = False,
    layer: Callable[[ConfigReader], LayerKind] = bert_layer,
) -> Architecture:
    """Return an encoder in the style of BERT, with the transform before its output.

    `last_norm`: norms come before attention and network, and one more after the last layer. `projects`: the embedding
    is projected to the width of the layers even where it has that width.
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
        [layer(c)] * c.layers(),
        embedding_size=narrow,
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
    found, buckets = encoder(c, token_types=False), c.whole("relative_attention_num_buckets")
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
    found, hidden, heads = encoder(c), c.whole("hidden_size"), c.whole("num_attention_heads")
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


def modernbert(c: ConfigReader, *, masked: bool = False) -> Architecture:
    """Return ModernBERT: gated networks, windows with full attention in each third layer; `masked`: a decoder.

    A decoder's window is the half of an encoder's that lies before a token.
    """
    count, hidden = c.layers(), c.whole("hidden_size")
    period, width = c.whole("global_attn_every_n_layers", 3), c.whole("intermediate_size")
    for name in ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"):
        if c.flag(name):
            raise ValueError(f"{name}: expected false")
    kinds = c.words("layer_types", count) or ["full_attention" if i % period == 0 else "local" for i in range(count)]
    plain, window = attention_of_config(c), c.whole("local_attention", 128) // (2 if masked else 1)
    c.skip("sliding_window", "num_key_value_heads")
    c.skip("classifier_pooling", "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index")
    c.skip("reference_compile", "repad_logits_with_grad", "local_rope_theta", "global_rope_theta")
    layers = [
        LayerKind(
            mixer=Attention(
                heads=plain.heads,
                kv_heads=plain.kv_heads,
                head_dim=plain.head_dim,
                masked=masked,
                window=0 if kind == "full_attention" else window,
            ),
            network=Dense(width=width),
            small=(2 if i else 1) * hidden,
        )
        for i, kind in enumerate(kinds)
    ]
    beside = 2 * hidden + c.whole("vocab_size") * c.flag("decoder_bias", default=True)
    return made(c, Traits(tied=True), layers, beside_parameters=beside, beside_weights=hidden * hidden)


def t5(c: ConfigReader, *, table_each: bool = False) -> Architecture:
    """Return T5: an encoder and a decoder that reads it, with a table of relative positions."""
    hidden, heads, dim = c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("d_kv")
    (count, later), width = layers_as_t5(c), c.whole("d_ff")
    if not c.flag("tied", default=True):
        c.assumed.append(APART.format(count=c.whole("vocab_size") * hidden / 1e6))
    c.skip("relative_attention_max_distance", "dense_act_fn", "n_positions")
    if "n_tokens" in c.part("chronos_config"):  # of values of a series, cut into tokens; others embed patches of them
        c.skip("chronos_config")
    else:
        c.used.discard("chronos_config")
    network = Dense(width=width, gated=gated_as_t5(c))
    over = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False)
    own = Attention(heads=heads, kv_heads=heads, head_dim=dim)
    c.assumed.append(BOTH_SIDES)
    table = c.whole("relative_attention_num_buckets") * heads
    each = table * table_each
    layers = [LayerKind(mixer=over, network=network, small=2 * hidden + each)] * count
    layers += [LayerKind(mixer=own, beside=over, network=network, small=3 * hidden + each)] * later
    beside = hidden + (0 if table_each else 2 * table)
    return made(c, Traits(tied=True), layers, beside_parameters=beside, max_position_embeddings=0)


def bart(
    c: ConfigReader, *, tables: str, last_norms: bool, first_norms: bool, variant: str | None = None
) -> Architecture:
    """Return an encoder and a decoder that reads it, in the style of BART; `tables`: "learned+2", "fixed"."""
    hidden, places = c.whole("hidden_size"), c.whole("max_position_embeddings", 0)
    layers = _pair(c, hidden, key_bias=True)
    c.assumed.append(BOTH_SIDES)
    if not c.flag("share_encoder_decoder_embeddings", default=True):
        raise ValueError("share_encoder_decoder_embeddings: expected true; two tables are not counted")
    if variant:  # where the norms of Blenderbot lie
        c.fixed({"layernorm_variant": variant})
        c.skip("do_blenderbot_90_layernorm")
    c.skip("num_hidden_layers", "classifier_dropout", "classif_dropout")
    c.skip("decoder_vocab_size", "normalize_before", "normalize_embedding", "add_bias_logits", "add_final_layer_norm")
    if c.flag("use_prompt"):
        raise ValueError("use_prompt: expected false; prompts that are trained are not counted")
    c.skip("prompt_length", "prompt_mid_dim")
    c.skip("static_position_embeddings", "extra_pos_embeddings", "gradient_checkpointing")
    # of students: which layers of a teacher they began with (huggingface/transformers: seq2seq-distillation)
    c.skip("student_encoder_layers", "student_decoder_layers", "save_step", "replacing_rate")
    if not c.flag("tied", default=True):
        raise ValueError("tie_word_embeddings: expected true; embeddings of the two sides apart are not counted")
    positions = {"fixed": 0, "learned": 2 * places, "learned+2": 2 * (places + 2)}[tables]
    norms = 4 * hidden * (last_norms + first_norms)
    beside = positions * hidden + norms - 2 * hidden
    traits = Traits(layer_norm=True, tied=True, positions="none")
    return made(c, traits, layers, beside_parameters=beside)


def _pair(c: ConfigReader, hidden: int, *, key_bias: bool, length: int = 0) -> list[LayerKind]:
    """Return the encoder's layers and the decoder's; `length`: tokens of the encoder, where their number is fixed."""
    found = []
    if not c.flag("is_encoder_decoder", default=True):
        raise ValueError("is_encoder_decoder: expected true: the decoder of a pair alone is not counted")
    for side in ("encoder", "decoder"):
        heads, width = c.whole(f"{side}_attention_heads"), c.whole(f"{side}_ffn_dim")
        reads = side == "decoder"
        over = Attention(heads=heads, kv_heads=heads, head_dim=even(hidden, heads), masked=False, reads=length)
        own = Attention(heads=heads, kv_heads=heads, head_dim=even(hidden, heads), masked=reads)
        biases = (4 if key_bias else 3) * hidden
        small = (1 + reads) * (2 * hidden + biases) + 2 * hidden + width + hidden
        layer = LayerKind(
            mixer=own,
            beside=over if reads else None,
            network=Dense(width=width, gated=False),
            small=small,
            length=0 if reads else length,
        )
        found += [layer] * c.whole(f"{side}_layers")
    return found


def whisper(c: ConfigReader) -> Architecture:
    """Return Whisper: an encoder of sound behind two convolutions, and a decoder of text."""
    hidden, bins = c.whole("hidden_size"), c.whole("num_mel_bins")
    frames = c.whole("max_source_positions")
    layers = _pair(c, hidden, key_bias=False, length=frames)
    convolutions = 3 * hidden * (bins + hidden)
    layers[0] = msgspec.structs.replace(layers[0], more=convolutions)
    c.assumed.append(FIXED_LENGTH.format(frames=f"{frames:,}"))
    c.skip("num_hidden_layers", "classifier_proj_size", "use_weighted_layer_sum", "median_filter_width", "layerdrop")
    c.skip("apply_spec_augment", *(f"mask_{what}" for what in MASKED), "max_length", "max_position_embeddings")
    places = frames + c.whole("max_target_positions")
    beside = 2 * hidden + places * hidden + 4 * hidden - 2 * hidden
    traits = Traits(layer_norm=True, tied=True, positions="none")
    longest = c.whole("max_target_positions")
    return made(
        *(c, traits, layers),
        beside_parameters=beside,
        max_position_embeddings=longest,
    )


APART = (
    "the output has weights of its own, {count:,.1f} M, as tie_word_embeddings says and published checkpoints hold; "
    "transformers 5 ties it to the embedding all the same"
)
FIXED_LENGTH = (
    "each sequence has an encoder's {frames} positions of sound (max_source_positions) beside its text, however long "
    "that is; FLOPs are those of a token of text"
)

MASKED = tuple(f"{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks"))
PAIRS = frozenset(
    {
        *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "m2m_100", "marian", "whisper"),
        *("plbart", "mvp", "blenderbot", "blenderbot-small"),
        *("longt5", "switch_transformers", "nllb-moe", "led", "t5gemma", "prophetnet"),
        *("moonshine", "cohere_asr"),
    }
)
OTHERS: dict[str, Callable[[ConfigReader], Architecture]] = {
    "falcon": falcon,
    "opt": opt,
    "gpt_neox_japanese": gpt_neox_japanese,
    "mpt": mpt,
    "gpt_bigcode": gpt_bigcode,
    "dbrx": dbrx,
    "bert": encoder,
    "roberta": encoder,
    "xlm-roberta": encoder,
    "camembert": encoder,
    "ernie": encoder,
    "data2vec-text": encoder,
    "megatron-bert": encoder,  # a norm after the last layer, and none of the embedding
    "roberta-prelayernorm": partial(encoder, last_norm=True),
    "electra": encoder,
    "roc_bert": roc_bert,
    "albert": albert,
    "mpnet": mpnet,
    "layoutlm": layoutlm,
    "layoutlmv3": layoutlmv3,
    "convbert": partial(encoder, layer=convbert_layer),
    "distilbert": partial(encoder, token_types=False),
    "xlm-roberta-xl": encoder,  # as megatron-bert
    "modernbert": modernbert,
    "modernbert-decoder": partial(modernbert, masked=True),
    "vit": partial(image_encoder, sight=Sight()),
    "t5": t5,
    "mt5": t5,
    "umt5": partial(t5, table_each=True),
    "bart": partial(bart, tables="learned+2", last_norms=False, first_norms=True),
    "plbart": partial(bart, tables="learned+2", last_norms=False, first_norms=True),
    "mvp": partial(bart, tables="learned+2", last_norms=False, first_norms=True),
    "blenderbot": partial(bart, tables="learned", last_norms=True, first_norms=False, variant="prelayernorm"),
    "blenderbot-small": partial(bart, tables="learned", last_norms=False, first_norms=True, variant="xlm"),
    "mbart": partial(bart, tables="learned+2", last_norms=True, first_norms=True),
    "pegasus": partial(bart, tables="learned", last_norms=True, first_norms=False),
    "m2m_100": partial(bart, tables="fixed", last_norms=True, first_norms=False),
    "marian": partial(bart, tables="learned", last_norms=False, first_norms=False),
    "whisper": whisper,
    "longt5": longt5,
    "switch_transformers": switch_transformers,
    "nllb-moe": nllb_moe,
    "led": led,
    "t5gemma": t5gemma,
    "prophetnet": prophetnet,
    "moonshine": moonshine,
    "cohere_asr": cohere_asr,
    "deberta-v2": deberta_v2,
    "esm": esm,
    "nomic_bert": nomic_bert,
    "roformer": roformer,
    "dinov2": dinov2,
    "dinov2_with_registers": partial(dinov2, registers=True),
    "beit": beit,
    "dinov3_vit": dinov3,
    "vit_msn": partial(image_encoder, sight=Sight()),
    "deit": partial(image_encoder, sight=Sight(tokens=2)),
    "ijepa": partial(image_encoder, sight=Sight(tokens=0)),
}
