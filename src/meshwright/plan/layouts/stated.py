"""The text of a layout beside what its stack has by default: what it leaves out, and what has to be said."""

from ...errors import InputError
from ...layout import Layout
from ...layout_names import names_sharding, own_name, pairs_of
from ..analytic import Setting, book
from ..analytic.coefficients import GENERIC


def stated(text: str, setting: Setting) -> str:
    """Return the text of a layout with what the stack has by default where it does not say."""
    own = stack_defaults(text, setting)
    if not own:
        return text
    said = text if "=" in text else str(Layout.parse(text, world_size=setting.gpus))
    return ",".join((said, *own))


def stack_defaults(text: str, setting: Setting) -> tuple[str, ...]:
    """Return switches that the text of a layout leaves out and most runs of its stack set: "sp=1", "zero=1".

    "sp=0" where tp does not divide the tokens of a rank.
    ZeRO 1 is such a switch, Megatron-LM's distributed optimizer; ZeRO 2 and 3 are a split that a layout names.
    """
    stack = book().stacks.get(setting.stack, GENERIC)
    try:
        layout = Layout.parse(text, world_size=setting.gpus)
    except InputError:  # its fault is told where the nearest legal layouts are
        return ()
    names = [name for name, _ in pairs_of(text)]
    named = {own_name(name) or name for name in names}
    shares = "zero" in named or any(names_sharding(name) for name in names)
    divides = setting.seq_len // layout.cp % layout.tp == 0
    found = [f"sp={int(divides)}"] if stack.sp and layout.tp > 1 and "sp" not in named else []
    found += ["zero=1"] if stack.zero == 1 and layout.dp * layout.cp > 1 and not shares else []
    return tuple(found)


def written_out(layout: Layout, setting: Setting) -> str:
    """Return the text of a layout that `stated` leaves as it is: with switches at 0 that its stack would add."""
    text = str(layout)
    off = [part.replace("=1", "=0") for part in stack_defaults(text, setting) if part.endswith("=1")]
    return ",".join((text, *off))
