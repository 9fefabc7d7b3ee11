"""Encoders of raw audio samples, with an output for CTC or over classes: wav2vec 2.0, HuBERT, SEW and theirs."""

import math

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind, runs_of
from .conformers import OF_OTHER_HEADS, PLACES, conformer
from .decoders import Traits, even, made
from .encoders import deberta_layer
from .reader import ConfigReader
from .token_pooling import share_of

# what these models' own processors expect (huggingface/transformers: feature_extraction_wav2vec2.py, sampling_rate)
SAMPLES_A_SECOND = 16_000
FRAMES = "a token is a frame behind the convolutions, {samples} samples of sound: {rate:g} a second at 16 kHz"
SQUEEZED = (
    "the layers meet 1 of {every} frames (squeeze_factor); the stream around them is counted for all, and so is what "
    "it is raised to behind them"
)
POSITIONAL = ("num_conv_pos_embeddings", "num_conv_pos_embedding_groups")
# of the programs that trained them (microsoft/unilm: wavlm/WavLM.py), and of a head of others beside the weights
OF_TRAINING = (
    *("freeze_feat_extract_train", "no_mask_channel_overlap", "no_mask_time_overlap", "pooling_mode"),
    *(f"mask_{axis}_{what}" for axis in ("time", "channel") for what in ("min_space", "other", "selection")),
)
OF_PRETRAINING = (
    *("num_codevectors_per_group", "num_codevector_groups", "codevector_dim", "proj_codevector_dim", "num_negatives"),
    *("contrastive_logits_temperature", "diversity_loss_weight", "num_ctc_classes", "num_clusters"),
    *("adapter_kernel_size", "adapter_stride", "num_adapter_layers", "output_hidden_size"),
)


def wav2vec(c: ConfigReader, *, squeezes: bool = False, places: bool = False, conformers: bool = False) -> Architecture:
    """Return convolutions over sound, a convolution for positions, layers over their frames, and an output over all.

    `conformers`: layers with a convolution each. `places`: scores with a table of relative places, gated by the
    queries. `squeezes`: layers meet a share of the frames, which a projection behind them raises to all of them.
    """
    hidden, every = c.whole("hidden_size"), c.whole("squeeze_factor") if squeezes else 1
    kernel, groups = (c.whole(name) for name in POSITIONAL)
    if not every or not groups or hidden % groups or hidden % every:
        raise ValueError(f"squeeze_factor, {POSITIONAL[1]}: {every} or {groups} does not divide {hidden}")
    if c.flag("add_adapter"):
        raise ValueError("add_adapter: expected false; an adapter behind this encoder is not counted")
    c.skip(*OF_OTHER_HEADS, *OF_TRAINING, *(() if squeezes else OF_PRETRAINING))
    held, heard, samples, last = _heard(c)
    c.fixed({"feature_projection_input_dim": last})
    c.tell_token(FRAMES.format(samples=samples, rate=SAMPLES_A_SECOND / samples))
    c.assumed += [SQUEEZED.format(every=every)] if squeezes else []
    projected = 0 if squeezes and last == hidden else last * hidden
    normed = c.flag("feat_proj_layer_norm", default=True)
    batch = c.flag("conv_pos_batch_norm")  # in place of a norm of the weights
    convolutions = c.whole("conv_pos_kernel_size", 0)  # of data2vec: some in a row, each with biases alone
    positions = hidden * (hidden // groups) * kernel * max(1, convolutions)
    raised = hidden * hidden * every * squeezes
    masked = any(c.value(f"mask_{axis}_prob", 0) for axis in ("time", "feature"))
    small = kernel * hidden if convolutions else (2 * hidden if batch else kernel) + hidden
    small += hidden * every * squeezes + hidden * masked
    small += 2 * last * normed + hidden * (projected > 0)
    met = heard + (positions + raised) // every
    inner, heads = c.whole("intermediate_size"), c.whole("num_attention_heads")
    layer = conformer(c, hidden, inner, keyed=False) if conformers else _layer(c, hidden)
    table = c.whole("num_buckets") * heads if places else 0
    c.fixed({"gru_rel_pos": True} if places else {})
    if places:  # a gate of eight numbers for each query, and one a head
        c.skip("max_bucket_distance")
        layer = msgspec.structs.replace(layer, small=layer.small + heads + 8 * (hidden // heads + 1))
    return made(
        *(c, Traits(layer_norm=True, positions="none")),
        [layer if every == 1 else share_of(layer, hidden, hidden, every)] * c.layers(),
        tied=False,
        embeds=False,
        beside_parameters=held + positions + raised - met + table + small + c.whole("vocab_size"),
        beside_weights=met + projected,
        max_position_embeddings=0,
    )


def data2vec_audio(c: ConfigReader) -> Architecture:
    """Return data2vec of sound: wav2vec 2.0 with a norm behind each convolution, and several of positions."""
    return wav2vec(c.changed({"feat_extract_norm": "layer"}))


def sew_d(c: ConfigReader) -> Architecture:
    """Return SEW-D: SEW with layers of DeBERTa, and no norm around them."""
    found, hidden, every = wav2vec(c, squeezes=True), c.whole("hidden_size"), c.whole("squeeze_factor")
    layer, tables, convolved = deberta_layer(c, c.whole("max_position_embeddings"))
    c.skip("position_biased_input", "type_vocab_size")
    c.assumed.append(PLACES)
    assert isinstance(layer.mixer, Attention)
    plain = msgspec.structs.replace(layer, mixer=msgspec.structs.replace(layer.mixer, places=0))
    shared = share_of(plain, hidden, hidden, every) if every > 1 else plain
    beside = tables - 2 * hidden + (convolved + 3 * hidden if convolved else 0) - convolved // every
    return msgspec.structs.replace(
        found,
        stack=runs_of([shared] * c.layers()),
        beside_parameters=found.beside_parameters + beside,
        beside_weights=found.beside_weights + convolved // every,
    )


SOUND = frozenset(
    {
        *("wav2vec2", "hubert", "sew", "sew-d", "wavlm", "unispeech", "unispeech-sat", "data2vec-audio"),
        *("wav2vec2-bert", "wav2vec2-conformer"),
    }
)


def with_classes(c: ConfigReader, model: Architecture, *, each: bool) -> Architecture:
    """Return an encoder of sound with an output over classes of `each` frame, or of a sequence behind a projection."""
    if c.flag("add_adapter"):
        raise ValueError("add_adapter: expected false, as classes over an adapter have it")
    classes, hidden = c.classes(), model.hidden_size
    width = hidden if each else c.whole("classifier_proj_size")
    weighed = (model.num_hidden_layers + 1) * c.flag("use_weighted_layer_sum")
    held = classes + width * (not each) + weighed - model.vocab_size
    return msgspec.structs.replace(
        model,
        vocab_size=classes,
        embedding_size=0 if width == hidden else width,
        beside_parameters=model.beside_parameters + held,
        beside_weights=model.beside_weights + hidden * width * (not each),
        once_weights=0 if each else classes * width,
    )


def pretraining(c: ConfigReader) -> Architecture:
    """Return wav2vec 2.0 as it learns: its output beside what frames are quantized to, from a book of vectors."""
    model, (groups, each, width, out) = wav2vec(c), (c.whole(name) for name in OF_BOOK)
    heard = (c.numbers("conv_dim") or [0])[-1]
    if not groups or width % groups:
        raise ValueError(f"codevector_dim: {groups} groups do not divide {width}")
    met = heard * groups * each + width * out
    held = each * width + groups * each + 2 * out - model.vocab_size
    return msgspec.structs.replace(
        model,
        vocab_size=out,
        beside_parameters=model.beside_parameters + held,
        beside_weights=model.beside_weights + met,
    )


OF_BOOK = ("num_codevector_groups", "num_codevectors_per_group", "codevector_dim", "proj_codevector_dim")


def _layer(c: ConfigReader, hidden: int) -> LayerKind:
    """Return a layer with biases everywhere, and the adapter of a language that some have behind it."""
    heads, width, narrow = c.whole("num_attention_heads"), c.whole("intermediate_size"), 0
    if c.flag("do_stable_layer_norm"):  # others have no adapter, whatever its width
        narrow = c.whole("adapter_attn_dim", 0)
    c.skip("adapter_attn_dim")
    return LayerKind(
        mixer=Attention(heads=heads, kv_heads=heads, head_dim=even(hidden, heads), masked=False),
        network=Dense(width=width, gated=False),
        small=4 * hidden + 4 * hidden + width + hidden + (3 * hidden + narrow if narrow else 0),
        more=2 * hidden * narrow,
    )


def _heard(c: ConfigReader) -> tuple[int, int, int, int]:
    """Return convolutions over sound: parameters, weights met a frame, samples of a frame and width behind them."""
    widths, kernels, strides = (c.numbers(f"conv_{name}") or [] for name in ("dim", "kernel", "stride"))
    count = c.whole("num_feat_extract_layers", len(widths))
    if not widths or not {len(widths)} == {len(kernels), len(strides), count} or not all((*widths, *kernels, *strides)):
        raise ValueError("conv_dim, conv_kernel, conv_stride: expected as many numbers of 1 or more in each")
    normed = c.value("feat_extract_norm", "group")
    if normed not in ("group", "layer"):
        raise ValueError(f"feat_extract_norm: expected group or layer, got {normed!r}")
    held, met, bias = 0, 0, c.flag("conv_bias")
    for place, (before, width) in enumerate(zip([1, *widths], widths, strict=False)):
        weights = before * width * kernels[place]
        held += weights + width * bias + 2 * width * (normed == "layer" or place == 0)
        met += weights * math.prod(strides[place + 1 :])
    return held, met, math.prod(strides), widths[-1]
