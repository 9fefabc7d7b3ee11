"""`meshwright plan`: rank the layouts of a model on a cluster, price one, or solve for the network it needs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ..errors import InputError
from ..units import format_bytes, format_time, parse_latency, parse_rate
from ..workload.recomputed import away_of, modules_of
from .amounts import DAYS, SCALING, SHARE
from .calibration import calibration_of, save_calibration
from .emission import ADAMWS, check_emit, check_engine, emit, runnable_on
from .help_format import Brief
from .job import plan_job
from .named_cluster import with_machine_meant
from .named_model import named_model
from .options import PlanOptions
from .plan_envelope import all_tokens, arithmetic
from .plan_here import names_this_machine, plan_here
from .plan_output import optional, print_about, print_answer, tokens_asked, training_asked, write_files
from .plan_target import asks_target, check_reachable, check_target, show_head, solve_target
from .plan_ways import check_read
from .precision import optimizer_of, precision_option
from .prose import notes_held, say, tell_held
from .stacks import default_of, note_of_engine, stack_option, tell_needs, tell_stated, warn_of_stack

if TYPE_CHECKING:
    from rich.console import Console

    from ..cluster.graph import Cluster, Placement
    from ..hardware import Catalogue
    from ..plan.analytic import Setting
    from ..plan.request import PlanRequest
    from ..workload.models import Model

OFTEN = (
    *("model_name", "cluster", "gpus", "global_batch", "layout", "inter", "target_mfu", "compare", "scaling"),
    *("job", "emit", "as_json"),
)


@click.command(
    "plan",
    cls=Brief,
    often=OFTEN,
    epilog="Example: meshwright plan --model llama3-8b --cluster aws-p5 --global-batch 512",
)
@click.option("--model", "model_name", metavar="NAME", help="Catalogue name, Hugging Face config.json, or TOML.")
@click.option("--cluster", metavar="NAME", help='Node type of the catalogue, a cluster file, or "this" machine.')
@click.option("--gpus", metavar="N", type=click.IntRange(min=1), help="GPUs in all. Default: one node, or the file's.")
@click.option("--global-batch", metavar="N", type=click.IntRange(min=1), help="Sequences of one optimiser step.")
@click.option("--seq-len", metavar="N", type=click.IntRange(min=1), help="Tokens of a sequence. Default: the model's.")
@click.option("--allow-unknown", is_flag=True, help="Pass over keys of a config.json that are not understood.")
@precision_option("bf16 (default), fp16, fp8, fp8-row, fp8-block, mxfp8, nvfp4, fp32.")
@stack_option("Software whose constants apply. Default: the engine's, else our own.")
@click.option(
    "--optimizer",
    metavar="NAME",
    default="adamw",
    callback=optimizer_of,
    help="adamw (default), adamw-bf16, adam8bit, muon, ...",
)
@click.option("--weights", metavar="NAME", help="As held: fp32, bf16, under adapters nf4, int4, int8.")
@click.option("--loss", metavar="NAME", help="Of logits: whole, compiled, half, chunked, fused.")
@click.option("--lora-rank", metavar="N", type=click.IntRange(min=0), default=0, help="Adapters; the rest is frozen.")
@click.option("--mtp-layers", metavar="N", type=click.IntRange(min=0), help="Multi-token prediction: modules trained.")
@click.option("--imbalance", metavar="X", type=float, help="Rows of the fullest rank's experts, in those of the mean.")
@click.option(
    "--activations-away", metavar="A,B", help="Kept in the hosts' memory: input (of a recomputed layer), none."
)
@click.option("--recompute-modules", metavar="A,B", help="What recompute=selective computes again: layernorm, moe_act.")
@click.option(
    "--recipe", type=click.Choice(["newest", "none"]), default="newest", help="Of --stack bridge: what it adds."
)
@click.option(
    "--calibrate", metavar="RUNS.csv", is_eager=True, help="Measured steps of your own (columns: validate --columns)."
)
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="For --stack and --cluster.")
@click.option("--layout", metavar="LAYOUT", help='Price this one only: "tp=8,pp=4,sp=1".')
@click.option("--job", metavar="FILE", multiple=True, help="Price what an engine's own files run.")
@click.option("--engine", metavar="NAME", help="Only what this engine can run: megatron, torchtitan, deepspeed, ...")
@click.option("--only", metavar="COND", multiple=True, help='Keep the search to "zero<=1", "schedule=1f1b,zb".')
@click.option("--not", "without", metavar="COND", multiple=True, help="Leave these out of the search.")
@click.option("--emit", metavar="NAME", help="Print the layout as this engine's configuration.")
@click.option("--emit-to", metavar="FILE", type=click.Path(path_type=Path), help="Write it there.")
@click.option("--refine", metavar="N", type=click.IntRange(min=1), help="Simulate the N fastest, rank by that.")
@click.option("--intra", metavar="RATE", help="Of a GPU to its peers, per direction (450GB/s).")
@click.option("--inter", metavar="RATE", help="Of all NICs of a node, per direction (1600Gbps).")
@click.option("--latency", metavar="TIME", help="Of a hop between nodes (10us).")
@click.option("--fabric", metavar="NAME", default="flat", help="Of the catalogue. Default: flat; of TPUs a torus.")
@click.option("--placements", metavar="FILE", help="Switches above nodes (scontrol show topology): take near ones.")
@click.option("--hardware", metavar="FILE", multiple=True, help="TOML that extends the catalogue.")
@click.option("--target-mfu", metavar="SHARE", type=SHARE, help="Which network, latency, GPUs reach this MFU.")
@click.option("--target-step-time", metavar="TIME", help="The same for a step time (5s).")
@click.option("--target-days", metavar="DAYS", type=DAYS, help="The same for the days that --tokens take.")
@click.option("--tokens", metavar="COUNT", help="Tokens of the whole training (13T).")
@click.option("--compare", metavar="A,B", help="Clusters side by side: A,B,B:intra=300GB/s.")
@click.option("--scaling", type=SCALING, help="Strong (batch fixed) or weak, from 1 GPU on.")
@click.option("--modes", is_flag=True, help="Asynchronous data parallel beside the best synchronous layout.")
@click.option("--slow", metavar="TIMES", type=float, help="With --modes: one worker is TIMES slower (3).")
@click.option("--params", metavar="COUNT", help="Arithmetic from a parameter count alone (2B).")
@click.option("--mfu", metavar="SHARE", type=SHARE, help="Share of the peak in the arithmetic (0.5).")
@click.option("--recompute", type=click.Choice(["none", "full"]), default="none", help="In the arithmetic.")
@click.option("--layers", metavar="N", type=click.IntRange(min=1), help="In the arithmetic: to size one.")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the plan (plan.json).")
@click.option("--plot", metavar="FILE", type=click.Path(path_type=Path), help="Draw a target's curves (SVG).")
@click.option("--html", type=click.Path(path_type=Path), help="Write the plan's page to this file.")
@click.option("--graph", metavar="FILE", type=click.Path(path_type=Path), help="Draw a step's operators by rank (SVG).")
@click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print JSON.")
@click.argument("more", metavar="[FILE|NAME=VALUE]...", nargs=-1)
def command(**typed: Any) -> int:
    """Rank layouts of a model on a cluster, price one, or solve for the network that a target needs."""
    from ..hardware import load_catalogue
    from ..report.consoles import console

    given = PlanOptions(**typed)
    check_emit(given)
    here = names_this_machine(given.cluster)
    if not given.job and not here:
        _check(given)
    check_read(click.get_current_context(), here=here)
    tokens_asked(given)  # refused before anything is priced
    if here:
        return plan_here(given, console(stderr=given.as_json))
    catalogue = load_catalogue(*given.hardware)
    given = with_machine_meant(given, catalogue)
    shown = console(stderr=given.as_json or (given.emit is not None and given.emit_to is None))
    own = calibration_of(given.calibrate, given.save, given.stack, catalogue, shown)
    if own is not None:
        given = replace(given, own=own, stack=own.stack)
    if given.job:
        return plan_job(given, catalogue, shown)
    if given.model_name is not None:
        model = named_model(given.model_name, allow_unknown=given.allow_unknown).training(given.mtp_layers or 0)
        if given.mfu is None:
            with notes_held():
                return _plan(given, model, catalogue, shown)
        return arithmetic(given, model, catalogue, shown)
    return arithmetic(given, None, catalogue, shown)


def _check(given: PlanOptions) -> None:
    """Raise InputError for options that are missing or do not go together."""
    if (given.model_name is None) == (given.params is None):
        raise InputError("expected one of --model NAME, --job FILE and --params COUNT")
    _check_whole(given)
    modes = ("target_mfu", "target_step_time", "target_days", "compare", "scaling", "mfu")
    chosen = [f"--{name.replace('_', '-')}" for name in modes if getattr(given, name) is not None]
    chosen += ["--modes"] if given.modes else []
    if given.params is not None or given.mfu is not None:  # the arithmetic says which GPUs the days take
        chosen = [flag for flag in chosen if flag != "--target-days"]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)}: expected one of them")
    if given.params is not None and chosen not in ([], ["--mfu"]):
        raise InputError(f"{chosen[0]}: needs --model")
    check_target(given)
    if given.graph is not None and given.graph.suffix != ".svg":
        raise InputError(f"--graph {given.graph}: expected a name that ends in .svg")
    for file in ("output", "graph"):
        path = getattr(given, file)
        if path is not None and not path.parent.is_dir():  # before a search that takes a while
            raise InputError(f"--{file} {path}: no folder {path.parent} to write it in")
    changed = "--lora-rank" if given.lora_rank else "--optimizer" if given.optimizer.lower() not in ADAMWS else ""
    told = ("recompute_modules", "activations_away", "weights", "loss")
    named = next((name for name in told if getattr(given, name)), "")
    changed = changed or (f"--{named.replace('_', '-')}" if named else "")
    for file in ("output", "emit"):
        if getattr(given, file) is not None and changed:
            raise InputError(f"{changed} and --{file}: expected one of them: a plan trains all parameters with AdamW")
    for file in ("output", "graph"):
        if getattr(given, file) is not None and given.mtp_layers:
            raise InputError(f"--mtp-layers and --{file}: expected one of them: `train` has no such modules")
    if given.mtp_layers and given.lora_rank:
        raise InputError("--mtp-layers and --lora-rank: expected one of them")
    if given.mtp_layers and given.params is not None:
        raise InputError("--mtp-layers: needs --model")


def _check_whole(given: PlanOptions) -> None:
    """Raise InputError with everything that is missing of a question, at once."""
    asked = {
        "--global-batch": (given.global_batch, "the sequences of a step, such as --global-batch 512"),
        "--seq-len": (given.seq_len or given.model_name, "the tokens of a sequence, such as --seq-len 2048"),
        "--cluster": (given.cluster or given.compare, "a node type, a file, or this, such as --cluster dgx-h100"),
    }
    spared = {"--global-batch", "--seq-len"} if all_tokens(given) else set()
    missing = [f"{flag}: expected {what}" for flag, (value, what) in asked.items() if value is None]
    missing = [text for text in missing if text.partition(":")[0] not in spared]
    if missing:
        raise InputError("; ".join([*_unknown(given), *missing]))


def _unknown(given: PlanOptions) -> list[str]:
    """Return what is wrong with the model and the cluster that a question names, which may be misspelt both."""
    from ..hardware import load_catalogue
    from ..plan.clusters.machines import cluster_by_name

    readers: list[tuple[str | None, Callable[[str], object]]] = [
        (given.model_name, lambda name: named_model(name, allow_unknown=given.allow_unknown)),
        (given.cluster, lambda name: cluster_by_name(load_catalogue(*given.hardware), name, fabric=given.fabric)),
    ]
    found = []
    for name, read in readers:
        try:
            if name is not None:
                read(name)
        except InputError as error:
            found.append(str(error))
    return found


def _plan(given: PlanOptions, model: "Model", catalogue: "Catalogue", console: "Console") -> int:
    from ..plan.request import setting_of

    if given.compare is not None:
        return _compare(given, given.compare, model, catalogue, console)
    assert given.cluster is not None
    request = _request(given, model, given.cluster)
    _warn(request, catalogue)
    setting = setting_of(request, catalogue)
    save_calibration(given.save, given.own, setting.cluster)
    check_reachable(setting, given)
    note_of_engine(given.engine, given.stack)
    _tell_places(setting.cluster)
    if given.layout is not None:
        return _price(setting, given, given.layout, console)
    if given.scaling is not None:
        return _scaling(setting, given, console)
    if given.modes:
        return _modes(setting, given, console)
    if asks_target(given):
        return solve_target(setting, given, catalogue, console)
    return _search(setting, given, model, console)


def _request(given: PlanOptions, model: "Model", cluster: str) -> "PlanRequest":
    from ..plan.analytic.conditions import parse_conditions
    from ..plan.request import PlanRequest

    assert given.global_batch is not None
    return PlanRequest(
        model=model,
        cluster=cluster,
        gpus=given.gpus,
        global_batch=given.global_batch,
        seq_len=given.seq_len,
        precision=given.precision,
        stack=given.stack or _default_stack(given, cluster),
        fabric=given.fabric,
        intra_bytes_per_s=optional(parse_rate, given.intra, "--intra"),
        inter_bytes_per_s=optional(parse_rate, given.inter, "--inter"),
        latency_s=optional(parse_latency, given.latency, "--latency"),
        optimizer=given.optimizer,
        weights=given.weights or "",
        loss=given.loss or "",
        lora_rank=given.lora_rank,
        imbalance=_imbalance(given.imbalance, model),
        modules=modules_of((given.recompute_modules or "").split(","), where="--recompute-modules"),
        away=_away(given.activations_away),
        recipe=given.recipe == "newest",
        conditions=parse_conditions(given.only, given.without),
        placements=_placements(given.placements),
        measured=(given.own,) if given.own else (),
    )


def _default_stack(given: PlanOptions, cluster: str) -> str:
    told = ("weights", "loss", "activations_away")
    held = [f"--{name.replace('_', '-')} {getattr(given, name)}" for name in told if getattr(given, name)]
    return default_of(
        given.precision,
        given.layout,
        mtp_layers=given.mtp_layers or 0,
        engine=given.engine or given.emit,
        lora_rank=given.lora_rank,
        held=held[0] if held else "",
        accelerator=_accelerator(given, cluster),
    )


def _accelerator(given: PlanOptions, name: str) -> str:
    """Return the accelerator of a cluster by name, "" where it is not known: that is said where it is read."""
    from ..hardware import load_catalogue
    from ..plan.clusters.machines import cluster_by_name, node

    try:
        return node(cluster_by_name(load_catalogue(*given.hardware), name, fabric=given.fabric)).gpu.model
    except InputError:
        return ""


def _away(text: str | None) -> tuple[str, ...] | None:
    """Return what lies in the hosts' memory by the text of a flag; None: as the stack has it."""
    return None if text is None else away_of(text.split(","), where="--activations-away")


def _imbalance(given: float | None, model: "Model") -> float:
    """Return how uneven the rows of experts are; InputError where that cannot be, or the model has none."""
    most = max(1, model.architecture.experts)
    if given is not None and not 1.0 <= given <= most:
        what = f"1 to {most}, the experts of {model.name}" if most > 1 else f"1: {model.name} has no experts"
        raise InputError(f"--imbalance {given:g}: expected {what}")
    return given or 1.0


def _placements(path: str | None) -> "tuple[Placement, ...]":
    """Return where the nodes hang that a file describes; InputError where it describes none."""
    if path is None:
        return ()
    from ..cluster.dumps import load_dump  # every reader of dumps: a tenth of a second
    from ..hardware import load_catalogue

    found = load_dump(path, load_catalogue()).placements
    if not found:
        raise InputError(f"--placements {path}: has no nodes below switches; expected `scontrol show topology`")
    return found


def _tell_places(cluster: "Cluster") -> None:
    """Say in which order named nodes take the ranks, and how a cloud gives closer ones where they are spread."""
    from ..cluster.proximity import placement_advice
    from ..plan.clusters.machines import node

    nodes = [place.node for place in cluster.placements]
    if nodes:
        say(f"order of nodes: {','.join(nodes)} (srun keeps it from SLURM_HOSTFILE)", err=True)
    cloud = node(cluster).type.partition("-")[0]
    told = placement_advice(cluster, nodes or [f"node{number}" for number in range(cluster.num_nodes)], cloud)
    if told:
        say(f"note: {told}", err=True)


def _search(setting: "Setting", given: PlanOptions, model: "Model", console: "Console") -> int:
    from ..plan.model_facts import model_facts, sentence
    from ..plan.search.explore import advised_study, price_all
    from ..report.planning import show_study

    priced = runnable_on(price_all(setting), given.engine or given.emit)
    study = advised_study(setting, priced, model=model.name)
    if given.refine is not None:
        from ..plan.search.refine import refined  # the simulator is loaded only where it is asked for

        study = refined(study, setting, priced, given.refine)
    others = [*study.rows[1:], study.plain]
    if given.emit:
        emit(given, setting, study.best.layout, model=given.model_name or "")
    tell_needs(setting, study.best.layout)
    write_files(given, setting, study.best, others, study.reason)
    training = training_asked(given, setting, study.best.predicted)
    tell_held()
    if given.as_json:
        print_answer(setting, study.best, others, training)
    else:
        console.print(sentence(model_facts(setting)), highlight=False)
        show_study(console, study)
        if training is not None:
            console.print(str(training), highlight=False)
    return 0


def _price(setting: "Setting", given: PlanOptions, layout: str, console: "Console") -> int:
    from ..layout import micro_batches
    from ..plan.analytic.by_stage import memory_of_stages
    from ..plan.model_facts import model_facts, sentence
    from ..plan.request import priced_layout
    from ..plan.search.engine_comparison import on_other_engines
    from ..plan.search.explore import plain_data_parallel
    from ..plan.search.that_fit import that_fit
    from ..report.planning import show_engines, show_row, show_that_fit
    from ..report.stages import show_stages
    from ..report.terminal import show_pipeline

    row = priced_layout(setting, layout)
    tell_stated(setting, layout)
    check_engine(given.engine, setting, row.layout)
    others = [plain_data_parallel(setting)]
    if given.emit:
        emit(given, setting, row.layout, model=given.model_name or "")
    warn_of_stack(setting, row.layout)
    write_files(given, setting, row, others, "the layout that was asked for")
    training = training_asked(given, setting, row.predicted)
    fitting = () if row.fits == "fits" else that_fit(setting, row.layout)
    tell_held()
    if given.as_json:
        print_answer(setting, row, others, training, fitting)
    else:
        console.print(sentence(model_facts(setting)), highlight=False)
        show_row(console, row.text, row)
        show_stages(console, memory_of_stages(setting, row.layout))
        show_that_fit(console, row, fitting)
        if row.fits == "does not fit":
            console.print(_what_fits(setting, given), highlight=False)
        if training is not None:
            console.print(str(training), highlight=False)
        if given.stack is None:
            show_engines(console, on_other_engines(setting, row.layout))
        show_pipeline(console, row.layout, micro_batches(row.layout, setting.global_batch))
    return 0


def _what_fits(setting: "Setting", given: PlanOptions) -> str:
    """Return the layout that a search on the same machines would take in place of one that does not fit, in words."""
    from ..plan.search.explore import FEWER_BYTES, fastest_that_fits, price_all
    from ..report.planning import fits_text, host_text

    try:
        row = fastest_that_fits(runnable_on(price_all(setting), given.engine or given.emit))
    except InputError as error:
        return f"in its place: {error}; {FEWER_BYTES}"
    needs = format_bytes(row.terms["card_bytes"])
    told = f"{row.text} {fits_text(row)} with {needs} on the card, {format_time(row.predicted.step_time_s)} a step"
    return f"in its place: {told}{host_text(row)}; without --layout all are ranked"


def _compare(given: PlanOptions, clusters: str, model: "Model", catalogue: "Catalogue", console: "Console") -> int:
    from ..layout import Layout
    from ..plan.layouts.stated import stated
    from ..plan.model_facts import model_facts, sentence
    from ..plan.request import setting_of
    from ..plan.targets.whatif import compare_clusters
    from ..report.planning import show_comparison_of_clusters

    names = list(dict.fromkeys([given.cluster or "", *(name.strip() for name in clusters.split(","))]))
    names = [name for name in names if name]
    if len(names) < 2:
        raise InputError(f"--compare {clusters}: expected two or more clusters, such as dgx-a100-80g,dgx-a800")
    requests = {name: _request(*_overridden(given, name, model)) for name in names}
    for request in requests.values():
        _warn(request, catalogue)
    settings = {name: setting_of(request, catalogue) for name, request in requests.items()}
    first = settings[names[0]]
    layout = None
    if given.layout is not None:
        layout = Layout.parse(stated(given.layout, first), world_size=first.gpus)
        tell_stated(first, given.layout)
    for name, setting in settings.items():
        for text in [text for text in setting.assumed if text not in first.assumed]:
            say(f"assumed of {name}: {text}", err=True)
    comparison = compare_clusters(settings, layout)
    for setting in {(one.stack, one.precision): one for one in settings.values()}.values():
        warn_of_stack(setting, comparison.sides[0].same.layout)
    tell_held()
    if given.as_json:
        print_about(first, comparison)
    else:
        console.print(sentence(model_facts(first)), highlight=False)
        show_comparison_of_clusters(console, comparison)
    return 0


def _overridden(given: PlanOptions, text: str, model: "Model") -> "tuple[PlanOptions, Model, str]":
    """Return the options for one of the clusters of --compare: "NAME:inter=400Gbps" overrides a rate for it alone."""
    from ..plan.analytic.price import precision_named

    name, *changes = text.split(":")
    mine = given
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or key not in {"intra", "inter", "latency", "fabric", "precision"}:
            raise InputError(
                f"--compare {text}: {change!r}: expected KEY=VALUE with intra, inter, latency, fabric or precision"
            )
        mine = replace(mine, **{key: precision_named(value, flag=key) if key == "precision" else value})
    return mine, model, name


def _scaling(setting: "Setting", given: PlanOptions, console: "Console") -> int:
    from ..plan.targets.whatif import scaling
    from ..report.planning import show_scaling

    curve = scaling(setting, grown=given.scaling == "grown")
    show_head(setting, given, console)
    if given.as_json:
        print_about(setting, curve)
    else:
        show_scaling(console, curve)
    return 0


def _modes(setting: "Setting", given: PlanOptions, console: "Console") -> int:
    from ..plan.search.modes import priced_modes
    from ..report.planning import show_modes

    modes = priced_modes(setting, slow=1.0 if given.slow is None else given.slow)
    show_head(setting, given, console)
    if given.as_json:
        print_about(setting, {"modes": modes})
    else:
        show_modes(console, modes)
    return 0


def _warn(request: "PlanRequest", catalogue: "Catalogue") -> None:
    from ..plan.request import rate_warnings

    for warning in rate_warnings(request, catalogue):
        say(f"warning: {warning}", err=True)
