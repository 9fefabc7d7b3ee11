"""A decoder-only transformer as numbers: its sizes, and the operators, FLOPs and bytes of one micro-batch.

Sizes carry the key names of a Hugging Face config.json. The operators listed here are those that `train/decoder.py`
calls, one by one, so that a price for each adds up to a step.
"""

import msgspec

from .graph import Layer, Operator, Workload

FLOAT32_BYTES = 4


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sizes of a decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied or untied output."""

    vocab_size: int = 256  # different tokens; 256 for bytes
    hidden_size: int = 128  # width of the residual stream
    intermediate_size: int = 384  # width inside the SwiGLU network
    num_hidden_layers: int = 4  # decoder layers
    num_attention_heads: int = 2  # query heads; hidden_size is a multiple of it
    num_key_value_heads: int = 1  # key-value heads; num_attention_heads is a multiple of it
    max_position_embeddings: int = 128  # longest sequence
    rms_norm_eps: float = 1e-5  # added to the mean square
    rope_theta: float = 10000.0  # base of the rotary wavelengths
    initializer_range: float = 0.08  # standard deviation of the initial weights
    tie_word_embeddings: bool = True  # the output uses the embedding's weight
    num_local_experts: int = 0  # experts of a layer, each as wide as intermediate_size; 0: one dense network
    num_experts_per_tok: int = 2  # experts that each token passes through, where there are any

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name not in {"tie_word_embeddings", "num_local_experts"} and not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"num_attention_heads: {self.num_attention_heads} does not divide hidden_size {self.hidden_size}"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads: {self.num_key_value_heads} does not divide "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.num_local_experts < 0 or 0 < self.num_local_experts < self.num_experts_per_tok:
            raise ValueError(
                f"num_local_experts: expected 0, or at least num_experts_per_tok = {self.num_experts_per_tok}, "
                f"got {self.num_local_experts}"
            )
        if self.head_dim % 2:
            raise ValueError(f"hidden_size / num_attention_heads = {self.head_dim} is odd; rotary positions need pairs")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def qkv_size(self) -> int:
        """Rows of the fused query, key and value projection."""
        return (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim


def parameter_shapes(model: ModelConfig) -> list[tuple[int, ...]]:
    """Return the shape of every parameter tensor, in the order of the module (a tied output counts once)."""
    hidden, inner = model.hidden_size, model.intermediate_size
    layer: list[tuple[int, ...]] = [
        *((hidden,), (model.qkv_size, hidden), (hidden, hidden)),
        *((hidden,), (2 * inner, hidden), (hidden, inner)),
    ]
    shapes: list[tuple[int, ...]] = [(model.vocab_size, hidden), *layer * model.num_hidden_layers, (hidden,)]
    return shapes if model.tie_word_embeddings else [*shapes, (model.vocab_size, hidden)]


def describe(model: ModelConfig, *, seq_len: int, micro_batch: int) -> Workload:
    """Return what one micro-batch of `micro_batch` sequences computes, layer by layer, in float32."""
    rows = micro_batch * seq_len
    hidden, inner = model.hidden_size, model.intermediate_size
    heads, kv_heads, head_dim = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    layer = Layer(
        name="decoder layer",
        count=model.num_hidden_layers,
        recomputable=True,
        parameters=2 * hidden + model.qkv_size * hidden + hidden * hidden + 3 * inner * hidden,
        operators=(
            _rms_norm(rows, hidden),
            _linear(rows, hidden, model.qkv_size),
            # attention keeps the rotated queries and keys; the rotation itself keeps only its small tables
            Operator(
                kind="split_heads",
                shape=(micro_batch, seq_len, heads, kv_heads, head_dim),
                forward_flops=3 * rows * (heads + kv_heads) * head_dim,
            ),
            _attention(micro_batch, heads, kv_heads, seq_len, head_dim),
            _linear(rows, hidden, hidden),
            Operator(kind="add", shape=(rows, hidden), forward_flops=rows * hidden),
            _rms_norm(rows, hidden),
            _linear(rows, hidden, 2 * inner),
            Operator(
                kind="swiglu",
                shape=(rows, inner),
                forward_flops=5 * rows * inner,
                saved_bytes=FLOAT32_BYTES * rows * 3 * inner,  # gate and up (one buffer), silu(gate)
            ),
            _linear(rows, inner, hidden),
            Operator(kind="add", shape=(rows, hidden), forward_flops=rows * hidden),
        ),
    )
    embedding = Layer(
        name="embedding",
        parameters=model.vocab_size * hidden,
        operators=(Operator(kind="embedding", shape=(rows, model.vocab_size, hidden), saved_bytes=8 * rows),),
    )
    output = Layer(
        name="output",
        parameters=hidden + (0 if model.tie_word_embeddings else model.vocab_size * hidden),
        operators=(
            _rms_norm(rows, hidden),
            _linear(rows, hidden, model.vocab_size),
            Operator(
                kind="cross_entropy",
                shape=(rows, model.vocab_size),
                forward_flops=5 * rows * model.vocab_size,
                saved_bytes=FLOAT32_BYTES * rows * model.vocab_size,  # the log-probabilities
            ),
        ),
    )
    return Workload(
        name="decoder",
        micro_batch=micro_batch,
        seq_len=seq_len,
        layers=(embedding, layer, output),
        parameter_shapes=tuple(parameter_shapes(model)),
    )


def _linear(rows: int, inputs: int, outputs: int) -> Operator:
    # its input is kept for the weight's gradient; the input's owner counts it where it keeps it too
    return Operator(
        kind="linear",
        shape=(rows, inputs, outputs),
        forward_flops=2 * rows * inputs * outputs,
        model_flops=2 * rows * inputs * outputs,
        saved_bytes=FLOAT32_BYTES * rows * inputs,
    )


def _rms_norm(rows: int, hidden: int) -> Operator:
    return Operator(
        kind="rms_norm",
        shape=(rows, hidden),
        forward_flops=4 * rows * hidden,
        saved_bytes=FLOAT32_BYTES * rows * (2 * hidden + 1),  # the input, the normalised input, one factor a row
    )


def _attention(batch: int, heads: int, kv_heads: int, seq_len: int, head_dim: int) -> Operator:
    # Two products of seq_len^2 x head_dim a head. The causal half is counted in full, as the field's model FLOPs do.
    flops = 4 * batch * heads * seq_len * seq_len * head_dim
    rotated, projected = (heads + kv_heads) * head_dim, (heads + 2 * kv_heads) * head_dim
    return Operator(
        kind="attention",
        shape=(batch, heads, kv_heads, seq_len, head_dim),
        forward_flops=flops,
        model_flops=flops,
        # rotated queries and keys, the whole projection (the values are a view of it), one log-sum-exp a row and
        # head; the output is kept as the next linear's input
        saved_bytes=FLOAT32_BYTES * batch * seq_len * (rotated + projected + heads),
    )
