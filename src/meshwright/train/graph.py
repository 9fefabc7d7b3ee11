"""The graph of a planned step, drawn without weights: the decoder of a model's sizes, captured on no device."""

import torch

from ..errors import InputError
from ..layout import Plan
from ..parallel.graph_view import graph_svg, unit_bounds
from ..parallel.pipeline.capture import capture
from ..parallel.split import rules_of
from ..pipelines import SLACK, Target, best_cut, schedule
from ..workload.architecture import Architecture
from ..workload.transformer import ModelConfig
from .decoder import Decoder


def decoder_graph(architecture: Architecture, plan: Plan) -> str:
    """Return the SVG of one step of a decoder under a plan; InputError where it is no decoder that train can build."""
    config = decoder_config(architecture, plan.seq_len)
    with torch.device("meta"):  # shapes alone: a model of any size takes no memory
        module = Decoder(config)
        tokens = torch.zeros(plan.layout.mbs, plan.seq_len, dtype=torch.int64)
    captured = capture(module, (tokens, tokens), measure=False)
    layout = plan.layout
    grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
    cut = best_cut(module.unit_costs(layout.mbs, plan.seq_len), Target.of(grid), slack=SLACK)
    bounds = unit_bounds(captured, module.units, cut.bounds)
    return graph_svg(captured, plan, bounds=bounds, rules=rules_of(module))


def decoder_config(architecture: Architecture, seq_len: int) -> ModelConfig:
    """Return the sizes of the decoder that an architecture is; InputError where its layers are others."""
    others = [
        text
        for differs, text in (
            (not architecture.gated, "its network has no gate"),
            (architecture.norm != "rms", "its norms are not RMSNorm"),
            (architecture.bias, "its products add a bias"),
            (architecture.positions != "rotary", "its positions are not rotary"),
            (architecture.kv_rank > 0, "its attention is latent"),
            (architecture.experts > 0, "it has experts"),
            (
                architecture.head_dim * architecture.num_attention_heads != architecture.hidden_size,
                "its heads are not hidden_size wide together",
            ),
        )
        if differs
    ]
    if others:
        name = architecture.name or "the model"
        raise InputError(f"--graph: {name}: only decoders like Llama are drawn; {others[0]}")
    return ModelConfig(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        num_key_value_heads=architecture.num_key_value_heads,
        max_position_embeddings=max(seq_len, architecture.max_position_embeddings),
        tie_word_embeddings=architecture.tied,
    )
