"""The flight on one GPU, on the fake device: every part runs to its end, and says that it has measured nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("environment", "topology", "compute", "training", "transport", "survival", "contest")
MINUTES = 20


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 60)
def test_every_part_of_the_flight_runs_on_the_fake_device(tmp_path):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks", "gpu", "--minutes", str(MINUTES), "--to", str(tmp_path / "flight")]

    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "MESHWRIGHT_TRIAL": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert [row["part"] for row in rows] == list(PARTS)
    for row in rows:
        assert row["remark"].startswith("not measured: no GPU; its program ran"), row
        assert row["value"] == ""
    machine = json.loads((tmp_path / "flight" / "machine.json").read_text())
    assert {each["name"] for each in machine["accelerators"]} == {"Fake H100"}
