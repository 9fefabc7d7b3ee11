"""`meshwright plan --target-...`: the network, latency and GPUs that a target needs, and their curves."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..files import write_atomic, writing
from ..units import counted, parse_time
from .options import PlanOptions
from .plan_output import optional, print_about, tokens_asked
from .prose import tell_held

if TYPE_CHECKING:
    from rich.console import Console

    from ..hardware import Catalogue
    from ..plan.analytic import Setting
    from ..plan.targets.inverse import Need, Solution
    from ..report.curve import Mark


def asks_target(given: PlanOptions) -> bool:
    """Return whether one of the targets is asked for."""
    return bool(_targets(given))


def check_target(given: PlanOptions) -> None:
    """Raise InputError for options of a target that do not go together."""
    asked = _targets(given)
    if len(asked) > 1:
        raise InputError(f"{' and '.join(asked)}: expected one of them")
    if given.target_days is not None and given.tokens is None:
        raise InputError("--target-days: needs --tokens")
    if asked and given.target_days is None and given.tokens is not None:
        raise InputError(f"--tokens: not with {asked[0]}; it goes with --target-days")
    if given.plot is not None and given.plot.suffix != ".svg":
        raise InputError(f"--plot {given.plot}: expected a name that ends in .svg")


def _targets(given: PlanOptions) -> list[str]:
    """Return the flags of the targets that are asked for."""
    names = ("target_mfu", "target_step_time", "target_days")
    return [f"--{name.replace('_', '-')}" for name in names if getattr(given, name) is not None]


def check_reachable(setting: "Setting", given: PlanOptions) -> None:
    """Raise InputError for a target that no step has, before an answer begins."""
    if _targets(given):
        _target(given)(setting)


def solve_target(setting: "Setting", given: PlanOptions, catalogue: "Catalogue", console: "Console") -> int:
    """Show what reaches the target of the options; return the exit code."""
    from ..plan.targets.inverse import solve
    from ..report.planning import show_solution

    solution = solve(setting, _target(given), target=_target_text(given), days=given.target_days)
    marks = _marks(setting, catalogue)
    if given.plot is not None:
        _plot(given.plot, solution, marks)
    show_head(setting, given, console)
    if given.as_json:
        print_about(setting, solution)
    else:
        show_solution(console, solution, marks)
    return 0


def show_head(setting: "Setting", given: PlanOptions, console: "Console") -> None:
    """Print what an answer of many steps is about, and whose constants it takes; nothing before JSON but the notes."""
    from ..plan.analytic.price import origins
    from ..plan.model_facts import model_facts, sentence
    from ..report.planning import constants_said

    tell_held()
    if not given.as_json:
        console.print(sentence(model_facts(setting)), highlight=False)
        console.print(f"constants: {constants_said(origins(setting))}", highlight=False)


def _target(given: PlanOptions) -> Callable[["Setting"], float]:
    """Return the step time that the target means in a setting."""
    from ..plan.targets.inverse import step_time_for_days, step_time_for_mfu

    mfu, days = given.target_mfu, given.target_days
    if mfu is not None:
        return lambda setting: step_time_for_mfu(setting, mfu)
    if days is not None:
        tokens = tokens_asked(given)
        assert tokens is not None
        return lambda setting: step_time_for_days(setting, days, tokens)
    seconds = optional(parse_time, given.target_step_time, "--target-step-time")
    if seconds <= 0:
        raise InputError("--target-step-time: expected more than 0")
    return lambda setting: seconds


def _target_text(given: PlanOptions) -> str:
    if given.target_mfu is not None:
        return f"MFU {given.target_mfu:.1%}"
    if given.target_days is not None:
        return f"{given.tokens} tokens in {counted(given.target_days, 'day')}"
    return f"step time {given.target_step_time}"


def _marks(setting: "Setting", catalogue: "Catalogue") -> dict[str, "tuple[Mark, ...]"]:
    """Return the catalogue's parts on the axes: NICs as many as a node has, and links inside a node."""
    from ..plan.clusters.machines import node
    from ..report.curve import grouped

    nics = max(1, node(setting.cluster).nics)
    return {
        "inter": grouped({f"{nics} x {key}": nics * nic.rate_bytes_per_s for key, nic in catalogue.networks.items()}),
        "intra": grouped({key: link.rate_bytes_per_s for key, link in catalogue.interconnects.items()}),
    }


def _plot(path: Path, solution: "Solution", marks: dict[str, "tuple[Mark, ...]"]) -> None:
    """Write one SVG: the curves of a solution below each other."""
    from ..report.curve import curve_svg, stacked
    from ..report.planning import QUANTITIES, quantity_text

    def one(need: "Need") -> str:
        return curve_svg(
            need,
            solution.target_step_time_s,
            marks.get(need.quantity, ()),
            title=f"step time against the {QUANTITIES[need.quantity]}",
            label=lambda value: quantity_text(need.quantity, value),
        )

    with writing(path):
        write_atomic(path, stacked([one(need) for need in solution.needs]).encode())
