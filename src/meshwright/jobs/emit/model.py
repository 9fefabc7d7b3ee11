"""Models that the sizes of Megatron-LM and NeMo cannot say: they are refused, never emitted as another model."""

from ...workload.architecture import Architecture
from ...workload.kinds import Attention, Dense, Experts, Latent, LayerKind


def features_left_out(model: Architecture) -> list[str]:
    """Return what a model has beyond a decoder of equal attention layers with networks or experts; empty for such."""
    told: list[str] = []
    if not model.embeds:
        told.append("its input is looked up in no table")
    if model.embedding_size not in {0, model.hidden_size}:
        told.append(f"its embedding has {model.embedding_size} columns")
    if model.tower_parameters:
        told.append("it has a tower for images or sound")
    for run in model.runs:
        told += _of_layer(run.layer, model)
    return list(dict.fromkeys(told))


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
