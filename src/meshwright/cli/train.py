"""`meshwright train`: plan, run and verify a training job."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from ..errors import InputError
from .prose import say

BACKENDS = ("auto", "gloo", "meshwright", "nccl")


@click.command(epilog="Example: meshwright train job.toml --ranks 2 --set train.steps=200")
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option(
    "--run-dir", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the run. Default: runs/DATE-TIME."
)
@click.option("--resume", metavar="DIR", type=click.Path(path_type=Path), help="Go on with the run of this folder.")
@click.option(
    "--changed", multiple=True, metavar="KEY", help="With --resume: a key that may differ from the checkpoint."
)
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
    changed: tuple[str, ...],
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
    from ..train.checkpoint.resume import CHANGED_VARIABLE, check_keys
    from ..train.job.config import load_job, template
    from ..train.planned import is_plan, planned_job
    from ..train.run.event_hook import HOOK_VARIABLE

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
        if config or run_dir or {*overrides} - {"train.steps"}:
            raise InputError(
                f"--resume goes on with the run as {resume / 'config.toml'} says: of its settings only --steps may be "
                "given here, change others there; --changed KEY allows a key that differs from the checkpoint's"
            )
        check_keys(changed)
        os.environ[CHANGED_VARIABLE] = ",".join([*changed, *overrides])
        return _resume(resume, overrides, as_json=as_json)
    if changed:
        raise InputError("--changed: is for --resume, which holds a run against its checkpoint")
    if config is not None and is_plan(config):
        job = planned_job(config, overrides, replan=replan)
    elif replan:
        raise InputError("--replan: needs a plan (plan.json) as CONFIG")
    else:
        job = load_job(config, overrides)
    if job.launch.nodes > 1:
        if run_dir is None:
            raise InputError("--run-dir: several machines need one folder that all of them see; name it")
        return _run_node(job, run_dir)
    return _run_new(job, run_dir, recalibrate, as_json=as_json)


def _run_new(job: Any, path: Path | None, recalibrate: bool, *, as_json: bool) -> int:
    """Plan the job, write its run folder, train and verify; the folder is this job's all the time."""
    from ..report.consoles import console
    from ..report.terminal import show_plan
    from ..sockets import check_port
    from ..train.elastic.surroundings import surroundings_of_a_job
    from ..train.run.run_folder import check_writable
    from ..train.run.run_lock import owned

    check_port(job.launch.port)
    if path is not None:
        check_writable(path, 0)
    with surroundings_of_a_job(), owned(path, say=_say) as folder:
        from ..train.prepare import prepare, write_run  # imports torch, for which nobody waits who is refused

        prepared = prepare(job, folder, recalibrate=recalibrate, say=_say)
        write_run(prepared, folder)
        show_plan(console(stderr=True), prepared.plan)
        return _run(folder, as_json=as_json)


def _resume(path: Path, overrides: dict[str, Any], *, as_json: bool) -> int:
    """Go on with a run, which must be nobody else's meanwhile; `overrides` go into its configuration for good."""
    from ..sockets import check_port
    from ..train.elastic.surroundings import surroundings_of_a_job
    from ..train.job.config import with_overrides
    from ..train.run.run_folder import RunFolder, newest_run
    from ..train.run.run_lock import owned

    if not os.path.isdir(path):
        raise InputError(f"--resume {path}: no such folder; expected the folder of a run")
    folder = RunFolder(path)
    if not folder.holds_a_run():
        newest = newest_run(path)
        of_it = f"; the newest below it: --resume {newest}" if newest else ""
        raise InputError(f"--resume {path}: holds no run (config.toml){of_it}")
    config = folder.whole_config()
    if config.launch.nodes > 1:
        if overrides:
            raise InputError(f"--steps: each machine reads {path / 'config.toml'}; set train.steps there, once")
        click.echo(f"resuming {path}", err=True)
        return _run_node(config, path)
    with surroundings_of_a_job(), owned(path, say=_say):
        check_port(config.launch.port)
        if overrides:
            config = with_overrides(config, {}, overrides, where=str(path / "config.toml"))
            folder.check_end(config)
            folder.write_config(config)
        click.echo(f"resuming {path}", err=True)
        _plan_what_is_asked(folder, config)
        return _run(path, as_json=as_json)


def _plan_what_is_asked(folder: Any, config: Any) -> None:
    """Plan anew where the configuration has come to ask for another layout; a run that is complete stays as it is."""
    from ..train.launch import is_complete
    from ..train.replan import asks_for_another, plan_anew

    if not asks_for_another(config, folder):
        return
    if is_complete(folder, config):
        _say(f"launch: the layout stays {folder.plan().layout}: the run is complete; --steps N gives it more steps")
        return
    plan_anew(config, folder)


def _say(text: str) -> None:
    say(text, err=True)


def _run(path: Path, *, as_json: bool) -> int:
    """Train as the run folder says, then verify."""
    from ..files import to_json
    from ..report.consoles import console
    from ..report.pages.run import report
    from ..report.terminal import show_comparison
    from ..train.launch import launch
    from ..train.run.run_folder import RunFolder

    folder = RunFolder(path)
    config, plan = folder.config(), folder.plan()
    if config.data_parallel.mode == "sync":
        stopped = launch(str(path), config=config, ranks=plan.layout.world_size)
    else:
        from ..train.asynchronous.supervisor import supervise

        stopped = supervise(str(path))
    if stopped:
        say(f"meshwright: {stopped}", err=True)
        return 130
    if not config.train.record:
        say("recording is off (train.record = false): nothing to compare", err=True)
        return 0
    if not folder.holds_measured():
        say(f"{path}: complete; nothing was measured in this start of it, so there is nothing to compare", err=True)
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
                    "validation_loss": validation[-1] if validation else None,
                    "verdict": comparison.verdict,
                }
            )
            + "\n"
        )
    else:
        say(
            f"validation loss {validation[-1]:.4f} nats per token"
            if validation
            else f"validation loss unknown: {folder.metrics} has no row of it"
        )
        say(f"run folder: {path}  (report.html, timeline.json for https://ui.perfetto.dev)")
    return 0


def _run_node(job: Any, path: Path) -> int:
    """Run the ranks of one machine of several; the first rank of all plans, and writes the run folder."""
    from ..train.elastic.surroundings import surroundings_of_a_job
    from ..train.run.machine_lock import alone_here, hosts_rendezvous
    from ..train.run.run_lock import owned

    held = owned(path, say=_say) if hosts_rendezvous(job) else contextlib.nullcontext()
    with surroundings_of_a_job(), held, alone_here(path):
        from ..train.launch import launch, ranks_here  # imports torch, for which nobody waits who is refused

        stopped = launch(str(path), config=job, ranks=ranks_here(job))
    if stopped:
        say(f"meshwright: {stopped}", err=True)
        return 130
    say(f"run folder: {path}  (meshwright report {path} writes its page)")
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
