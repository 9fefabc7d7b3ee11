"""The graph of a planned step, drawn without weights: the decoder of a model's sizes, captured on no device."""

import torch

from ...layout import Plan
from ...parallel.graph_view import graph_svg
from ...parallel.pipeline.capture import capture
from ...parallel.spmd.experts import EvenBank, ExpertNetwork
from ...parallel.spmd.part import rules_of
from ...parallel.step_boxes import Lane, lanes_of
from ...pipelines import SLACK, StageTarget, best_cut, schedule
from ...units import counted
from ...workload.architecture import Architecture
from ...workload.chain import chain_units
from ...workload.program import StepProgram
from ...workload.stages import step_program
from ...workload.transformer import ModelConfig, describe_workload
from .decoder import Decoder
from .decoder_sizes import decoder_config

FULL = frozenset({"", "fp32", "float32"})  # precisions in which products return single ones


def decoder_graph(architecture: Architecture, plan: Plan) -> str:
    """Return the SVG of one step of a decoder under a plan; InputError where it is no decoder that train can build."""
    return graph_svg(
        decoder_lanes(architecture, plan), f"{plan.layout}: one step, {counted(plan.micro_batches, 'micro-batch')}"
    )


def decoder_lanes(architecture: Architecture, plan: Plan) -> list[Lane]:
    """Return the boxes of each stage; InputError where it is no decoder that train can build."""
    return config_lanes(decoder_config(architecture, plan.seq_len), plan)


def config_lanes(config: ModelConfig, plan: Plan) -> list[Lane]:
    """Return the boxes of each stage of a decoder of these sizes, with what it drops."""
    with torch.device("meta"):  # shapes alone: a model of any size takes no memory
        module = _even(Decoder(config))
        tokens = torch.zeros(plan.layout.mbs, plan.seq_len, dtype=torch.int64)
    captured = capture(module, (tokens, tokens), measure=False)
    cut, program = decoder_program(config, plan)
    return lanes_of(captured, plan, program, cut=cut, units=module.units, rules=rules_of(module))


def _even(module: Decoder) -> Decoder:
    """Return a decoder whose experts get as many rows each, so that its graph does not depend on what a router says."""
    for network in [part for part in module.modules() if isinstance(part, ExpertNetwork)]:
        experts, hidden, inner = network.bank.down.shape
        network.bank = EvenBank(hidden, inner, experts)
    return module


def decoder_program(config: ModelConfig, plan: Plan) -> tuple[tuple[int, ...], StepProgram]:
    """Return where a decoder is cut into stages, and what its step sends in the plan's precision."""
    layout = plan.layout
    whole = describe_workload(config, seq_len=plan.seq_len, micro_batch=layout.mbs)
    grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
    cut = best_cut(chain_units(whole, recompute=layout.recompute), StageTarget.of(grid), slack=SLACK).bounds
    autocast = "" if plan.precision in FULL else "bf16"
    workload = describe_workload(
        config, seq_len=plan.seq_len, micro_batch=layout.mbs, layout=layout, autocast=autocast
    )  # fmt: skip
    return cut, step_program(workload, layout, plan.micro_batches, bucket_bytes=plan.bucket_bytes, bounds=cut)
