"""Low-rank adapters beside frozen weights (LoRA, Hu et al. 2021, arXiv 2106.09685): how many parameters they train."""

import re

from ..errors import InputError
from .architecture import Architecture
from .kinds import Attention, Dense, Experts, Latent, Mixer

ADAPTED = "adapters on all matrices but those of routed experts"
# a layer's matrices as models of transformers and their kin call them, of which adapters may be on some alone
MATRICES = {
    **{"q_proj": "q", "query": "q", "k_proj": "k", "key": "k", "v_proj": "v", "value": "v"},
    **{"o_proj": "o", "out_proj": "o", "output_proj": "o", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"},
    **{"w1": "gate", "w3": "up", "w2": "down", "fc1": "up", "fc2": "down"},
}
WHOLE = re.compile(r"\ball\b|all-linear|\*|gate_proj|up_proj|down_proj|fc[12]|mlp")  # names of networks, or of all
NETWORK = frozenset({"gate", "up", "down"})


def check_rank(model: Architecture, rank: int, *, where: str) -> None:
    """Raise InputError for a rank beyond the model's width: its adapters would be larger than what they adapt."""
    if rank > model.hidden_size:
        raise InputError(f"{where}: a rank of {rank:,}: expected at most the model's width, {model.hidden_size:,}")


def adapted_matrices(model: Architecture | None, targets: str) -> tuple[str, ...] | None:
    """Return the kinds of matrices that a list of names means, () for all; None where they are some of attention's
    alone that are not counted by kinds.

    Names that no such model has are not, nor layers with other matrices than plain attention's.
    """
    names = re.findall(r"[\w.*-]+", targets)
    found = {MATRICES.get(name.rpartition(".")[2]) for name in names}
    plain = model is not None and all(isinstance(m, Attention) for run in model.runs for m in run.layer.mixers)
    if not names or found >= {*MATRICES.values()}:
        return ()
    if plain and None not in found:
        return tuple(sorted(kind for kind in found if kind))
    return () if WHOLE.search(targets) else None


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
