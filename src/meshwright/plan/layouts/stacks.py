"""The closed set of software stacks: names that `--stack` and a table's `family` take, and which one is the default."""

import difflib
from collections.abc import Mapping

import msgspec

from ...errors import InputError, nearest
from ...hardware import load_catalogue
from ...layout import Layout
from ...units import counted
from ...workload.convention_words import clauses_of, named_facts
from ...workload.conventions import DESCRIBED, OWN, conventions_of
from ...workload.engines import ALIASES
from ..analytic.coefficients import STRANGERS, Book, book
from .legality import unrunnable

TODAY = STRANGERS[-1]  # a stack of today that nobody named
PROGRAMS = {"llm-foundry": "mpt", "fms-fsdp": "fms", "paxml": "pax"}  # that published stacks ran: their names
TUNER = "trl"  # one of today that trains adapters
# By maker: what PyTorch reaches through XLA alone, so that our own engine sees no accelerator (`device`), and the stack
# that is usual there.
THROUGH_XLA = {"google": ("TPUs", "maxtext"), "amazon": ("Trainium", TODAY)}
NO_FURTHER = "Meshwright itself trains no modules that predict further tokens"
OWN_PRECISIONS = frozenset({"bf16", "fp32"})  # what `train` runs
TUNED_PRECISIONS = OWN_PRECISIONS | {"fp16"}


class ListedStack(msgspec.Struct, frozen=True, kw_only=True):
    """One stack of the closed set, as it is listed."""

    name: str
    title: str
    origin: str  # where its constants come from
    facts: dict[str, float] = {}  # of what it sends and holds under bf16, where most do otherwise; of ours all types
    in_words: tuple[str, ...] = ()  # the same


def stack_names(known: Book | None = None) -> list[str]:
    """Return every name that `--stack` takes, in alphabetical order."""
    return sorted({*(known or book()).stacks, *ALIASES, *PROGRAMS})


def find_stack(name: str, known: Book | None = None) -> str | None:
    """Return the stack that a name means, case and other names of engines aside; None for one that nobody knows."""
    stacks: Mapping[str, object] = (known or book()).stacks
    plain = name.strip().lower()
    plain = ALIASES.get(plain) or PROGRAMS.get(plain, plain)
    return plain if plain in stacks else None


def stack_named(name: str) -> str:
    """Return the stack of a name; InputError with the nearest one for a name that is not in the closed set."""
    found = find_stack(name)
    if found is None:
        raise InputError(f"--stack {name}: no such stack ({nearest(name.lower(), stack_names())})")
    return found


def near_stack(name: str, known: Book) -> str:
    """Return the one name that a family of a table nearly is, "" where none is close."""
    close = difflib.get_close_matches(name.lower(), stack_names(known), n=1, cutoff=0.75)
    return close[0] if close else ""


def through_xla(accelerator: str) -> tuple[str, str]:
    """Return what accelerators are called that our own engine does not run on, and their usual stack; "" for others."""
    known = load_catalogue().accelerators.get(accelerator)
    return THROUGH_XLA.get(known.vendor if known else "", ("", ""))


def default_stack(
    precision: str, layout: Layout | None = None, mtp_layers: int = 0, *, adapters: bool = False, held: bool = False,
    accelerator: str = "",
) -> str:  # fmt: skip
    """Return the stack of an answer that names none: our own, or one of today for what ours does not run.

    `mtp_layers`: modules that predict further tokens, trained; `adapters` alone are; `held`: weights, logits or
    activations otherwise than ours has them.
    """
    if usual := through_xla(accelerator)[1]:
        return usual
    own = precision in OWN_PRECISIONS and not mtp_layers and (layout is None or not unrunnable(layout))
    if own and not (adapters or held):
        return OWN
    uncut = layout is None or layout.tp * layout.pp * layout.cp * layout.ep == 1
    return TUNER if adapters and uncut and precision in TUNED_PRECISIONS else TODAY


def listed() -> list[ListedStack]:
    """Return the closed set, engines and published stacks, with where the constants of each come from."""
    known = book()
    found = []
    for name, stack in sorted(known.stacks.items()):
        its = named_facts(conventions_of(known.described(name)), types=name == OWN)
        found.append(
            ListedStack(
                name=name, title=stack.title, origin=origin_of(known, name), facts=its, in_words=tuple(clauses_of(its))
            )
        )
    return found


def origin_of(known: Book, stack: str) -> str:
    """Return where the constants of a stack come from, before it is known on which accelerator it runs."""
    own = known.fitted(stack)
    errors = known.errors.get(own)
    if errors is None:
        return "generic constants, facts of its own" if known.described(stack) in DESCRIBED else "generic facts"
    whose = "this stack" if own == stack else own
    return f"fitted on {counted(errors.runs, 'run')} of {whose}"
