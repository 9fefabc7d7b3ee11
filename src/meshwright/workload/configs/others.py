"""Model types with keys or layers of their own: older decoders, encoders, and pairs of both."""

from collections.abc import Callable
from functools import partial

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, Experts, LayerKind
from .bert import albert, big_bird, encoder, layoutlm, layoutlmv3, longformer, mpnet, roc_bert
from .bert_kin import esmc, fnet, ibert, jina_v3, mobilebert, mra, nystromformer, rembert, squeezebert, xlm, xmod, yoso
from .decoders import Traits, attention_of_config, decoder, even, made
from .embedders import gte, xlm_roberta
from .encoders import convbert_layers, deberta, deberta_v2, esm, nomic_bert, roformer
from .images import Sight, beit, dinov2, dinov3, image_encoder
from .mpt import mpt
from .older_pairs import OLDER_PAIRS
from .own_decoders import cpmant, diffllama, hrm_text
from .pairs import (
    BOTH_SIDES,
    led,
    longt5,
    nllb_moe,
    prophetnet,
    switch_transformers,
    t5,
    t5gemma,
    t5gemma2,
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


def bart(
    c: ConfigReader, *, tables: str, last_norms: bool, first_norms: bool, variant: str | None = None
) -> Architecture:
    """Return an encoder and a decoder that reads it, in the style of BART; `tables`: "learned+2", "fixed"."""
    hidden, places = c.whole("hidden_size"), c.whole("max_position_embeddings", 0)
    layers = _pair(c, hidden, key_bias=True)
    c.tell_token(BOTH_SIDES)
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
    c.tell_token(FIXED_LENGTH.format(frames=f"{frames:,}"))
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


FIXED_LENGTH = (
    "each sequence has an encoder's {frames} positions of sound (max_source_positions) beside its text, however long "
    "that is; FLOPs are those of a token of text"
)

MASKED = tuple(f"{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks"))
PAIRS = frozenset(
    {
        *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "m2m_100", "marian", "whisper"),
        *("plbart", "mvp", "blenderbot", "blenderbot-small"),
        *("longt5", "switch_transformers", "nllb-moe", "led", "t5gemma", "t5gemma2", "prophetnet"),
        *("moonshine", "cohere_asr"),
        *OLDER_PAIRS,
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
    **dict.fromkeys(
        ("roberta", "camembert", "data2vec-text", "xlm-roberta-xl"),  # the last one as megatron-bert
        partial(encoder, behind_padding=True),
    ),
    "xlm-roberta": xlm_roberta,
    **dict.fromkeys(("new", "gte"), gte),
    "longformer": longformer,
    "big_bird": big_bird,
    "deberta": deberta,
    "ernie": encoder,
    "megatron-bert": encoder,  # a norm after the last layer, and none of the embedding
    "roberta-prelayernorm": partial(encoder, last_norm=True, behind_padding=True),
    "electra": encoder,
    "roc_bert": roc_bert,
    "ibert": ibert,
    "xmod": xmod,
    "yoso": yoso,
    "mra": mra,
    "nystromformer": nystromformer,
    "squeezebert": squeezebert,
    "rembert": rembert,
    "fnet": fnet,
    "jina_embeddings_v3": jina_v3,
    "esmc": esmc,
    "mobilebert": mobilebert,
    **dict.fromkeys(("xlm", "flaubert"), xlm),
    "diffllama": diffllama,
    "cpmant": cpmant,
    "hrm_text": hrm_text,
    **OLDER_PAIRS,
    "albert": albert,
    "mpnet": mpnet,
    "layoutlm": layoutlm,
    "layoutlmv3": layoutlmv3,
    "convbert": partial(encoder, layers=convbert_layers),
    "distilbert": partial(encoder, token_types=False),
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
    "t5gemma2": t5gemma2,
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
