"""The option `--stack`: a closed set that is listed, completed, and refused with the nearest name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .prose import say

if TYPE_CHECKING:
    from ..layout import Layout
    from ..plan.analytic import Setting


def stack_option(text: str) -> Callable[[Any], Any]:
    """Return the option; its value is a stack of the cost model, a calibration's file, or None."""
    return click.option("--stack", metavar="NAME", callback=_named, help=f"{text} `help` lists them.")


def default_of(
    precision: str,
    layout: str | None,
    *,
    mtp_layers: int = 0,
    engine: str | None = None,
    lora_rank: int = 0,
    held: str = "",
    accelerator: str = "",
) -> str:
    """Return the stack of a command that names none: that of its engine, else our own or, aloud, another for it.

    `held`: the option that says how weights, logits or activations are held, "" for none.
    """
    from ..layout import Layout
    from ..plan.analytic.price import PEAKS
    from ..plan.layouts.stacks import default_stack, through_xla
    from ..plan.search.engine import stack_of
    from ..workload.conventions import OWN
    from ..workload.engines import engine_named

    if engine is not None:
        return stack_of(engine_named(engine))
    try:
        asked = None if layout is None else Layout.parse(layout)
    except InputError:  # said where the layout is read
        asked = None
    adapters, foreign = lora_rank > 0, through_xla(accelerator)[0]
    found = default_stack(precision, asked, mtp_layers, adapters=adapters, held=bool(held), accelerator=accelerator)
    if found != OWN and precision in PEAKS:  # one that nobody knows is refused where it is read
        reasons = {
            f"on {foreign}": bool(foreign),
            precision: default_stack(precision) != OWN,
            f"--layout {layout}": default_stack("bf16", asked) != OWN,
            f"--mtp-layers {mtp_layers}": mtp_layers > 0,
            f"--lora-rank {lora_rank}": lora_rank > 0,
            held: bool(held),
        }
        what = next(told for told, holds in reasons.items() if holds)
        say(
            f"note: priced as stack {found}, since Meshwright itself does not run {what}; or --stack NAME, "
            "the same for all that is compared",
            err=True,
        )
    return found


def warn_of_stack(setting: "Setting", layout: "Layout") -> None:
    """Say on stderr which rules of its stack a layout breaks that is priced all the same, or that nobody knows them."""
    from ..plan.layouts.filters import notes_of_stack, warnings_of_stack

    for warning in warnings_of_stack(setting, layout):
        say(f"warning: {warning}", err=True)
    for note in notes_of_stack(setting, layout):
        say(f"note: {note}", err=True)


def tell_stated(setting: "Setting", layout: str) -> None:
    """Say on stderr what a layout that is given does not say and is priced with, since that is usual of its stack."""
    from ..plan.layouts.stated import stack_defaults

    found = stack_defaults(layout, setting)
    added = ",".join(part for part in found if part.endswith("=1"))
    if added:
        off = added.replace("=1", "=0")
        say(f"note: --layout is priced with {added}, as is usual of stack {setting.stack}; {off} says no", err=True)
    if "sp=0" in found:
        say(
            f"note: --layout is priced with sp=0, although sequence parallelism is usual of stack {setting.stack}: "
            "tp does not divide the tokens of a rank",
            err=True,
        )


def tell_needs(setting: "Setting", layout: "Layout") -> None:
    """Say on stderr what the engine of a stack has to be told to run a layout that a search found."""
    from ..plan.layouts.filters import needs_of_stack

    for note in needs_of_stack(setting, layout):
        say(f"note: {note}", err=True)


def note_of_engine(engine: str | None, stack: str | None) -> None:
    """Say on stderr what comes of `--engine` and `--stack` that are two engines."""
    from ..plan.layouts.filters import engine_of
    from ..plan.layouts.stacks import find_stack
    from ..workload.engines import engine_named

    known = find_stack(stack) if stack is not None else None
    if engine is None or known is None:
        return
    asked, runs_on = engine_named(engine), engine_of(known)
    if runs_on is not None and runs_on.name != asked.name and known not in asked.stacks:
        say(
            f"note: --engine {engine} and --stack {stack} are two engines: what the first can run is priced "
            f"with the constants of {known}",
            err=True,
        )


def _named(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from ..plan.analytic.calibration import is_file, read_calibration
    from ..plan.layouts.stacks import find_stack, stack_named

    if value is None or context.resilient_parsing:
        return value
    if value == "help":
        _list(as_json=any(context.params.get(name) for name in ("as_json", "as_objects")))
        context.exit()
    if is_file(value):
        read_calibration(value)
        return value
    if context.params.get("calibrate") and find_stack(value) is None:
        return value  # what the table of runs may call one's own
    return stack_named(value)


def _list(*, as_json: bool) -> None:
    """Print the closed set; `--json` is read before `--stack` wherever it stands."""
    from ..files import to_json
    from ..plan.layouts.stacks import listed
    from ..workload.conventions import OWN
    from ..workload.engines import ALIASES

    known = listed()
    if as_json:
        click.echo(to_json({"stacks": known, "aliases": ALIASES}))
        return
    width = max(len(one.name) for one in known)
    for one in known:
        say(f"{one.name:<{width}}  {one.title}: {one.origin}", indent=width + 2)
    say("; ".join(f"{alias}: {name}" for alias, name in ALIASES.items()))
    own = next(one for one in known if one.name == OWN)
    say(f"facts of {OWN} under bf16 (of all stacks: --json):")
    for clause in own.in_words:
        say(f"  {clause}", indent=4)
