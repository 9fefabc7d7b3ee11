"""Plan, run and verify distributed PyTorch training.

Importing this package makes `torch.distributed.init_process_group("meshwright")` work, without importing torch itself:
the backend is registered at once if torch.distributed is loaded, and as soon as it is loaded otherwise.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from . import gloo

__version__ = "0.1.0"
__all__ = ["__version__", "parallelize", "plan", "replace_gloo", "step"]
_TORCH = "torch.distributed.distributed_c10d"


def __getattr__(name: str) -> object:
    """Load the three calls of the Python API on first use."""
    if name == "plan":
        return importlib.import_module("meshwright.plan")
    if name in {"parallelize", "step"}:
        return getattr(importlib.import_module("meshwright.parallel.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register(c10d: ModuleType) -> None:
    """Tell torch of the backend; its code is imported when the first group is made."""
    backend = c10d.Backend
    if "meshwright" not in backend.backend_list:
        backend.register_backend("meshwright", _create_group, extended_api=True, devices=["cpu"])
        gloo.let_in(c10d)
        if os.environ.get(gloo.REPLACE_VARIABLE, "0") not in {"", "0"}:
            gloo.replace(c10d)


def replace_gloo() -> None:
    """Make "meshwright" stand in for "gloo" in this process: for clients that insist on that name on CPUs.

    Groups made from here on under the name "gloo" are ours, and torch goes on calling them "gloo". All ranks must do
    so. The environment variable MESHWRIGHT_REPLACE_GLOO=1 does the same.
    """
    gloo.replace(importlib.import_module(_TORCH))


def _known_to_torch() -> None:
    """Do nothing more: torch calls this when it is imported, and the import of this package has registered the backend.

    So launchers that make groups themselves know the name (entry point "torch.backends").
    """


def _create_group(*arguments: object) -> object:
    module = importlib.import_module("meshwright.backend.create")
    return module.create_group(*arguments)


class _RegisterOnImport(MetaPathFinder):
    """Lets torch's module load as ever, and registers the backend right after."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _TORCH:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if hasattr(module, "Backend"):  # torch may be built without torch.distributed
            _register(module)


if _TORCH in sys.modules:
    _register(sys.modules[_TORCH])
else:
    sys.meta_path.insert(0, _RegisterOnImport())
