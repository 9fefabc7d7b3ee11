"""Temporary folders go with their process, and what a killed one has left goes with the next."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from meshwright import temporary

OWNS = "from meshwright.temporary import process_folder as f; print(f(), flush=True); "


@pytest.fixture
def place(monkeypatch):
    """Return the folder of temporary files, for this process and its children; one with a short name."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def owner(rest):
    """Return a process that owns a folder, and the folder."""
    process = subprocess.Popen([sys.executable, "-c", OWNS + rest], stdout=subprocess.PIPE, text=True)
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_process(place):
    process, folder = owner("f().joinpath('x').mkdir()")

    assert folder.parent == place
    assert process.wait(20) == 0
    assert not folder.exists()
    process.stdout.close()


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_has_is_not(place):
    dead, left = owner("import time; time.sleep(60)")
    alive, kept = owner("import time; time.sleep(60)")
    dead.send_signal(signal.SIGKILL)
    dead.wait(20)
    for name in ("meshwright-other", "else"):  # without an owner, or not ours
        (place / name).mkdir(mode=0o700)
    (place / "meshwright-link").symlink_to(left)

    temporary.sweep_temporary()

    assert not left.exists()
    assert {path.name for path in place.iterdir()} == {kept.name, "meshwright-other", "else", "meshwright-link"}
    alive.kill()
    alive.wait(20)
    for process in (dead, alive):
        process.stdout.close()


def test_the_socket_of_a_fork_server_lies_in_the_folder_of_its_process(place):
    code = "import multiprocessing.util as u; assert u.get_temp_dir() == str(f())"

    process, _ = owner(code)

    assert process.wait(20) == 0
    process.stdout.close()


def test_a_folder_whose_mode_was_opened_is_left_alone(place):
    process, folder = owner("import time; time.sleep(60)")
    process.kill()
    process.wait(20)
    os.chmod(folder, 0o755)

    temporary.sweep_temporary()

    assert folder.exists()
    process.stdout.close()


def test_a_path_too_long_for_a_socket_is_not_taken(place, monkeypatch):
    long = place / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setenv("TMPDIR", str(long))
    code = "import socket; socket.socket(socket.AF_UNIX).bind(str(f() / 'listener-12345678'))"

    process, folder = owner(code)

    assert process.wait(20) == 0
    assert not folder.exists()
    process.stdout.close()
