"""Encoders of sound that put out text themselves, layer by layer: Wav2Vec2-BERT; layers of wav2vec2-conformer."""

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind, ShortConv
from .decoders import Traits, even, made
from .reader import ConfigReader

FRAMES = "a token is a frame of sound, {features} numbers before the first layer"
SHORTER = (
    "the adapter behind the encoder (num_adapter_layers = {count}), each layer of which leaves 1 of {stride} frames: "
    "its weights are counted by the share of frames that they meet, its scores are not, and the output meets all frames"
)
KEYED = " or relative_key"
PLACES = "scores with a table of relative places are not counted"
OF_OTHER_HEADS = (
    *("tdnn_dim", "tdnn_kernel", "tdnn_dilation", "xvector_output_dim", "classifier_proj_size"),
    "codevector_dim",
    *("use_weighted_layer_sum", "ctc_loss_reduction", "ctc_zero_infinity", "layerdrop"),
    *("apply_spec_augment", "max_source_positions"),
    *(f"mask_{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks")),
)


def wav2vec2_bert(c: ConfigReader) -> Architecture:
    """Return Wav2Vec2-BERT with an output for CTC: a Conformer over frames, and the adapter that it may have."""
    named = next(iter(c.value("architectures") or []), "ForCTC")
    if not named.endswith("ForCTC") and not c.given("vocab_size"):
        c = c.changed({"vocab_size": 1})  # of an output that the class does not have
    hidden, inner, features = (
        c.whole("hidden_size"),
        c.whole("intermediate_size"),
        c.whole("feature_projection_input_dim"),
    )
    c.skip(*OF_OTHER_HEADS)
    c.tell_token(FRAMES.format(features=features))
    masked = any(c.value(f"mask_{axis}_prob", 0) for axis in ("time", "feature"))
    held, multiplied, out = _adapter(c, hidden, inner)
    ends = 2 * features + hidden + hidden * masked + c.whole("vocab_size")  # norm and bias of features, mask, output
    before = features * hidden
    if c.flag("use_intermediate_ffn_before_adapter"):
        if not c.flag("add_adapter"):
            raise ValueError("use_intermediate_ffn_before_adapter: expected false where add_adapter is")
        before, ends = before + 2 * hidden * inner, ends + inner + hidden
    return made(
        *(c, Traits(layer_norm=True, positions="none"), [conformer(c, hidden, inner)] * c.layers()),
        tied=False,
        embeds=False,
        embedding_size=out,
        beside_parameters=held - multiplied + ends - 2 * hidden,
        beside_weights=before + multiplied,
    )


def conformer(c: ConfigReader, hidden: int, inner: int, *, keyed: bool = True) -> LayerKind:
    """Return a layer: half of a network, attention, a gated convolution, the network's other half; five norms.

    `keyed`: its class knows scores with a table of keys too.
    """
    heads, kernel, places = c.whole("num_attention_heads"), c.whole("conv_depthwise_kernel_size"), 0
    kind, dim = c.value("position_embeddings_type"), even(hidden, heads)
    sides = sum(c.whole(f"{side}_max_position_embeddings") for side in ("left", "right")) if keyed else 0
    if keyed and kind == "relative_key":
        places = (sides + 1) * dim
    elif kind == "relative":
        places = hidden * hidden + 2 * hidden  # of the table, which no frame meets, and two vectors a head
    elif kind not in (None, "rotary"):
        raise ValueError(f"position_embeddings_type: expected rotary, relative{KEYED * keyed}, got {kind!r}")
    if places and PLACES not in c.assumed:
        c.assumed.append(PLACES)
    biases = 4 * hidden + 2 * (inner + hidden)
    return LayerKind(
        mixer=Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False),
        beside=ShortConv(width=hidden, kernel=kernel, projections=2),
        network=Dense(width=2 * inner, gated=False),
        small=6 * 2 * hidden + biases + kernel * hidden + places,
    )


def _adapter(c: ConfigReader, hidden: int, inner: int) -> tuple[int, int, int]:
    """Return parameters of the adapter, how many of them a frame of the encoder is multiplied with, and its width."""
    sizes = [c.whole(name) for name in ("num_adapter_layers", "adapter_kernel_size", "adapter_stride")]
    out = c.whole("output_hidden_size", hidden) or hidden
    if not c.flag("add_adapter"):
        return 0, 0, hidden
    count, kernel, stride = sizes
    if not stride:
        raise ValueError("adapter_stride: expected 1 or more, got 0")
    c.assumed.append(SHORTER.format(count=count, stride=stride))
    weights = 2 * 2 * kernel * out * out + 4 * out * out + 2 * out * inner
    small = 3 * 2 * out + 2 * 2 * out + 4 * out + inner + out
    projected, ends = (0, 0) if out == hidden else (hidden * out, 3 * out)
    multiplied = projected + sum(weights // stride ** (place + 1) for place in range(count))
    return count * (weights + small) + projected + ends, multiplied, out
