"""Kinds of attention: what one multiplies, holds and scores. Conventions are those of `kinds`."""

import msgspec


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A half of a layer."""


class Attention(Kind, frozen=True, kw_only=True, tag="attention"):
    """Attention of grouped heads over all tokens, over a `window` of the last ones, or inside a `chunk` (0: none).

    With an indexer (`index_heads`, of queries of their own and one key) each query meets the `index_top` keys that it
    picks; `index_rate`: tokens for each key that it scores.
    """

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
    index_heads: int = 0
    index_dim: int = 0
    index_top: int = 0
    index_rate: int = 1
    places: int = 0  # products of a token with tables of relative places, multiplications in all

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
        index = (self.index_heads + 1) * self.index_dim if self.index_heads else 0
        queries = self.heads * self.head_dim * (2 if self.gate else 1)
        return hidden * (queries + self.out_width + index) + self.key_weights(hidden)

    def key_weights(self, hidden: int) -> int:
        """Return those of the weights that make keys and values."""
        return hidden * self.kv_heads * (0, self.head_dim, self.head_dim + self.values)[self.key_matrices]

    def attended(self, seq_len: int, *, causal: bool) -> float:
        """Return how many keys a query meets, on average over the sequence."""
        if self.reads:
            return float(self.reads)
        reach = min(seq_len, self.window or seq_len, self.chunk or seq_len, self.index_top or seq_len)
        if not causal or not self.masked:
            return float(reach)
        if self.chunk and reach < seq_len and reach == self.chunk:
            return reach / 2
        return reach - reach * reach / (2.0 * seq_len)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's scores, of the indexer's and with places, forward."""
        scores = 2.0 * self.attended(seq_len, causal=causal) * self.score_width
        return scores + index_flops(self, seq_len, causal) + 2.0 * self.places


class Latent(Kind, frozen=True, kw_only=True, tag="latent"):
    """Multi-latent attention: queries through `q_rank` (0: direct), keys and values through `kv_rank`, a shared rotary
    part; with an indexer (`index_heads`) each query meets the `index_top` keys that it picks, with `index_top` alone
    the keys that an earlier layer's indexer picked; `index_rate`: tokens for each key that an indexer scores. With a
    `window` it meets the last ones alone.
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
    index_rate: int = 1
    window: int = 0

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
        reach = min(seq_len, self.index_top or seq_len, self.window or seq_len)
        return reach - reach * reach / (2.0 * seq_len) if causal else float(reach)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's scores and of the indexer's, forward."""
        return 2.0 * self.attended(seq_len, causal=causal) * self.score_width + index_flops(self, seq_len, causal)


def index_flops(mixer: Attention | Latent, seq_len: int, causal: bool) -> float:
    """Return the FLOPs of one token's scores with an indexer's keys, forward; 0 where it has none."""
    scores = mixer.index_heads * mixer.index_dim * seq_len / mixer.index_rate
    return 2.0 * scores / (2.0 if causal else 1.0)


class Compressed(Kind, frozen=True, kw_only=True, tag="compressed"):
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

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: what projections return, and rotated queries."""
        wide = 2 if self.overlap else 1
        means = 2 * wide * (self.head_dim + self.index_dim) if self.rate else 0
        index = 2 * self.index_heads * self.index_dim
        return 2 * (self.out_width + self.q_rank + self.head_dim) + self.groups * self.group_rank + means + index

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
