"""One layout on the software of other engines, for a user who did not say which one runs it."""

import msgspec

from ...layout import Layout
from ...workload.conventions import OWN
from ...workload.engines import ENGINES
from ..analytic import Grid, Setting, price_layouts
from ..analytic.price import coefficients_of, node_group_of
from ..layouts.filters import unlike_its_stack
from ..layouts.stacks import through_xla
from .engine import stack_of


def on_other_engines(setting: Setting, layout: Layout) -> list[tuple[str, float]]:
    """Return the other engines that can run a layout, each with the seconds of a step, the fastest first.

    Where modules are named that recomputation repeats, engines that recompute by operators are left out, and all where
    nothing is known of which of them run on the accelerators.
    """
    if any(through_xla(node_group_of(setting.cluster).gpu.model)):
        return []
    found = []
    for stack in map(stack_of, ENGINES.values()):
        if stack in {OWN, setting.stack}:
            continue
        there = msgspec.structs.replace(setting, stack=stack)
        if setting.modules and coefficients_of(msgspec.structs.replace(there, modules=())).selective_saves:
            continue
        if not unlike_its_stack(stack, layout, setting.architecture, compiled=setting.compiled):
            found.append((stack, float(price_layouts(there, Grid.of([layout])).step_time_s[0])))
    return sorted(found, key=lambda one: one[1])
