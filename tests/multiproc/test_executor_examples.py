"""The examples of collectives run, and show what they say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_custom_collective_is_proved_raced_and_trains_as_plain_ddp_does():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "custom_collective.py", "3"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "proved: Proof(collective='all_reduce', name='two_way_ring', ranks=3" in done.stdout
    assert "losses under DDP with our own" in done.stdout


def test_the_custom_collective_takes_fewer_than_20_lines():
    code = (EXAMPLES / "two_way_ring.py").read_text().partition('"""\n\nfrom')[2].splitlines()

    assert len([line for line in code if line.strip()]) < 20
