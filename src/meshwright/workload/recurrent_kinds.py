"""Kinds of recurrences over the sequence, and short convolutions. Conventions are those of `kinds`."""

from .attention_kinds import Kind

DELTA_CHUNK = 64  # tokens that the kernels of the delta rule take at once (flash-linear-attention, transformers)
LIGHTNING_BLOCK = 256  # of lightning attention (arXiv 2401.04658)
RECURRENCE_FLOPS = 8  # of a channel's step: two exponentials' arguments, two products and sums of state and output
SCAN_FLOPS = 9  # of the selective scan, a channel and state (Gu and Dao 2023, arXiv 2312.00752)


class GatedDelta(Kind, frozen=True, kw_only=True, tag="gated_delta"):
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


class Mamba2(Kind, frozen=True, kw_only=True, tag="mamba2"):
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


class Mamba1(Kind, frozen=True, kw_only=True, tag="mamba"):
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


class Lightning(Kind, frozen=True, kw_only=True, tag="lightning"):
    """Linear attention with a decay a head, computed in blocks; a state of key x value a head, both as wide as a head.

    `key_dim` and `block`: where keys are narrower and blocks shorter, as in xLSTM (arXiv 2503.13427).
    """

    heads: int
    head_dim: int
    key_dim: int = 0  # 0: head_dim
    block: int = LIGHTNING_BLOCK

    @property
    def keys(self) -> int:
        """Width of one head's query and key."""
        return self.key_dim or self.head_dim

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: queries, keys, values and what leaves them."""
        return 2 * self.out_width + 2 * self.heads * self.keys

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
        return hidden * (3 * self.out_width + 2 * self.heads * self.keys)

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's products with its block and the state, forward."""
        inside = 2.0 * min(self.block, seq_len) * (self.keys + self.head_dim)
        return self.heads * (inside + 4.0 * self.keys * self.head_dim)


class ChannelRecurrence(Kind, frozen=True, kw_only=True, tag="channel_recurrence"):
    """A recurrence a channel: RG-LRU (arXiv 2402.19427) and the WKV of RWKV-4 (arXiv 2305.13048).

    `matrices`: projections in; one more leads out. `gate_heads`: two gates of the recurrence are block-diagonal
    matrices of as many blocks (0: it has no such gates).
    """

    width: int
    matrices: int
    gate_heads: int = 0
    conv_kernel: int = 0

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: what projections and gates return, and the recurrence."""
        return self.width * (self.matrices + 1 + (2 if self.gate_heads else 0) + (1 if self.conv_kernel else 0))

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"channels of a recurrence": self.width} | ({"gates": self.gate_heads} if self.gate_heads else {})

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.width

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with."""
        gates = 2 * self.width * self.width // self.gate_heads if self.gate_heads else 0
        return hidden * self.width * (self.matrices + 1) + gates

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's step of the recurrence and of its convolution, forward."""
        return self.width * (RECURRENCE_FLOPS + 2.0 * self.conv_kernel)


class ShortConv(Kind, frozen=True, kw_only=True, tag="short_conv"):
    """A gated convolution over a few tokens: three projections in as LFM2 has it, two as a Conformer; one out."""

    width: int
    kernel: int
    projections: int = 3

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: the projections' results, and what leaves the convolution."""
        return (self.projections + 1) * self.width

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
        return (self.projections + 1) * hidden * self.width

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's convolution, forward."""
        return 2.0 * self.width * self.kernel


class DynamicConv(Kind, frozen=True, kw_only=True, tag="dynamic_conv"):
    """A convolution whose kernels, one a head and token, follow from queries and a span of keys beside attention.

    ConvBERT's (Jiang et al. 2020, arXiv 2008.02496), half as wide as the residual stream; the queries are those of the
    attention, and its output is the other half of what the attention's projection takes.
    """

    width: int
    heads: int
    kernel: int

    @property
    def kept(self) -> int:
        """Return the elements of a token that are kept: the span of keys, its product, kernels, in and out."""
        return 4 * self.width + self.heads * self.kernel

    @property
    def cut(self) -> dict[str, int]:
        """Return what tensor parallelism cuts."""
        return {"heads of convolutions": self.heads}

    @property
    def out_width(self) -> int:
        """Columns that the output projection takes."""
        return self.width

    def weights(self, hidden: int) -> int:
        """Return the weights that a token is multiplied with: of the span, the kernels, what they meet, the output."""
        return 3 * hidden * self.width + self.width * self.heads * self.kernel

    def flops(self, seq_len: int, *, causal: bool) -> float:
        """Return the FLOPs of one token's span, over the whole stream, and of its convolution, forward."""
        return 2.0 * self.kernel * (2 * self.width + self.width)
