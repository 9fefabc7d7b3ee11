"""Starts programs of clients as their users do, and reads what each rank reported."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 600  # a client's import alone takes half a minute on a busy machine


def needs(*packages):
    """Return a mark that skips where a client is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"pip install 'meshwright[clients]': no {', '.join(missing)}")


def needs_entry_point():
    """Return a mark that skips where torch does not find our name by itself: the package is only on the path."""
    found = [point.name for point in importlib.metadata.entry_points(group="torch.backends")]
    return pytest.mark.skipif("meshwright" not in found, reason="the installed package has no entry point for torch")


def run(program, *arguments, ranks=None, options=(), ends_well=True, **environment):
    """Run a program on `ranks` ranks of torchrun (None: it starts its ranks itself); return its ranks' reports.

    Without `ends_well` the reports count even where a rank aborts after its own. Gloo's do now and then, at exit, with
    no Python frame left ("terminate called without an active exception"), where nothing of ours is imported either.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options]
    command = [sys.executable, *(launcher if ranks else []), str(PROGRAMS / program), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true", "DS_ACCELERATOR": "cpu"} | environment
        done = subprocess.run(
            command, env=os.environ | settings | {"REPORT_FOLDER": folder},
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        reports = [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]
        is_enough = not ends_well and len(reports) == ranks
        assert done.returncode == 0 or is_enough, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        return reports


def values(reports, *, ours, count):
    """Return what the ranks reported, after a look that all came and whose groups they used."""
    assert [report["ours"] for report in reports] == [ours] * count
    return [report["values"] for report in reports]


def same_as_gloo(program, *arguments, ranks, launched=True, replaced=False):
    """Run a program with Gloo and with ours, `replaced` in its place; its ranks must report the same.

    To the last digit for 2 ranks, where there is one order to sum in; for more, Gloo sums in another order than ours.
    A program that is not `launched` on each rank is told the number of them and starts them itself.
    """
    on = {"ranks": ranks} if launched else {}
    arguments += () if launched else (ranks,)
    gloo = values(run(program, "gloo", *arguments, **on, ends_well=False), ours=False, count=ranks)
    if replaced:
        reports = run(program, "gloo", *arguments, **on, MESHWRIGHT_REPLACE_GLOO="1")
    else:
        reports = run(program, "meshwright", *arguments, **on)
    found = values(reports, ours=True, count=ranks)
    if ranks == 2:
        assert found == gloo
    else:
        assert_close(found, gloo)


def assert_close(found, expected):
    """Compare nested values: texts and whole numbers exactly, floats to what another order of summing leaves."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    else:
        assert found == expected
