"""`--calibrate RUNS.csv` and `--save FILE` of `plan` and `validate`: the user's own measured steps."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from ..cluster.graph import Cluster
    from ..hardware import Catalogue
    from ..plan.analytic.calibration import Calibration


def calibration_of(
    runs: str | None, save: Path | None, stack: str | None, catalogue: "Catalogue", console: "Console"
) -> "Calibration | None":
    """Return what the runs of `--calibrate` say, and print it; None without the option."""
    if runs is None:
        if save is not None:
            raise InputError("--save: needs --calibrate RUNS.csv")
        return None
    from ..plan.analytic import book
    from ..plan.analytic.calibration import is_file
    from ..plan.fitting.calibrate import calibrate_from_runs
    from ..plan.layouts.stacks import find_stack, stack_named
    from ..plan.tables.reading import not_read
    from ..plan.validate import known_models
    from ..report.calibration import show_calibration
    from .prose import say

    if stack is not None and is_file(stack):
        raise InputError(f"--stack {stack} and --calibrate: expected one of them")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    known = None if stack is None else find_stack(stack)  # else it may be what the table calls a stack of one's own
    found = calibrate_from_runs(runs, catalogue, book(), known_models(), made=today, stack=known)
    if stack is not None and known is None and found.family.strip().lower() != stack.strip().lower():
        stack_named(stack)  # not known to anyone
    if known is not None and found.stack != known:
        raise InputError(f"--calibrate {runs}: runs of {found.family or found.stack}, not of {stack}")
    for text in not_read(runs):
        say(f"{runs}: {text}", err=True)
    show_calibration(console, found)
    return found


def save_calibration(path: Path | None, found: "Calibration | None", cluster: "Cluster | None" = None) -> None:
    """Write what `--save` asks for; `cluster` in place of the table's machines, where it has the same accelerators."""
    import msgspec

    from ..files import write_struct, writing
    from ..plan.analytic.price import node_group_of

    if found is None or path is None:
        return
    if path.suffix != ".json":
        raise InputError(f"--save {path}: expected a name that ends in .json")
    if cluster is not None and node_group_of(cluster).gpu.model == found.accelerator:
        found = msgspec.structs.replace(found, cluster=cluster)
    with writing(f"--save {path}"):
        write_struct(path, found)
