"""Low-rank adapters beside frozen weights (LoRA, Hu et al. 2021, arXiv 2106.09685): how many parameters they train."""

import re

from ..errors import InputError
from .architecture import Architecture
from .kinds import Attention, Dense, Experts, Latent, Mixer

ADAPTED = "adapters on all matrices but those of routed experts"
# a layer's matrices, by the names of Hugging Face's models, of Megatron (linear_qkv, linear_fc1), of torchtune
# (output_proj) and of LitGPT (query, projection), in small letters
MATRICES: dict[str, str] = {
    **dict.fromkeys(("q_proj", "query", "q", "wq", "q_a_proj", "q_b_proj"), "q"),
    **dict.fromkeys(("k_proj", "key", "k", "wk"), "k"),
    **dict.fromkeys(("v_proj", "value", "v", "wv"), "v"),
    **dict.fromkeys(("kv_a_proj_with_mqa", "kv_b_proj"), "k v"),
    **dict.fromkeys(("qkv", "qkv_proj", "wqkv", "w_pack", "linear_qkv", "query_key_value", "c_attn"), "q k v"),
    **dict.fromkeys(("o_proj", "out_proj", "output_proj", "o", "wo", "linear_proj", "projection", "dense"), "o"),
    "c_proj": "o down",  # of GPT-2, whose attention and network end in matrices of one name
    **dict.fromkeys(("gate_proj", "w1"), "gate"),
    **dict.fromkeys(("up_proj", "w3"), "up"),
    **dict.fromkeys(("fc1", "c_fc", "linear_fc1", "gate_up_proj", "dense_h_to_4h"), "gate up"),  # as far as there are
    **dict.fromkeys(("down_proj", "w2", "fc2", "linear_fc2", "dense_4h_to_h"), "down"),
    **dict.fromkeys(("mlp", "feed_forward"), "gate up down"),
}
APART = frozenset({"mlp", "feed_forward", "fc1", "c_fc", "c_proj"})  # of several kinds, and a matrix for each
EVERYWHERE = frozenset({"all", "all-linear", "all_linear", "*"})
PATTERN = re.compile(r"[\\(|^$]")  # of a regular expression, of which the names alone are read
IN_WORDS = {"q": "queries", "k": "keys", "v": "values", "o": "outputs"}
NETWORK = frozenset({"gate", "up", "down"})
KINDS = (*IN_WORDS, "gate", "up", "down")


def check_rank(model: Architecture, rank: int, *, where: str) -> None:
    """Raise InputError for a rank beyond the model's width: its adapters would be larger than what they adapt."""
    if rank > model.hidden_size:
        raise InputError(f"{where}: a rank of {rank:,}: expected at most the model's width, {model.hidden_size:,}")


def adapted_matrices(model: Architecture | None, targets: str) -> tuple[str, ...] | None:
    """Return the kinds of matrices that a list of names means, () for all; None where they are not counted by kinds.

    Names that no such model has are not, nor several kinds in one matrix, nor layers with other matrices than plain
    attention's.
    """
    kinds, apart = _kinds_of(targets)
    plain = model is not None and all(isinstance(m, Attention) for run in model.runs for m in run.layer.mixers)
    if not targets or kinds == {*KINDS}:
        return ()
    return tuple(sorted(kinds)) if plain and apart and kinds else None


def without_adapters(targets: str) -> str:
    """Return what adapters on some matrices leave out, in words; "" where they are on all, or where nobody knows."""
    if not targets or targets == "mlp":  # beside attention's, which are not said
        return ""
    kinds, _ = _kinds_of(targets)
    missing = [word for kind, word in IN_WORDS.items() if kind not in kinds]
    told = [f"the {', '.join(missing)} of attention"] if missing else []
    if not kinds & NETWORK:
        told.append("the networks")
    elif lacks := [kind for kind in KINDS if kind in NETWORK - kinds]:
        told.append(f"the {' and '.join(lacks)} projections of networks")
    return " and ".join(told)


def _kinds_of(targets: str) -> tuple[set[str], bool]:
    """Return the kinds of matrices that names mean, and whether each name is known and its kinds are counted apart."""
    pattern = bool(PATTERN.search(targets))
    parts = re.findall(r"\w+" if pattern else r"[\w.*-]+", targets.lower())
    names = {name.rpartition(".")[2] for name in parts} - {"and"}
    if not pattern and names & EVERYWHERE:
        return {*KINDS}, True
    known = names & MATRICES.keys()
    fused = any(" " in MATRICES[name] for name in known - APART)
    return {kind for name in known for kind in MATRICES[name].split()}, not (pattern or fused or names - known)


def adapted_text(targets: tuple[str, ...]) -> str:
    """Return in words what adapters are on."""
    return f"adapters on {', '.join(targets)} alone, and not on routed experts" if targets else ADAPTED


def adapter_parameters(model: Architecture, rank: int, targets: tuple[str, ...] = ()) -> int:
    """Return the parameters of adapters of this rank: on all matrices of attention and networks, not on routed experts.

    A matrix [in, out] has an adapter of rank x (in + out). `targets`: the kinds of matrices that have one, as
    `adapted_matrices` returns them; () for all. InputError for layers that mix tokens otherwise.
    """
    if model.borrowed_parameters:
        raise InputError("LoRA: adapters of layers that share weights are not counted")
    found = 0
    for run in model.runs:
        sides = sum(_sides(mixer, model.hidden_size, targets) for mixer in run.layer.mixers)
        network = run.layer.network
        width = network.width if isinstance(network, Dense) else network.shared if isinstance(network, Experts) else 0
        if network is not None and width:
            kinds = NETWORK if network.gated else NETWORK - {"gate"}
            sides += len(kinds & {*targets} if targets else kinds) * (model.hidden_size + width)
        found += run.count * rank * sides
    return found


def trained_share(model: Architecture, rank: int, targets: tuple[str, ...] = ()) -> float:
    """Return the adapters' parameters beside those of the frozen model."""
    return adapter_parameters(model, rank, targets) / model.text_parameters


def adapted_flops_per_token(model: Architecture, seq_len: int, trained: float) -> float:
    """Return the FLOPs of a token beside frozen weights, which have no gradients, of `trained` adapters' parameters.

    6 a parameter: 2 forward, 2 for the input's gradient, which frozen weights have too, and 2 for their own. That of
    the input of the first layer, which nothing below needs, is counted along.
    """
    return model.model_flops_per_token(seq_len) - 2.0 * model.products_per_token(seq_len) + 6.0 * trained


def share_in_layers(model: Architecture) -> float:
    """Return the share of a model's parameters that lies in its layers, and not in embedding and output."""
    return sum(run.count * run.layer.parameters(model.hidden_size) for run in model.runs) / model.text_parameters


def _sides(mixer: Mixer, hidden: int, targets: tuple[str, ...] = ()) -> int:
    """Return the rows and columns of a mixer's matrices, or of some kinds of them, all added up."""
    if isinstance(mixer, Attention) and targets:
        keys, values = (mixer.kv_heads * width for width in (mixer.head_dim, mixer.values))
        each = {
            "q": hidden + mixer.heads * mixer.head_dim * (1 + mixer.gate),
            "k": (hidden + keys) * (mixer.key_matrices > 0),
            "v": (hidden + values) * (mixer.key_matrices > 1),
            "o": mixer.out_width + hidden,
        }
        return sum(sides for kind, sides in each.items() if kind in targets)
    if isinstance(mixer, Attention):
        queries = mixer.heads * mixer.head_dim * (1 + mixer.gate)
        keys = (
            mixer.key_matrices * hidden
            + mixer.kv_heads * (0, mixer.head_dim, mixer.head_dim + mixer.values)[mixer.key_matrices]
        )
        return hidden + queries + keys + mixer.out_width + hidden
    if isinstance(mixer, Latent):
        wide = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
        queries = hidden + 2 * mixer.q_rank + wide if mixer.q_rank else hidden + wide
        down = hidden + mixer.kv_rank + mixer.rope_dim
        up = mixer.kv_rank + mixer.heads * (mixer.nope_dim + mixer.value_dim)
        return queries + down + up + mixer.out_width + hidden
    raise InputError(f"LoRA: adapters of {type(mixer).__name__} layers are not counted (attention and networks are)")
