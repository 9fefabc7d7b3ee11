"""Time and memory of a Layout, and the search for the best one.

The module can be called: `meshwright.plan(model, ...)` is the first of the Python API's three calls.

- asked: `request`, `machines`, `batch`, `stacks`, `search_filters` (`--only`, `--not`), `engine`
- layouts: `space` (all of them, as arrays), `legality` (one, in words)
- priced by formulas: `analytic`; by operators timed on this machine: `measured`; event by event: `simulated`,
  `refine`
- searched: `explore` (`plan`), `search` (`train`); `study` is what was found; explained: `reasons`, `model_facts`,
  `gantt`
- other questions: `inverse` and `target_alternatives` (what a target needs), `whatif`, `modes` with `asynchronous`,
  `engine_comparison` (other engines), `nccl`, `envelope`, `budget` (days of a training)
- tables of runs: `runs`, `columns`, `cells`, `row_layout`, `row_model`, `validate`; a user's own: `calibrate`,
  `own_runs`
- constants: `fit`, `estimate`
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
