"""`meshwright plan --cluster this` or a file of this machine: layouts measured and priced as `train` prices them."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import InputError
from ..files import to_json, write_atomic, write_struct, writing
from .named_model import named_model
from .options import PlanOptions
from .prose import say

if TYPE_CHECKING:
    from rich.console import Console

    from ..layout import Plan
    from ..plan.model_facts import ModelFacts

HERE = "this"


def names_this_machine(cluster: str | None) -> bool:
    """Return whether a cluster is this machine by name, or as a file that `topo` or `bench` wrote of it.

    Only where it has no GPUs: those of a file have peaks and memory that the catalogue knows, and may be planned for
    in larger numbers than the file lists.
    """
    from ..cluster.discovery.local import discover_host, fingerprint
    from ..cluster.wire import names_file, read_cluster

    if cluster is None or cluster == HERE or not names_file(cluster):
        return cluster == HERE
    try:
        read = read_cluster(cluster)
    except InputError:  # said by who reads it for the catalogue's way
        return False
    return not read.num_gpus and len(read.hosts) == 1 and fingerprint(read.hosts[0]) == fingerprint(discover_host())


def plan_here(given: PlanOptions, console: "Console") -> int:
    """Measure this machine where it was not yet, print its layouts from the fastest, and write the plan if asked."""
    from ..plan.model_facts import facts_of, sentence
    from ..report.terminal import show_plan
    from ..train.planned import job_here
    from ..train.prepare import prepare

    _check(given)
    assert given.model_name is not None
    assert given.global_batch is not None
    model = named_model(given.model_name, allow_unknown=given.allow_unknown)
    seq_len = given.seq_len or model.seq_len
    if seq_len is None:
        raise InputError(f"--seq-len: expected the tokens of a sequence; {model.seq_len_from or 'the model has none'}")
    job = job_here(
        model.architecture,
        global_batch=given.global_batch,
        seq_len=seq_len,
        precision=given.precision,
        layout=given.layout,
        ranks=given.gpus,
        where=f"--cluster {given.cluster or HERE}",
    )
    plan = prepare(job, None, ranks=given.gpus, say=lambda text: say(text, err=True)).plan
    if given.graph is not None:
        from ..train.model.graph import decoder_graph

        with writing(given.graph):
            write_atomic(given.graph, decoder_graph(model.architecture, plan).encode())
    if given.output is not None:
        with writing(given.output):
            write_struct(given.output, plan)
    facts = facts_of(model, given.seq_len, seq_len)
    if given.as_json:
        click.echo(to_json(_answer(plan, facts)))
    else:
        console.print(sentence(facts), highlight=False)
        show_plan(console, plan)
        for what in plan.predicted.not_modelled:
            console.print(f"not modelled: {what}", highlight=False, markup=False, soft_wrap=True)
    return 0


def _check(given: PlanOptions) -> None:
    """Raise InputError for what is missing."""
    if given.model_name is None:
        raise InputError("--model: expected a name of the catalogue, or a config.json")
    if given.global_batch is None:
        raise InputError("--global-batch: expected the sequences of a step, such as --global-batch 8")


def _answer(plan: "Plan", facts: "ModelFacts") -> dict[str, Any]:
    """Return what `--json` prints; a layout that does not fit is not among the candidates."""
    return {
        "model": facts,
        "cluster": msgspec.to_builtins(plan.cluster),
        "layout": msgspec.to_builtins(plan.layout),
        "predicted": plan.predicted,
        "fits": "fits",
        "alternatives": plan.alternatives,
        "reason": plan.reason,
    }
