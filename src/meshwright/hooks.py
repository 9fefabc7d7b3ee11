"""Act on another package's module right after it is loaded, without importing it.

Every `import torch` runs this where the package is installed: `importlib.abc` is for type checkers, it takes long.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def when_loaded(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call `act` with the module of this name: now if it is loaded, otherwise right after it is."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watch(name, act))


class _Watch:
    """Lets one module be found and loaded as ever, acts on it, and is gone."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.name, self._act = name, act

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]  # a Loader but by its base
                return spec
        return None

    def loaded(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._act(module)


class _Loader:
    """Loads a module with its own loader, which the module then keeps."""

    def __init__(self, loader: Loader, watch: _Watch) -> None:
        self._loader, self._watch = loader, watch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._watch.loaded(module)
