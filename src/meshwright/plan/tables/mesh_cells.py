"""Columns of MaxText in a table of runs: the axes of its mesh, inside slices (ici) and between them (dcn), and batches.

Source: AI-Hypercomputer/maxtext:src/MaxText/configs/base.yml; `jobs.engines.maxtext` reads its configurations.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from ...errors import InputError
from ...jobs.engines.maxtext import AXES
from .cells import count_of, is_empty
from .names import letters

PLAIN_AXES = {letters(name): axis for name, axis in AXES.items()}
MESH = re.compile(rf"(?:ici|dcn)({'|'.join(sorted(PLAIN_AXES, key=len, reverse=True))})parallelism")
DEVICE_BATCH = "perdevicebatchsize"
REST = "-1"  # what the other axes leave of the devices
SPLITTING = ("tp", "pp", "cp")  # axes whose ranks work at the same sequences


def is_axis(name: str) -> bool:
    """Return whether a column is the size of an axis of MaxText's mesh."""
    return MESH.fullmatch(letters(name)) is not None


def mesh_of(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the degrees that MaxText's axes make; what they leave of the devices are copies, as base.yml has it."""
    sizes: dict[str, int] = {}
    rest = ""
    for name, text in cells.items():
        axis = MESH.fullmatch(letters(name))
        if axis is None or is_empty(text):
            continue
        if text.strip() == REST:
            rest = PLAIN_AXES[axis[1]]
            sizes.setdefault(rest, 1)
        else:
            sizes[PLAIN_AXES[axis[1]]] = sizes.get(PLAIN_AXES[axis[1]], 1) * count_of({name: text}, name)
    devices = count_of(cells, "num_gpus")
    told = math.prod(sizes.values())
    if devices % told:
        raise InputError(f"axes of the mesh: their product is {told}, but num_gpus = {devices}")
    left = rest or ("data" if "data" not in sizes else "")
    if left:
        sizes[left] = sizes.get(left, 1) * (devices // told)
    elif told != devices:
        raise InputError(f"axes of the mesh: their product is {told}, but num_gpus = {devices}")
    copies, shard, experts = (sizes.get(axis, 1) for axis in ("data", "shard", "ep"))
    found = {axis: str(sizes[axis]) for axis in ("tp", "pp", "cp", "ep") if sizes.get(axis, 1) > 1}
    found |= {"dp": str(copies * shard * experts), "zero_stage_fsdp": "3" if shard > 1 else "0"}
    return found | ({"replicas": str(copies)} if copies > 1 and shard > 1 else {})


def batch_of_devices(cells: Mapping[str, str], name: str, text: str) -> dict[str, str]:
    """Return the batch of a step that sequences of each device make; a fraction where several share one."""
    if any(count_of(cells, axis, 1) > 1 for axis in SPLITTING) and not any(map(is_axis, cells)):
        raise InputError(f"column {name}: {text!r} of each device, of which several share sequences: say micro_batch")
    if count_of(cells, "pp", 1) > 1:
        raise InputError(f"column {name}: a pipeline cuts it into micro-batches; expected micro_batch, the size of one")
    steps = count_of(cells, "accumulation_steps", 1)
    try:
        batch = Fraction(text) * count_of(cells, "num_gpus") * steps
    except ValueError:
        batch = Fraction(0)
    if batch < 1 or batch.denominator != 1:
        raise InputError(f"column {name}: expected sequences of a device that make whole ones in all, got {text!r}")
    return {"global_batch_sequences": str(int(batch)), "accumulation_steps": str(steps)}
