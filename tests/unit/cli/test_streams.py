"""A command that was started without standard input, output or error harms no file, and says what it can."""

import os
import subprocess
import sys

import pytest

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
    import click

    from meshwright.cli import run_command

    @click.command()
    def command() -> None:
        raise OSError(24, "Too many open files")

    assert run_command([], command) == 1
    assert capsys.readouterr().err.startswith("meshwright: Too many open files (ulimit -n: ")
