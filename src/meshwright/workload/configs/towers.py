"""Encoders whose output is left to the class that holds them: one alone, or one beside what it is compared with."""

from dataclasses import dataclass

import msgspec

from ..architecture import Architecture
from ..kinds import LayerKind, runs_of
from .decoders import summary
from .pairs import of_width

NO_OUTPUT = (
    "{named} puts out vectors: no output is counted, and neither is the loss over them, nor a teacher or more views of "
    "the same input; a loss that compares sequences (contrastive) compares those of one micro-batch, so that another "
    "mbs is another training (GradCache keeps the whole batch, for one more forward)"
)


@dataclass(frozen=True, slots=True)
class Tower:
    """An encoder or a decoder without its output, each size by its own width."""

    width: int
    layers: list[LayerKind]
    held: int  # parameters beside its layers that are multiplied with nothing: tables, norms, biases
    places: int  # tokens of a sequence: all of them of images, the most of text
    met: int = 0  # weights beside its layers that each token is multiplied with
    once: int = 0  # such weights that one vector of a sequence is multiplied with


def alone(tower: Tower, columns: int, *, pooled: int = 1, biased: bool = True, each: bool = False) -> Architecture:
    """Return an encoder with an output over some columns, which `pooled` vectors of a sequence meet, or `each`.

    Without columns it puts out vectors; one column then stands for the output, and is taken away again.
    """
    output = pooled * tower.width * max(1, columns)
    bias = columns * biased if columns else -tower.width
    return Architecture(
        **summary(tower.layers),
        vocab_size=max(1, columns),
        hidden_size=tower.width,
        num_hidden_layers=len(tower.layers),
        max_position_embeddings=tower.places,
        norm="layer",
        bias=True,
        positions="none",
        embeds=False,
        beside_parameters=tower.held - 2 * tower.width + bias,
        beside_weights=tower.met + tower.once + output - tower.width * max(1, columns),
        once_weights=tower.once + (0 if each else output),
        stack=runs_of(tower.layers),
    )


def two_towers(first: Tower, second: Tower, columns: int, *, length: int, held: int, once: int | None) -> Architecture:
    """Return an encoder of `length` tokens whatever the sequence, and a second one with the output over its tokens.

    `held`: parameters of the output. `once`: weights beside it that one vector is multiplied with, where the output
    is of one vector of a sequence; None where it is of each token.
    """
    hidden = max(first.width, second.width)
    fixed = [msgspec.structs.replace(layer, length=length) for layer in first.layers]
    layers = [of_width(layer, hidden, first.width, first.width) for layer in fixed]
    layers[0] = msgspec.structs.replace(layers[0], more=layers[0].more + first.met)
    layers += [of_width(layer, hidden, second.width, second.width) for layer in second.layers]
    single = first.once + second.once + (once or 0)
    return Architecture(
        **summary(second.layers),
        vocab_size=columns,
        hidden_size=hidden,
        embedding_size=0 if second.width == hidden else second.width,
        num_hidden_layers=len(layers),
        max_position_embeddings=second.places,
        norm="layer",
        bias=True,
        positions="none",
        embeds=False,
        beside_parameters=first.held + second.held + held - 2 * hidden,
        beside_weights=second.met + single,
        once_weights=single + (0 if once is None else columns * second.width),
        stack=runs_of(layers),
    )
