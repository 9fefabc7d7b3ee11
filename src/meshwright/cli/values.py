"""Values that the tab key completes: options and arguments that take a name of a closed set, and files beside it."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem


def _models() -> Iterable[str]:
    from ..workload.models.catalogue import model_names

    return model_names()


def _clusters() -> Iterable[str]:
    from ..hardware import load_catalogue

    return load_catalogue().nodes


def _here_or_clusters() -> Iterable[str]:
    return [*_clusters(), "this"]


def _fabrics() -> Iterable[str]:
    from ..hardware import load_catalogue

    return load_catalogue().fabrics


def _accelerators() -> Iterable[str]:
    from ..hardware import load_catalogue

    return load_catalogue().accelerators


def _links() -> Iterable[str]:
    from ..hardware import load_catalogue

    return [*load_catalogue().interconnects, *load_catalogue().networks]


def _algorithms() -> Iterable[str]:
    from ..collectives.catalogue import algorithm_names
    from ..collectives.schedules.schedule import COLLECTIVES

    return dict.fromkeys(name for collective in COLLECTIVES for name in algorithm_names(collective))


def _entries() -> Iterable[str]:
    from ..hardware import load_catalogue
    from ..hardware.listing import entries

    return [entry.name for entry in entries(load_catalogue())]


def measurable() -> Iterable[str]:
    """Return what `bench` can measure, by name."""
    from ..collectives.schedules.schedule import COLLECTIVES

    return [*COLLECTIVES, "p2p", "latency", "compute", "memory"]


def _engines() -> Iterable[str]:
    from ..workload.engines import ALIASES, ENGINES

    return [*ENGINES, *ALIASES]


def _stacks() -> Iterable[str]:
    from ..plan.layouts.stacks import stack_names

    return stack_names()


def _precisions() -> Iterable[str]:
    from ..plan.analytic.price import PEAKS

    return PEAKS


def _optimizers() -> Iterable[str]:
    from ..plan.analytic.optimizers import MOMENTS

    return MOMENTS


def _weights() -> Iterable[str]:
    from ..plan.analytic.held_roles import WEIGHTS

    return WEIGHTS


def _losses() -> Iterable[str]:
    from ..plan.analytic.held_roles import LOSSES

    return LOSSES


def _routings() -> Iterable[str]:
    from ..simulate.nodes import ROUTINGS

    return dict.fromkeys(name for names in ROUTINGS.values() for name in names)


def _backends() -> Iterable[str]:
    return ("gloo", "meshwright", "nccl", "mpi")


Source = Callable[[], Iterable[str]]
OPTIONS: dict[str, Source] = {
    "--model": _models,
    "--cluster": _clusters,
    "--fabric": _fabrics,
    "--node": _clusters,
    "--gpu": _accelerators,
    "--link": _links,
    "--algorithm": _algorithms,
    "--stack": _stacks,
    "--engine": _engines,
    "--emit": _engines,
    "--precision": _precisions,
    "--optimizer": _optimizers,
    "--weights": _weights,
    "--loss": _losses,
    "--routing": _routings,
    "--backend": _backends,
}
ARGUMENTS: dict[tuple[str, str], Source] = {  # of a command: its name and the argument's
    **{(name, "name"): _algorithms for name in ("show", "verify", "price", "draw", "export")},
    ("bench", "what"): measurable,
    ("topo", "words"): _entries,
}
OF_A_COMMAND: dict[tuple[str, str], Source] = {("plan", "--cluster"): _here_or_clusters}
ONLY_FILES = {("emulate", "--cluster")}


class Completed(click.types.StringParamType):
    """Text that is completed by names, and by files where no name begins with it."""

    def __init__(self, names: Source) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with what was typed; the shell completes files where none does."""
        found = [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


def completing(command: click.Command) -> click.Command:
    """Return the command and its sub-commands, which now complete names as values."""
    for parameter in command.params:
        names = _source(command.name or "", parameter)
        if names is not None and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = Completed(names)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            completing(each)
    return command


def _source(command: str, parameter: click.Parameter) -> Source | None:
    if isinstance(parameter, click.Argument):
        return ARGUMENTS.get((command, parameter.name or ""))
    flag = parameter.opts[-1]
    return None if (command, flag) in ONLY_FILES else OF_A_COMMAND.get((command, flag), OPTIONS.get(flag))
