"""Encoders of text and of images whose outputs are compared, and each of the two alone: CLIP, SigLIP and theirs."""

from dataclasses import dataclass

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .bert import BERTS_FIRST
from .decoders import attention_of_config
from .images import Sight, numbered_patches, patch_tower
from .reader import ConfigReader
from .towers import Tower, alone, two_towers

COMPARED = (
    "each text goes with an image of {patches} tokens, and FLOPs are those of a token of text; what compares the texts "
    "of a batch with its images, and sends them to all ranks, is not counted"
)


@dataclass(frozen=True, slots=True)
class Contrast:
    """A type of two encoders."""

    sight: Sight
    masked: bool = False  # the encoder of text is
    old: bool = False  # it is BERT's
    head: bool = False  # its projection is its own, with a bias, and that of images has none
    scalars: int = 1  # of the comparison: a scale, and a bias in some


CLIP = Contrast(Sight(patch_bias=False, first_norm=True), masked=True)
SIGLIP = Contrast(Sight(tokens=0, head=True), head=True, scalars=2)
SIGLIP2 = Contrast(Sight(tokens=0, head=True, sees=numbered_patches), head=True, scalars=2)
CHINESE = Contrast(Sight(patch_bias=False, first_norm=True), old=True)


def read(c: ConfigReader, kind: Contrast) -> Tower:
    """Return an encoder of text."""
    hidden, width, plain = c.whole("hidden_size"), c.whole("intermediate_size"), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=kind.masked)
    c.skip("projection_dim", "projection_size")
    if kind.old:
        c.skip("classifier_dropout", *BERTS_FIRST)
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=8 * hidden + width + hidden)
    rows = c.whole("vocab_size") + c.whole("max_position_embeddings") + 2
    rows += c.whole("type_vocab_size") if kind.old else 0
    return Tower(
        width=hidden, layers=[layer] * c.layers(), held=rows * hidden, places=c.whole("max_position_embeddings")
    )


def read_alone(c: ConfigReader, *, kind: Contrast, projects: bool = False) -> Architecture:
    """Return an encoder of text alone; `projects`: with the projection to the width in which both are compared."""
    if kind.head:
        tower = read(c, kind)
        return alone(tower, _columns(c, tower))
    return alone(read(c, kind), c.whole("projection_dim") if projects else 0, biased=False)


def seen_alone(c: ConfigReader, *, kind: Contrast, projects: bool = False) -> Architecture:
    """Return an encoder of images alone; `projects` as above."""
    c.skip("projection_dim")
    return alone(patch_tower(c, kind.sight), c.whole("projection_dim") if projects else 0, biased=False)


def classified(c: ConfigReader, *, kind: Contrast) -> Architecture:
    """Return the encoder of images of a pair, with classes of images."""
    c.skip("text_config", "text_config_dict", "projection_dim")
    image = _part(c, "vision_config")
    image.skip("projection_dim")
    return alone(patch_tower(image, kind.sight), c.classes())


def contrasted(c: ConfigReader, *, kind: Contrast) -> Architecture:
    """Return both encoders, with a projection each to the width in which their outputs are compared."""
    text, image = (_part(c, name) for name in ("text_config", "vision_config"))
    image.skip("projection_dim")
    first, second = patch_tower(image, kind.sight), read(text, kind)
    if kind.head:
        columns = _columns(text, second)
        if columns != first.width:
            raise ValueError(f"text_config: projection_size: expected the images' {first.width}, got {columns}")
    else:
        columns = c.whole("projection_dim")
    c.assumed.append(COMPARED.format(patches=first.places))
    held, once = kind.scalars + columns * kind.head, 0 if kind.head else columns * first.width
    return two_towers(first, second, columns, length=first.places, held=held, once=once)


def _columns(c: ConfigReader, tower: Tower) -> int:
    """Return the columns of the text's own projection: as wide as its layers, unless its file says otherwise."""
    return c.whole("projection_size") if c.given("projection_size") else tower.width


def _part(c: ConfigReader, name: str) -> ConfigReader:
    """Return one encoder's keys; those of an older file are the whole of them where it has any."""
    old = f"{name}_dict"
    given = c.alone(old)
    c.skip(old)
    found = (c.changed({name: given}) if given is not None else c).inside(name)
    c.take(name, found)
    found.skip("model_type", "tied")
    return found
