"""Models that an engine's sizes, or the name by which it knows one, cannot say: never emitted as another model."""

from typing import Literal

from ...workload.architecture import Architecture
from ...workload.kinds import Attention, Dense, Experts, Latent, LayerKind

PADDING = 0.01  # of a vocabulary, whose rows engines round up to what tensor parallelism cuts
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "tied")


def features_left_out(model: Architecture) -> list[str]:
    """Return what a model has beyond a decoder of equal attention layers with networks or experts; empty for such."""
    told: list[str] = []
    if not model.embeds:
        told.append("its output is not over the words of its input")
    if model.embedding_size not in {0, model.hidden_size}:
        told.append(f"its embedding has {model.embedding_size} columns")
    if model.tower_parameters:
        told.append("it has a tower for images or sound")
    if model.borrowed_parameters:
        told.append("layers share their weights")
    for run in model.runs:
        told += _of_layer(run.layer, model)
    return list(dict.fromkeys(told))


def unlike(model: Architecture, named: Architecture) -> list[str]:
    """Return where a model differs from the one that a name stands for; empty where a step of both does the same."""
    told = [
        f"{name} {getattr(model, name)}, not {getattr(named, name)}"
        for name in SIZES
        if getattr(model, name) != getattr(named, name)
    ]
    if abs(model.vocab_size / named.vocab_size - 1) > PADDING:
        told.append(f"vocab_size {model.vocab_size}, not {named.vocab_size}")
    if not told and _weights(model) != _weights(named):
        told.append("other matrices in its layers")
    if "all" in {biases(model), biases(named)} and biases(model) != biases(named):
        told.append("biases" if biases(model) == "all" else "no biases")
    return told


def _weights(model: Architecture) -> list[tuple[int, ...]]:
    """Return the weights of each layer: of its attention, of its networks, and those of them that a token visits."""
    hidden, networks = model.hidden_size, [(run.count, run.layer, run.layer.network) for run in model.runs]
    return [
        (layer.mixer_weights(hidden), *((network.held(hidden), network.weights(hidden)) if network else ()))
        for count, layer, network in networks
        for _ in range(count)
    ]


def biases(model: Architecture) -> Literal["all", "qkv", "none"]:
    """Return which linear layers have a bias, by what a layer holds besides its matrices and norms."""
    queries_keys_values = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
    extra = model.runs[0].layer.small - model.small_parameters
    if model.bias or (not model.kv_rank and extra >= queries_keys_values + model.hidden_size):
        return "all"
    return "qkv" if not model.kv_rank and extra == queries_keys_values else "none"


def _of_layer(layer: LayerKind, model: Architecture) -> list[str]:
    mixer, network = layer.mixer, layer.network
    told = []
    if isinstance(mixer, Attention):
        if not mixer.masked:
            told.append("its attention sees both sides")
        if mixer.window or mixer.chunk:
            told.append("some layers see a window of the sequence")
        if mixer.index_heads:
            told.append("its attention picks tokens by an index")
        if mixer.gate or mixer.key_matrices != 2:
            told.append("its attention is gated or shares keys")
        if (mixer.heads, mixer.kv_heads) != (model.num_attention_heads, model.num_key_value_heads):
            told.append("its layers have several numbers of heads")
    elif isinstance(mixer, Latent):
        if mixer.index_heads:
            told.append("its attention picks tokens by an index")
        if mixer.window:
            told.append("some layers see a window of the sequence")
    else:
        told.append("some layers have no attention" if mixer is None else f"it has layers of {type(mixer).__name__}")
    if layer.beside is not None:
        told.append("some layers have a second attention")
    widths = {model.intermediate_size or model.expert_size, model.intermediate_size}
    if isinstance(network, Dense) and network.width not in widths:
        told.append("its networks have several widths")
    elif isinstance(network, Experts) and (network.latent or network.width != model.expert_size):
        told.append("its experts have several widths or a width of their own before them")
    elif network is None:
        told.append("some layers have no network")
    if layer.more:
        told.append("its layers have further matrices")
    return told
