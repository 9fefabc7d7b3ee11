"""Encoders with decoders that read them, in the style of T5 and BART, with experts or windows in some."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, Experts, LayerKind, Network
from .bert import GLOBALLY
from .decoders import Traits, attention_of_config, even, made
from .pattern import layer_types
from .reader import ConfigReader
from .vision import gemma3, told_of_encoder

SIDES = ("encoder", "decoder")
MOST_VALUES = 2**20  # of a series


def gated_as_t5(c: ConfigReader) -> bool:
    """Return whether the networks of T5's family have a gate: a flag decides over the name of the activation."""
    named = str(c.value("feed_forward_proj", "relu")).startswith("gated")
    return c.flag("is_gated_act") if c.says("is_gated_act") else named


def layers_as_t5(c: ConfigReader) -> tuple[int, int]:
    """Return the layers of both sides of T5's family; a decoder of which nothing is said has the encoder's."""
    if c.given("num_hidden_layers") and not c.alone("num_layers") and not c.given("num_decoder_layers"):
        raise ValueError("num_decoder_layers: missing (expected beside num_hidden_layers, which is of the encoder)")
    count = c.layers()
    return count, c.whole("num_decoder_layers", count) if c.given("num_decoder_layers") else count


def t5(c: ConfigReader, *, table_each: bool = False) -> Architecture:
    """Return T5: an encoder and a decoder that reads it, with a table of relative positions."""
    hidden, heads, dim = c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("d_kv")
    (count, later), width = layers_as_t5(c), c.whole("d_ff")
    if not c.flag("tied", default=True):
        c.assumed.append(APART.format(count=c.whole("vocab_size") * hidden / 1e6))
    c.skip("relative_attention_max_distance", "dense_act_fn", "n_positions")
    network = Dense(width=width, gated=gated_as_t5(c))
    read, drawn = _values(c)
    over = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False)
    own = Attention(heads=heads, kv_heads=heads, head_dim=dim)
    c.tell_token(VALUES.format(read=f"{read:,}", drawn=f"{drawn:,}") if read else BOTH_SIDES)
    table = c.whole("relative_attention_num_buckets") * heads
    each = table * table_each
    layers = [LayerKind(mixer=over, network=network, small=2 * hidden + each, length=read)] * count
    over = msgspec.structs.replace(over, reads=read)
    layers += [LayerKind(mixer=own, beside=over, network=network, small=3 * hidden + each)] * later
    beside = hidden + (0 if table_each else 2 * table)
    return made(c, Traits(tied=True), layers, beside_parameters=beside, max_position_embeddings=drawn)


VALUES = (
    "each sequence has an encoder's {read} tokens, a value of a series each (chronos_config: context_length, and an "
    "end where use_eos_token says so), beside those of its forecast, {drawn} as trained (prediction_length); FLOPs "
    "are those of a token of the forecast"
)


def _values(c: ConfigReader) -> tuple[int, int]:
    """Return the values that Chronos reads and forecasts, with an end each; 0 where it does not say them.

    As amazon-science/chronos-forecasting trains it (scripts/training/train.py): a token is a value cut into n_tokens.
    Others embed patches of values.
    """
    inside = c.part("chronos_config")
    if "n_tokens" not in inside:
        c.used.discard("chronos_config")
        return 0, 0
    c.skip("chronos_config")
    sizes = [inside.get(name) for name in ("context_length", "prediction_length")]
    if None in sizes:
        return 0, 0
    read, drawn = (size if type(size) is int and 0 < size < MOST_VALUES else 0 for size in sizes)
    if not read or not drawn:
        raise ValueError(f"chronos_config: context_length, prediction_length: expected whole numbers, got {sizes}")
    end = inside.get("use_eos_token") is True
    return read + end, drawn + end


APART = (
    "the output has weights of its own, {count:,.1f} M, as tie_word_embeddings says and published checkpoints hold; "
    "transformers 5 ties it to the embedding all the same"
)


def longt5(c: ConfigReader) -> Architecture:
    """Return LongT5: T5 whose encoder attends to what is near, with keys of whole blocks beside them or without."""
    hidden, heads, dim = c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("d_kv")
    (count, later), radius = layers_as_t5(c), c.whole("local_radius")
    kind = c.value("encoder_attention_type")
    c.tell_token(BOTH_SIDES)
    if kind not in ("local", "transient-global"):
        raise ValueError(f"encoder_attention_type: expected local or transient-global, got {kind!r}")
    if not c.flag("tied", default=True):
        c.assumed.append(
            "the output has the embedding's weights, as the class has it whatever tie_word_embeddings says"
        )
    c.skip("relative_attention_max_distance", "dense_act_fn", "n_positions", "global_block_size")
    blocks = kind == "transient-global"
    if blocks:
        c.assumed.append("keys of whole blocks (transient-global attention) are held; their scores are not counted")
    network = Dense(width=c.whole("d_ff"), gated=gated_as_t5(c))
    # blocks of radius + 1 tokens, each of which meets its own and both beside it
    near = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False, window=3 * (radius + 1))
    over = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False)
    own = Attention(heads=heads, kv_heads=heads, head_dim=dim)
    table = c.whole("relative_attention_num_buckets") * heads
    layers = [LayerKind(mixer=near, network=network, small=(2 + blocks) * hidden)] * count
    layers += [LayerKind(mixer=own, beside=over, network=network, small=3 * hidden)] * later
    beside = hidden + (2 + blocks) * table
    return made(c, Traits(tied=True), layers, tied=True, beside_parameters=beside, max_position_embeddings=0)


def switch_transformers(c: ConfigReader) -> Architecture:
    """Return Switch Transformers: T5 with one of several experts for each token in some layers."""
    hidden, heads, dim = c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("d_kv")
    (count, _), width = layers_as_t5(c), c.whole("d_ff")
    later = c.whole("num_decoder_layers", count)  # its class has a number of its own where nothing is said
    if not c.flag("tied", default=True):
        raise ValueError("tie_word_embeddings: expected true; an output apart is not counted")
    c.skip("relative_attention_max_distance", "dense_act_fn", "is_gated_act", "feed_forward_proj", "n_positions")
    c.tell_token(BOTH_SIDES)
    c.fixed({"num_selected_experts": 1})
    c.skip("expert_capacity", "router_bias", "add_router_probs", "encoder_sparse_step", "decoder_sparse_step")
    dense = Dense(width=width, gated=False)
    routed = Experts(count=c.whole("experts"), top=1, width=width, gated=False)
    over = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False)
    own = Attention(heads=heads, kv_heads=heads, head_dim=dim)
    layers = []
    for side, many in zip(SIDES, (count, later), strict=True):
        sparse = c.whole(f"num_sparse_{side}_layers")
        step = many // sparse if sparse else many
        step = c.whole(f"{side}_sparse_step") if c.given(f"{side}_sparse_step") else step
        for i in range(many):
            network: Network = routed if _sparse(i, step) else dense
            reads = side == "decoder"
            mixer, beside = (own, over) if reads else (over, None)
            layers.append(LayerKind(mixer=mixer, beside=beside, network=network, small=(2 + reads) * hidden))
    table = c.whole("relative_attention_num_buckets") * heads
    return made(*(c, Traits(tied=True), layers), beside_parameters=hidden + 2 * table, max_position_embeddings=0)


def prophetnet(c: ConfigReader) -> Architecture:
    """Return ProphetNet: a decoder that carries a stream for each further token beside the one of the text."""
    hidden, places, ahead = c.whole("hidden_size"), c.whole("max_position_embeddings"), c.whole("ngram")
    c.fixed({"tie_word_embeddings": True, "add_cross_attention": True, "is_encoder_decoder": True})
    c.skip("relative_max_distance", "disable_ngram_loss", "eps", "num_hidden_layers")
    c.tell_token(BOTH_SIDES)
    c.assumed.append(STREAMS.format(count=ahead))
    layers: list[LayerKind] = []
    for side in SIDES:
        heads, width, reads = c.whole(f"num_{side}_attention_heads"), c.whole(f"{side}_ffn_dim"), side == "decoder"
        own = Attention(heads=heads, kv_heads=heads, head_dim=even(hidden, heads), masked=reads)
        layer = LayerKind(
            mixer=own,
            beside=msgspec.structs.replace(own, masked=False) if reads else None,
            network=Dense(width=width, gated=False),
            small=(1 + reads) * 6 * hidden + 2 * hidden + width + hidden + c.whole("num_buckets") * heads * reads,
            more=c.whole("num_buckets") * heads * hidden * reads,  # scores with buckets of relative places
        )
        again = msgspec.structs.replace(layer, borrowed=layer.parameters(hidden))
        layers += ([layer] + [again] * (ahead * reads)) * c.whole(f"num_{side}_layers")
    output = (ahead - 1) * c.whole("vocab_size") * hidden  # over each stream ahead
    return made(
        *(c, Traits(layer_norm=True, tied=True, positions="none"), layers),
        beside_parameters=(2 * places + 4 + ahead - 2) * hidden - output,
        beside_weights=output,
    )


BOTH_SIDES = "a sequence is as long in the encoder as in the decoder: a token, and its FLOPs, are one of each"
STREAMS = (
    "the decoder carries {count} streams ahead beside the text's (ngram): each passes all of its layers, and meets as "
    "many keys as a token of the text"
)


def _sparse(place: int, step: int) -> bool:
    """Return whether a layer of Switch Transformers has experts: each `step`-th from the second on, or all."""
    return step == 1 or (step > 0 and place % step == 1)


def bart_like(c: ConfigReader, *, experts: bool = False) -> list[LayerKind]:
    """Return the layers of an encoder and a decoder in the style of BART; `experts`: two of several in some layers."""
    hidden, found = c.whole("hidden_size"), []
    for side in SIDES:
        heads, width = c.whole(f"{side}_attention_heads"), c.whole(f"{side}_ffn_dim")
        reads, dim = side == "decoder", even(hidden, heads)
        over = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False)
        own = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=reads)
        small = (1 + reads) * (2 * hidden + 4 * hidden) + 2 * hidden
        step = c.whole(f"{side}_sparse_step") if experts else 0
        for i in range(c.whole(f"{side}_layers")):
            network: Network = Dense(width=width, gated=False)
            biases = width + hidden
            if step and (i + 1) % step == 0:
                count = c.whole("experts")
                network = Experts(count=count, top=2, width=width, gated=False, biases=biases)
                biases = count * biases
            beside = over if reads else None
            found.append(LayerKind(mixer=own, beside=beside, network=network, small=small + biases))
    return found


def nllb_moe(c: ConfigReader) -> Architecture:
    """Return NLLB's experts: two of many for each token in each fourth layer of both sides."""
    hidden = c.whole("hidden_size")
    if not c.flag("tied", default=True) or c.flag("router_bias"):
        raise ValueError("tie_word_embeddings, router_bias: expected true, and false")
    c.skip(
        "max_position_embeddings", "num_hidden_layers", "expert_capacity", "second_expert_policy", "moe_token_dropout"
    )
    c.skip("normalize_router_prob_before_dropping", "batch_prioritized_routing", "moe_eval_capacity_token_fraction")
    c.tell_token(BOTH_SIDES)
    traits = Traits(layer_norm=True, tied=True, positions="none")
    return made(c, traits, bart_like(c, experts=True), beside_parameters=4 * hidden - 2 * hidden)


def led(c: ConfigReader) -> Architecture:
    """Return LED: BART whose encoder attends in windows, with projections of their own for tokens that meet all."""
    hidden, windows = c.whole("hidden_size"), c.value("attention_window")
    count = c.whole("encoder_layers")
    listed = windows if isinstance(windows, list) else [windows] * count
    if len(listed) != count or not all(type(window) is int and window > 0 for window in listed):
        raise ValueError(f"attention_window: expected a number, or one for each of the {count} layers of the encoder")
    if not c.flag("tied", default=True):
        raise ValueError("tie_word_embeddings: expected true; embeddings of the two sides apart are not counted")
    c.skip("max_position_embeddings", "num_hidden_layers", "classifier_dropout", "classif_dropout")
    layers = []
    for i, layer in enumerate(bart_like(c)):
        if i < count:
            assert isinstance(layer.mixer, Attention)
            mixer = msgspec.structs.replace(layer.mixer, window=listed[i] + 1)
            whole = 3 * hidden * (hidden + 1)  # projections of tokens that attend to all: of few tokens
            layer = msgspec.structs.replace(layer, mixer=mixer, small=layer.small + whole)
        layers.append(layer)
    places = c.whole("max_encoder_position_embeddings") + c.whole("max_decoder_position_embeddings")
    c.assumed.append(GLOBALLY)
    c.tell_token(BOTH_SIDES)
    traits = Traits(layer_norm=True, tied=True, positions="none")
    longest = c.whole("max_decoder_position_embeddings")
    beside = places * hidden + 4 * hidden - 2 * hidden
    return made(c, traits, layers, beside_parameters=beside, max_position_embeddings=longest)


def t5gemma(c: ConfigReader) -> Architecture:
    """Return T5Gemma: layers of Gemma 2 on both sides, each side with an embedding and a width of its own."""
    sides = {side: c.inside(side) for side in SIDES}
    first, second = (sides[side].whole("hidden_size") for side in SIDES)
    hidden = max(first, second)
    if first != second:
        c.assumed.append(NARROWER.format(first=first, second=second))
    layers = [of_width(layer, hidden, first, first) for layer in _gemma_side(sides["encoder"], reads=False)]
    layers += [of_width(layer, hidden, second, first) for layer in _gemma_side(sides["decoder"], reads=True)]
    c.skip("vocab_size")  # the class has those of both sides
    c.tell_token(BOTH_SIDES)
    joined = sides["decoder"].changed({"tie_word_embeddings": c.flag("tied", default=True)})
    norms = first + second - hidden
    return made(
        *(joined, Traits(tied=True), layers),
        hidden_size=hidden,
        embedding_size=0 if second == hidden else second,
        beside_parameters=norms + sides["encoder"].whole("vocab_size") * first,
    )


NARROWER = (
    "the encoder is {first} wide and the decoder {second}: weights are counted as they are, activations and sends "
    "between stages as of the wider one"
)


def of_width(layer: LayerKind, hidden: int, own: int, read: int) -> LayerKind:
    """Return a layer of a narrower stream in a model that is `hidden` wide; it reads a stream `read` wide."""
    weights = layer.weights(own)
    if isinstance(layer.beside, Attention):
        weights += layer.beside.key_weights(read) - layer.beside.key_weights(own)
    return msgspec.structs.replace(layer, more=layer.more + weights - layer.weights(hidden))


def t5gemma2(c: ConfigReader) -> Architecture:
    """Return T5Gemma 2: layers of Gemma 3 on both sides, of one width and one embedding, and SigLIP before the first.

    A layer of the decoder attends to the text and to the encoder's tokens at once, by one set of matrices.
    """
    heard, own = c.inside("encoder"), c.inside("decoder")
    text, hidden, words = heard.inside("text_config"), own.whole("hidden_size"), own.whole("vocab_size")
    text.fixed({"hidden_size": hidden, "vocab_size": words})
    for part in (c, heard, text, own):
        if not part.flag("tied", default=True):
            raise ValueError("tie_word_embeddings: expected true; embeddings of the two sides apart are not counted")
    heard.skip("model_type", "vocab_size", "mm_tokens_per_image")
    c.skip("vocab_size", "classifier_dropout_rate")
    sight = heard.inside("vision_config")
    sight.skip("model_type")
    tower = gemma3(sight, hidden)
    layers = _gemma_side(text, reads=False, every=6, head_norms=True)
    layers += _gemma_side(own, reads=True, every=6, head_norms=True, merged=True)
    c.tell_token(BOTH_SIDES)
    c.assumed += [told_of_encoder("image", tower), MERGED]
    found = made(own, Traits(tied=True), layers, beside_parameters=2 * hidden)  # a norm, and the row that ends an image
    return msgspec.structs.replace(found, tower_parameters=tower)


MERGED = (
    "keys and values of the encoder's tokens come of the decoder's own matrices, which are counted once: what they are "
    "multiplied with beside the decoder's tokens is left out"
)


def _gemma_side(
    c: ConfigReader, *, reads: bool, every: int = 2, head_norms: bool = False, merged: bool = False
) -> list[LayerKind]:
    """Return the layers of one side, with a norm before and behind every part.

    `every`: of this many layers one attends to all. `merged`: attention over the encoder has no matrices of its own.
    """
    count, hidden = c.layers(), c.whole("hidden_size")
    plain, network, window = (
        attention_of_config(c),
        Dense(width=c.whole("intermediate_size")),
        c.whole("sliding_window", 0),
    )
    every = c.whole("sliding_window_pattern", every) or count + 1
    usual = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(count)]
    if c.flag("attention_bias"):
        raise ValueError("attention_bias: expected false")
    c.skip("cross_attention_hidden_size", "vocab_size", "model_type", "max_position_embeddings", "tied")
    over = msgspec.structs.replace(plain, masked=False, key_matrices=0 if merged else 2) if reads else None
    more = -over.weights(hidden) if over and merged else 0
    small = (6 if reads and not merged else 4) * hidden + 2 * plain.head_dim * head_norms
    layers = []
    for kind in layer_types(c, count, usual, "sliding_attention"):
        mixer = msgspec.structs.replace(plain, masked=reads, window=window if kind == "sliding_attention" else 0)
        layers.append(LayerKind(mixer=mixer, beside=over, network=network, small=small, more=more))
    return layers
