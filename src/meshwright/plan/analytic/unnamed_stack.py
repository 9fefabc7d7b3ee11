"""Doubt about which software runs a step, where a question names none and a generic stack of today is priced.

Fused layers are what that stack is taken to have. Many train the layers of transformers as they are, operator by
operator, on one GPU or with sharded weights; that takes longer, and how much longer varies more.
"""

from ...layout import Layout
from ...units import format_time
from .coefficients import STRANGERS

PLAIN = "accelerate"  # the stack of such layers
PRECISIONS = frozenset({"bf16", "fp16", "fp32"})  # that they run in without kernels of another package
LEAST = 0.05  # of a step: less is no doubt


def may_be_plain(stack: str, layout: Layout, precision: str) -> bool:
    """Return whether a generic stack of today may be one of plain layers: nothing but data and weights is cut."""
    return stack == STRANGERS[-1] and layout.tp * layout.pp * layout.cp * layout.ep == 1 and precision in PRECISIONS


def doubt_of_stack(
    own_s: float, own_band: float, plain_s: float, plain_band: float, *, said_by: str = f"--stack {PLAIN}"
) -> tuple[tuple[str, ...], float]:
    """Return a sentence where plain layers take longer than what is priced, and the band that holds both.

    `said_by` is what would settle it where the question stands.
    A measured step is at most plain_s / (1 - plain_band), of which the price is less by the band that is returned.
    """
    if own_s > (1.0 - LEAST) * plain_s:
        return (), own_band
    said = f"software stack: nothing names it; layers of transformers, not compiled, take {format_time(plain_s)} a step"
    return (f"{said} ({said_by})",), max(own_band, 1.0 - (1.0 - min(plain_band, 1.0)) * own_s / plain_s)
