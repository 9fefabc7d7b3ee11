"""Decoders with layers that read an image and no text: Llama 3.2 Vision and Idefics."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import Traits, attention_of_config, even, made
from .pattern import head_norms_of
from .reader import ConfigReader
from .vision import clip, told_of_encoder

IMAGE_TILES = 4 * 1601  # of the largest image that Llama 3.2 Vision takes: tiles of patches, and a token of each


def mllama(c: ConfigReader) -> Architecture:
    """Return Llama 3.2 Vision: layers that read an image, each in place of one that attends to the text."""
    count, hidden = c.layers(), c.whole("hidden_size")
    listed = c.numbers("cross_attention_layers") or []
    plain, dense = attention_of_config(c), Dense(width=c.whole("intermediate_size"))
    reads = msgspec.structs.replace(plain, masked=False, reads=IMAGE_TILES)
    c.assumed.append(f"each sequence reads one image of {IMAGE_TILES:,} patches in {len(listed)} of its layers")
    layers = [
        LayerKind(mixer=reads, network=dense, small=2 * hidden + head_norms_of(plain) + 2)
        if i in listed
        else LayerKind(mixer=plain, network=dense, small=2 * hidden)
        for i in range(count)
    ]
    return made(c, Traits(), layers, beside_parameters=8 * hidden)  # rows of the embedding that the output lacks


def idefics(c: ConfigReader) -> Architecture:
    """Return Idefics: before each so-many-th layer of text a gated one that reads an image, through a resampler."""
    count, hidden, every = c.layers(), c.whole("hidden_size"), c.whole("cross_layer_interval")
    heads, dense = c.whole("num_attention_heads"), Dense(width=c.whole("intermediate_size"))
    if not every or count % every:
        raise ValueError(f"cross_layer_interval: expected a divisor of the {count} layers, got {every}")
    dim, sight = even(hidden, heads), c.inside("vision_config")
    read, tower = _idefics_images(c, sight)
    plain = Attention(heads=heads, kv_heads=heads, head_dim=dim)
    # keys and values are of the image: no token of text is multiplied with what makes them
    reads = msgspec.structs.replace(plain, masked=False, reads=read, key_matrices=0)
    gates = 2 * (hidden if c.value("alpha_type", "float") == "vector" else 1)
    small = 2 * hidden + gates + 2 * dim * c.flag("qk_layer_norms") + 2 * sight.whole("embed_dim") * hidden
    crossed = LayerKind(mixer=reads, network=dense, small=small)
    text = LayerKind(mixer=plain, network=dense, small=2 * hidden)
    frozen = c.flag("freeze_text_layers", default=True)
    c.skip("freeze_text_module_exceptions", "freeze_lm_head", "freeze_vision_layers", "freeze_vision_module_exceptions")
    c.assumed.append(f"each sequence reads one image, {read:,} vectors, in {count // every} further layers")
    c.assumed.append(told_of_encoder("image", tower))
    if frozen:
        c.assumed.append("layers of text are trained too, which the class freezes unless freeze_text_layers is false")
    rows = c.whole("additional_vocab_size", 0) * hidden * (1 if c.flag("tied") else 2)
    layers = ([crossed] + [text] * every) * (count // every)
    return made(c, Traits(), layers, beside_parameters=rows, tower_parameters=tower)


def _idefics_images(c: ConfigReader, sight: ConfigReader) -> tuple[int, int]:
    """Return how many vectors an image is to the text, and the parameters of its encoder and resampler."""
    width, patch = sight.whole("embed_dim"), sight.whole("patch_size")
    tower = clip(sight.changed({"hidden_size": width}))
    patches = (sight.whole("image_size") // patch) ** 2 + 1
    resampler = c.inside("perceiver_config")
    resampler.skip("model_type", "use_resampler")
    sizes = [resampler.whole(f"resampler_{name}") for name in ("n_latents", "depth", "n_heads", "head_dim")]
    normed = resampler.flag("qk_layer_norms_perceiver")
    if not c.flag("use_resampler"):
        return patches, tower
    latents, depth, heads, dim = sizes
    layer = 4 * width * heads * dim + 2 * width * 4 * width + 6 * width + 4 * dim * normed
    return latents, tower + latents * width + depth * layer + 2 * width
