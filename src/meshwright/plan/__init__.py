"""Time and memory of a Layout, and the search for the best one.

The module can be called: `meshwright.plan(model, ...)` is the first of the Python API's three calls.
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
