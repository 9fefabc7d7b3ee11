"""A comfort that is missed is said once: by the process that misses it first, for all that it starts."""

import os
import subprocess
import sys

from meshwright.native import TOLD_VARIABLE

SAYS = "from meshwright.native import warn_on_first; warn_on_first('no cache')"
STARTS = f"{SAYS}; import subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS!r}], check=True)"


def said(program: str, **variables: str) -> int:
    kept = {name: value for name, value in os.environ.items() if name not in ("LOCAL_RANK", TOLD_VARIABLE)}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    return done.stderr.count("meshwright: no cache")


def test_a_process_says_it_for_the_processes_it_starts():
    assert said(STARTS) == 1


def test_of_several_ranks_of_a_node_the_first_says_it():
    assert [said(SAYS, LOCAL_RANK=rank) for rank in "01"] == [1, 0]


def test_each_line_is_said_whatever_was_said_before():
    assert said(STARTS.replace("no cache", "no cache and no compiler", 1)) == 2
