"""Where a schedule comes from: a name, a file (text, JSON, MSCCL XML, MSCCL++ plan), or a function of the user's."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from ..errors import InputError, nearest
from ..files import convert, parse_json, read_text
from .catalogue import algorithm_names, build_schedule
from .msccl.importer import load_msccl_xml
from .mscclpp.file import is_execution_plan
from .mscclpp.importer import from_mscclpp
from .schedules.schedule import COLLECTIVES, ROOTED, Schedule

MAX_BYTES = 64 * 2**20  # of the text form: five million transfers


def read_schedule(path: Path, *, root: int | None = None) -> Schedule:
    """Read a file by its suffix: `.xml` MSCCL, `.json` the struct or a plan of MSCCL++, anything else the text form.

    `root`: what the user says of it; InputError where the file is of another.
    """
    schedule = _read(path, root)
    if root is not None and schedule.collective in ROOTED and schedule.root != root:
        raise InputError(f"{path}: is a {schedule.collective} of root {schedule.root}, --root says {root}")
    return schedule


def _read(path: Path, root: int | None) -> Schedule:
    if path.suffix == ".xml":
        return load_msccl_xml(path, root=root)
    if path.suffix == ".json":
        data = parse_json(read_text(path, max_bytes=MAX_BYTES), where=str(path))
        return (
            from_mscclpp(data, where=str(path)) if is_execution_plan(data) else convert(data, Schedule, where=str(path))
        )
    return Schedule.parse(read_text(path, max_bytes=MAX_BYTES), where=str(path))


def named_schedule(name: str, ranks: int, *, collective: str | None = None, **keys: Any) -> Schedule:
    """Return the schedule of an algorithm: one of ours by name, or "FILE.py:FUNCTION", which is called with `ranks`.

    Without `collective`, a name means all-reduce if there is one of that name, else the only collective that has it.
    """
    if ".py:" in name:
        return _from_python(name, ranks)
    if name.endswith(".py"):
        raise InputError(f"{name}: which function of it? expected {name}:FUNCTION")
    return build_schedule(collective or _collective_of(name), name, ranks, **keys)


def _collective_of(name: str) -> str:
    kind = name.partition(":")[0]
    if kind == "rings":
        return "all_reduce"
    having = [collective for collective in COLLECTIVES if kind in algorithm_names(collective)]
    if "all_reduce" in having or len(having) == 1:
        return "all_reduce" if "all_reduce" in having else having[0]
    if having:
        raise InputError(f"algorithm {name!r}: of several collectives; say which: --collective {' or '.join(having)}")
    if (meant := kind.lower().replace("-", "_")) in COLLECTIVES:
        raise InputError(f"algorithm {name!r}: is a collective; its algorithms: {', '.join(algorithm_names(meant))}")
    known = {known for collective in COLLECTIVES for known in algorithm_names(collective)}
    raise InputError(f"algorithm {name!r}: unknown ({nearest(kind, known)}); or a function as FILE.py:FUNCTION")


def _from_python(name: str, ranks: int) -> Schedule:
    """Run the user's file, which may import its neighbours, and call the user's function."""
    path, _, function = name.rpartition(":")
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
        if not callable(getattr(module, function, None)):
            own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
            raise InputError(f"{path}: {function}: expected the name of a function in it ({nearest(function, own)})")
        schedule = getattr(module, function)(ranks)
    except InputError:
        raise
    except ValueError as error:  # ours of what is no schedule, and the user's own of what the function cannot do
        raise InputError(f"{name}: {error}") from None
    except Exception as error:
        raise InputError(f"{name}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(str(Path(path).resolve().parent))
    if not isinstance(schedule, Schedule):
        raise InputError(f"{name}: expected a function from ranks to a Schedule, it returned {type(schedule).__name__}")
    if schedule.ranks != ranks:
        raise InputError(f"{name}: returned a schedule of {schedule.ranks} ranks, --ranks says {ranks}")
    return schedule
