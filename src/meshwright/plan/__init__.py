"""Time and memory of a Layout, and the search for the best one.

The module can be called: `meshwright.plan(model, ...)` is the first of the Python API's three calls.

Rooms, each of which imports only from those before it:
- priced by formulas: `analytic`; by operators timed on this machine: `measured`
- `layouts`: which there are and which are legal; `clusters`: the machines; `tables`: measured runs
- `fitting`: constants, of published runs and of a user's own
- `search`: the best layout, event by event where it is close; `targets`: what a target needs, `whatif`, `envelope`

Beside them, above all rooms: `request` (options to a Plan), `validate` (a table against the planner), `model_facts`
(remarks on a model), `gantt` (a step as text).
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the plan of a model of one's own: `parallel.api.plan`."""
        import importlib  # the layer above, and torch with it, is loaded only when it is asked for

        return importlib.import_module("meshwright.parallel.api").plan(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
