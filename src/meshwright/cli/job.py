"""`--job`: an engine's own configuration in, and what its job takes out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..files import write_struct, writing
from ..units import parse_latency, parse_rate
from .calibration import save_calibration
from .cluster_gpus import gpus_of_cluster, gpus_of_node
from .emission import ADAMW, check_written, emit, engine_refusals, runnable_on
from .options import JobQuestion, PlanOptions
from .plan_output import optional, print_about, training_asked, write_plan_page
from .plan_target import asks_target, check_target, solve_target
from .prose import say
from .stacks import note_of_engine, tell_stated, warn_of_stack

if TYPE_CHECKING:
    from rich.console import Console

    from ..hardware import Catalogue
    from ..jobs.job import Job
    from ..jobs.options import JobOptions
    from ..plan.analytic import Setting
    from ..plan.search.study import PricedLayout

FASTER_SHOWN = 5
PARTS_NOT_PRICED = (
    "only whole GPUs are priced, since neither the rate of such a part nor what joins several of them is known "
    "(a process of CUDA sees one instance of MIG)"
)


def job_of(question: JobQuestion) -> "Job":
    """Return the job of `--job` files, with what the other options add; InputError naming the flags still missing."""
    from msgspec.structs import replace

    from ..jobs.job import missing
    from ..jobs.options import JobOptions
    from ..jobs.read import read_job
    from ..workload.models import load_model

    model = load_model(question.model) if question.model else None
    added = JobOptions(
        gpus=question.gpus,
        model=question.model,
        architecture=None if model is None else model.architecture,
        global_batch=question.global_batch,
        seq_len=question.seq_len,
        precision=question.precision,
        weights=question.weights,
        loss=question.loss,
        mtp_layers=question.mtp_layers,
    )
    job = read_job(question.files, added)
    if "--gpus" in job.asked and (of_node := gpus_of_node(question.cluster)):
        job = read_job(question.files, replace(added, gpus_per_node=of_node))
    if "--gpus" in job.asked and (counted_there := gpus_of_cluster(question.cluster)):
        job = _on_all_gpus(job, question, replace(added, gpus=counted_there))
    if job.part_of_gpu:
        raise InputError(f"{job.where}: asks for {job.part_of_gpu}: {PARTS_NOT_PRICED}{_so_far(job)}")
    if job.asked:
        raise InputError("; ".join([f"{job.where}: {missing(job)}{_so_far(job)}", *job.notes]))
    return job


def _on_all_gpus(job: "Job", question: JobQuestion, added: "JobOptions") -> "Job":
    """Return a job of no number of ranks on all GPUs of its cluster; InputError asking for it where these do not do."""
    from msgspec.structs import replace

    from ..jobs.job import WHY
    from ..jobs.read import read_job

    whole = f"of --cluster {question.cluster}"
    try:
        found = read_job(question.files, added)
        if not found.asked:
            found.full_layout()
    except InputError as error:
        asked = f"{job.where}: --gpus: expected, since {WHY['--gpus']}"
        why = str(error).removeprefix(f"{job.where}: ")
        raise InputError(f"{asked}; all {added.gpus} {whole} cannot be it: {why}{_so_far(job)}") from None
    told = f"--gpus {added.gpus}: all {whole}, since {WHY['--gpus']}"
    return replace(found, assumed=(*found.assumed, told))


def setting_of_job(job: "Job", question: JobQuestion, catalogue: "Catalogue") -> "Setting":
    """Return what the planner prices for a job on `--cluster`."""
    from msgspec.structs import replace

    from ..plan.analytic.conditions import parse_conditions
    from ..plan.request import PlanRequest, setting_of
    from ..plan.search.engine import stack_of
    from ..workload.engines import engine_named
    from ..workload.models import Model

    assert job.architecture is not None
    assert job.global_batch is not None
    name = job.model_name or job.architecture.name or "the model"
    request = PlanRequest(
        model=Model(name=name, title=name, source=job.where, description=job.architecture, seq_len=job.seq_len),
        cluster=_cluster(job, question.cluster, catalogue),
        gpus=job.world,
        global_batch=job.global_batch,
        seq_len=job.seq_len,
        precision=job.precision or "bf16",
        stack=question.stack or job.stack or stack_of(engine_named(job.states_of)),
        fabric=question.fabric,
        intra_bytes_per_s=optional(parse_rate, question.intra, "--intra"),
        inter_bytes_per_s=optional(parse_rate, question.inter, "--inter"),
        conditions=parse_conditions(question.only, question.without),
        latency_s=optional(parse_latency, question.latency, "--latency"),
        measured=(question.own,) if question.own else (),
        lora_rank=job.lora_rank,
        lora_targets=job.lora_targets,
        optimizer=job.optimizer or ADAMW,
        weights=job.weights,
        loss=job.loss,
        in_parts=(job.gpus_per_node or 1) if question.gpus is None else 0,
    )
    try:
        whole = setting_of(request, catalogue)
    except InputError as error:
        raise InputError(f"{error}{_so_far(job)}") from None
    setting = replace(
        whole,
        routed_once=job.routed_once,
        half_sums=job.half_sums,
        modules=job.modules,
        results=job.results,
        away=job.away,
        layers_again=job.layers_again,
        offload_share=job.offload_share,
        traits=job.traits,
    )
    save_calibration(question.save, question.own, setting.cluster)
    return setting


def _so_far(job: "Job") -> str:
    """Return what is known of a job that is not priced, behind what is missing; "" for nothing."""
    from ..jobs.job import understood

    return f"; read so far: {known}" if (known := understood(job)) else ""


def _cluster(job: "Job", asked: str | None, catalogue: "Catalogue") -> str:
    """Return the cluster that is asked for, else the node type that the files name; InputError where there is none."""
    if asked is not None:
        return asked
    expected = "--cluster: expected a node type of the catalogue or a file"
    known = "; ".join([_so_far(job), *job.notes])
    if job.machines is None:
        raise InputError(f"{expected}, such as --cluster dgx-h100{known}")
    try:
        found = catalogue.node_key(job.machines)
    except InputError as error:
        raise InputError(
            f"{expected}: {job.files[0]} says of its machines {job.machines} alone; {error}{known}"
        ) from None
    say(f"note: --cluster {found}, since {job.files[0]} runs on {job.machines}", err=True)
    return found


def priced_job(job: "Job", setting: "Setting") -> "PricedLayout":
    """Return the price of what a job runs today."""
    from ..plan.analytic import Grid, price_layouts
    from ..plan.search.explore import row_of

    grid = Grid.of([job.full_layout()])
    return row_of(setting, grid, price_layouts(setting, grid, job.stages), 0)


def plan_job(given: PlanOptions, catalogue: "Catalogue", console: "Console") -> int:
    """Price a job, say what would be faster on its engine, and emit the winner where that is asked for."""
    from msgspec.structs import replace

    from ..plan.analytic.by_stage import memory_of_stages
    from ..plan.analytic.price import machine_of
    from ..plan.model_facts import model_facts
    from ..plan.search.explore import price_all, study_of
    from ..report.job import better_than, show_job

    question = _question(given)
    check_target(given)
    job = job_of(question)
    written = next((flag for flag in ("emit", "output") if getattr(given, flag) is not None), "")
    if written:
        check_written(job, written, given.emit or "")
    if written == "output" and job.architecture is not None and job.architecture.mtp_trained:
        raise InputError("--output: the job trains modules that predict further tokens, which a plan has not")
    setting = setting_of_job(job, question, catalogue)
    job = job if given.gpus else _on_nodes(job, setting)
    note_of_engine(given.engine, given.stack)
    others = replace(setting, layers_again=0)  # of other layouts nobody says that some layers alone are repeated
    if asks_target(given):
        return _target_of_job(job, others, given, catalogue, console)
    today = priced_job(job, setting)
    row = today if given.layout is None else _asked(others, given.layout)
    if given.layout is not None or given.stack is not None:  # what the job runs its own engine has taken
        warn_of_stack(setting, row.layout)
    engine = given.engine or given.emit or job.engine
    rows: Sequence[PricedLayout] = ()
    try:
        rows = study_of(others, runnable_on(price_all(others), engine), model=job.model_name or "").rows
    except InputError as error:
        say(f"note: {error}", err=True)
    faster = better_than(row, rows)[:FASTER_SHOWN]
    fitting = _changes_that_fit(others, row, faster, engine)
    chosen = faster[0] if faster and given.layout is None else row
    setting = setting if given.layout is None else others
    if given.emit:
        emit(given, setting, chosen.layout, model=job.model_name or "")
    stages = memory_of_stages(setting, row.layout, job.stages if given.layout is None else ())
    training = training_asked(given, setting, row.predicted)
    if given.as_json:
        more: dict[str, Any] = {"stages": stages} if training is None else {"stages": stages, "training": training}
        more |= {"would_fit": [one.candidate for one in fitting]} if fitting else {}
        print_about(setting, _answer(job, today, row, rows, faster) | more)
    else:
        memory_bytes = float(machine_of(setting).memory_bytes)
        show_job(
            console, job, row, faster, memory_bytes, stages, model_facts(setting),
            engine=engine, today=None if given.layout is None else today, fitting=fitting,
        )  # fmt: skip
        if training is not None:
            console.print(str(training), highlight=False)
    _write_plan(given, setting, chosen, rows)
    if given.html is not None:
        _write_page(given, setting, job, row, rows)
    return 0


def _on_nodes(job: "Job", setting: "Setting") -> "Job":
    """Return a job that says where its ranks lie on nodes otherwise than they are priced."""
    from ..jobs.job import on_whole_nodes
    from ..plan.clusters.machines import node

    name = setting.cluster.name
    return on_whole_nodes(job, node(setting.cluster).gpus, name, gpus_of_node(name))


def _changes_that_fit(
    setting: "Setting", row: "PricedLayout", faster: "Sequence[PricedLayout]", engine: str
) -> "list[PricedLayout]":
    """Return changes of what a job runs that fit on an engine, where neither it nor any of its rivals surely does."""
    from ..plan.search.that_fit import that_fit

    if any(one.fits == "fits" for one in (row, *faster)):
        return []
    return [one for one in that_fit(setting, row.layout) if not engine_refusals(engine, setting, one.layout)]


def _target_of_job(
    job: "Job", setting: "Setting", given: PlanOptions, catalogue: "Catalogue", console: "Console"
) -> int:
    """Show what reaches a target with the model, the batch and the stack of a job, in any layout of its engine."""
    _tell(job, err=given.as_json)
    return solve_target(setting, given, catalogue, console)


def _question(given: PlanOptions) -> JobQuestion:
    return JobQuestion(
        files=(*given.job, *given.more),
        model=given.model_name,
        gpus=given.gpus,
        global_batch=given.global_batch,
        seq_len=given.seq_len,
        precision=typed("precision", given.precision),
        mtp_layers=given.mtp_layers,
        cluster=given.cluster,
        stack=given.stack,
        weights=given.weights,
        loss=given.loss,
        fabric=given.fabric,
        intra=given.intra,
        inter=given.inter,
        latency=given.latency,
        only=given.only,
        without=given.without,
        save=given.save,
        own=given.own,
    )


def validate_job(question: JobQuestion, measured_s: float, catalogue: "Catalogue", *, as_json: bool) -> int:
    """Put what a job is predicted to take beside what it was measured to take."""
    from ..plan.analytic.price import node_group_of
    from ..plan.tables.other_readings import meant_by_time
    from ..plan.tables.runs import faster_than
    from ..report.planning import constants_said

    job = job_of(question)
    setting = setting_of_job(job, question, catalogue)
    row = priced_job(job, setting)
    predicted, band = row.predicted.step_time_s, row.predicted.error_band
    least_s = (row.predicted.mfu or 0.0) * predicted
    impossible = faster_than(least_s, measured_s, setting.gpus, node_group_of(setting.cluster).gpu.model)
    if impossible:
        say(f"warning: --measured {measured_s:g}: {impossible}", err=True)
    error = None if impossible else predicted / measured_s - 1
    if as_json:
        answer = {
            "id": job.where,
            "family": setting.stack,
            "step_time_s": predicted,
            "peak_memory_bytes_per_gpu": row.predicted.peak_memory_bytes_per_gpu,
            "measured_step_time_s": measured_s,
            "error": error,
            "error_band": band,
            "calibration": row.predicted.calibration,
            "job": job.as_json(),
        }
        print_about(setting, answer)
        return 0
    told = "" if error is None else f", {100 * error:+.1f} %"
    if error is not None and band is not None:
        told += f", {'within' if abs(error) <= band else 'outside'} the band of {band:.0%}"
        of_step = (row.layout, setting.global_batch, setting.seq_len, setting.gpus)
        told += meant_by_time(measured_s, predicted, band, *of_step) if abs(error) > band else ""
    say(f"{job.where}: predicted {predicted:.4g} s, measured {measured_s:.4g} s{told}")
    say(f"constants: {constants_said(row.predicted.calibration)}")
    _tell(job)
    return 0


def _tell(job: "Job", *, err: bool = False) -> None:
    """Say what was assumed of a job, what of it is not priced, and what is remarkable."""
    for word, lines in (("assumed", job.assumed), ("ignored", job.ignored), ("note", job.notes)):
        for line in lines:
            say(f"{word}: {line}", err=err)


def _asked(setting: "Setting", layout: str) -> "PricedLayout":
    from ..plan.request import priced_layout

    row = priced_layout(setting, layout)
    tell_stated(setting, layout)
    return row


def _write_plan(given: PlanOptions, setting: "Setting", best: "PricedLayout", others: "Sequence[PricedLayout]") -> None:
    if given.output is None:
        return
    from ..plan.request import plan_of

    with writing(given.output):
        write_struct(given.output, plan_of(setting, best, others, "the fastest on the job's engine"))


def _write_page(
    given: PlanOptions, setting: "Setting", job: "Job", row: "PricedLayout", others: "Sequence[PricedLayout]"
) -> None:
    """Write the page of what runs today, or of the layout that is asked for."""
    from ..plan.request import plan_of

    told = [f"{word}: {text}" for word in ("assumed", "ignored", "notes") for text in getattr(job, word)]
    plan, stages = plan_of(setting, row, others, "; ".join(told)), job.stages if given.layout is None else ()
    assert given.html is not None
    write_plan_page(given.html, setting, plan, row, about=job.where, stages=stages)


def typed(name: str, value: str) -> str | None:
    """Return the value of an option that was typed; None where it is at its default."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source(name) != click.core.ParameterSource.COMMANDLINE:
        return None
    return value


def _answer(
    job: "Job",
    today: "PricedLayout",
    row: "PricedLayout",
    rows: "Sequence[PricedLayout]",
    faster: "Sequence[PricedLayout]",
) -> dict[str, Any]:
    import msgspec

    from ..plan.request import alternatives

    return {
        "job": job.as_json(),
        "layout": msgspec.to_builtins(row.layout),
        "predicted": row.predicted,
        "fits": row.fits,
        "memory": row.memory,
        "terms": row.terms,
        "today": {"layout": msgspec.to_builtins(today.layout), "predicted": today.predicted},
        "unpriced": list(job.unpriced()),
        "faster": [
            {
                "layout": msgspec.to_builtins(other.layout),
                "predicted": other.predicted,
                "gain": row.predicted.step_time_s / other.predicted.step_time_s - 1,
            }
            for other in faster
        ],
        "alternatives": alternatives(row, rows),
    }
