"""One device under torch's profiler and under our recorder at once, and what our recorder costs by itself.

Writes the profiler's trace into a folder, for `meshwright report`, and prints what our timeline says of the same steps.

Usage: python -m benchmarks.gpu_profile FOLDER [SECTION.KEY=NUMBER...]
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.recording import on_and_off, trainer_of
from meshwright import device as devices
from meshwright.train.job.config import load_job
from meshwright.train.loop import Trainer

STEPS = 10  # under the profiler
BLOCK, RECORDED = 5, 25  # steps of a block, and of each kind, with the recorder on and off


def profiled(trainer: Trainer, first: int, trace: Path) -> dict[str, float]:
    """Run some steps under the profiler; return the medians of their parts by our own recorder."""
    trainer.recorder.enabled = True
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as profiler:
        for step in range(first, first + STEPS):
            with torch.profiler.record_function(f"ProfilerStep#{step}"):
                trainer.step(step)
    profiler.export_chrome_trace(str(trace))
    parts = list(trainer.recorder.parts)[-STEPS:]
    return {name: statistics.median(part[name] for part in parts) for name in parts[0]}


def measured(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a step by our timeline, and the seconds of a step with the recorder on and off."""
    where = devices.device()
    devices.set_current(where)
    trainer = trainer_of(load_job(None, settings), 0, 1, where, folder / "job")
    times = on_and_off(trainer, RECORDED, BLOCK)
    after = (2 * BLOCK) + 2 * RECORDED + BLOCK
    parts = profiled(trainer, after, folder / "rank0.pt.trace.json")
    return parts | {f"recorder_{kind}_s": statistics.median(found) for kind, found in times.items()}


if __name__ == "__main__":
    given = {key: json.loads(value) for key, value in (text.split("=") for text in sys.argv[2:])}
    sys.stdout.write("\n" + json.dumps(measured(Path(sys.argv[1]), given)) + "\n")
