"""Our simulator beside SimGrid's plain flow model, on the platforms of `simgrid/cases.py`.

The reference times were computed by SimGrid 3.32 with the command in `simgrid/judge.py`. Where Debian's package is
installed, they are computed again.
"""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from meshwright.simulate.native import run_activities
from meshwright.simulate.problem import problem
from meshwright.simulate.unroll import unroll
from testkit.simgrid_cases import cases, described

FOLDER = Path(__file__).parent / "simgrid"
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-simgrid belongs to
WITHIN = 1e-5  # messages of SimGrid are whole bytes
REFERENCE = json.loads((FOLDER / "reference.json").read_text())
CASES = cases()


def times_of_ranks(case):
    """Return when each rank is through its last round."""
    topology, traffic, size_bytes, disturbance = case
    outcome = run_activities(unroll(problem(traffic, topology, size_bytes, None, disturbance)))
    done, at = np.zeros(traffic.ranks), 0
    for o in traffic.order:
        pattern = traffic.patterns[o]
        ends = outcome.end_s[at : at + len(pattern.src)]
        np.maximum.at(done, pattern.src, ends)
        np.maximum.at(done, pattern.dst, ends)
        at += len(pattern.src)
    return done


@pytest.mark.parametrize("name", CASES)
def test_every_rank_is_done_when_simgrid_says(name):
    np.testing.assert_allclose(times_of_ranks(CASES[name]), REFERENCE[name], rtol=WITHIN)


def test_the_reference_is_what_simgrid_says_today():
    probe = subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("Debian's package python3-simgrid is not installed")
    names = list(CASES)[::4]

    text = json.dumps({name: described(CASES[name]) for name in names})
    done = subprocess.run([PYTHON, str(FOLDER / "judge.py")], input=text, capture_output=True, text=True, check=True)

    found = json.loads(done.stdout)
    for name in names:
        np.testing.assert_allclose(found[name], REFERENCE[name], rtol=1e-6)
