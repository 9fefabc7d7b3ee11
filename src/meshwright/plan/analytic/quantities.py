"""The inputs of a price: arrays (or single numbers) of a model, a machine and the layouts.

Every field is a number or a NumPy array of n numbers, so that one code prices 100,000 layouts of one model, or n rows
of a table in which model, machine and layout all differ.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...layout import OFFLOADS, ORDERS, Layout
from ...workload.architecture import Architecture
from ...workload.kinds import Attention, Compressed, Experts, GatedDelta, Latent, Mixer
from ...workload.program import Number as Number


class _Rows(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=_Rows)
Array = npt.NDArray[np.float64]
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb")
RECOMPUTES = ("none", "selective", "full")
LONG = 4096  # tokens: recurrences compute in chunks that are shorter


@dataclass(frozen=True, slots=True)
class ModelQuantities:
    """The architecture, with the quantities that every term needs."""

    vocab: Number
    hidden: Number
    ffn: Number
    layers: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    value_dim: Number
    matrices: Number  # of a feed-forward network: 3 with a gate, else 2
    positions: Number  # rows of a learned table of positions
    attention_weights: Number  # of one layer
    small_parameters: Number  # norms and biases of one layer
    head_parameters: Number
    moe_layers: Number
    experts: Number
    experts_per_token: Number
    expert_ffn: Number
    shared_ffn: Number
    attention_kept: Number  # elements a token of queries, keys and values that attention keeps, cut over tp
    latent_kept: Number  # likewise of latent attention's ranks, not cut
    turned: Number  # of `attention_kept`, queries and keys before the rotation
    lifted_kept: Number  # of `attention_kept`, what comes out of latent attention's ranks
    lifted_weights: Number  # of `attention_weights`, the matrices that lift it
    # of layers of other kinds; means over all layers
    bare_layers: Number = 0.0  # without a network
    dense_share: Number = 1.0  # of the layers without experts, those with a network
    halves: Number = 1.0  # mixers and networks of a layer, in those of one that has both
    leading: Number = 0.0  # layers before the first with experts; the others without lie among those with them
    expert_groups: Number = 1.0  # into which a router divides its experts
    top_groups: Number = 1.0  # of these, those in which the experts of a token lie
    expert_bias: Number = 0.0  # 1: each expert adds biases
    stream: Number = 1.0  # width of the rows that experts work on, in that of the residual stream
    projected: Number = 0.0  # columns of the projections into the mixer
    mixer_out: Number = 0.0  # columns of the output projections
    full_scores: Number = 1.0  # scores of layers that see the whole sequence, in those of `heads` in every layer
    near_scores: Number = 0.0  # likewise of layers that see `window` tokens
    window: Number = np.inf
    chunk_scores: Number = 0.0  # likewise of layers that see their chunk of `chunk` tokens
    chunk: Number = np.inf
    recurrent_flops: Number = 0.0  # of a token, forward: state-space layers and linear attention, indexers' short part
    recurrent_kept: Number = 0.0  # elements of a token that the recurrences' kernels keep
    held_share: Number = 1.0  # of the parameters in layers; the rest are those of earlier layers, which hold them
    beside: Number = 0.0  # parameters beside layers, embedding and output
    tower: Number = 0.0  # of encoders that tokens of text do not pass, held frozen
    # an encoder whose tokens are as many whatever the text's length
    fixed: Number = 0.0  # these tokens
    fixed_share: Number = 0.0  # of the weights in layers, multiplied with these tokens
    fixed_scores: Number = 0.0  # scores among them, of those of `heads` in every layer at their length
    read_scores: Number = 0.0  # scores of the text's tokens with them, likewise
    # modules that predict further tokens and are trained, on the rank with the output
    mtp: Number = 0.0
    mtp_layers: "ModelQuantities | None" = None  # the layers of one of them; None where no model has any

    @property
    def moe_share(self) -> Number:
        """Share of the layers that have experts."""
        return np.where(self.experts > 0, self.moe_layers / self.layers, 0.0)

    @property
    def plain_share(self) -> Number:
        """Share of the layers that have a network without experts."""
        return 1.0 - self.moe_share - self.bare_layers / self.layers

    def rows(self, seq_len: Number) -> Number:
        """Return the tokens of a sequence in a layer, on average by its weights: the text's, or a fixed encoder's."""
        return seq_len + self.fixed_share * (self.fixed - seq_len) if np.any(self.fixed) else seq_len

    @classmethod
    def of(cls, model: Architecture) -> "ModelQuantities":
        """Return the numbers of one architecture; of layers of several kinds, their mean."""
        width, hidden = model.embedding_width, model.hidden_size
        return cls(
            **scores_of(model),
            **_placed(model),
            mixer_out=_mean(model, lambda mixer: mixer.out_width),
            projected=_mean(model, _projected),
            recurrent_kept=_mean(model, lambda mixer: 0 if isinstance(mixer, Attention | Latent) else mixer.kept)
            + sum(2 * run.count * run.layer.streams for run in model.runs) / model.num_hidden_layers,
            held_share=_held_share(model),
            beside=model.beside_parameters + model.beside_weights,
            tower=model.tower_parameters,
            fixed=model.fixed_length,
            fixed_share=_fixed_share(model),
            vocab=model.vocab_size if width == hidden else model.vocab_size * width / hidden,
            hidden=model.hidden_size,
            ffn=model.intermediate_size,
            layers=model.num_hidden_layers,
            heads=model.num_attention_heads,
            kv_heads=model.num_key_value_heads,
            head_dim=model.head_dim,
            value_dim=model.values,
            matrices=3 if model.gated else 2,
            positions=model.max_position_embeddings if model.positions == "learned" else 0,
            attention_weights=model.mixer_weights_mean,
            small_parameters=model.small_parameters_mean,
            head_parameters=model.head_parameters,
            moe_layers=model.moe_layers,
            experts=model.experts,
            experts_per_token=model.experts_per_token,
            expert_ffn=model.expert_width_mean,
            shared_ffn=model.shared_width_mean,
            attention_kept=_mean(model, lambda mixer: _kept(mixer, rotary=model.positions == "rotary")),
            latent_kept=_mean(model, _latent_kept),
            lifted_kept=_mean(model, lambda m: _kept(m, rotary=False) if isinstance(m, Latent) else 0),
            lifted_weights=_mean(model, lambda mixer: mixer.lifting if isinstance(mixer, Latent) else 0),
            turned=_mean(model, _turned) if model.positions == "rotary" else 0.0,
            mtp=model.mtp_trained,
            mtp_layers=cls.of(model.mtp_module()) if model.mtp_trained else None,
        )


def _mean(model: Architecture, of: Callable[[Mixer], float]) -> float:
    """Return a quantity of a layer's mixers, on average over all layers."""
    return sum(run.count * of(mixer) for run in model.runs for mixer in run.layer.mixers) / model.num_hidden_layers


def _held_share(model: Architecture) -> float:
    held = sum(run.count * run.layer.parameters(model.hidden_size) for run in model.runs)
    return held / (held + borrowed) if (borrowed := model.borrowed_parameters) else 1.0


def _fixed_share(model: Architecture) -> float:
    if not model.fixed_length:
        return 0.0
    return model.fixed_weights / sum(run.count * run.layer.weights(model.hidden_size) for run in model.runs)


def _placed(model: Architecture) -> dict[str, float]:
    """Return how many layers have which halves, and how many come before the first with experts."""
    layers = [run.layer for run in model.runs for _ in range(run.count)]
    plain = [layer for layer in layers if not isinstance(layer.network, Experts)]
    bare = sum(layer.network is None for layer in plain)
    first = next((place for place, layer in enumerate(layers) if isinstance(layer.network, Experts)), 0)
    networks = [layer.network for layer in layers if isinstance(layer.network, Experts)]
    halves = sum((layer.network is not None) + min(1, len(layer.mixers)) for layer in layers)
    return {
        "bare_layers": bare,
        "dense_share": 1.0 - bare / len(plain) if plain else 1.0,
        "halves": halves / 2.0 / len(layers),
        "leading": first,
        "expert_groups": networks[0].groups if networks else 1.0,
        "top_groups": networks[0].top_groups if networks else 1.0,
        "expert_bias": float(any(n.biases for n in networks)),
        "stream": next((n.latent for n in networks if n.latent), model.hidden_size) / model.hidden_size,
    }


def _kept(mixer: Mixer, *, rotary: bool) -> float:
    """Return the elements of a token that a mixer keeps for backward, those cut over tp.

    Plain attention: what the projection returns, of which values are a part, and queries and keys after the rotation.
    Latent attention: queries as projected and rotated, keys and values as projected, and keys with the shared part.
    """
    if isinstance(mixer, Latent):
        wide = mixer.nope_dim + mixer.rope_dim
        return mixer.heads * (2 * wide + mixer.nope_dim + mixer.value_dim)
    if isinstance(mixer, Attention):
        keys, turned = mixer.kv_heads * (mixer.key_matrices > 0), _turned(mixer)
        gate = mixer.heads * mixer.head_dim * mixer.gate
        return turned + keys * mixer.values + turned * rotary + gate
    return mixer.kept


def _turned(mixer: Mixer) -> float:
    """Return the columns of queries and keys that plain attention rotates."""
    if not isinstance(mixer, Attention):
        return 0.0
    return (mixer.heads + mixer.kv_heads * (mixer.key_matrices > 0)) * mixer.head_dim


def _latent_kept(mixer: Mixer) -> float:
    return 2 * (mixer.q_rank + mixer.kv_rank) + mixer.rope_dim if isinstance(mixer, Latent) else 0.0


def _projected(mixer: Mixer) -> float:
    """Return the columns of a mixer's input projections; of latent attention those of its heads."""
    if isinstance(mixer, Latent):
        return mixer.heads * (2 * (mixer.nope_dim + mixer.rope_dim) + mixer.value_dim)
    if isinstance(mixer, Attention):
        keys = mixer.kv_heads * (mixer.key_matrices > 0)
        return (mixer.heads * (1 + mixer.gate) + keys) * mixer.head_dim + keys * mixer.values
    if isinstance(mixer, GatedDelta):
        return 2 * (mixer.key_heads * mixer.key_dim + mixer.out_width)
    return mixer.weights(1) - mixer.out_width  # a column a weight of a stream one wide


def scores_of(model: Architecture) -> dict[str, float]:
    """Return how much of the scores of `heads` in every layer each kind of attention has, and the recurrences' FLOPs.

    Of several windows the mean, by scores; an encoder's scores count twice, having no mask.
    """
    whole = model.num_hidden_layers * model.num_attention_heads * (model.head_dim + model.values)
    sums = {"full": 0.0, "near": 0.0, "chunk": 0.0, "fixed": 0.0, "read": 0.0}
    spans = {"near": 0.0, "chunk": 0.0}
    recurrent = 0.0
    for run in model.runs:
        for mixer in run.layer.mixers:
            if isinstance(mixer, Attention | Latent):
                window, chunk = span_of(mixer)
                kind = "near" if window else "chunk" if chunk else "full"
                if isinstance(mixer, Attention) and (run.layer.length or mixer.reads):
                    kind = "fixed" if run.layer.length else "read"
                masked = isinstance(mixer, Latent) or mixer.masked
                sums[kind] += (weight := run.count * mixer.score_width * (1 if masked else 2))
                if kind in spans:
                    spans[kind] += weight * (window or chunk)
                recurrent += run.count * 2.0 * mixer.places if isinstance(mixer, Attention) else 0.0
                # an indexer's scores are those of narrow heads over all tokens
                sums["full"] += run.count * mixer.index_heads * mixer.index_dim / mixer.index_rate
            elif isinstance(mixer, Compressed):
                for width, span in mixer.scored:
                    sums["near" if span else "full"] += run.count * width
                    spans["near"] += run.count * width * span
            else:
                recurrent += run.count * mixer.flops(LONG, causal=True)
    return {
        "full_scores": sums["full"] / whole,
        "near_scores": sums["near"] / whole,
        "window": spans["near"] / sums["near"] if sums["near"] else np.inf,
        "chunk_scores": sums["chunk"] / whole,
        "chunk": spans["chunk"] / sums["chunk"] if sums["chunk"] else np.inf,
        "fixed_scores": sums["fixed"] / whole,
        "read_scores": sums["read"] / whole,
        "recurrent_flops": recurrent / model.num_hidden_layers,
    }


def span_of(mixer: Attention | Latent) -> tuple[int, int]:
    """Return the window and the chunk of an attention, 0 where it has none."""
    near = min(filter(None, (mixer.index_top, mixer.window)), default=0)
    return near, 0 if isinstance(mixer, Latent) else mixer.chunk


@dataclass(frozen=True, slots=True)
class Machine:
    """One accelerator, its node and its links; rates per direction in bytes per second."""

    peak: Number  # FLOP/s, dense, in the precision of the matrix products
    peak_half: Number  # the same in half precision, for attention and the output projection; of fp32 in fp32
    product_bytes: Number  # of one element that a matrix product reads
    memory_rate: Number
    memory_bytes: Number
    gpus_per_node: Number  # that share NICs
    domain: Number  # GPUs that reach each other over their own links
    link_rate: Number  # of one GPU to its peers
    node_rate: Number  # of all NICs of a node
    peer_share: Number = 1.0  # of that rate to any one peer: less than 1 where links join pairs
    nodes_per_leaf: Number = np.inf  # neighbours that share a leaf switch
    oversubscription: Number = 1.0  # of the links above a leaf
    hop_latency_s: Number = 0.0  # of a switch
    sides: tuple[int, ...] = ()  # of a torus of nodes
    slice_rate: Number = np.inf  # of one node to other such tori; infinite where there are none
    host_rate: Number = 0.0  # of one GPU to the memory of its host
    host_memory_rate: Number = 0.0  # of that memory, a GPU's share
    host_memory_bytes: Number = np.inf  # likewise

    def rate_among(self, ranks: Number) -> Number:
        """Return what a GPU's links carry in a group of `ranks` in one node: those to these peers, at most all."""
        return self.link_rate * np.minimum(1.0, np.maximum(ranks - 1.0, 1.0) * self.peer_share)

    @property
    def slice_ranks(self) -> Number:
        """GPUs of one torus of nodes; infinite where there is none, or only one."""
        return math.prod(self.sides) * self.gpus_per_node if np.all(np.isfinite(self.slice_rate)) else np.inf


@dataclass(frozen=True, slots=True)
class Grid:
    """Layouts as arrays of equal length n; `schedule`, `recompute` and `order` are indices into their lists."""

    tp: Number
    pp: Number
    dp: Number
    cp: Number
    ep: Number
    vpp: Number
    mbs: Number
    zero: Number
    sp: Number
    schedule: Number
    recompute: Number
    order: Number
    replicas: Number = 1.0  # copies of a model that ZeRO-2 or -3 shards
    etp: Number = 0.0  # tensor parallelism inside an expert; 0 where it is not said: `Layout.expert_tp`
    offload: Number = 0.0  # what lives in the host's memory: an index into `layout.OFFLOADS`

    def __len__(self) -> int:
        return len(np.atleast_1d(self.tp))

    @property
    def expert_cut(self) -> Number:
        """Return how many times fewer expert parameters a rank has than tensor parallelism alone would leave it."""
        if not np.any(self.etp) and not np.any(self.dp * self.cp % self.ep):
            return self.ep
        return self.ep * self.expert_tp / self.tp

    def sharing(self, shard: Number, *, copied: Number = 1.0) -> tuple[Number, Number]:
        """Return how many ranks share dense parameters, and routed experts, where at most `shard` ranks do.

        Unless experts are `copied`, those of expert parallelism are shared by all ranks that have them.
        """
        every = self.dp * self.cp
        ranks = np.minimum(every, shard)
        among = ranks if np.all(copied) else np.where(np.greater(copied, 0) | (self.ep <= 1), ranks, every)
        return ranks, np.maximum(among / self.expert_cut, 1.0)

    @property
    def expert_tp(self) -> Number:
        """Tensor parallelism inside an expert: `Layout.expert_tp`."""
        own = np.where(self.dp * self.cp % self.ep, 1.0, self.tp)
        return np.where(np.greater(self.etp, 0), self.etp, own)

    @classmethod
    def of(cls, layouts: Sequence[Layout]) -> "Grid":
        """Return the grid of some layouts, in their order."""
        numbers = {name: [getattr(layout, name) for layout in layouts] for name in NUMBERS}
        return cls(
            **{name: np.array(values, dtype=float) for name, values in numbers.items()},
            schedule=np.array([SCHEDULES.index(layout.schedule) for layout in layouts]),
            recompute=np.array([RECOMPUTES.index(layout.recompute) for layout in layouts]),
            order=np.array([ORDERS.index(layout.order) for layout in layouts]),
            replicas=np.array([layout.replicas for layout in layouts], dtype=float),
            etp=np.array([layout.etp or 0 for layout in layouts], dtype=float),
            offload=np.array([layout.offloaded for layout in layouts]),
        )

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return every field as an array of length n, with the tensor parallelism inside an expert in place of etp."""
        found = {field.name: np.broadcast_to(getattr(self, field.name), len(self)) for field in fields(self)}
        return found | {"etp": np.broadcast_to(self.expert_tp, len(self))}

    def layout(self, index: int) -> Layout:
        """Return one layout of the grid."""

        def of(column: Number) -> int:
            return int(column[index] if isinstance(column, np.ndarray) and column.ndim else column)

        return Layout(
            **{name: of(getattr(self, name)) for name in NUMBERS},  # type: ignore[arg-type]
            schedule=SCHEDULES[of(self.schedule)],  # type: ignore[arg-type]
            recompute=RECOMPUTES[of(self.recompute)],  # type: ignore[arg-type]
            order=ORDERS[of(self.order)],
            replicas=of(self.replicas),
            etp=of(self.etp) or None,
            offload=OFFLOADS[of(self.offload)],
        )

    def take(self, indices: Any) -> "Grid":
        """Return some of the layouts, by index or by mask."""
        return take_rows(self, indices)


def take_rows(item: T, rows: Any) -> T:
    """Return a dataclass with some rows of its arrays, by index, slice or mask; what all rows share stays as it is."""
    columns: dict[str, Any] = {field.name: getattr(item, field.name) for field in fields(item)}
    return type(item)(**{name: _rows_of(column, rows) for name, column in columns.items()})


def _rows_of(column: Any, rows: Any) -> Any:
    if is_dataclass(column) and not isinstance(column, type):
        return take_rows(column, rows)
    return column[rows] if isinstance(column, np.ndarray) and column.ndim else column


NUMBERS = ("tp", "pp", "dp", "cp", "ep", "vpp", "mbs", "zero", "sp")
