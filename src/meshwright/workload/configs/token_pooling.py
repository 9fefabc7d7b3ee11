"""Models in which some layers meet fewer tokens than a sequence has: BLT's patches of bytes, Funnel's blocks."""

from dataclasses import dataclass

import msgspec

from ..architecture import MOST_LAYERS, Architecture
from ..kinds import Attention, Dense, LayerKind
from .conformers import PLACES
from .decoders import Traits, even, made
from .reader import ConfigReader


def share_of(layer: LayerKind, width: int, hidden: int, every: int) -> LayerKind:
    """Return a layer `width` wide that meets 1 of `every` tokens, as each token of a model `hidden` wide shares in it.

    Parameters, products with weights and scores are as they are; the residual stream around it is counted for all
    tokens. A window is of tokens that the layer meets.
    """
    mixer, network = layer.mixer, layer.network
    assert isinstance(mixer, Attention)
    assert isinstance(network, Dense)
    apart = every if mixer.window else every * every  # without a window there are fewer keys too
    shared = LayerKind(
        mixer=msgspec.structs.replace(mixer, head_dim=max(1, mixer.head_dim // apart)),
        network=msgspec.structs.replace(network, width=max(1, network.width // every)),
    )
    products = layer.weights(width) // every
    rest = layer.parameters(width) - products
    return msgspec.structs.replace(shared, more=products - shared.weights(hidden), small=rest)


PATCHES = (
    "a token is a byte, and a patch {size} of them (patch_size) on average: layers of the global model meet 1 of "
    "{size} tokens; the stream around them is counted for all, as wide as the bytes'"
)
PATCHER = (
    "the patcher: {count:.3g} B parameters are counted, in memory as frozen weights, with neither gradients nor "
    "moments; its forward over the bytes is not"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """Sizes of one of BLT's four transformers."""

    width: int
    mixer: Attention
    inner: int
    count: int

    @property
    def layer(self) -> LayerKind:
        return LayerKind(mixer=self.mixer, network=Dense(width=self.inner), small=2 * self.width)


def _part(c: ConfigReader, name: str, window: int = 0) -> tuple[_Part, ConfigReader]:
    inside = c.inside(f"{name}_config")
    width, heads = inside.whole("hidden_size"), inside.whole("num_attention_heads")
    inner = inside.whole("intermediate_size") if inside.given("intermediate_size") else 0
    if not inner:  # of the encoder alone, whose class has no width of its own
        inner = 8 * width // 3 if name == "encoder" else inside.whole("intermediate_size")
    few = inside.whole("num_key_value_heads") if inside.given("num_key_value_heads") else heads
    mixer = Attention(heads=heads, kv_heads=few, head_dim=even(width, heads), window=window)
    inside.skip("model_type", "head_dim", "tied", "sliding_window", "max_position_embeddings", "cross_attn_all_layers")
    inside.skip("cross_attn_k", "hidden_size_global", "vocab_size", "encoder_cross_output_size")
    return _Part(width, mixer, inner, inside.layers()), inside


def blt(c: ConfigReader) -> Architecture:
    """Return BLT: bytes with tables of hashed groups, a global model over patches of them, and a decoder of bytes."""
    size, window = c.whole("patch_size", 4), c.whole("local_attention_window_len", 0)
    (first, encoder), (wide, _), (last, decoder) = (
        _part(c, name, near) for name, near in (("encoder", window), ("global", 0), ("decoder", window))
    )
    hidden = first.width
    if not size or last.width != hidden or decoder.whole("hidden_size_global") != wide.width:
        raise ValueError("patch_size, decoder_config: expected 1 or more, and the widths of encoder and global model")
    c.assumed.append(PATCHES.format(size=size))
    # a patch is some vectors as wide as a byte's; those of the encoder meet the bytes, the bytes those of the decoder
    before, behind = encoder.whole("cross_attn_k"), decoder.whole("cross_attn_k")
    reading = _crossed(first, rate_of_queries=before / size, rate_of_keys=1.0)
    read = _crossed(last, rate_of_queries=1.0, rate_of_keys=behind / size)
    layers = _beside(first, reading, all_layers=encoder.flag("cross_attn_all_layers"), at=first.count - 1)
    layers += [share_of(wide.layer, wide.width, hidden, size)] * wide.count
    layers += _beside(last, read, all_layers=decoder.flag("cross_attn_all_layers"), at=0)
    projected = hidden * hidden * before + wide.width * hidden * behind
    joined = hidden * c.whole("cross_attn_k")
    projected += joined * wide.width * (joined != wide.width)
    groups = c.numbers("encoder_hash_byte_group_size") or [3, 4, 5, 6, 7, 8]
    rows = c.whole("encoder_hash_byte_group_nb_functions") * len(groups) * c.whole("encoder_hash_byte_group_vocab")
    rows += encoder.whole("vocab_size") - c.whole("vocab_size")
    c.skip("patching_mode", "patching_threshold", "patching_batch_size", "max_patch_length")
    return made(
        *(c.changed({"hidden_size": hidden}), Traits(), layers),
        tied=False,
        beside_parameters=rows * hidden + projected - projected // size,
        beside_weights=projected // size,
        tower_parameters=_patcher(c),
    )


def _crossed(part: _Part, *, rate_of_queries: float, rate_of_keys: float) -> LayerKind:
    """Return what attention between bytes and patches adds to a layer; its few scores are not counted."""
    ends, keys = 2 * part.width * part.mixer.out_width, part.mixer.key_weights(part.width)
    multiplied = int(ends * rate_of_queries + keys * rate_of_keys)
    return LayerKind(more=multiplied, small=ends + keys - multiplied + 2 * part.width)


def _beside(part: _Part, crossed: LayerKind, *, all_layers: bool, at: int) -> list[LayerKind]:
    """Return the layers of one side of BLT, all of them or the one `at` a place with attention to the other side."""
    plain = part.layer
    joined = msgspec.structs.replace(plain, more=crossed.more, small=plain.small + crossed.small)
    return [joined if all_layers or place == at else plain for place in range(part.count)]


def _patcher(c: ConfigReader) -> int:
    """Return the parameters of the model that finds where patches end, and say that they are frozen."""
    part, inside = _part(c, "patcher")
    if not c.flag("patch_in_forward", default=True):
        return 0
    count = part.count * part.layer.parameters(part.width) + (2 * inside.whole("vocab_size") + 1) * part.width
    c.assumed.append(PATCHER.format(count=count / 1e9))
    return count


POOLED = (
    "each block after the first meets half of the tokens of the one before it: layers of {count} blocks meet 1 of "
    "{last} at the last; the stream around them is counted for all"
)


def funnel(c: ConfigReader) -> Architecture:
    """Return Funnel: blocks of layers, each over half the tokens of the block before it, and a decoder over all."""
    hidden, heads, dim, width = (c.whole(name) for name in ("hidden_size", "num_attention_heads", "d_head", "d_inner"))
    sizes = c.numbers("block_sizes") or []
    repeats = c.numbers("block_repeats") or [1] * len(sizes)
    if not 1 <= len(sizes) <= 16 or len(repeats) != len(sizes) or not all((*sizes, *repeats)):
        raise ValueError("block_sizes, block_repeats: expected 1 or more for each of up to 16 blocks")
    if sum(size * times for size, times in zip(sizes, repeats, strict=True)) > MOST_LAYERS:
        raise ValueError(f"block_sizes, block_repeats: expected at most {MOST_LAYERS} layers")
    c.fixed({"num_hidden_layers": sum(sizes), "num_blocks": len(sizes)})
    c.skip("pooling_type", "attention_type", "separate_cls", "truncate_seq", "pool_q_only")
    c.assumed += [PLACES] if len(sizes) < 2 else [POOLED.format(count=len(sizes), last=2 ** (len(sizes) - 1)), PLACES]
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=dim, masked=False)
    wide = heads * dim
    small = (3 + 2 + 2) * wide + hidden * wide + hidden + 2 * hidden + width + hidden + 2 * hidden
    whole = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    layers: list[LayerKind] = []
    for place, (size, times) in enumerate(zip(sizes, repeats, strict=True)):
        own = share_of(whole, hidden, hidden, 2**place) if place else whole
        again = msgspec.structs.replace(own, borrowed=own.parameters(hidden))
        layers += ([own] + [again] * (times - 1)) * size
    layers += [whole] * c.whole("num_decoder_layers")
    return made(
        *(c, Traits(layer_norm=True, tied=True, positions="none"), layers),
        beside_parameters=2 * hidden + c.whole("vocab_size") - 2 * hidden,  # a norm of the embedding, none at the end
        max_position_embeddings=0,
    )
