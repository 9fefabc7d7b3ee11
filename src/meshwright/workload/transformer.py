"""A decoder-only transformer as numbers: its sizes, and the operators, FLOPs and bytes of one micro-batch.

Sizes carry the key names of a Hugging Face config.json. The operators listed here are the ones that
`train/model/decoder.py` calls, one by one, so that a price for each adds up to a step.
"""

import math

import msgspec

from ..layout import Layout
from ..quantities import Base, Factor, Layers, Share, Tokens, Width
from .conventions import EMULATES, LOGIT_GRADIENT_BYTES, Conventions, engine
from .elements import LONG_BYTES, SINGLE_BYTES
from .graph import Layer, Operator, Workload


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sizes of a decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied or untied output."""

    vocab_size: Width = 256  # different tokens; 256 for bytes
    hidden_size: Width = 128  # width of the residual stream
    intermediate_size: Width = 384  # width inside the SwiGLU network
    num_hidden_layers: Layers = 4  # decoder layers
    num_attention_heads: Width = 2  # query heads; hidden_size is a multiple of it
    num_key_value_heads: Width = 1  # key-value heads; num_attention_heads is a multiple of it
    max_position_embeddings: Tokens = 128  # longest sequence
    rms_norm_eps: Factor = 1e-5  # added to the mean square
    rope_theta: Base = 10000.0  # base of the rotary wavelengths
    initializer_range: Factor = 0.08  # standard deviation of the initial weights
    hidden_dropout: Share = 0.0  # share of the embedding, and of what each sublayer adds, that is dropped in training
    tie_word_embeddings: bool = True  # the output uses the embedding's weight
    num_local_experts: Width = 0  # experts of a layer, each as wide as intermediate_size; 0: one dense network
    num_experts_per_tok: Width = 2  # experts that each token passes through, where there are any

    def __post_init__(self) -> None:
        may_be_0 = {"tie_word_embeddings", "num_local_experts", "hidden_dropout"}
        for name in self.__struct_fields__:
            if name not in may_be_0 and not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
        if not 0 <= self.hidden_dropout < 1:
            raise ValueError(f"hidden_dropout: expected 0 to less than 1, got {self.hidden_dropout}")
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
    def experts(self) -> int:
        """Experts of a layer, 0 for a dense model: the name that `plan.legality` knows."""
        return self.num_local_experts

    @property
    def qkv_size(self) -> int:
        """Rows of the fused query, key and value projection."""
        return (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim


def parameter_shapes(model: ModelConfig, *, tp: int = 1, ep: int = 1) -> list[tuple[int, ...]]:
    """Return the shape of every parameter tensor that a rank of tp and ep holds, in the order of the module.

    A tied output counts once.
    """
    hidden, inner, vocabulary = model.hidden_size, model.intermediate_size // tp, model.vocab_size // tp
    attention: list[tuple[int, ...]] = [(hidden,), (model.qkv_size // tp, hidden), (hidden, hidden // tp), (hidden,)]
    network: list[tuple[int, ...]] = [(2 * inner, hidden), (hidden, inner)]
    if model.num_local_experts:
        held = model.num_local_experts // ep
        network = [(model.num_local_experts, hidden), (held, 2 * inner, hidden), (held, hidden, inner)]
    shapes = [(vocabulary, hidden), *(attention + network) * model.num_hidden_layers, (hidden,)]
    return shapes if model.tie_word_embeddings else [*shapes, (vocabulary, hidden)]


def describe_workload(
    model: ModelConfig,
    *,
    seq_len: int,
    micro_batch: int,
    layout: Layout | None = None,
    autocast: str = "",
    compiled: bool = False,
) -> Workload:
    """Return what one micro-batch of `micro_batch` sequences computes, layer by layer.

    With `layout`, what one of the ranks computes that tp, cp and ep split it over, and what it holds. In float32, or
    under torch's `autocast` to a type: products and what lies between them are then of that type, weights are cast for
    them, and the residual stream, norms and losses stay in float32; in fp8 the layers' products with weights are, the
    rest is as in bf16. `compiled`: dense decoder layers without dropout
    are one operator each, as torch.compile makes them.
    """
    split, c = layout or Layout(), engine(autocast or "float32")
    others = "bf16" if autocast in EMULATES else autocast  # of all but the layers' products
    tp, length = split.tp, seq_len // split.cp
    rows = micro_batch * length
    outside = rows // tp if split.sp else rows  # rows of norms and residuals
    hidden, vocabulary = model.hidden_size, model.vocab_size // tp
    shapes = parameter_shapes(model, tp=tp, ep=split.ep)
    dropped: tuple[Operator, ...] = ()
    if model.hidden_dropout:  # masks are drawn of whole sequences, and kept as float32
        shape, saved_bytes = (micro_batch, seq_len, hidden), SINGLE_BYTES * outside * hidden
        dropped = (Operator(kind="dropout", shape=shape, saved_bytes=saved_bytes),)
    embedding_shapes = 1 if model.tie_word_embeddings else 2
    layer_parameters = sum(map(math.prod, shapes[1 : len(shapes) - embedding_shapes])) // model.num_hidden_layers
    embedding = Layer(
        name="embedding",
        parameters=vocabulary * hidden,
        operators=(
            Operator(kind="embedding", shape=(rows, vocabulary, hidden), saved_bytes=LONG_BYTES * rows),
            *dropped,
        ),
    )
    layer = Layer(
        name="decoder layer",
        count=model.num_hidden_layers,
        recomputable=True,
        parameters=layer_parameters,
        experts=model.num_local_experts,
        expert_parameters=sum(math.prod(shape) for shape in shapes if len(shape) == 3) // model.num_hidden_layers,
        operators=_operators(model, micro_batch, rows, outside, split, c, dropped),
    )
    if compiled and not dropped and not model.num_local_experts:
        layer = msgspec.structs.replace(layer, compiled=_compiled(layer, micro_batch, length, model))
    return Workload(
        name="decoder",
        micro_batch=micro_batch,
        seq_len=seq_len,
        layers=(
            _under(embedding, others),
            _under(layer, others, products=autocast),
            _under(_output(model, rows, outside, tp, c), others),
        ),
        parameter_shapes=tuple(shapes),
    )


def _operators(
    model: ModelConfig, micro_batch: int, rows: int, outside: int, split: Layout, c: Conventions,
    dropped: tuple[Operator, ...],
) -> tuple[Operator, ...]:  # fmt: skip
    """Return the operators of one decoder layer, `outside` the rows of norms and residuals."""
    tp, hidden, length = split.tp, model.hidden_size, rows // micro_batch
    heads, kv_heads, head_dim = model.num_attention_heads // tp, model.num_key_value_heads // tp, model.head_dim
    return (
        _rms_norm(outside, hidden, c),
        _linear(rows, hidden, model.qkv_size // tp, c),
        # attention keeps the rotated queries and keys; the rotation itself keeps only its small tables
        Operator(
            kind="split_heads",
            shape=(micro_batch, length, heads, kv_heads, head_dim),
            forward_flops=3 * rows * (heads + kv_heads) * head_dim,
        ),
        _attention(micro_batch, heads, kv_heads, length, head_dim, split.cp, c),
        _linear(rows, hidden // tp, hidden, c),
        *dropped,
        Operator(kind="add", shape=(outside, hidden), forward_flops=outside * hidden),
        _rms_norm(outside, hidden, c),
        *_network(model, rows, outside, split, c),
        *dropped,
        Operator(kind="add", shape=(outside, hidden), forward_flops=outside * hidden),
    )


def _output(model: ModelConfig, rows: int, outside: int, tp: int, c: Conventions) -> Layer:
    """Return the last norm, the product with the vocabulary and the loss."""
    hidden, vocabulary = model.hidden_size, model.vocab_size // tp
    c = msgspec.structs.replace(c, cast_bytes=c.output_cast_bytes)
    kept = int(c.parallel_logit_bytes if tp > 1 else c.logit_bytes) - LOGIT_GRADIENT_BYTES
    return Layer(
        name="output",
        parameters=hidden + (0 if model.tie_word_embeddings else vocabulary * hidden),
        operators=(
            _rms_norm(outside, hidden, c),
            _linear(rows, hidden, vocabulary, c),
            Operator(
                kind="vocabulary_cross_entropy" if tp > 1 else "cross_entropy",
                shape=(rows, vocabulary),
                forward_flops=5 * rows * vocabulary,
                # log-probabilities; where ranks share them shifted logits and exp
                saved_bytes=kept * rows * vocabulary,
            ),
        ),
    )


def _compiled(layer: Layer, micro_batch: int, length: int, model: ModelConfig) -> Operator:
    """Return what torch.compile makes of the operators of a layer that no other rank has a part of."""
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    return Operator(
        kind="compiled_layer",
        shape=(micro_batch, length, model.hidden_size, heads, kv_heads, model.intermediate_size),
        forward_flops=sum(operator.forward_flops for operator in layer.operators),
        model_flops=sum(operator.model_flops for operator in layer.operators),
        saved_bytes=layer.saved_bytes,
    )


def _under(layer: Layer, autocast: str, *, products: str = "") -> Layer:
    """Return a layer under autocast, what has products with weights in the type `products`, where one is given."""
    narrow = {"linear": products or autocast, "compiled_layer": products or autocast}
    first, *others = (
        operator and msgspec.structs.replace(operator, autocast=narrow.get(operator.kind, autocast))
        for operator in (layer.compiled, *layer.operators)
    )
    return msgspec.structs.replace(layer, compiled=first, operators=tuple(others))


def _network(model: ModelConfig, rows: int, outside: int, split: Layout, c: Conventions) -> tuple[Operator, ...]:
    """Return the operators of a layer's dense network, or of its experts under an even load."""
    hidden, inner, held, back = model.hidden_size, model.intermediate_size // split.tp, 1, 0
    router: tuple[Operator, ...] = ()
    if model.num_local_experts:
        router = (_linear(outside, hidden, model.num_local_experts, c),)
        rows, held = rows * model.num_experts_per_tok, model.num_local_experts // split.ep
        # as they came, and as weighted
        back = rows * hidden * int(c.returned_kept * c.product_bytes + c.weighted_kept * c.residual_bytes)
    activation = Operator(
        kind="swiglu",
        shape=(rows, inner),
        forward_flops=5 * rows * inner,
        saved_bytes=int(c.product_bytes) * rows * 3 * inner,  # gate and up (one buffer), silu(gate)
    )
    enter = _linear(rows, hidden, 2 * inner, c, held=held)
    leave = _linear(rows, inner, hidden, c, held=held, beside=back)
    return (*router, enter, activation, leave)


def _linear(rows: int, inputs: int, outputs: int, c: Conventions, *, held: int = 1, beside: int = 0) -> Operator:
    """Return a product, or those of `held` experts together, after which `beside` bytes are kept besides."""
    # its input is kept for the weight's gradient; the input's owner counts it where it keeps it too. Of a weight that
    # was cast the copy is kept for the input's gradient
    cast = int(c.cast_bytes) * held * inputs * outputs
    return Operator(
        kind="linear",
        shape=(rows, inputs, outputs),
        forward_flops=2 * rows * inputs * outputs,
        model_flops=2 * rows * inputs * outputs,
        saved_bytes=int(c.product_bytes) * rows * inputs + cast + beside,
    )


def _rms_norm(rows: int, hidden: int, c: Conventions) -> Operator:
    return Operator(
        kind="rms_norm",
        shape=(rows, hidden),
        forward_flops=4 * rows * hidden,
        saved_bytes=SINGLE_BYTES * rows * (int(c.norm_copies) * hidden + 1),  # and one factor a row
    )


def _attention(batch: int, heads: int, kv_heads: int, length: int, head_dim: int, cp: int, c: Conventions) -> Operator:
    """Return attention of a rank's positions over the whole sequence."""
    # Two products of length x cp length x head_dim a head. The causal half is counted in full, as the field's model
    # FLOPs do.
    flops = 4 * batch * heads * length * length * cp * head_dim
    rotated, projected = (heads + kv_heads) * head_dim, (heads + 2 * kv_heads) * head_dim
    gathered = 2 * cp * kv_heads * head_dim if cp > 1 else 0  # keys and values of all ranks
    shape = (batch, heads, kv_heads, length, head_dim)
    return Operator(
        kind="context_attention" if cp > 1 else "attention",
        shape=(*shape, cp) if cp > 1 else shape,
        forward_flops=flops,
        model_flops=flops,
        # rotated queries and keys, the whole projection (the values are a view of it), one log-sum-exp a row and
        # head; the output is kept as the next linear's input
        saved_bytes=batch * length * (int(c.product_bytes) * (rotated + projected + gathered) + SINGLE_BYTES * heads),
    )
