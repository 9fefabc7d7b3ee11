"""Readers of what Meshwright itself keeps and exchanges: runs, calibrations, checkpoints, execution plans."""

import functools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from meshwright.bench.calibrate import CachedMeasurements
from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.mscclpp.exporter import to_mscclpp
from meshwright.files import read_struct
from meshwright.hardware import load_catalogue
from meshwright.machine_load import Load
from meshwright.plan.analytic.calibration import read_calibration
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.fitting.calibrate import calibrate_from_runs
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.stored import verify_pieces
from meshwright.train.run.events import Event, read_events
from tests.unit.collectives.mscclpp_plans import all_gather

Seed = tuple[str, bytes]  # the name that the file must have, and what is in it
MEASUREMENTS = {
    "fingerprint": "x",
    "operators": [{"operator": "linear 8x8x8", "ranks": 2, "threads": 1, "forward_s": 1e-4, "backward_s": 2e-4}],
    "collectives": [
        {
            **{"collective": "all_reduce", "backend": "gloo", "ranks": 2, "alpha_s": 1e-5, "beta_s_per_byte": 1e-10},
            **{"min_bytes": 8, "max_bytes": 2**20, "points": [[8, 1e-5], [1024, 2e-5]]},
        }
    ],
    "straggling": [{"ranks": 2, "share": 0.03}],
    "conditions": [
        {
            **{"ranks": 2, "made": "2026-01-01 12:00 UTC", "others_share": 0.1},
            "pace": {"product_s": 0.01, "product_error": 0.01, "copy_s": 0.01, "copy_error": 0.02},
        }
    ],
}
CLUSTER = b"""name = "ours"
schema = "meshwright.cluster/1"
[[groups]]
name = "a"
count = 4
gpus = 8
gpu_bandwidth_bytes_per_s = 450e9
gpu_latency_s = 2e-6
[groups.gpu]
id = "GPU"
kind = "gpu"
memory_bytes = 80000000000
[groups.gpu.peak_flops_per_s]
bf16 = 989e12
[fabric]
kind = "fat-tree"
"""


def measurements() -> list[Seed]:
    """Return measurements of a machine."""
    return [("measurements.json", json.dumps(MEASUREMENTS).encode())]


def kept_measurements() -> list[Seed]:
    """Return measurements as they lie in the cache."""
    return [("kept.json", json.dumps({"xxh3_128": "0" * 32, "measurements": MEASUREMENTS}).encode())]


def clusters() -> list[Seed]:
    """Return a cluster as people write it."""
    return [("cluster.toml", CLUSTER)]


@functools.cache
def _own_calibration(table: str) -> bytes:
    """Return what `validate --calibrate` saves of the first rows of a published table that can be priced."""
    catalogue, known = load_catalogue(), book()
    lines = Path(table).read_bytes().splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        for line in lines[1:]:
            path.write_bytes(lines[0] + line)
            (row,) = read_rows(path, catalogue, known, known_models())
            if row.run is not None and row.measured_step_time_s:
                break
        found = calibrate_from_runs(path, catalogue, known, known_models(), made="2026-01-01")
    return msgspec.json.encode(found)


def calibrations(table: Path) -> Callable[[], Sequence[Seed]]:
    """Return a calibration by one's own runs."""
    return lambda: [("calibration.json", _own_calibration(str(table)))]


def execution_plans() -> list[Seed]:
    """Return plans of MSCCL++: exported ones, one of the tests, and that as its first reader had it."""
    made = [to_mscclpp(build_schedule("all_reduce", name, 4)) for name in ("ring", "one_shot")]
    first = json.loads(
        json.dumps(all_gather(4)).replace(
            '"channel_type": "memory", "connected_to"', '"type": "memory", "connected_to"'
        )
    )
    return [("plan.json", json.dumps(plan).encode()) for plan in (*made, all_gather(4), first)]


def events() -> list[Seed]:
    """Return the events of a rank."""
    some = [
        Event(kind="failure", message="rank 2 has died", rank=0, culprit=2, host="a", step=7, operation="all_reduce"),
        Event(kind="slow_link", message="slow", rank=0, culprit=1, evidence={"share": 0.2}, time_s=1e9),
    ]
    return [("0.jsonl", b"".join(msgspec.json.encode(one) + b"\n" for one in some))]


def loads() -> list[Seed]:
    """Return the loads that the ranks of a run hand in."""
    one = Load(host="a", wall_s=2.0, processors=2, own_s=1.0, all_s=2.0, stolen_s=0.0, waited_s=0.1)
    return [("load.json", msgspec.json.encode([one, one]))]


def shards(make: Callable[[], Sequence[Seed]], folder: Path) -> Callable[[], Sequence[Seed]]:
    """Return the file of a rank of a checkpoint that `make` writes to a folder."""

    def found() -> list[Seed]:
        make()
        return [(path.name, path.read_bytes()) for path in sorted(folder.rglob("rank-*.safetensors"))]

    return found


def verified(folder: Path) -> Callable[[Path], Any]:
    """Return what verifies a checkpoint of which one file is the damaged one; its manifest is in `folder`."""

    def read(path: Path) -> Any:
        (manifest,) = folder.rglob("manifest.json")
        for other in manifest.parent.iterdir():
            if other.name != path.name:
                (path.parent / other.name).write_bytes(other.read_bytes())
        return verify_pieces(path.parent, read_manifest(path.parent))

    return read


def read_kept(path: Path) -> Any:
    """Read the cache of measurements."""
    return read_struct(path, CachedMeasurements)


def read_loads(path: Path) -> Any:
    """Read the loads of a run."""
    return read_struct(path, list[Load])


def read_run_events(path: Path) -> Any:
    """Read the events of a run; lines that are damaged are left out."""
    return read_events(path.parent)


def read_own(path: Path) -> Any:
    """Read a calibration by one's own runs."""
    return read_calibration(str(path))
