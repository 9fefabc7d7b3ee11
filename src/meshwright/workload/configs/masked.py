"""Encoders of images and videos that learn from what is hidden of them: BEiT, ViT, MAE, VideoMAE, V-JEPA 2."""

import dataclasses

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import even
from .images import Sight, beit_tower, patch_tower, tubes
from .reader import ConfigReader
from .towers import Tower, alone, two_towers

IMAGES = Sight()
VIDEOS = Sight(tokens=0, places=False, key_bias=False, sees=tubes, last_norm=False)
JEPA = Sight(tokens=0, places=False, ratio=True, sees=tubes)
MOST_HIDDEN = 0.9
VISIBLE = "the encoder meets {visible} of {all} tokens (mask_ratio), and what draws the rest meets all"
LEFT = "the encoder meets {visible} of {all} tokens (mask_ratio), as its class has it"
UNSAID = (
    "nine tenths of a video are hidden from the encoder, as VideoMAE's authors train it (arXiv 2203.12602); the file "
    "does not say"
)
ALL_DRAWN = "the output is counted for all tokens, and the loss needs it of the hidden ones alone"
UNMASKED = "encoder and predictor meet all patches: which of them a loss hides is not of the file"
IDLE = "the predictor is held ({count:.3g} M parameters), and multiplied with nothing: classes do not need it"


def tokens_of_images(c: ConfigReader) -> Architecture:
    """Return BEiT with an output over the words of a tokenizer of images, for each patch."""
    c.assumed.append(ALL_DRAWN)
    return alone(beit_tower(c), c.whole("vocab_size"), each=True)


def pixels_of_images(c: ConfigReader, *, tokens: int) -> Architecture:
    """Return ViT with an output over the pixels that each patch stands for."""
    c.assumed.append(ALL_DRAWN)
    tower = patch_tower(c, Sight(tokens=tokens, masked_token=True))
    return alone(tower, c.whole("encoder_stride") ** 2 * c.whole("channels"), each=True)


def vit_mae(c: ConfigReader) -> Architecture:
    """Return MAE: an encoder of the patches that are left, and a narrower stack that draws all."""
    tower, ratio = patch_tower(c, IMAGES), _ratio(c)
    return _drawn(c, tower, _visible(tower, ratio), rows=tower.places + 1)


def vit_mae_alone(c: ConfigReader) -> Architecture:
    """Return the encoder of MAE, which hides patches too."""
    tower, ratio = patch_tower(c, IMAGES), _ratio(c)
    _skip_drawing(c)
    visible = _visible(tower, ratio)
    c.assumed.append(LEFT.format(visible=visible, all=tower.places))
    return alone(dataclasses.replace(tower, places=visible), 0)


def _visible(tower: Tower, ratio: float) -> int:
    return int((tower.places - 1) * (1 - ratio)) + 1


def _ratio(c: ConfigReader) -> float:
    ratio = c.value("mask_ratio", 0.75)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio < 1:
        raise ValueError(f"mask_ratio: expected 0 or more, and less than 1, got {ratio!r}")
    c.skip("norm_pix_loss")
    return float(ratio)


def videomae(c: ConfigReader) -> Architecture:
    """Return VideoMAE: as MAE, with patches over some frames and places that are worked out."""
    tower = _videos(c)
    c.assumed.append(UNSAID)
    return _drawn(c, tower, max(1, int(tower.places * (1 - MOST_HIDDEN))), rows=0)


def videomae_classes(c: ConfigReader) -> Architecture:
    """Return its encoder with classes of videos, and a norm before them or behind the last layer."""
    _skip_drawing(c)
    tower = _videos(c)
    return alone(dataclasses.replace(tower, held=tower.held + 2 * tower.width * _mean(c)), c.classes())


def videomae_alone(c: ConfigReader) -> Architecture:
    """Return its encoder."""
    _skip_drawing(c)
    return alone(_videos(c), 0)


def _mean(c: ConfigReader) -> bool:
    return c.flag("use_mean_pooling", default=True)


def _videos(c: ConfigReader) -> Tower:
    """Return the encoder, whose last norm is left to the classes where they are of the mean of all tokens."""
    c.skip("norm_pix_loss")
    tower = patch_tower(c.changed({"qkv_bias": c.flag("qv_bias", default=True)}), VIDEOS)
    return dataclasses.replace(tower, held=tower.held + 2 * tower.width * (not _mean(c)))


DRAWING = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")


def _skip_drawing(c: ConfigReader) -> None:
    c.skip(*(f"decoder_{name}" for name in DRAWING))


def _drawn(c: ConfigReader, tower: Tower, visible: int, *, rows: int) -> Architecture:
    """Return an encoder of what is visible, and the stack that draws all; `rows` of a table and a token of its own."""
    width, heads, count, inner = (c.whole(f"decoder_{name}") for name in DRAWING)
    images = rows > 0
    biases = (3 if images else 2) * c.flag("qkv_bias" if images else "qv_bias", default=True)
    pixels = tower.met // tower.width
    second = Tower(
        width=width,
        layers=_layers(width, heads, inner, count, biases),
        held=(rows + 1 + 2) * width if images else 3 * width,
        places=tower.places,
    )
    first = dataclasses.replace(tower, met=tower.met + tower.width * width)
    c.assumed += [VISIBLE.format(visible=visible, all=tower.places), ALL_DRAWN]
    return two_towers(first, second, pixels, length=visible, held=pixels, once=None)


def _layers(width: int, heads: int, inner: int, count: int, biases: int) -> list[LayerKind]:
    """Return layers with two norms, and biases behind all but some of queries, keys and values."""
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=even(width, heads), masked=False)
    small = 4 * width + biases * width + width + inner + width
    return [LayerKind(mixer=mixer, network=Dense(width=inner, gated=False), small=small)] * count


def vjepa2(c: ConfigReader) -> Architecture:
    """Return V-JEPA 2: an encoder of videos, and a narrower stack that predicts its output."""
    tower, predictor = _clips(c), _predictor(c)
    c.skip("num_pooler_layers")
    c.assumed.append(UNMASKED)
    first = dataclasses.replace(tower, met=tower.met + tower.width * predictor.width)
    predictor = dataclasses.replace(predictor, places=tower.places)
    return two_towers(first, predictor, tower.width, length=tower.places, held=tower.width, once=None)


def vjepa2_classes(c: ConfigReader) -> Architecture:
    """Return its encoder with classes of videos, behind further layers and a query over all tokens."""
    tower, predictor, wide = _clips(c), _predictor(c), c.whole("hidden_size")
    idle = sum(layer.parameters(predictor.width) for layer in predictor.layers) + predictor.held
    idle += 2 * wide * predictor.width + wide
    c.assumed.append(IDLE.format(count=idle / 1e6))
    further = _layers(wide, c.whole("num_attention_heads"), 4 * wide, c.whole("num_pooler_layers"), 3)
    return alone(
        Tower(
            width=wide,
            layers=tower.layers + further,
            held=tower.held + idle + (1 + 3 + 4 + 5) * wide,
            places=tower.places,
            met=tower.met + 2 * wide * wide,
            once=wide * wide + 8 * wide * wide,
        ),
        c.classes(),
    )


def _clips(c: ConfigReader) -> Tower:
    sizes = {"num_frames": "frames_per_clip", "image_size": "crop_size", "num_channels": "in_chans"}
    return patch_tower(c.changed({ours: c.whole(theirs) for ours, theirs in sizes.items()}), JEPA)


def _predictor(c: ConfigReader) -> Tower:
    width, heads, count = (c.whole(f"pred_{name}") for name in DRAWING[:3])
    inner, biases = int(width * c.value("pred_mlp_ratio", 4)), 3 * c.flag("qkv_bias", default=True)
    c.skip("pred_zero_init_mask_tokens")
    held = (1 + c.whole("pred_num_mask_tokens") + 2) * width
    return Tower(width=width, layers=_layers(width, heads, inner, count, biases), held=held, places=0)
