"""The files of `meshwright plan`: the plan, its page, its graph, and the answer as JSON."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import InputError
from ..files import to_json, write_atomic, write_struct, writing
from ..units import counted, parse_count
from .options import PlanOptions

if TYPE_CHECKING:
    from ..cluster.graph import Cluster
    from ..layout import Layout, Plan
    from ..plan.analytic import Setting
    from ..plan.search.study import PricedLayout
    from ..plan.targets.budget import TrainingTime
    from ..timeline import Performance, Timeline


def write_files(
    given: PlanOptions, setting: "Setting", best: "PricedLayout", others: "Sequence[PricedLayout]", reason: str
) -> None:
    """Write the plan's file, its page and its graph, where they are asked for."""
    from ..plan.request import plan_of

    plan, path, page = plan_of(setting, best, others, reason), given.output, given.html
    if given.graph is not None:
        from ..train.model.graph import decoder_graph

        drawing = decoder_graph(setting.architecture, plan)
        with writing(given.graph):
            write_atomic(given.graph, drawing.encode())
    if path is not None:
        with writing(path):
            write_struct(path, plan)
    if page is not None:
        write_plan_page(page, setting, plan, best, about=given.model_name or "")


def write_plan_page(
    path: Path, setting: "Setting", plan: "Plan", best: "PricedLayout", *, about: str, stages: Sequence[int] = ()
) -> None:
    """Write the page of a plan, with its simulated step; `stages` are a job's own."""
    from ..report.page import write_page
    from ..report.pages.plan import plan_page

    where = f"{about} on {counted(setting.gpus, 'GPU')} of {setting.cluster.name}"
    timeline, node = _simulated(setting, best.layout, stages), _one_node(setting.cluster)
    write_page(path, plan_page(plan, title=where, timeline=timeline, node=node, fits=best.fits))


def _simulated(setting: "Setting", layout: "Layout", stages: Sequence[int]) -> "Timeline | str":
    """Return the simulated step of a layout, or why the simulator cannot hold it."""
    from ..plan.search.simulated import simulate_plan

    try:
        return simulate_plan(setting, layout, stages=stages)
    except InputError as error:
        return str(error)


def _one_node(cluster: "Cluster") -> "Cluster":
    """Return the first node of a cluster with its devices and links, for a drawing."""
    from ..cluster.expand import expanded

    group = msgspec.structs.replace(cluster.groups[0], count=1)
    return expanded(msgspec.structs.replace(cluster, name=group.type or cluster.name, groups=(group,), fabric=None))


def print_answer(
    setting: "Setting", best: "PricedLayout", others: "Sequence[PricedLayout]", training: "TrainingTime | None",
    fitting: "Sequence[PricedLayout]" = (),
) -> None:  # fmt: skip
    """Print the best row and the others as JSON, how long a training takes where that is asked for, and what fits."""
    from ..plan.analytic.by_stage import memory_of_stages
    from ..plan.request import alternatives

    answer = {
        "layout": best.layout,
        "predicted": best.predicted,
        "fits": best.fits,
        "memory": best.memory,
        "terms": best.terms,
        "alternatives": alternatives(best, others),
    }
    more: dict[str, Any] = {"training": training} if training is not None else {}
    if best.layout.pp > 1:
        more["stages"] = memory_of_stages(setting, best.layout)
    print_about(setting, answer | more | ({"would_fit": [row.candidate for row in fitting]} if fitting else {}))


def print_about(setting: "Setting", answer: Any) -> None:
    """Print a struct or an object as JSON, with the model that it is about."""
    from ..plan.model_facts import model_facts

    fields = answer if isinstance(answer, dict) else msgspec.structs.asdict(answer)
    click.echo(to_json({"model": model_facts(setting), **fields}))


def tokens_asked(given: PlanOptions) -> int | None:
    """Return the tokens of `--tokens`, None without the option; InputError where they are no number or none."""
    tokens: int | None = optional(parse_count, given.tokens, "--tokens")
    if tokens == 0:
        raise InputError("--tokens: expected more than 0")
    return tokens


def training_asked(given: PlanOptions, setting: "Setting", predicted: "Performance") -> "TrainingTime | None":
    """Return how long the tokens of `--tokens` train at a predicted step, None without the option."""
    from ..plan.targets.budget import training_time

    tokens = tokens_asked(given)
    return None if tokens is None else training_time(setting, predicted, tokens)


def optional(parse: Callable[[str], Any], text: str | None, flag: str) -> Any:
    """Return what the text of a flag says, None where there is none; an InputError names the flag."""
    try:
        return None if text is None else parse(text)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None
