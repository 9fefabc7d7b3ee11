"""Functions of torch.distributed that know Gloo alone, let in for our groups; and our groups in the place of Gloo's.

`torch.distributed.monitored_barrier` and `_set_pg_timeout` look for Gloo by its name. Some clients know no other
backend on CPUs than "gloo"; Hugging Face Accelerate, and so Trainer, refuses any other name that it is given, which is
mended where that name is ours. No torch is imported here.
"""

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

REPLACE_VARIABLE = "MESHWRIGHT_REPLACE_GLOO"  # 1: groups called "gloo" are ours
OURS, GLOO = "meshwright", "gloo"
ACCELERATE = "accelerate.state"
_MAKER = "_new_process_group_helper"


def let_in(c10d: ModuleType) -> None:
    """Let torch's functions that are for Gloo's groups do for ours what they say."""
    barrier, set_timeout = c10d.monitored_barrier, c10d._set_pg_timeout

    @functools.wraps(barrier)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        found = _ours(c10d, group)
        if found is None:
            return barrier(group, timeout, wait_all_ranks)
        return found.monitored_barrier(timeout, wait_all_ranks)

    @functools.wraps(set_timeout)
    def _set_pg_timeout(timeout: Any, group: Any = None) -> Any:
        found = _ours(c10d, group)
        return set_timeout(timeout, group) if found is None else found.set_timeout(timeout)

    for name, function in (("monitored_barrier", monitored_barrier), ("_set_pg_timeout", _set_pg_timeout)):
        setattr(c10d, name, function)
        whole = sys.modules.get("torch.distributed")
        if hasattr(whole, name):
            setattr(whole, name, function)


def _ours(c10d: ModuleType, group: Any) -> Any:
    """Return a group if it is ours and this rank is in it."""
    if c10d._rank_not_in_group(group):
        return None
    found = c10d._get_default_group() if group is None else group
    return found if getattr(found, "getBackendName", str)() == OURS else None


def replace(c10d: ModuleType) -> None:
    """Make groups that are asked for as "gloo" ours, under that name; once."""
    made = getattr(c10d, _MAKER)
    if hasattr(made, "replaces_gloo"):
        return

    signature = importlib.import_module("inspect").signature(made)  # too much for every `import torch`

    @functools.wraps(made)
    def helper(*arguments: Any, **named: Any) -> Any:
        call = signature.bind(*arguments, **named)
        backend = call.arguments["backend"]
        ours = _in_place_of_gloo(c10d, str(backend))
        call.arguments["backend"] = c10d.Backend(ours)
        group, store = made(*call.args, **call.kwargs)
        if ours != str(backend) and group in c10d._world.pg_map:
            c10d._world.pg_map[group] = (backend, c10d._world.pg_map[group][1])
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(backend))
        return group, store

    helper.replaces_gloo = True  # type: ignore[attr-defined]
    setattr(c10d, _MAKER, helper)


def _in_place_of_gloo(c10d: ModuleType, asked: str) -> str:
    """Return what to make for a request: "meshwright" for "gloo", "cpu:meshwright" for "cpu:gloo".

    A request that names nothing is for what torch takes on this machine: Gloo where there is no accelerator.
    """
    if asked == c10d.Backend.UNDEFINED:
        return OURS if str(c10d.BackendConfig(asked)) == f"cpu:{GLOO}" else asked
    parts = [part.rpartition(":") for part in asked.split(",")]
    return ",".join(f"{device}{colon}{OURS if name == GLOO else name}" for device, colon, name in parts)


def accept_our_name(state: ModuleType) -> None:
    """Let Accelerate's choice of a backend on CPUs, which is always "gloo", be ours where it was asked for by name.

    `state` is `accelerate.state`. Where its choice is made in a way that is not known here, it goes on to refuse us.
    """
    choice = getattr(getattr(state, "PartialState", None), "_prepare_backend", None)
    if choice is None or hasattr(choice, "accepts_ours"):
        return
    signature = importlib.import_module("inspect").signature(choice)

    @functools.wraps(choice)
    def _prepare_backend(self: Any, *arguments: Any, **named: Any) -> Any:
        found = choice(self, *arguments, **named)
        asked = signature.bind(self, *arguments, **named).arguments.get("backend")
        return (asked, *found[1:]) if asked == OURS and found[0] == GLOO else found

    _prepare_backend.accepts_ours = True  # type: ignore[attr-defined]
    state.PartialState._prepare_backend = _prepare_backend
