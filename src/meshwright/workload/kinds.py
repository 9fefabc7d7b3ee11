"""Layer kinds: what one layer of a model multiplies, holds and scores, by the kind of its two halves.

A layer is a mixer (attention or a recurrence over the sequence), a network (dense or experts), or both. Widths are in
elements; `hidden` is the width of the residual stream. Conventions, which docs/planning.md states too:

    weights     what a token is multiplied with; biases, norms and convolutions are `small`, and multiplied with nothing
    FLOPs       a product of [M, K] and [K, N] is 2MNK, forward alone
    scores      `causal` counts the scores that a mask leaves (half of a full square); without it the whole square, as
                Megatron-LM's published figures and torch.utils.flop_counter do
    recurrence  by its chunked form, whose products inside a chunk are whole in both conventions
    kept        elements of a token that a mixer's kernels save for backward, beside its input and its output
"""

from collections.abc import Iterable
from itertools import groupby

from .attention_kinds import Attention, Compressed, Kind, Latent
from .recurrent_kinds import ChannelRecurrence, DynamicConv, GatedDelta, Lightning, Mamba1, Mamba2, ShortConv

__all__ = [
    "Attention",
    "ChannelRecurrence",
    "Compressed",
    "Dense",
    "DynamicConv",
    "Experts",
    "GatedDelta",
    "Latent",
    "LayerKind",
    "LayerRun",
    "Lightning",
    "Mamba1",
    "Mamba2",
    "Mixer",
    "Network",
    "ShortConv",
    "runs_of",
]


class Dense(Kind, frozen=True, kw_only=True, tag="dense"):
    """A feed-forward network."""

    width: int
    gated: bool = True

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return (3 if self.gated else 2) * hidden * self.width

    def held(self, hidden: int) -> int:
        """Return the weights that the network holds."""
        return self.weights(hidden)


class Experts(Kind, frozen=True, kw_only=True, tag="experts"):
    """Experts, of which a token visits `top`, beside a network of width `shared` that every token visits.

    `latent`: the routed experts work in a narrower stream, which a projection each leads to and from.
    """

    count: int
    top: int
    width: int
    gated: bool = True
    shared: int = 0
    shared_gate: bool = False  # a column that weighs the shared network
    latent: int = 0
    router: int = 0  # columns of the router, where they are not `count`
    groups: int = 1  # into which the experts are divided; those of a token lie in `top_groups` of them
    top_groups: int = 1
    unused: int = 0  # weights that are held beside the experts, and that no token of text is multiplied with
    empty: int = 0  # weights that the library allocates beside these, and no checkpoint has: not counted
    biases: int = 0  # of one expert; they are of the layer's `small`

    def expert(self, hidden: int) -> int:
        """Return the weights of one expert."""
        return (3 if self.gated else 2) * (self.latent or hidden) * self.width

    def around(self, hidden: int) -> int:
        """Return the weights that every token is multiplied with: router, shared network, projections."""
        shared = (3 if self.gated else 2) * hidden * self.shared + hidden * self.shared_gate
        return hidden * (self.router or self.count) + shared + 2 * hidden * self.latent

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return self.around(hidden) + self.top * self.expert(hidden)

    def held(self, hidden: int) -> int:
        """Return the weights that the layer holds."""
        return self.around(hidden) + self.count * self.expert(hidden) + self.unused


Mixer = (
    Attention
    | Latent
    | Compressed
    | GatedDelta
    | Mamba2
    | Mamba1
    | Lightning
    | ShortConv
    | ChannelRecurrence
    | DynamicConv
)
Network = Dense | Experts


class LayerKind(Kind, frozen=True, kw_only=True):
    """One layer."""

    mixer: Mixer | None = None
    beside: Mixer | None = None  # a second one: attention over an encoder's output, or in parallel
    network: Network | None = None
    small: int = 0  # norms, biases, convolutions: held, and multiplied with nothing
    more: int = 0  # other weights that a token is multiplied with
    streams: int = 0  # elements of a token in further residual streams, which are kept around the layer's two halves
    borrowed: int = 0  # its parameters that an earlier layer holds: multiplied in both, held once
    length: int = 0  # tokens of a sequence in it, where their number is fixed as in an encoder of sound; 0: the text's

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """The half that mixes tokens."""
        return tuple(mixer for mixer in (self.mixer, self.beside) if mixer is not None)

    def mixer_weights(self, hidden: int) -> int:
        """Return the weights of what is no network."""
        return sum(mixer.weights(hidden) for mixer in self.mixers) + self.more

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return self.mixer_weights(hidden) + (self.network.weights(hidden) if self.network else 0)

    def parameters(self, hidden: int) -> int:
        """Return the parameters that the layer holds, and no earlier one."""
        network = self.network.held(hidden) if self.network else 0
        return self.mixer_weights(hidden) + network + self.small - self.borrowed

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token of the text, forward, that are no products with weights."""
        length = self.length or seq_len
        return sum(mixer.flops(length, causal=causal) for mixer in self.mixers) * (length / seq_len)


class LayerRun(Kind, frozen=True, kw_only=True):
    """Equal layers in a row."""

    count: int
    layer: LayerKind


def runs_of(layers: Iterable[LayerKind]) -> tuple[LayerRun, ...]:
    """Return layers as runs of equal ones."""
    return tuple(LayerRun(count=len(list(equal)), layer=layer) for layer, equal in groupby(layers))
