"""The head of a run's page: model, tokens, layout, machines, when, for how long, by which command."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ..cluster.graph import Cluster
from ..layout import Plan
from ..machine_load import Load, others_share
from ..train.job.config import JobConfig
from ..train.run.run_folder import RunFolder
from ..units import counted, first_few, format_bytes, format_time
from ..workload.transformer import describe_workload
from .document import Section, section, table
from .layout_words import layout_in_words

MAX_HOSTS = 8


def run_section(
    folder: RunFolder,
    plan: Plan,
    cluster: Cluster,
    hosts: Mapping[int, str],
    rows: Sequence[Mapping[str, float]],
    loads: Sequence[Load],
) -> Section:
    """Return the section that opens the page of a run; what the run folder does not say is left out."""
    config, start = folder.config(), folder.start()
    found = {
        "model": _model(config),
        "trained on": _tokens(plan, rows),
        "layout": f"{plan.layout} ({layout_in_words(plan.layout, plan.micro_batches)})",
        "ended with": _ended(rows),
        "started": f"{datetime.fromtimestamp(start.time_s, UTC):%Y-%m-%d %H:%M} UTC" if start else "",
        "took": _took(rows),
        "command": shlex.join(start.command) if start else "",
        "machines": _machines(cluster, hosts),
        "processors": _processors(loads),
        "versions": _versions(cluster),
    }
    made = section("What was run", table(("", ""), [[name, text] for name, text in found.items() if text], prose=True))
    assert made is not None
    return made


def _model(config: JobConfig) -> str:
    model = config.model
    parameters = describe_workload(model, seq_len=config.data.seq_len, micro_batch=1).parameters
    experts = f", {counted(model.num_local_experts, 'expert')}" if model.num_local_experts else ""
    return (
        f"decoder of {counted(model.num_hidden_layers, 'layer')}, hidden size {model.hidden_size:,}, vocabulary of "
        f"{model.vocab_size:,}{experts}: {parameters:,} parameters; precision {config.train.precision}"
    )


def _tokens(plan: Plan, rows: Sequence[Mapping[str, float]]) -> str:
    a_step = plan.global_batch_sequences * plan.seq_len
    steps = int(rows[-1]["step"]) + 1 if rows else 0
    return (
        f"{counted(steps * a_step, 'token')}: {counted(steps, 'step')} of "
        f"{counted(plan.global_batch_sequences, 'sequence')} of "
        f"{counted(plan.seq_len, 'token')}"
    )


def _ended(rows: Sequence[Mapping[str, float]]) -> str:
    if not rows:
        return ""
    held_out = [row["validation_loss"] for row in rows if "validation_loss" in row]
    also = f", {held_out[-1]:.3f} on held-out text" if held_out else ""
    return f"loss {rows[-1]['loss']:.3f} nats per token{also}" if "loss" in rows[-1] else ""


def _took(rows: Sequence[Mapping[str, float]]) -> str:
    times = [row["step_time_s"] for row in rows if "step_time_s" in row]
    return f"{format_time(sum(times))} in steps" if times else ""


def _machines(cluster: Cluster, hosts: Mapping[int, str]) -> str:
    names = sorted(set(hosts.values())) or [host.name for host in cluster.hosts]
    gpus = cluster.of_kind("gpu")
    kinds = {
        ", ".join(filter(None, (host.cpu_model, f"{counted(host.cores, 'core')}", format_bytes(host.memory_bytes))))
        for host in cluster.hosts
    }
    devices = [f"{len(gpus)} x {gpus[0].model}"] if gpus else []
    return f"{first_few(names, MAX_HOSTS)}: {'; '.join([*sorted(kinds), *devices])}"


def _processors(loads: Sequence[Load]) -> str:
    """Return the share of each host's processors that other programs had during the run."""
    hosts = list(dict.fromkeys(load.host for load in loads))
    shares = {host: others_share([load for load in loads if load.host == host]) for host in hosts}
    if not shares:
        return ""
    waited_s = max(load.waited_s for load in loads)
    wall_s = max(load.wall_s for load in loads)
    said = ", ".join(f"{share:.0%}" + (f" of {host}" if len(shares) > 1 else "") for host, share in shares.items())
    return (
        f"other programs took {said}; a rank stood in the run queue for {format_time(waited_s)} of "
        f"{format_time(wall_s)} at most"
    )


def _versions(cluster: Cluster) -> str:
    hosts = cluster.hosts
    return ", ".join(f"{name} {version}" for name, version in hosts[0].software.items()) if hosts else ""
