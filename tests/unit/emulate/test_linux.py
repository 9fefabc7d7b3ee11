"""Calls of Linux that Python does not offer."""

import subprocess
import sys
import time

PROGRAM = """
import os, signal, sys, time
from meshwright.cluster.emulation.linux import go_on_without_parent
child = os.fork()
if not child:
    go_on_without_parent()
    signal.signal(signal.SIGCONT, lambda *_: (open(sys.argv[1], "w").close(), os._exit(0)))
    os.setpgid(0, 0)  # a group of its own, which is no orphan
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)
os.waitpid(child, os.WUNTRACED)
"""


def test_a_process_that_somebody_stopped_goes_on_when_its_parent_has_ended(tmp_path):
    gone_on = tmp_path / "gone on"

    subprocess.run([sys.executable, "-c", PROGRAM, str(gone_on)], check=True, timeout=200)

    end = time.monotonic() + 100
    while not gone_on.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert gone_on.exists()
