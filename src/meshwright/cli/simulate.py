"""`meshwright simulate`: a collective or a training step on every link of a cluster."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict, replace

from ..cluster.graph import Cluster
from ..collectives.schedules.schedule import COLLECTIVES
from ..errors import InputError
from ..files import read_struct, to_json, write_atomic
from ..units import (
    counted,
    format_bytes,
    format_rate,
    format_time,
    parse_bytes,
    parse_latency,
    parse_rate,
    parse_share,
    parse_time,
)
from .amounts import PART, CollectiveName
from .help_format import Brief
from .named_cluster import listed_network, named_cluster, unjoined_notes, with_machine_meant
from .named_model import named_model
from .options import JobQuestion, SimulateOptions
from .plan_output import optional
from .precision import precision_option
from .prose import notes_held, say, tell_held
from .stacks import default_of, stack_option, tell_stated, warn_of_stack
from .unproved import note_unproved

if TYPE_CHECKING:
    from ..layout import Layout
    from ..plan.analytic import Setting
    from ..plan.model_facts import ModelFacts
    from ..simulate.problem import Disturbance
    from ..simulate.topology import Topology
    from ..timeline import Timeline
    from ..workload.models import Model

SHARED_GPU = "what communication takes from computation on the same GPU: `plan` adds what measured runs lost by it"
ROUNDING = 1e-9  # of a step: what is left of sums of times that are equal
MOST_ARROWS = 500_000  # spans of a trace; browsers do not open larger ones


OFTEN = (
    *("collective", "algorithm", "ranks", "size", "model", "layout", "gpus", "global_batch", "cluster", "fabric"),
    *("trace", "as_json"),
)

OF_COLLECTIVES = ("late", "counts", "algorithm", "ranks", "size", "ranks_per_node", "root", "alpha", "reduce_rate")
OF_STEPS = ("straggler", "layout", "gpus", "global_batch", "seq_len", "stack")


@click.command(
    "simulate",
    cls=Brief,
    often=OFTEN,
    epilog="Example: meshwright simulate --collective all_reduce --algorithm ring --ranks 64 --bytes 1GiB"
    " --cluster dgx-h100",
)
@click.option("--collective", metavar="NAME", type=CollectiveName(COLLECTIVES), help="Simulate this collective.")
@click.option(
    "--algorithm", metavar="NAME", help="ring, rings (through all NICs), hierarchical:ring/ring, FILE.py:FUNCTION."
)
@click.option("--file", metavar="FILE", type=click.Path(path_type=Path), help="A schedule: text, .json, MSCCL .xml.")
@click.option("--counts", metavar="FILE", type=click.Path(path_type=Path), help="What each rank sends to each.")
@click.option("--ranks", metavar="N", type=click.IntRange(min=1), help="Default: all of the cluster.")
@click.option("--bytes", "size", metavar="SIZE", help="Payload (25MiB).")
@click.option("--ranks-per-node", metavar="N", type=click.IntRange(min=1), help="Of hierarchical algorithms and rings.")
@click.option("--root", metavar="RANK", type=int, help="Root, or sender. Default: 0.")
@click.option("--model", metavar="NAME", help="Simulate a training step of this model.")
@click.option("--layout", metavar="LAYOUT", help='How it is split: "tp=8,pp=4,dp=16".')
@click.option(
    "--plan", "plan_file", metavar="FILE", type=click.Path(path_type=Path), help="Layout and batch of a plan."
)
@click.option("--job", metavar="FILE", multiple=True, help="Simulate the step of an engine's own configuration.")
@click.option("--gpus", metavar="N", type=click.IntRange(min=1), help="GPUs of the step.")
@click.option("--global-batch", metavar="N", type=click.IntRange(min=1), help="Sequences of the step.")
@click.option("--seq-len", metavar="N", type=click.IntRange(min=1), help="Tokens of a sequence. Default: the model's.")
@precision_option("Of the step. Default: bf16.")
@stack_option("Software of the step. Default: our own.")
@click.option("--cluster", metavar="NAME", help="Node type of the catalogue, or a cluster file.")
@click.option("--fabric", metavar="NAME", default="flat", help="Of the catalogue. Default: flat; of TPUs a torus.")
@click.option("--nodes-per-leaf", metavar="N", type=click.IntRange(min=1), help="On one leaf switch or router.")
@click.option("--leaves-per-group", metavar="N", type=click.IntRange(min=1), help="In a pod (3 levels) or group.")
@click.option("--oversubscription", metavar="X", type=click.FloatRange(min=1), help="Rate below a leaf over above.")
@click.option("--hop-latency", metavar="TIME", help="Of a link between switches (300ns).")
@click.option("--routing", metavar="NAME", help="ideal, ecmp, adaptive, minimal, valiant.")
@click.option("--alpha", metavar="TIME", help="Latency of every message of a collective.")
@click.option("--reduce-rate", metavar="RATE", help="At which a rank reduces. Default: no cost.")
@click.option("--slow", multiple=True, metavar="LINK=SHARE", help="A>B (or A-B both ways) keeps this share.")
@click.option("--slow-share", metavar="SHARE", type=PART, default=0.0, help="Of all links are slow.")
@click.option("--slow-to", metavar="SHARE", type=PART, default=0.5, help="They keep it. Default 0.5.")
@click.option("--cut", multiple=True, metavar="LINK", help="A link that is cut.")
@click.option("--late", multiple=True, metavar="RANK=TIME", help="Begins a collective later.")
@click.option("--straggler", multiple=True, metavar="RANK=FACTOR", help="Computes a step slower.")
@click.option("--jitter", metavar="X", type=click.FloatRange(0, 10), default=0.0, help="Deviation of log times.")
@click.option("--seed", metavar="N", type=int, default=0, help="Of everything random.")
@click.option("--method", metavar="NAME", type=click.Choice(["auto", "exact", "bounded"]), default="auto",
    help="auto, exact (events) or bounded.")  # fmt: skip
@click.option("--trace", metavar="FILE", type=click.Path(path_type=Path), help="For Perfetto, with arrows.")
@click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print JSON.")
@click.argument("more", metavar="[FILE|NAME=VALUE]...", nargs=-1)
def command(**typed_in: Any) -> int:
    """Simulate a collective or a training step, link by link, on up to 100,000 devices."""
    options = SimulateOptions(**typed_in)
    step = options.model is not None or options.plan_file is not None or bool(options.job)
    if step == (options.collective is not None or options.file is not None):
        raise InputError("expected one of --collective NAME (or --file) and --model NAME --layout L (or --plan)")
    for name in OF_COLLECTIVES if step else OF_STEPS:
        if getattr(options, name) not in (None, ()):
            flag = {"size": "bytes"}.get(name, name.replace("_", "-"))
            raise InputError(f"--{flag}: is for a {'collective' if step else 'step'}")
    if options.more and not options.job:
        raise InputError(f"{options.more[0]}: unexpected; files go with --job")
    if not step:
        return _collective(options)
    with notes_held():
        return _job(options) if options.job else _step(options)


def _collective(options: SimulateOptions) -> int:
    from ..simulate.collective import Method, simulate_collective, timeline
    from ..simulate.libraries import OF_XLA, library_way
    from ..simulate.nodes import NodesTopology
    from ..simulate.problem import Costs

    if options.size is None:
        raise InputError("--bytes: how much? expected a payload such as 25MiB")
    size_bytes = parse_bytes(options.size)
    topology, per_node = _topology(options)
    traffic = _traffic(options, topology.ranks, per_node)
    costs = Costs(
        latency_s=None if options.alpha is None else parse_latency(options.alpha),
        reduce_bytes_per_s=None if options.reduce_rate is None else parse_rate(options.reduce_rate),
    )
    method: Method = "exact" if options.trace else options.method
    disturbance = _disturbance(options)
    run = simulate_collective(
        traffic,
        topology,
        size_bytes,
        costs=costs,
        disturbance=disturbance,
        method=method,
        folding=options.trace is None,
    )
    if options.trace:
        _write_trace(options.trace, timeline(run))
    theirs = None
    if isinstance(topology, NodesTopology) and options.counts is None:
        theirs = library_way(run.result, topology, costs=costs, disturbance=disturbance)
    r = run.result
    if isinstance(topology, NodesTopology) and topology.on_torus and r.algorithm in {"ring", "rings:1"}:
        r = replace(r, not_modelled=(*r.not_modelled, OF_XLA))
    if options.as_json:
        click.echo(to_json({**asdict(r), "library": theirs}))
        return 0
    click.echo(
        f"{r.collective} {r.algorithm}, {counted(r.ranks, 'rank')}, {format_bytes(r.bytes)}: {format_time(r.time_s)}, "
        f"{format_rate(r.busbw_bytes_per_s)} busbw"
    )
    click.echo(f"method     {r.method}" + (f", at most {100 * r.error_bound:.2g} % too long" if r.error_bound else ""))
    click.echo(
        f"folded     {counted(r.ranks, 'rank')} to {counted(r.classes, 'class')}, "
        f"{counted(r.transfers, 'transfer')} to {r.simulated_transfers}"
    )
    if theirs is not None:
        say(f"beside it  {theirs.sentence}", indent=11)
    for line in r.not_modelled:
        say(f"not known  {line}", indent=11)
    return 0


def _step(options: SimulateOptions) -> int:
    from ..cluster.compact import compact
    from ..hardware import load_catalogue
    from ..layout import Layout
    from ..plan.analytic import Setting
    from ..plan.analytic.calibration import calibrations, joined_calibrations
    from ..plan.analytic.price import node_group_of
    from ..plan.layouts.releases import recipe_of
    from ..plan.layouts.stated import stated
    from ..workload.architecture import Architecture

    batch, seq_len, layout = options.global_batch, options.seq_len, None
    if options.plan_file is not None:
        from ..layout import Plan

        plan = read_struct(options.plan_file, Plan)
        layout, batch, seq_len = plan.layout, batch or plan.global_batch_sequences, seq_len or plan.seq_len
    if options.layout is not None:
        layout = Layout.parse(options.layout, world_size=options.gpus)
    if options.model is None:
        raise InputError("--model: expected a model of the catalogue or a config.json")
    model = named_model(options.model)
    told = () if options.as_json else model.length_assumed(seq_len)  # an object is the same either way
    seq_len = seq_len or model.seq_len
    _check_given(options, model, layout, batch, seq_len)
    assert layout is not None
    assert batch is not None
    assert seq_len is not None
    architecture = model.architecture
    if not isinstance(architecture, Architecture):
        raise InputError(f"--model {options.model}: is no transformer; a step is simulated for transformers")
    software, machine = calibrations(options.stack, options.cluster)
    cluster = compact(_cluster(options, layout.world_size), load_catalogue(), where=options.cluster)
    accelerator = node_group_of(cluster).gpu.model
    usual = options.stack or default_of(options.precision, str(layout), accelerator=accelerator)
    stack = software.stack if software else usual
    traits, recipe = recipe_of(stack, accelerator, model.name, options.precision)
    setting = Setting(
        architecture=architecture,
        cluster=cluster,
        gpus=layout.world_size,
        global_batch=batch,
        seq_len=seq_len,
        precision=options.precision,
        stack=stack,
        traits=traits,
        assumed=model.assumed + told + recipe,
        ignored=model.ignored,
        measured=joined_calibrations(software, machine),
    )
    if options.layout is not None:
        layout = Layout.parse(stated(options.layout, setting), world_size=setting.gpus)
        tell_stated(setting, options.layout)
    warn_of_stack(setting, layout)
    return _simulated(options, setting, layout)


def _check_given(
    options: SimulateOptions, model: "Model", layout: "Layout | None", batch: int | None, seq_len: int | None
) -> None:
    """Raise InputError for the first thing that a step cannot be simulated without."""
    for value, name, what in (
        (layout, "--layout", 'a split such as "tp=8,dp=4"'),
        (batch, "--global-batch", "the sequences of a step"),
        (seq_len, "--seq-len", f"since {model.seq_len_from or f'{model.name} does not say how long a sequence is'}"),
        (options.cluster, "--cluster", "a node type of the catalogue or a file"),
    ):
        if value is None:
            raise InputError(f"{name}: expected {what}")


def _job(options: SimulateOptions) -> int:
    """Simulate the step of an engine's own configuration."""
    from ..hardware import load_catalogue
    from .job import job_of, setting_of_job, typed

    question = JobQuestion(
        files=(*options.job, *options.more),
        model=options.model,
        gpus=options.gpus,
        global_batch=options.global_batch,
        seq_len=options.seq_len,
        precision=typed("precision", options.precision),
        cluster=options.cluster,
        stack=options.stack,
        fabric=options.fabric,
    )
    question = with_machine_meant(question, load_catalogue())
    job = job_of(question)
    return _simulated(options, setting_of_job(job, question, load_catalogue()), job.full_layout(), job.stages)


def _simulated(options: SimulateOptions, setting: "Setting", layout: "Layout", stages: Sequence[int] = ()) -> int:
    from ..plan.model_facts import model_facts
    from ..plan.search.simulated import left_out_on_torus, simulate_plan

    timeline = simulate_plan(
        setting,
        layout,
        routing=options.routing,
        disturbance=_disturbance(options),
        stages=stages,
        stragglers={rank: _number(text, "--straggler") for rank, text in _by_rank(options.straggler, "--straggler")},
    )
    if options.trace:
        _write_trace(options.trace, timeline)
    left_out = [SHARED_GPU, *left_out_on_torus(setting)]
    return _print_step(timeline, layout, model_facts(setting), left_out, as_json=options.as_json)


def _print_step(
    timeline: "Timeline", layout: Any, facts: "ModelFacts", left_out: Sequence[str], *, as_json: bool
) -> int:
    from ..plan.model_facts import sentence
    from ..timeline import step_parts

    ranks = sorted({span.rank for span in timeline.spans})
    end_s = max(span.end_s for span in timeline.spans)
    rows = []
    tell_held()
    for rank in ranks:
        parts = step_parts([span for span in timeline.spans if span.rank == rank])
        parts = {name: part if part > ROUNDING * end_s else 0.0 for name, part in parts.items()}
        busy = sum(parts[name] for name in ("forward_s", "backward_s", "optimizer_s", "exposed_comm_s", "data_s"))
        idle = end_s - busy if end_s - busy > ROUNDING * end_s else 0.0
        rows.append({"rank": rank, **parts, "step_time_s": end_s, "bubble_s": idle})
    if as_json:
        slowest = max(rows, key=lambda row: row["forward_s"] + row["backward_s"])
        summary = {key: value for key, value in slowest.items() if key != "rank"}
        answer = {"model": facts, "time_s": end_s, "layout": str(layout), **summary, "ranks": rows}
        answer["not_modelled"] = left_out
        click.echo(to_json(answer))
        return 0
    say(sentence(facts))
    head = f"{layout}: {format_time(end_s)} a step on {counted(layout.world_size, 'rank')}"
    say(f"{head}; of ranks that do the same, the first:")
    click.echo(
        f"{'rank':>7}{'forward':>10}{'backward':>10}{'optimizer':>10}{'exposed':>10}{'hidden':>10}{'bubble':>10}"
    )
    names = ("forward_s", "backward_s", "optimizer_s", "exposed_comm_s", "hidden_comm_s", "bubble_s")
    for row in rows:
        click.echo(f"{row['rank']:>7}" + "".join(f"{format_time(row[name]):>10}" for name in names))
    say(f"not modelled: {'; '.join(left_out)}")
    return 0


def _cluster(options: SimulateOptions, gpus: int | None) -> Cluster:
    """Return the cluster of --cluster: a file, or nodes of the catalogue on a fabric, as many as `gpus` need."""
    name = options.cluster
    if name is None:
        raise InputError("--cluster: expected a node type of the catalogue (see `topo --catalogue`) or a file")
    changes = {key: getattr(options, key) for key in ("nodes_per_leaf", "leaves_per_group", "oversubscription")}
    if options.hop_latency is not None:
        changes["hop_latency_s"] = parse_latency(options.hop_latency)
    changes = {key: value for key, value in changes.items() if value is not None}
    return named_cluster(name, gpus, fabric=options.fabric, **changes)


def _topology(options: SimulateOptions) -> "tuple[Topology, int | None]":
    """Return the topology of the cluster, and the ranks of one node."""
    from ..collectives.pricing.network import network_of
    from ..simulate.nodes import NodesTopology
    from ..simulate.topology import PricedNetwork

    cluster = _cluster(options, options.ranks)
    if cluster.groups:
        ranks = options.ranks or cluster.num_gpus
        for note in unjoined_notes(cluster):
            say(f"note: {note}", err=True)
        topology = NodesTopology(cluster, ranks, routing=options.routing, seed=options.seed)
        return topology, topology.ranks_per_node
    if options.routing is not None:
        raise InputError(f"--routing: {cluster.name} lists its links; messages take the way with the fewest")
    places = cluster.of_kind("gpu") or cluster.of_kind("cpu")
    alpha = None if options.alpha is None else parse_latency(options.alpha)
    cluster = listed_network(cluster, is_timed=alpha is not None)
    network = network_of(cluster, options.ranks or len(places), latency_s=alpha)
    return PricedNetwork(network), max(1, len(places) // max(1, cluster.num_nodes))


def _traffic(options: SimulateOptions, ranks: int, per_node: int | None) -> Any:
    from ..collectives.algorithms.uneven import read_counts, uneven_all_to_all
    from ..collectives.catalogue import RINGS, algorithm_names, build_schedule
    from ..collectives.sources import named_schedule, read_schedule
    from ..simulate.libraries import THEIRS
    from ..simulate.traffic import named_traffic, traffic_of

    counts, name, collective = options.counts, options.algorithm, options.collective
    per_node = options.ranks_per_node or (per_node if per_node and ranks % per_node == 0 else None)
    if options.file is not None:
        schedule = read_schedule(options.file, root=options.root)
    elif name is None:
        theirs = ", ".join(algorithm_names(str(collective)) + ["rings"] * (collective in RINGS))
        usual = f"; NCCL's way is {THEIRS[collective]}" if collective in THEIRS else ""
        raise InputError(f"--algorithm: expected one of {collective}'s ({theirs}), or a --file{usual}")
    elif ".py:" in name:
        schedule = named_schedule(name, ranks)
    else:
        assert collective is not None
        if counts is None:
            return named_traffic(collective, name, ranks, ranks_per_node=per_node, root=options.root or 0)
        schedule = build_schedule(collective, name, ranks, root=options.root or 0, ranks_per_node=per_node)
    schedule = uneven_all_to_all(schedule, read_counts(counts)) if counts is not None else schedule
    if options.file is not None or ".py:" in (name or ""):
        note_unproved(schedule)
    return traffic_of(schedule)


def _disturbance(options: SimulateOptions) -> "Disturbance":
    from ..simulate.problem import Disturbance

    slow = {}
    for text in options.slow:
        link, equals, share = text.rpartition("=")
        if not equals:
            raise InputError(f"--slow {text!r}: expected LINK=SHARE, such as 'node0/NIC0>fabric=0.5'")
        slow[link] = optional(parse_share, share, "--slow")
    return Disturbance(
        slow=slow,
        cut=options.cut,
        slow_share=options.slow_share,
        slow_to=options.slow_to,
        late_s={rank: parse_time(text) for rank, text in _by_rank(options.late, "--late")},
        jitter=options.jitter,
        seed=options.seed,
    )


def _by_rank(words: tuple[str, ...], flag: str) -> list[tuple[int, str]]:
    found = []
    for word in words:
        rank, equals, value = word.partition("=")
        if not equals or not rank.isdecimal():
            raise InputError(f"{flag} {word!r}: expected RANK=VALUE")
        found.append((int(rank), value))
    return found


def _number(text: str, flag: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{flag}: {text!r}: expected a number") from None


def _write_trace(path: Path, timeline: "Timeline") -> None:
    from ..timeline import chrome_trace

    if len(timeline.spans) > MOST_ARROWS:
        raise InputError(
            f"--trace: {counted(len(timeline.spans), 'span')}; expected at most {MOST_ARROWS}: take fewer ranks"
        )
    try:
        write_atomic(path, json.dumps(chrome_trace(timeline)).encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
