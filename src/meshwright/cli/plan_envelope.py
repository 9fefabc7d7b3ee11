"""`meshwright plan --mfu` or `--params`: the arithmetic of a step on the back of an envelope."""

import math
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import InputError
from ..files import to_json
from ..units import parse_count, parse_rate
from .options import PlanOptions
from .plan_output import optional

LITTLE = 0.01  # of the FLOPs

if TYPE_CHECKING:
    from rich.console import Console

    from ..cluster.graph import NodeGroup
    from ..hardware import Catalogue
    from ..plan.model_facts import ModelFacts
    from ..plan.targets.envelope import Question
    from ..workload.models import Model


def arithmetic(given: PlanOptions, model: "Model | None", catalogue: "Catalogue", console: "Console") -> int:
    """Show the arithmetic of a step by a model or a parameter count; return the exit code."""
    from ..hardware.cards import gpus_told
    from ..plan.model_facts import batch_read, sentence
    from ..plan.targets.envelope import GPUS_FOR_DAYS, envelope
    from ..report.planning import show_envelope

    assert given.cluster is not None
    given = msgspec.structs.replace(given, gpus=given.gpus or gpus_told(catalogue, given.cluster))
    group, unjoined = _nodes(given, catalogue)
    question = _question(given, model, given.gpus or group.gpus)
    result, facts = envelope(question, group), _facts(model, given.seq_len, question.seq_len)
    if given.gpus is None and all_tokens(given) and given.target_days is not None:
        nodes = math.ceil(result.value(GPUS_FOR_DAYS) / group.gpus)
        result = envelope(msgspec.structs.replace(question, gpus=nodes * group.gpus), group)
        unjoined += [f"the {nodes * group.gpus:,} GPUs are those of the days asked for, in whole nodes (--gpus)"]
    if given.as_json:
        click.echo(to_json({"model": facts, **msgspec.structs.asdict(result)} if facts else result))
    else:
        for line in [sentence(facts)] if facts else [f"assumed: {told}" for told in model.assumed] if model else []:
            console.print(line, highlight=False)
        show_envelope(console, result)
        batch = batch_read(question.global_batch, question.seq_len) if given.global_batch else ()
        for note in [*unjoined, *batch, *_scores_left_out(facts, question)]:
            console.print(f"note: {note}", highlight=False)
    return 0


def all_tokens(given: PlanOptions) -> bool:
    """Return whether a question has an MFU and the tokens of a training, so that its days need no batch."""
    return given.mfu is not None and given.tokens is not None


def _nodes(given: PlanOptions, catalogue: "Catalogue") -> tuple["NodeGroup", list[str]]:
    """Return the nodes, and why nothing is said of the links between them where an MFU is given and these are unknown.

    An MFU contains what communication costs, so that days and GPUs by one need no network.
    """
    from ..plan.clusters.machines import cluster_by_name, node

    assert given.cluster is not None
    rates = {
        "intra_bytes_per_s": optional(parse_rate, given.intra, "--intra"),
        "inter_bytes_per_s": optional(parse_rate, given.inter, "--inter"),
    }
    if given.mfu is not None and given.gpus is not None and (alone := _of_accelerator(given.cluster, catalogue)):
        title = catalogue.accelerators[alone.gpu.model].title
        return alone, [f"{given.cluster}: a GPU is one of {title}; what joins them is left out"]
    try:
        return node(cluster_by_name(catalogue, given.cluster, given.gpus, **rates)), []
    except InputError as error:
        if given.mfu is None or given.gpus is None:
            raise
        one = node(cluster_by_name(catalogue, given.cluster, None, **rates))
        if given.gpus <= one.gpus or given.gpus % one.gpus:
            raise
        return msgspec.structs.replace(one, nics=0), [f"{error}: the links between nodes are left out"]


def _of_accelerator(name: str, catalogue: "Catalogue") -> "NodeGroup | None":
    """Return a node without its network of the accelerator that a name means, None where it means no single one."""
    from ..hardware.catalogue import is_family
    from ..plan.clusters.machines import cluster_by_name, node

    exact, theirs = catalogue.driver_key(name), catalogue.nodes_with(name)
    key = next((key for key in theirs if catalogue.nodes[key].accelerator == exact), None)
    if key is None or (is_family(name, exact) and name.lower() != exact):  # one of several sizes of memory
        return None
    return msgspec.structs.replace(node(cluster_by_name(catalogue, key)), nics=0)


def _scores_left_out(facts: "ModelFacts | None", question: "Question") -> list[str]:
    """Return what the scores of attention add to an arithmetic of weights alone, [] where that is little or unknown."""
    counted = 6.0 * (question.multiplied or question.parameters)
    more = facts.flops_per_token / counted - 1.0 if facts else 0.0
    if facts is None or question.flops_per_sample is not None or more < LITTLE:
        return []
    whole = f"{facts.flops_per_token / 1e9:.4g} GFLOP a token"
    return [
        f"products with weights alone are counted: with attention's scores, {whole}, days and GPUs are {more:.0%} more"
    ]


def _facts(model: "Model | None", asked: int | None, seq_len: int | None) -> "ModelFacts | None":
    """Return what the answer says of a transformer, None of a parameter count alone or another network."""
    from ..plan.model_facts import facts_of
    from ..workload.architecture import Architecture

    if model is None or seq_len is None or not isinstance(model.description, Architecture):
        return None
    return facts_of(model, asked, seq_len)


def _question(given: PlanOptions, model: "Model | None", gpus: int) -> Any:
    from ..plan.analytic.optimizers import moments_of
    from ..plan.targets.envelope import Question
    from ..workload.models import Convolution, Pyramid

    network = model.description if model is not None else None
    of_images = network if isinstance(network, Convolution | Pyramid) else None
    parameters = optional(parse_count, given.params, "--params") if network is None else network.parameters
    seq_len = given.seq_len or (model.seq_len if model else None) or (1 if of_images else None)
    if seq_len is None and (model is not None or not all_tokens(given)):
        raise InputError("--seq-len: expected the tokens of a sequence, such as --seq-len 2048")
    try:
        return Question(
            parameters=parameters,
            multiplied=_multiplied(network, seq_len),
            seq_len=seq_len,
            global_batch=given.global_batch,
            gpus=gpus,
            precision=given.precision,
            peak_share=0.5 if given.mfu is None else given.mfu,
            whole_step=given.mfu is not None,
            recompute=given.recompute,
            tokens=optional(parse_count, given.tokens, "--tokens"),
            days=given.target_days,
            moment_bytes=moments_of(given.optimizer, where="--optimizer"),
            layers=given.layers,
            flops_per_sample=of_images.forward_flops if of_images else None,
            sample_bytes=of_images.sample_bytes if of_images else None,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


def _multiplied(network: Any, seq_len: int | None) -> float | None:
    """Return the weights that a token is multiplied with, None where they are all of the parameters or unknown."""
    from ..workload.architecture import Architecture

    if not isinstance(network, Architecture) or seq_len is None:
        return None
    whole = network.active_parameters == network.text_parameters and not network.borrowed_parameters
    if whole and not network.fixed_length:
        return None
    return network.products_per_token(seq_len)
