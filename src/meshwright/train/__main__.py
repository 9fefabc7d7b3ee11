"""`torchrun … -m meshwright.train CONFIG`, or `srun python -m meshwright.train CONFIG`: one rank of a job.

The ranks join; rank 0 plans and writes the run folder while the others wait; all train; rank 0 verifies. The run
folder must be on storage that all ranks see.
"""

import contextlib
import os
import sys
from pathlib import Path

import click

from ..cli import run_command
from ..errors import MeshwrightError
from .checkpoint.resume import CHANGED_VARIABLE, check_keys
from .job.config import load_job
from .job.environment import adopt_slurm
from .replan import ensure_planned
from .run.run_folder import RunFolder
from .run.run_lock import owned
from .worker import joined_ranks, train_rank


@click.command()
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of the run. Default: runs/JOB.")
@click.option("--resume", is_flag=True, help="Go on with the run of --run-dir, where there is one.")
@click.option(
    "--changed", multiple=True, metavar="KEY", help="With --resume: a key that may differ from the checkpoint."
)
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps.")
@click.option("--layout", help='How the step is split, such as "dp=2,mbs=4".')
@click.option("--backend", type=click.Choice(["auto", "gloo", "meshwright", "nccl"]), help="Who moves the gradients.")
def command(
    config: Path | None,
    run_dir: Path | None,
    resume: bool,
    changed: tuple[str, ...],
    steps: int | None,
    layout: str | None,
    backend: str | None,
) -> int:
    """Run one rank of a training job that torchrun or srun has started."""
    adopt_slurm(os.environ)
    check_keys(changed)
    os.environ[CHANGED_VARIABLE] = ",".join(changed)
    flags = {"train.steps": steps, "launch.layout": layout, "launch.backend": backend}
    job = load_job(config, {key: value for key, value in flags.items() if value is not None})
    name = os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("SLURM_JOB_ID") or "job"
    folder = RunFolder(run_dir or Path("runs") / name)
    with contextlib.ExitStack() as held:

        def own() -> None:
            held.enter_context(owned(folder.path, say=lambda text: click.echo(text, err=True)))

        with joined_ranks(job, folder) as member:
            goes_on = resume or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
            place = member.place
            ensure_planned(job, folder, rank=place.rank, ranks=place.world_size, new=not goes_on, own=own)
            if job.data_parallel.mode == "sync":
                stopped = train_rank(folder, member)
            else:
                from .asynchronous.external import take_part

                stopped = take_part(folder, place)
        if stopped:
            raise MeshwrightError(stopped)
        if member.place.rank == 0 and job.train.record:
            _verify(folder)
    return 0


def _verify(folder: RunFolder) -> None:
    from ..report.consoles import console
    from ..report.pages.run import report
    from ..report.terminal import show_comparison

    show_comparison(console(stderr=True), report(folder))


if __name__ == "__main__":
    sys.exit(run_command(command=command))
