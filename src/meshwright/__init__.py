"""Plan, run and verify distributed PyTorch training.

Importing this package makes `torch.distributed.init_process_group("meshwright")` work, without importing torch itself:
the backend is registered at once if torch.distributed is loaded, and as soon as it is loaded otherwise.

The rooms, each of which imports only from those before it (ARCHITECTURE.md, tests/unit/test_layers.py):

- nouns and what all share: `errors`, `quantities`, `units`, `files`, `timeline`, `layout`, `layout_names`, `mesh`;
  `machine_load`, `temporary`, `sockets`, `handshake`, `native`, `interruptible`; `gloo` and `hooks` for torch
- `pipelines`: schedules of pipelines as data
- machines: `hardware` (the catalogue), `cluster` (discovered, read or emulated), `device` (accelerators)
- jobs: `workload` (what a step computes), `jobs` (configurations of engines)
- `collectives`: algorithms as data; `backend`: the process group that moves bytes; `bench`: measurements
- `simulate` and `plan`: the time of a step; `parallel` and `train`: the step itself
- reading what ran: `traces`, `report`, `postmortem`
- `cli`: the commands; started by `__main__` too
"""

import _signal  # type: ignore[import-not-found]  # built in: no file is read before Ctrl-C can wait

_heard = _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
from . import interruptible  # noqa: E402

interruptible.until_ready()  # before anything that takes time
_signal.pthread_sigmask(_signal.SIG_SETMASK, _heard)

import importlib  # noqa: E402
import os  # noqa: E402
from types import ModuleType  # noqa: E402

from . import gloo, hooks  # noqa: E402

__version__ = "0.1.0"
__all__ = ["__version__", "parallelize", "plan", "replace_gloo", "step"]
_TORCH = "torch.distributed.distributed_c10d"
_TORCH_OBJECTS = "torch.distributed._dist2"  # its experimental API in which groups are made one by one


def __getattr__(name: str) -> object:
    """Load the three calls of the Python API on first use."""
    if name == "plan":
        return importlib.import_module("meshwright.plan")
    if name in {"parallelize", "step"}:
        return getattr(importlib.import_module("meshwright.parallel.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register(c10d: ModuleType) -> None:
    """Tell torch of the backend; its code is imported when the first group is made."""
    if not hasattr(c10d, "Backend"):  # torch may be built without torch.distributed
        return
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
    module = importlib.import_module("meshwright.backend.group.create")
    return module.create_group(*arguments)


def _register_maker(objects: ModuleType) -> None:
    """Tell torch's second API of the backend, too."""
    if "meshwright" not in objects._BACKENDS:
        objects.register_backend("meshwright", _make_group)


def _make_group(store: object, rank: int, size: int, timeout: object, device: object, **options: str) -> object:
    module = importlib.import_module("meshwright.backend.group.create")
    chosen = importlib.import_module("meshwright.backend.group.options").GroupOptions(**options)
    return module.make_group(store, rank, size, timeout, chosen)


def _break_graphs(rules: ModuleType) -> None:
    """Let torch.compile call the backend and not look into it, as it does with groups in C++."""
    if hasattr(rules, "add"):
        rules.add("meshwright.backend")


hooks.when_loaded(_TORCH, _register)
hooks.when_loaded(_TORCH_OBJECTS, _register_maker)
hooks.when_loaded("torch._dynamo.trace_rules", _break_graphs)
hooks.when_loaded(gloo.ACCELERATE, gloo.accept_our_name)
