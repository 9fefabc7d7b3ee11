"""Architecture: the numbers of any transformer that planning needs, from the keys of a Hugging Face config.json.

Counting conventions: a matrix product of [M, K] and [K, N] is 2MNK FLOPs; attention over s tokens is counted causal
(half of the s x s scores) or whole, as the caller says, because published figures differ in it.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ..errors import InputError
from .kinds import Attention, Dense, Experts, Latent, LayerKind, LayerRun, runs_of

Positions = Literal["learned", "rotary", "alibi", "none"]

# our name: the keys that config.json files use for it, the commonest first
KEYS: dict[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token", "moe_topk"),
    "expert_size": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
}
GATED_BY_DEFAULT = "llama"  # of two styles that engines' own sizes come in; the other is "gpt2"
MOST_LAYERS = 10_000  # layers are listed one by one
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim")
FURTHER = ("mtp_trained", "mtp_stack")
MTP_NORMS = 3  # of a module that predicts a further token: of both streams that it joins, and before the output


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sizes of a decoder or encoder stack; what a step computes and stores follows from them.

    Experts: each of the layers after the first `dense_layers` holds `experts` networks of width `expert_size`, of
    which a token visits `experts_per_token`, and one shared network of width `shared_size` that every token visits.
    Latent attention (`kv_rank` set): queries through `q_rank`, keys and values through `kv_rank` plus a shared
    rotary part of `rope_dim`; `head_dim` is then the width of a query and `value_dim` of a value.

    Layers of other kinds, or of several, stand in `stack`; the numbers of heads, widths and experts are then those of
    the commonest of each, and counts come from the stack.
    """

    name: str = ""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 0
    gated: bool = True  # the network has a gate: three matrices, not two
    norm: Literal["rms", "layer"] = "rms"
    bias: bool = False  # matrix products add a bias
    tied: bool = False  # the output uses the embedding's weight
    positions: Positions = "rotary"
    experts: int = 0
    experts_per_token: int = 0
    expert_size: int = 0
    shared_size: int = 0
    expert_groups: int = 1  # into which the experts are divided; those of a token lie in `top_groups` of them
    top_groups: int = 1
    dense_layers: int = 0  # the first layers of a mixture of experts that have none
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    value_dim: int = 0  # 0: as wide as head_dim
    head_norms: bool = False  # queries and keys are normalised per head
    stack: tuple[
        LayerRun, ...
    ] = ()  # all layers in order, an encoder's before the decoder's; empty: as the fields above say
    # tokens are looked up in a table of vocab_size rows; False: the input is patches or features, or the output is over
    # other classes than its words, whose table is then of beside_parameters
    embeds: bool = True
    embedding_size: int = 0  # columns of the embedding and the output, 0: hidden_size
    beside_parameters: int = 0  # held beside layers, embedding and output, and multiplied with nothing
    beside_weights: int = 0  # as above, and a token is multiplied with them: projections around the layers
    once_weights: int = 0  # of beside_weights and the output: multiplied with one token of a sequence and no other
    tower_parameters: int = 0  # of encoders of images or sound, which tokens of text do not pass
    mtp_layers: int = 0  # modules that predict further tokens: what the config names, not counted
    mtp_trained: int = 0  # such modules that are trained beside the layers, and counted
    mtp_stack: tuple[LayerRun, ...] = ()  # the layers of one such module; empty: one of the model's last kind

    def __post_init__(self) -> None:
        if self.stack and sum(run.count for run in self.stack) != self.num_hidden_layers:
            raise ValueError(f"stack: expected num_hidden_layers = {self.num_hidden_layers} layers")
        for name in ("num_hidden_layers", "mtp_layers", "mtp_trained"):
            if not 0 <= getattr(self, name) <= MOST_LAYERS:
                raise ValueError(f"{name}: expected at most {MOST_LAYERS}, got {getattr(self, name)}")
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")
        if self.num_key_value_heads < 1 or self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads: {self.num_key_value_heads} does not divide "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(f"experts_per_token: expected 1 to {self.experts}, got {self.experts_per_token}")
        if self.dense_layers > self.num_hidden_layers or (
            self.intermediate_size < 1 and not self.experts and not self.stack
        ):
            raise ValueError("intermediate_size and dense_layers do not fit the number of layers")

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.num_hidden_layers - self.dense_layers if self.experts else 0

    @property
    def values(self) -> int:
        """Width of one head's value."""
        return self.value_dim or self.head_dim

    @property
    def qkv_size(self) -> int:
        """Columns of the query, key and value projection of plain attention."""
        return (self.num_attention_heads + 2 * self.num_key_value_heads) * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Weights of the attention of one layer, biases left out."""
        heads, hidden = self.num_attention_heads, self.hidden_size
        output = heads * self.values * hidden
        if not self.kv_rank:
            return hidden * self.qkv_size + output
        queries = self.q_rank * (hidden + heads * self.head_dim) if self.q_rank else hidden * heads * self.head_dim
        keys = hidden * (self.kv_rank + self.rope_dim)
        return queries + keys + self.kv_rank * heads * (self.head_dim - self.rope_dim + self.values) + output

    def network_parameters(self, width: int) -> int:
        """Weights of a feed-forward network of this width, biases left out."""
        return (3 if self.gated else 2) * self.hidden_size * width

    @property
    def small_parameters(self) -> int:
        """Norms and biases of one dense layer."""
        norms = 2 * self.hidden_size * (2 if self.norm == "layer" else 1) + 2 * self.head_dim * self.head_norms
        if not self.bias:
            return norms
        inner = (2 if self.gated else 1) * self.intermediate_size
        return norms + self.qkv_size + self.hidden_size + inner + self.hidden_size

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert."""
        return self.network_parameters(self.expert_size)

    @property
    def embedding_width(self) -> int:
        """Columns of the embedding and of the output projection."""
        return self.embedding_size or self.hidden_size

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding, learned positions included."""
        learned = self.max_position_embeddings if self.positions == "learned" else 0
        return self.vocab_size * self.embeds * self.embedding_width + learned * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Parameters of the output projection and the last norm (none of its own where the output is tied)."""
        norm = self.hidden_size * (2 if self.norm == "layer" else 1)
        return norm + (0 if self.tied else self.vocab_size * self.embedding_width)

    @property
    def runs(self) -> tuple[LayerRun, ...]:
        """All layers in order, as runs of equal ones."""
        return self.stack or self._plain_runs()

    def _plain_runs(self) -> tuple[LayerRun, ...]:
        heads = self.num_attention_heads
        mixer: Attention | Latent = Attention(
            heads=heads, kv_heads=self.num_key_value_heads, head_dim=self.head_dim, value_dim=self.value_dim
        )
        if self.kv_rank:
            mixer = Latent(
                heads=heads,
                q_rank=self.q_rank,
                kv_rank=self.kv_rank,
                nope_dim=self.head_dim - self.rope_dim,
                rope_dim=self.rope_dim,
                value_dim=self.values,
            )
        small = self.small_parameters
        dense = LayerKind(mixer=mixer, network=Dense(width=self.intermediate_size, gated=self.gated), small=small)
        found = [dense] * (self.num_hidden_layers - self.moe_layers)
        if self.moe_layers:
            experts = Experts(
                count=self.experts,
                top=self.experts_per_token,
                width=self.expert_size,
                gated=self.gated,
                shared=self.shared_size,
                groups=self.expert_groups,
                top_groups=self.top_groups,
            )
            found += [LayerKind(mixer=mixer, network=experts, small=small)] * self.moe_layers
        return runs_of(found)

    @property
    def mtp_runs(self) -> tuple[LayerRun, ...]:
        """The layers of one module that predicts a further token."""
        return self.mtp_stack or (LayerRun(count=1, layer=self.runs[-1].layer),)

    @property
    def mtp_weights(self) -> int:
        """Weights of one such module that a token is multiplied with: its projection and its layers, not the output."""
        layers = sum(run.count * run.layer.weights(self.hidden_size) for run in self.mtp_runs)
        return 2 * self.hidden_size * self.hidden_size + layers

    @property
    def mtp_parameters(self) -> int:
        """Parameters of one such module.

        A projection of two streams to one, a norm before each of them and one after the layers, and the layers; the
        embedding and the output are the model's own (DeepSeek-V3's report, arXiv 2412.19437, section 2.2).
        """
        norms = MTP_NORMS * self.hidden_size * (2 if self.norm == "layer" else 1)
        layers = sum(run.count * run.layer.parameters(self.hidden_size) for run in self.mtp_runs)
        return 2 * self.hidden_size * self.hidden_size + norms + layers

    def mtp_module(self) -> "Architecture":
        """Return the layers of one such module as a model of their own."""
        runs = self.mtp_runs
        each = [run.layer for run in runs for _ in range(run.count)]
        dense = sum(not isinstance(layer.network, Experts) for layer in each) if self.experts else 0
        return msgspec.structs.replace(
            self, num_hidden_layers=len(each), stack=runs, dense_layers=dense, mtp_trained=0, mtp_stack=()
        )

    @property
    def mixer_weights_mean(self) -> float:
        """Weights of a layer without its network, on average."""
        if not self.stack:
            return self.attention_parameters
        each = sum(run.count * run.layer.mixer_weights(self.hidden_size) for run in self.stack)
        return each / self.num_hidden_layers

    @property
    def small_parameters_mean(self) -> float:
        """Parameters of a layer that no token is multiplied with, on average."""
        if not self.stack:
            return self.small_parameters
        return sum(run.count * run.layer.small for run in self.stack) / self.num_hidden_layers

    @property
    def borrowed_parameters(self) -> int:
        """Parameters that layers multiply with and an earlier layer holds, each as often as it is borrowed."""
        return sum(run.count * run.layer.borrowed for run in self.stack)

    @property
    def expert_width_mean(self) -> float:
        """Width of an expert of the same weights whose stream is as wide as the residual one."""
        latent = next((n.latent for n in self._networks() if isinstance(n, Experts)), 0)
        return self.expert_size * latent / self.hidden_size if latent else self.expert_size

    @property
    def shared_width_mean(self) -> float:
        """Width of the shared network, with the weights that lead to a narrower stream and back."""
        latent = next((n.latent for n in self._networks() if isinstance(n, Experts)), 0)
        return self.shared_size + 2 * latent / (3 if self.gated else 2) if latent else self.shared_size

    @property
    def mixer_widths(self) -> dict[str, int]:
        """The sizes that tensor parallelism cuts in layers: of each kind the largest number that divides them all."""
        found: dict[str, int] = {}
        for run in self.stack:
            for mixer in run.layer.mixers:
                for name, width in mixer.cut.items():
                    found[name] = math.gcd(found.get(name, 0), width)
        return found

    def _networks(self) -> list[Dense | Experts]:
        return [run.layer.network for run in self.stack if run.layer.network is not None]

    @property
    def text_parameters(self) -> int:
        """Parameters in all but of encoders of images or sound; a tied tensor counts once."""
        layers = sum(run.count * run.layer.parameters(self.hidden_size) for run in self.runs)
        beside = self.beside_parameters + self.beside_weights
        further = self.mtp_trained * self.mtp_parameters if self.mtp_trained else 0
        return self.embedding_parameters + layers + self.head_parameters + beside + further

    @property
    def parameters(self) -> int:
        """Parameters in all; a tied tensor counts once."""
        return self.text_parameters + self.tower_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token of text passes through."""
        further = self.mtp_runs if self.mtp_trained else ()
        idle = 0
        for runs, times in ((self.runs, 1), (further, self.mtp_trained)):
            for run in runs:
                network = run.layer.network
                if isinstance(network, Experts):
                    rest = network.held(self.hidden_size) - network.weights(self.hidden_size)
                    idle += times * run.count * (rest + (network.count - network.top) * network.biases)
        return self.text_parameters - idle

    def matmul_parameters(self) -> int:
        """Weights that one token is multiplied with, the output projection included and the embedding not.

        Each module that predicts a further token multiplies by the output projection once more.
        """
        layers = sum(run.count * run.layer.weights(self.hidden_size) for run in self.runs)
        output = self.vocab_size * self.embedding_width
        further = self.mtp_trained * (self.mtp_weights + output) if self.mtp_trained else 0
        return layers + self.beside_weights + output + further

    @property
    def fixed_length(self) -> int:
        """Tokens of an encoder that has as many whatever the text's length; 0 where there is none."""
        return next((run.layer.length for run in self.runs if run.layer.length), 0)

    @property
    def fixed_weights(self) -> int:
        """Weights that such an encoder's tokens are multiplied with, and no token of the text."""
        hidden, found = self.hidden_size, 0
        for run in self.stack:
            if run.layer.length:
                found += run.count * run.layer.weights(hidden)
            else:
                reading = (mixer for mixer in run.layer.mixers if isinstance(mixer, Attention) and mixer.reads)
                found += run.count * sum(mixer.key_weights(hidden) for mixer in reading)
        return found

    def products_per_token(self, seq_len: int) -> float:
        """Return the products with weights for a token of text, those of a fixed number of tokens spread over the text.

        Such are an encoder's of fixed length, and an output over the classes of a whole sequence.
        """
        more = self.fixed_weights * (self.fixed_length / seq_len - 1.0) if self.fixed_length else 0.0
        more += self.once_weights * (1.0 / seq_len - 1.0) if self.once_weights else 0.0
        return self.matmul_parameters() + more

    def model_flops_per_token(self, seq_len: int, *, causal: bool = True) -> float:
        """Return the FLOPs of forward and backward of one token: 6 a weight, and 3 times what else layers multiply."""
        rest = sum(run.count * run.layer.flops(seq_len, causal=causal) for run in self.runs)
        if self.mtp_trained:
            rest += self.mtp_trained * sum(run.count * run.layer.flops(seq_len, causal=causal) for run in self.mtp_runs)
        return 6.0 * self.products_per_token(seq_len) + 3.0 * rest

    def resized(self, **sizes: int) -> "Architecture":
        """Return it with some sizes changed; of a stack of layers only the number can be: its first ones are kept.

        Raises ValueError where the sizes do not fit together.
        """
        if not self.stack:
            return msgspec.structs.replace(self, **sizes)
        changed = {name: size for name, size in sizes.items() if size != getattr(self, name)}
        layers = changed.pop("num_hidden_layers", self.num_hidden_layers)
        other = sorted(changed.keys() - {"vocab_size", "max_position_embeddings", "mtp_trained"})
        if other:
            raise ValueError(
                f"{other[0]}: {self.name or 'the model'} has layers of several kinds; sizes are not changed"
            )
        if layers > self.num_hidden_layers and len(self.stack) > 1:
            raise ValueError(f"num_hidden_layers: expected at most {self.num_hidden_layers}, got {layers}")
        each = [run.layer for run in self.stack for _ in range(run.count)]
        kept = (each * (layers // len(each) + 1))[:layers]
        dense = sum(not isinstance(layer.network, Experts) for layer in kept) if self.experts else 0
        return msgspec.structs.replace(
            self, num_hidden_layers=layers, stack=runs_of(kept), dense_layers=dense, **changed
        )

    def told(self) -> dict[str, Any]:
        """Return all fields as plain values for a digest, those of further tokens only where they are trained.

        Digests of versions that had no such fields stay as they were.
        """
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in found.items() if self.mtp_trained or name not in FURTHER}

    @classmethod
    def from_sizes(cls, inner: Mapping[str, Any], *, name: str = "", where: str = "sizes") -> "Architecture":
        """Return the architecture of sizes that an engine's own files list, under the keys of a config.json.

        `model_type` is "llama" (gated network, RMSNorm, no biases) or "gpt2"; `configs.architecture_of` reads a model's
        config.json. Raises InputError naming the key that is missing or wrong.
        """
        old = inner.get("model_type", GATED_BY_DEFAULT) != GATED_BY_DEFAULT
        hidden = _whole(inner, "hidden_size", where)
        heads = _whole(inner, "num_attention_heads", where)
        latent = _whole(inner, "kv_rank", where, 0)
        rope = _number(inner, "qk_rope_head_dim", where) if latent else 0
        experts = _whole(inner, "experts", where, 0)
        width = _intermediate(inner, hidden, where, gated=not old)
        expert_size = (_whole(inner, "expert_size", where, 0) or width) if experts else 0
        layers = _whole(inner, "num_hidden_layers", where)
        values: dict[str, Any] = {
            "name": name,
            "vocab_size": _whole(inner, "vocab_size", where),
            "hidden_size": hidden,
            "intermediate_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads if latent else _kv_heads(inner, heads, where),
            "head_dim": _head_dim(inner, hidden, heads, rope, where),
            "max_position_embeddings": _whole(inner, "max_position_embeddings", where, 0),
            "gated": bool(inner.get("gated_mlp", not old)),
            "norm": "layer" if old else "rms",
            "bias": bool(inner.get("mlp_bias", old)),
            "tied": bool(inner.get("tie_word_embeddings", old)),
            "positions": "learned" if old else "rotary",
            "head_norms": bool(inner.get("qk_layernorm", False)),
            "experts": experts,
            "experts_per_token": _whole(inner, "experts_per_token", where, 2) if experts else 0,
            "expert_size": expert_size,
            "shared_size": _shared(inner, expert_size, where) if experts else 0,
            "dense_layers": min(layers, _whole(inner, "dense_layers", where, 0)) if experts else 0,
            "q_rank": _whole(inner, "q_rank", where, 0) if latent else 0,
            "kv_rank": latent,
            "rope_dim": rope,
            "value_dim": _number(inner, "v_head_dim", where) if latent else 0,
        }
        try:
            return cls(**values)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None


def _whole(config: Mapping[str, Any], name: str, where: str, default: int | None = None) -> int:
    """Return the whole number under the first known key for `name`."""
    for key in KEYS[name]:
        if config.get(key) is not None:
            return _number(config, key, where)
    if default is None:
        raise InputError(f"{where}: {name}: missing (expected a key such as {', '.join(KEYS[name])})")
    return default


def _number(config: Mapping[str, Any], key: str, where: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise InputError(f"{where}: {key}: expected a whole number of 0 or more, got {value!r}")
    return value


def _intermediate(config: Mapping[str, Any], hidden: int, where: str, *, gated: bool) -> int:
    found = _whole(config, "intermediate_size", where, 0)
    if found or "moe_intermediate_size" in config:
        return found
    if gated and "expansion_ratio" not in config:
        raise InputError(f"{where}: intermediate_size: missing")
    return _number(config, "expansion_ratio", where) * hidden if "expansion_ratio" in config else 4 * hidden


def _kv_heads(config: Mapping[str, Any], heads: int, where: str) -> int:
    return 1 if config.get("multi_query") is True else _whole(config, "num_key_value_heads", where, heads)


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int, rope: int, where: str) -> int:
    if rope:
        return _number(config, "qk_nope_head_dim", where) + rope
    given = _whole(config, "head_dim", where, 0)
    if not given and heads and hidden % heads:
        raise InputError(f"{where}: num_attention_heads: {heads} does not divide hidden_size {hidden}")
    return given or hidden // max(heads, 1)


def _shared(config: Mapping[str, Any], expert_size: int, where: str) -> int:
    if config.get("shared_expert_intermediate_size"):
        return _number(config, "shared_expert_intermediate_size", where)
    return _number(config, "n_shared_experts", where) * expert_size if config.get("n_shared_experts") else 0
