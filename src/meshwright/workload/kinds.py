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

import msgspec

DELTA_CHUNK = 64  # tokens that the kernels of the delta rule take at once (flash-linear-attention, transformers)
LIGHTNING_BLOCK = 256  # of lightning attention (arXiv 2401.04658)
SCAN_FLOPS = 9  # of the selective scan, a channel and state (Gu and Dao 2023, arXiv 2312.00752)


class _Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A half of a layer."""


class Attention(_Kind, frozen=True, kw_only=True, tag="attention"):
    """Attention of grouped heads over all tokens, over a `window` of the last ones, or inside a `chunk` (0: none)."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0  # 0: head_dim
    window: int = 0
    chunk: int = 0
    masked: bool = True  # a token sees none after it
    gate: bool = False  # an output gate as wide as the queries
    key_matrices: int = 2  # keys and values of its own; 1: values are keys; 0: both are another layer's
    reads: int = 0  # keys and values are of an encoder's tokens, always this many; 0: as many as queries

    @property
    def values(self) -> int:
        """Width of one head's value."""
        return self.value_dim or self.head_dim

    @property
    def score_width(self) -> int:
        """Elements of queries and values together, which scores are multiplied along."""
        return self.heads * (self.head_dim + self.values)

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"attention heads": self.heads, "key-value heads": self.kv_heads if self.key_matrices else 0}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.heads * self.values

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return hidden * (self.heads * self.head_dim * (2 if self.gate else 1) + self.out_width) + self.key_weights(
            hidden
        )

    def key_weights(self, hidden: int) -> int:
        """Return those of the weights that make keys and values."""
        return hidden * self.kv_heads * (0, self.head_dim, self.head_dim + self.values)[self.key_matrices]

    def attended(self, seq_len: int, *, causal: bool) -> float:
        """Return how many keys a query meets, on average over the sequence."""
        if self.reads:
            return float(self.reads)
        reach = min(seq_len, self.window or seq_len, self.chunk or seq_len)
        if not causal or not self.masked:
            return float(reach)
        if self.chunk and reach < seq_len and reach == self.chunk:
            return reach / 2
        return reach - reach * reach / (2.0 * seq_len)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's scores, forward."""
        return 2.0 * self.attended(seq_len, causal=causal) * self.score_width


class Latent(_Kind, frozen=True, kw_only=True, tag="latent"):
    """Multi-latent attention: queries through `q_rank` (0: direct), keys and values through `kv_rank`, a shared rotary
    part; with an indexer (`index_heads`) each query meets the `index_top` keys that it picks, with `index_top` alone
    the keys that an earlier layer's indexer picked.
    """

    heads: int
    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    index_heads: int = 0
    index_dim: int = 0
    index_top: int = 0

    @property
    def score_width(self) -> int:
        """Elements of queries and values together."""
        return self.heads * (self.nope_dim + self.rope_dim + self.value_dim)

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"attention heads": self.heads}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.heads * self.value_dim

    @property
    def lifting(self) -> int:
        """Weights of the products out of the ranks."""
        return self.heads * (
            self.q_rank * (self.nope_dim + self.rope_dim) + self.kv_rank * (self.nope_dim + self.value_dim)
        )

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with, the indexer's included."""
        wide = self.heads * (self.nope_dim + self.rope_dim)
        queries = self.q_rank * (hidden + wide) if self.q_rank else hidden * wide
        keys = hidden * (self.kv_rank + self.rope_dim) + self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        index = self.index_heads * self.index_dim * (self.q_rank or hidden)
        index += hidden * (self.index_dim + self.index_heads) if self.index_heads else 0
        return queries + keys + index + self.out_width * hidden

    def attended(self, seq_len: int, *, causal: bool) -> float:
        """Return how many keys a query meets, on average."""
        reach = min(seq_len, self.index_top or seq_len)
        return reach - reach * reach / (2.0 * seq_len) if causal else float(reach)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's scores and of the indexer's, forward."""
        index = 2.0 * self.index_heads * self.index_dim * seq_len / (2.0 if causal else 1.0)
        return 2.0 * self.attended(seq_len, causal=causal) * self.score_width + index


class Compressed(_Kind, frozen=True, kw_only=True, tag="compressed"):
    """Attention of many heads over one key that is its value: the last `window` tokens, and a mean of each `rate` ones.

    DeepSeek-V4's (transformers, models/deepseek_v4/modeling_deepseek_v4.py). `overlap`: a mean reaches into the group
    before, by projections twice as wide; `index_heads`: each query meets the `index_top` means that an indexer picks.
    The output passes through `groups` projections of `group_rank` columns each.
    """

    heads: int
    head_dim: int
    q_rank: int
    groups: int
    group_rank: int
    window: int
    rate: int = 0  # 0: the window alone
    overlap: bool = False
    index_heads: int = 0
    index_dim: int = 0
    index_top: int = 0
    streams: int = 0  # elements of a token in further residual streams, which are kept around the layer's two halves

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: what projections return, rotated queries, the streams."""
        wide = 2 if self.overlap else 1
        means = 2 * wide * (self.head_dim + self.index_dim) if self.rate else 0
        index = 2 * self.index_heads * self.index_dim
        return (
            2 * (self.out_width + self.q_rank + self.head_dim)
            + self.groups * self.group_rank
            + means
            + index
            + (2 * self.streams)
        )

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"attention heads": self.heads, "groups of the output projection": self.groups}

    @property
    def out_width(self) -> int:
        """Columns that the output projections take."""
        return self.heads * self.head_dim

    @property
    def scored(self) -> tuple[tuple[float, int], ...]:
        """Return elements that scores are multiplied along, each with the span of tokens that it reaches (0: all)."""
        width = float(2 * self.out_width)
        if not self.rate:
            return ((width, self.window),)
        index = (self.index_heads * self.index_dim / self.rate, 0)
        return ((width, self.window), (width / self.rate, self.index_top * self.rate), *((index,) if index[0] else ()))

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with, compressors and indexer included."""
        queries = self.q_rank * (hidden + self.out_width)
        out = self.group_rank * (self.out_width + self.groups * hidden)
        means = 2 * hidden * (2 if self.overlap else 1) * (self.head_dim + self.index_dim) if self.rate else 0
        index = self.index_heads * (self.q_rank * self.index_dim + hidden)
        return queries + hidden * self.head_dim + out + means + index

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's scores and of the indexer's, forward."""
        found = 0.0
        for width, span in self.scored:
            reach = min(seq_len, span or seq_len)
            found += 2.0 * width * (reach - reach * reach / (2.0 * seq_len) if causal else reach)
        return found


class GatedDelta(_Kind, frozen=True, kw_only=True, tag="gated_delta"):
    """Linear attention by the gated delta rule (Yang et al. 2024, arXiv 2412.06464); a state of key x value a head.

    `gate_rank` and `decay_rank`: where the output gate and a decay of every channel pass through a low rank (Kimi
    Linear, arXiv 2510.26692); 0: a full output gate, and one decay a head.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int = 4
    gate_rank: int = 0
    decay_rank: int = 0
    gate: bool = True

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: around the convolution, gate, output, a chunk's products.

        By the kernels of flash-linear-attention.
        """
        return 2 * self._conv + 2 * self.out_width + self.value_heads * (2 + DELTA_CHUNK)

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"key heads of linear attention": self.key_heads, "value heads of linear attention": self.value_heads}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.value_heads * self.value_dim

    @property
    def _conv(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.out_width

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        gate = self.gate_rank * (hidden + self.out_width) if self.gate_rank else hidden * self.out_width * self.gate
        wide = self.value_heads * self.key_dim
        decay = self.decay_rank * (hidden + wide) if self.decay_rank else hidden * self.value_heads
        return hidden * (self._conv + self.out_width + self.value_heads) + gate + decay

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's products with its chunk and the state, forward."""
        chunk = min(DELTA_CHUNK, seq_len)
        inside = chunk * (6.0 * self.key_dim + 4.0 * self.value_dim)
        return self.value_heads * (inside + 6.0 * self.key_dim * self.value_dim) + 2.0 * self.conv_kernel * self._conv


class Mamba2(_Kind, frozen=True, kw_only=True, tag="mamba2"):
    """State-space duality (Dao and Gu 2024, arXiv 2405.21060); a state of head x state a head."""

    heads: int
    head_dim: int
    groups: int
    state: int
    chunk: int = 256
    conv_kernel: int = 4

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: the projection's result and the scan's (mamba_ssm, fused)."""
        return 3 * self.out_width + 2 * self.groups * self.state + self.heads

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"Mamba heads": self.heads, "Mamba groups": self.groups}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.heads * self.head_dim

    @property
    def _conv(self) -> int:
        return self.out_width + 2 * self.groups * self.state

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return hidden * (self.out_width + self._conv + self.heads + self.out_width)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's products with its chunk and the state, forward."""
        chunk = min(self.chunk, seq_len)
        inside = 2.0 * chunk * (self.groups * self.state + self.out_width)
        return inside + 4.0 * self.out_width * self.state + 2.0 * self.conv_kernel * self._conv


class Mamba1(_Kind, frozen=True, kw_only=True, tag="mamba"):
    """The selective scan (Gu and Dao 2023); a state of `state` a channel."""

    inner: int
    state: int
    rank: int  # of the step's projection
    conv_kernel: int = 4

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: the results of both projections and the scan (mamba_ssm)."""
        return 3 * self.inner + self.rank + 2 * self.state

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"Mamba channels": self.inner}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.inner

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return self.inner * (3 * hidden + 2 * self.rank + 2 * self.state)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's scan, forward."""
        return self.inner * (SCAN_FLOPS * self.state + 2.0 * self.conv_kernel)


class Lightning(_Kind, frozen=True, kw_only=True, tag="lightning"):
    """Linear attention with a fixed decay a head, computed in blocks; a state of head x head a head."""

    heads: int
    head_dim: int

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: queries, keys, values and what leaves them."""
        return 4 * self.out_width

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"heads of linear attention": self.heads}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.heads * self.head_dim

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with: queries, keys, values, output gate and output."""
        return 5 * hidden * self.out_width

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's products with its block and the state, forward."""
        return 4.0 * self.out_width * (min(LIGHTNING_BLOCK, seq_len) + self.head_dim)


class ShortConv(_Kind, frozen=True, kw_only=True, tag="short_conv"):
    """A gated convolution over a few tokens, as LFM2 has it: three projections in, one out."""

    width: int
    kernel: int

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: three projections' results, and what leaves the convolution."""
        return 4 * self.width

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"channels of convolutions": self.width}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.width

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return 4 * hidden * self.width

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's convolution, forward."""
        return 2.0 * self.width * self.kernel


class Dense(_Kind, frozen=True, kw_only=True, tag="dense"):
    """A feed-forward network."""

    width: int
    gated: bool = True

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        return (3 if self.gated else 2) * hidden * self.width

    def held(self, hidden: int) -> int:
        """Return the weights that the network holds."""
        return self.weights(hidden)


class Experts(_Kind, frozen=True, kw_only=True, tag="experts"):
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
    unused: int = 0  # weights that are allocated beside the experts, and that no token is multiplied with
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


Mixer = Attention | Latent | Compressed | GatedDelta | Mamba2 | Mamba1 | Lightning | ShortConv
Network = Dense | Experts


class LayerKind(_Kind, frozen=True, kw_only=True):
    """One layer."""

    mixer: Mixer | None = None
    beside: Mixer | None = None  # a second one: attention over an encoder's output, or in parallel
    network: Network | None = None
    small: int = 0  # norms, biases, convolutions: held, and multiplied with nothing
    more: int = 0  # other weights that a token is multiplied with
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
        """Return all parameters of the layer."""
        return self.mixer_weights(hidden) + (self.network.held(hidden) if self.network else 0) + self.small

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token of the text, forward, that are no products with weights."""
        length = self.length or seq_len
        return sum(mixer.flops(length, causal=causal) for mixer in self.mixers) * (length / seq_len)


class LayerRun(_Kind, frozen=True, kw_only=True):
    """Equal layers in a row."""

    count: int
    layer: LayerKind


def runs_of(layers: Iterable[LayerKind]) -> tuple[LayerRun, ...]:
    """Return layers as runs of equal ones."""
    return tuple(LayerRun(count=len(list(equal)), layer=layer) for layer, equal in groupby(layers))
