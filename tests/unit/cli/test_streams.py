"""A command that was started without standard input, output or error harms no file, and says what it can."""

import io
import os
import resource
import subprocess
import sys

import click
import pytest

from meshwright.cli import run_command

OPENS = """
import os, sys
from meshwright.cli.streams import open_standard_streams
open_standard_streams()
file = open(sys.argv[1], "w")
os.write(1, b"output "), os.write(2, b"error ")
print("said", file=sys.stderr), print(sys.stdin.read(), end="")
file.write(str(file.fileno() > 2))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_the_number_of_a_stream_that_is_closed(tmp_path, closed):
    path, code = tmp_path / "file", tmp_path / "opens.py"
    code.write_text(OPENS)

    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, str(code), str(path)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert path.read_text() == "True"


def test_a_file_name_that_is_no_utf8_is_said_in_one_line(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.json"

    done = subprocess.run(
        [sys.executable, "-m", "meshwright", "topo", "--from", path, "--json"], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "caf\\udce9.json: no such file" in done.stderr


def test_a_limit_of_the_machine_is_one_line(monkeypatch, capsys):
    @click.command()
    def command() -> None:
        raise OSError(24, "Too many open files")

    assert run_command([], command) == 1
    assert capsys.readouterr().err.startswith("meshwright: Too many open files (ulimit -n: ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_a_full_disk_cuts_off_is_no_success(tmp_path, unbuffered):
    def least_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    with (tmp_path / "output").open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "meshwright", "train", "--print-config"], stdout=output, stderr=subprocess.PIPE,
            text=True, preexec_fn=least_room, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (1, "meshwright: File too large\n")


def test_what_was_printed_without_a_flush_and_found_no_room_is_said(monkeypatch, capsys):
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

        def fileno(self) -> int:
            return spare

    spare = os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setattr(sys, "stdout", Full())

    code = run_command([], click.Command("command", callback=lambda: None))

    os.close(spare)
    assert (code, capsys.readouterr().err) == (1, "meshwright: No space left on device\n")
