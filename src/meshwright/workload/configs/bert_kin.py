"""Encoders of text that are BERT but for one part: attention, matrices in groups, the embedding or the output."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .bert import bert_layer, encoder
from .decoders import Traits, decoder, even, made
from .reader import ConfigReader

STYLE = Traits(layer_norm=True, tied=True, positions="none")
ROWS_BEFORE = 2  # of the table of positions, whatever the token of padding


def ibert(c: ConfigReader) -> Architecture:
    """Return I-BERT: RoBERTa, trained whole before its weights are rounded."""
    c.fixed({"quant_mode": False})
    c.skip("force_dequant")
    return encoder(c, behind_padding=True)


LANGUAGES = "each layer holds an adapter for each of {count} languages: a token passes that of its own"


def xmod(c: ConfigReader) -> Architecture:
    """Return X-MOD: RoBERTa with a bottleneck of its own for each language behind every layer."""
    hidden, languages, factor = c.whole("hidden_size"), c.value("languages"), c.value("adapter_reduction_factor")
    if not isinstance(languages, list) or not languages:
        raise ValueError(f"languages: expected a list of one or more, got {languages!r:.100}")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= hidden:
        raise ValueError(f"adapter_reduction_factor: expected a number from above 0 to {hidden}, got {factor!r}")
    c.skip("adapter_reuse_layer_norm", "ln_before_adapter", "default_language")
    count, inner = len(languages), int(hidden / factor)
    c.assumed.append(LANGUAGES.format(count=count))
    plain, matrices = bert_layer(c), 2 * hidden * inner
    held = (count - 1) * matrices + count * (inner + hidden) + 2 * hidden * c.flag("adapter_layer_norm")
    layer = msgspec.structs.replace(plain, small=plain.small + held, more=matrices)
    return encoder(c, behind_padding=True, last_norm=c.flag("pre_norm"), layers=lambda _: [layer] * c.layers())


FEW_KEYS = "attention by {how} is counted as if each token met all others"


def _approximate(c: ConfigReader, how: str, *, convolved: int = 0, met: int = 0) -> Architecture:
    """Return BERT with attention that is not computed whole; `convolved`: taps of a convolution of each head."""
    plain = bert_layer(c)
    assert isinstance(plain.mixer, Attention)
    if not met:
        c.assumed.append(FEW_KEYS.format(how=how))
    mixer = msgspec.structs.replace(plain.mixer, window=met)
    layer = msgspec.structs.replace(plain, mixer=mixer, small=plain.small + plain.mixer.heads * convolved)
    found = encoder(c, rows=ROWS_BEFORE, layers=lambda _: [layer] * c.layers())
    return msgspec.structs.replace(found, max_position_embeddings=c.whole("max_position_embeddings"))


def yoso(c: ConfigReader) -> Architecture:
    """Return YOSO: keys that fall into the same bucket as a query are sampled."""
    c.skip("use_expectation", "hash_code_len", "num_hash", "use_fast_hash", "lsh_backward")
    return _approximate(c, "samples of keys", convolved=c.whole("conv_window", 0))


def mra(c: ConfigReader) -> Architecture:
    """Return MRA: blocks of keys at several resolutions."""
    c.skip("block_per_row", "approx_mode", "initial_prior_first_n_blocks", "initial_prior_diagonal_n_blocks")
    return _approximate(c, "blocks of several resolutions")


LANDMARKS = "each token meets {count} landmarks, twice, in place of all others (Xiong et al. 2021, arXiv 2102.03902)"


def nystromformer(c: ConfigReader) -> Architecture:
    """Return Nystromformer: scores through landmarks, of which there are fewer than tokens, or plain ones."""
    marks, length = c.whole("num_landmarks"), c.whole("segment_means_seq_len")
    c.skip("inv_coeff_init_option", "inv_init_coeff_option")
    plain = marks == length
    if not plain:
        c.assumed.append(LANDMARKS.format(count=marks))
    found = _approximate(c, "landmarks", convolved=c.whole("conv_kernel_size", 0), met=0 if plain else 2 * marks)
    if plain:
        c.assumed.remove(FEW_KEYS.format(how="landmarks"))
    return found


GROUPED = ("q", "k", "v", "post_attention", "intermediate", "output")


def squeezebert(c: ConfigReader) -> Architecture:
    """Return SqueezeBERT: BERT whose matrices are convolutions in groups, each a part of the rows by a part."""
    hidden, width, plain = c.whole("hidden_size"), c.whole("intermediate_size"), bert_layer(c)
    if c.whole("embedding_size", hidden) != hidden:
        raise ValueError(f"embedding_size: expected {hidden}, hidden_size")
    spared = 0
    for name in GROUPED:
        groups, size = c.whole(f"{name}_groups"), hidden * (width if name in GROUPED[4:] else hidden)
        if not groups or hidden % groups or width % groups:
            raise ValueError(f"{name}_groups: {groups} does not divide hidden_size {hidden}, intermediate_size {width}")
        spared += size - size // groups
    layer = msgspec.structs.replace(plain, more=-spared)
    found, pooled = encoder(c, layers=lambda _: [layer] * c.layers()), hidden * (hidden + 1)
    return msgspec.structs.replace(found, beside_parameters=found.beside_parameters + pooled)


def rembert(c: ConfigReader) -> Architecture:
    """Return RemBERT: an embedding narrower than the layers, and an output of its own that is wider."""
    c.fixed({"tie_word_embeddings": False})
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    narrow, wide = c.whole("input_embedding_size"), c.whole("output_embedding_size")
    rows = c.whole("type_vocab_size") + c.whole("max_position_embeddings") + 2
    return made(
        *(c, STYLE, [bert_layer(c)] * c.layers()),
        tied=False,
        embedding_size=narrow,
        beside_parameters=rows * narrow + hidden + vocab + 3 * wide - 2 * hidden,
        beside_weights=hidden * narrow + hidden * wide + vocab * (wide - narrow),
    )


FOURIER = "tokens are mixed by a Fourier transform without weights, whose FLOPs are not counted"


def fnet(c: ConfigReader) -> Architecture:
    """Return FNet: BERT with a Fourier transform in place of attention."""
    hidden, width, vocab = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("vocab_size")
    c.skip("use_tpu_fourier_optimizations", "tpu_short_seq_length")
    c.assumed.append(FOURIER)
    layer = LayerKind(network=Dense(width=width, gated=False), small=4 * hidden + width + hidden)
    rows = c.whole("type_vocab_size") + c.whole("max_position_embeddings") + 2
    pooled = hidden * (hidden + 1)
    return made(
        *(c, STYLE, [layer] * c.layers()),
        beside_parameters=rows * hidden + hidden + pooled + vocab + 3 * hidden - 2 * hidden,
        beside_weights=2 * hidden * hidden,
    )


def jina_v3(c: ConfigReader) -> Architecture:
    """Return the encoder of Jina embeddings 3: RoBERTa with rotated queries and keys in place of a table."""
    longest = c.whole("max_position_embeddings")
    found = encoder(c, rows=-longest)
    return msgspec.structs.replace(found, max_position_embeddings=longest)


ESMC = Traits(layer_norm=True, wide_norms=True, masked=False, square=True)


def esmc(c: ConfigReader) -> Architecture:
    """Return ESM C: gated layers with norms of queries and keys, and the transform of ESM before its output."""
    c.fixed({"tie_word_embeddings": False})
    hidden, found = c.whole("hidden_size"), decoder(c, ESMC)
    return msgspec.structs.replace(
        found,
        beside_parameters=found.beside_parameters - hidden + 3 * hidden + found.vocab_size,
        beside_weights=hidden * hidden,
    )


NARROW = {"use_bottleneck": True, "key_query_shared_bottleneck": True, "use_bottleneck_attention": False}


def mobilebert(c: ConfigReader) -> Architecture:
    """Return MobileBERT: layers that work in a narrower stream, several networks in each, three words to a vector."""
    hidden, inner, count = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("num_feedforward_networks")
    narrow, words, vocab = c.whole("intra_bottleneck_size"), c.whole("embedding_size"), c.whole("vocab_size")
    heads = c.whole("num_attention_heads")
    if words > hidden or not count:
        raise ValueError(f"embedding_size, num_feedforward_networks: expected at most {hidden}, and 1 or more")
    c.fixed(NARROW | {"trigram_input": True, "true_hidden_size": narrow})
    c.skip("normalization_type", "classifier_activation")
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=even(narrow, heads), masked=False)
    network = Dense(width=count * inner, gated=False)
    weights = 3 * narrow * narrow + hidden * narrow + 2 * count * narrow * inner + 3 * hidden * narrow
    small = 4 * narrow + 2 * narrow + count * (inner + 3 * narrow) + 3 * hidden + 6 * narrow
    layer = LayerKind(mixer=mixer, network=network, small=small)
    layer = msgspec.structs.replace(layer, more=weights - layer.weights(hidden))
    rows = c.whole("max_position_embeddings") + c.whole("type_vocab_size")
    return made(
        *(c, STYLE, [layer] * c.layers()),
        embedding_size=words,
        beside_parameters=rows * hidden + 3 * hidden + vocab + 3 * hidden - 2 * hidden,
        beside_weights=3 * words * hidden + hidden * hidden + vocab * (hidden - words),
    )


OF_XLM = (
    *("gelu_activation", "sinusoidal_embeddings", "lang_id", "is_encoder", "start_n_top", "end_n_top", "pre_norm"),
    *(f"{what}_index" for what in ("bos", "eos", "pad", "unk", "mask")),
    *("layerdrop", "id2lang", "lang2id", "n_words", "max_vocab", "min_count", "same_enc_dec", "share_inout_emb"),
)


def xlm(c: ConfigReader) -> Architecture:
    """Return XLM and FlauBERT: norms behind both halves and the embedding, a table of languages if there are some."""
    given = c.whole("hidden_size") if c.given("hidden_size") else c.whole("emb_dim")
    if c.given("emb_dim") and c.whole("emb_dim") != given:
        raise ValueError(f"emb_dim and hidden_size: expected one value, got {c.whole('emb_dim')} and {given}")
    c.fixed({"asm": False})
    c.skip("emb_dim", *OF_XLM)
    c = c.changed({"hidden_size": given})
    heads, languages = c.whole("num_attention_heads"), c.whole("n_langs", 1)
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=even(given, heads), masked=c.flag("causal"))
    small = 4 * given + 4 * given + 4 * given + given
    layer = LayerKind(mixer=mixer, network=Dense(width=4 * given, gated=False), small=small)
    own = c.flag("use_lang_emb", default=True) and languages > 1
    tables = c.whole("max_position_embeddings") + languages * own
    return made(
        *(c, STYLE, [layer] * c.layers()),
        beside_parameters=tables * given + 2 * given + c.whole("vocab_size") - 2 * given,
    )
