"""`meshwright train`: plan, run and verify a training job."""

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from ..errors import InputError

BACKENDS = ("auto", "gloo", "meshwright", "nccl")


@click.command(epilog="Example: meshwright train job.toml --ranks 2 --set train.steps=200")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option(
    "--run-dir", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the run. Default: runs/DATE-TIME."
)
@click.option("--resume", metavar="DIR", type=click.Path(path_type=Path), help="Go on with the run of this folder.")
@click.option(
    "--ranks", metavar="N", type=click.IntRange(min=1), help="Processes on this machine. Default: the planner chooses."
)
@click.option("--layout", metavar="LAYOUT", help='How the step is split, such as "dp=2,mbs=4".')
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help="Optimiser steps.")
@click.option("--backend", metavar="NAME", type=click.Choice(BACKENDS), help=f"{', '.join(BACKENDS)}.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration.")
@click.option("--on-event", metavar="COMMAND", help="Called with each event of the run as JSON on its standard input.")
@click.option("--recalibrate", is_flag=True, help="Measure this machine again.")
@click.option("--replan", is_flag=True, help="Price a plan for other machines on this one.")
@click.option("--print-config", is_flag=True, help="Print a configuration file with every key, and leave.")
@click.option("--job", "engine_files", multiple=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print predicted, measured and paths as JSON.")
def command(
    config: Path | None,
    run_dir: Path | None,
    resume: Path | None,
    ranks: int | None,
    layout: str | None,
    steps: int | None,
    backend: str | None,
    settings: tuple[str, ...],
    on_event: str | None,
    recalibrate: bool,
    replan: bool,
    print_config: bool,
    engine_files: tuple[str, ...],
    as_json: bool,
) -> int:
    """Plan, run and verify a job (TOML, or a plan.json); without CONFIG: a small decoder."""
    from ..train.config import load, template
    from ..train.events import HOOK_VARIABLE
    from ..train.planned import is_plan, job_of

    if engine_files:
        raise InputError(
            "--job: an engine's own job is planned first: `plan --job ... --output plan.json`, then `train`"
        )
    if on_event:
        os.environ[HOOK_VARIABLE] = on_event
    if print_config:
        click.echo(template())
        return 0
    flags = {"launch.ranks": ranks, "launch.layout": layout, "train.steps": steps, "launch.backend": backend}
    overrides = dict(map(_setting, settings)) | {key: value for key, value in flags.items() if value is not None}
    if resume is not None:
        if config or run_dir or overrides:
            raise InputError("--resume goes on with the run as it was configured; give no other setting")
        return _run(resume, resume=True, as_json=as_json)
    if config is not None and is_plan(config):
        job = job_of(config, overrides, replan=replan)
    elif replan:
        raise InputError("--replan: needs a plan (plan.json) as CONFIG")
    else:
        job = load(config, overrides)
    folder = run_dir or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
    if job.launch.nodes > 1:
        if run_dir is None:
            raise InputError("--run-dir: several machines need one folder that all of them see; name it")
        return _run_node(job, folder)
    _prepare(job, folder, recalibrate)
    return _run(folder, resume=False, as_json=as_json)


def _prepare(job: Any, path: Path, recalibrate: bool) -> None:
    """Plan the job and write its run folder."""
    from ..report.terminal import console, show_plan
    from ..train.prepare import check_port, prepare, write_run

    check_port(job.launch.port)
    prepared = prepare(job, path, recalibrate=recalibrate, say=lambda text: click.echo(text, err=True))
    write_run(prepared, path)
    show_plan(console(stderr=True), prepared.plan)


def _run(path: Path, *, resume: bool, as_json: bool) -> int:
    """Train as the run folder says, then verify."""
    from ..files import to_json
    from ..report.run import report
    from ..report.terminal import console, show_comparison
    from ..train.launch import launch
    from ..train.run_folder import RunFolder

    folder = RunFolder(path)
    config, plan = folder.config(), folder.plan()
    if resume:
        click.echo(f"resuming {path}", err=True)
    if config.launch.nodes > 1:
        return _run_node(config, path)
    if config.data_parallel.mode == "sync":
        stopped = launch(str(path), config=config, ranks=plan.layout.world_size)
    else:
        from ..train.asynchronous.supervisor import supervise

        stopped = supervise(str(path))
    if stopped:
        click.echo(f"meshwright: {stopped}", err=True)
        return 130
    if not config.train.record:
        click.echo("recording is off (train.record = false): nothing to compare", err=True)
        return 0
    comparison = report(folder)
    show_comparison(console(stderr=as_json), comparison)
    validation = [row["validation_loss"] for row in folder.metric_rows() if "validation_loss" in row]
    if as_json:
        sys.stdout.write(
            to_json(
                {
                    "run": str(path),
                    "layout": msgspec.to_builtins(plan.layout),
                    "predicted": plan.predicted,
                    "measured": folder.measured(),
                    "validation_loss": validation[-1],
                    "verdict": comparison.verdict,
                }
            )
            + "\n"
        )
    else:
        click.echo(f"validation loss {validation[-1]:.4f} nats per token")
        click.echo(f"run folder: {path}  (report.html, timeline.json for https://ui.perfetto.dev)")
    return 0


def _run_node(job: Any, path: Path) -> int:
    """Run the ranks of one machine of several; the first rank of all plans, and writes the run folder."""
    from ..train.launch import launch, ranks_here

    stopped = launch(str(path), config=job, ranks=ranks_here(job))
    if stopped:
        click.echo(f"meshwright: {stopped}", err=True)
        return 130
    click.echo(f"run folder: {path}  (meshwright report {path} writes its page)")
    return 0


def _setting(text: str) -> tuple[str, Any]:
    """Return key and value of "train.steps=200"; the value is TOML, and text where it is not."""
    import tomllib

    from ..files import sound

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r}: expected KEY=VALUE")
    try:
        found = tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
    except (ValueError, RecursionError):  # of a number of thousands of digits
        raise InputError(f"--set {key.strip()}: expected a value that a file of settings can hold") from None
    return key.strip(), sound(found, where=f"--set {key.strip()}")
