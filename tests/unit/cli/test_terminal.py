"""The terminal: help that fits a screen, colours where they are wanted, JSON that is only JSON, completion."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from docsite.box import A100_TABLE, ROOT
from meshwright import cli
from meshwright.cli.help_format import Brief
from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.msccl.exporter import to_msccl_xml
from testkit.runs import fake_run
from testkit.small_checkpoints import MODELS, saved

WIDTH, HEIGHT = 80, 24  # of a terminal as it comes


def commands(command=cli.group, path=()):
    """Return every command with its sub-commands, after the words that call it."""
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found += commands(command.get_command(context, name), (*path, name))
    return found


def shown_help(words):
    return CliRunner().invoke(cli.group, [*words], terminal_width=WIDTH).output


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_the_help_of_every_command_fits_a_screen_and_shows_an_example(path):
    lines = shown_help([*path, "--help"]).splitlines()

    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH
    assert any(line.strip().startswith("Example") for line in lines)


@pytest.mark.parametrize("path", [path for path, command in commands() if isinstance(command, Brief)], ids=" ".join)
def test_what_the_help_leaves_out_is_in_the_whole_one(path):
    command = next(command for other, command in commands() if other == path)
    options = {option.opts[-1] for option in command.params if isinstance(option, click.Option)} - {"--help-all"}
    brief, whole = (shown_help([*path, word]) for word in ("--help", "--help-all"))

    def named(text):
        return {name for name in options if re.search(rf"^  (-\w, )?{name}\b(?!-)", text, re.MULTILINE)}

    assert f"all {len(options)} options" in brief
    assert named(whole) == options
    assert len(named(brief)) < len(options) - 5
    assert re.search(r"^  (-h, )?--help ", brief, re.MULTILINE)  # click remembers how a command was first called


def test_a_help_that_leaves_nothing_out_is_the_whole_one_too():
    short = [path for path, command in commands() if not isinstance(command, Brief)]

    assert () in short
    assert {path for path in short if shown_help([*path, "--help-all"]) != shown_help([*path, "--help"])} == set()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_help_waits_for_torch(name):
    code = (
        f"import sys; from meshwright import cli; cli.run_command([{name!r}, '--help']); "
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def in_terminal(arguments: list[str], **environment: str) -> str:
    """Return what a command writes when its output is a terminal."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "meshwright", *arguments],
        stdout=side, stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(side)
    text = b""
    try:
        while part := os.read(main, 65536):
            text += part
    except OSError:  # the other side has been closed
        pass
    os.close(main)
    assert process.wait() == 0
    return text.decode()


COLOUR = re.compile(r"\x1b\[[\d;]*\b(?:3[0-7]|38|9[0-7]|4[0-7])\b[\d;]*m")
LISTING = ["topo", "--catalogue", "a100"]


def test_a_terminal_gets_styles_and_a_pipe_gets_plain_text():
    piped = subprocess.run(
        [sys.executable, "-m", "meshwright", *LISTING], capture_output=True, text=True, check=True
    ).stdout

    assert "\x1b[" in in_terminal(LISTING)
    assert "\x1b" not in piped
    assert "…" not in piped  # nothing is cut


def test_no_color_is_heeded():
    assert not COLOUR.search(in_terminal(LISTING, NO_COLOR="1"))


MODEL = "--model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8"
PRINTING_JSON = [  # in seconds and here; the others by tests of their own, below and elsewhere
    "topo --json",
    "topo --catalogue h100 --json",
    "collectives list --json",
    "collectives show ring --ranks 4 --json",
    "collectives draw ring --ranks 4 --json",
    "collectives verify ring --ranks 4 --json",
    "collectives price --ranks 4 --bytes 1M --rate 1GB/s --alpha 1us --json",
    "collectives export ring --ranks 4 --json",
    "collectives import ring.xml --json",
    "simulate --collective all_reduce --algorithm ring --ranks 8 --bytes 1M --cluster dgx-h100 --json",
    f"plan {MODEL} --json",
    f"plan {MODEL} --layout tp=8 --json",
    f"plan {MODEL} --target-mfu 0.4 --json",
    f"plan {MODEL} --scaling fixed --json",
    "validate runs.csv --json",
    "bench --from saved.txt --json",
    "checkpoint show saved --json",
    "checkpoint verify saved --json",
    "checkpoint convert saved exported --json",
    "doctor --json",
    "completion bash --json",
    "emulate list --json",
]
ELSEWHERE = {  # what prints JSON, and the test that reads it
    "report": "test_the_json_of_a_report_is_the_data_of_its_page",
    "train": "tests/multiproc/train/test_pipeline_run.py",
    "emulate": "tests/multiproc/test_emulate.py",
    "emulate fault": "tests/multiproc/test_emulate.py",
}


@pytest.mark.parametrize("arguments", PRINTING_JSON)
def test_json_is_all_that_is_printed(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("ring.xml").write_text(to_msccl_xml(build_schedule("all_reduce", "ring", 4)))
    Path("saved.txt").write_text(A100_TABLE)
    published = (ROOT / "tests/external/published/training_runs.csv").read_text().splitlines(keepends=True)
    Path("runs.csv").write_text("".join(published[:3]))
    if arguments.startswith("checkpoint"):
        saved(Path("saved"), MODELS["tied"])

    code = cli.run_command(arguments.split())
    printed = capsys.readouterr().out

    assert code == 0 or arguments.startswith("doctor")  # which may have found something
    assert printed
    for line in printed.splitlines():
        json.loads(line)


def test_every_command_that_prints_json_is_among_those():
    printing = {" ".join(path) for path, command in commands() for option in command.params if "--json" in option.opts}
    listed = {*ELSEWHERE, *(name for name in printing for line in PRINTING_JSON if line.startswith(f"{name} "))}

    assert printing - listed == set()
    assert {" ".join(path) for path, command in commands() if not isinstance(command, click.Group)} - printing == {
        "emulate exec",  # prints what the command prints
    }


def test_the_json_of_a_report_is_the_data_of_its_page(tmp_path, capsys):
    folder = fake_run(tmp_path / "run")

    assert cli.run_command(["report", str(folder.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((folder.path / "report.json").read_text())


def test_the_table_of_a_report_is_printed_with_the_verdict(tmp_path, capsys):
    folder = fake_run(tmp_path / "run")

    assert cli.run_command(["report", str(folder.path)]) == 0
    out = capsys.readouterr().out
    assert "predicted" in out
    assert "most of the difference is in" in out


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["nowhere"], "no such file or folder"),
        (["a", "b", "c"], "expected one run, two runs, or traces alone"),
        (["empty"], "no trace in it"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(names, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").touch()

    assert cli.run_command(["report", *names]) == 2
    assert reason in capsys.readouterr().err


def test_a_run_without_an_end_says_which_file_is_missing(tmp_path, capsys):
    folder = fake_run(tmp_path / "run")
    (folder.path / "measured.json").unlink()

    assert cli.run_command(["report", str(folder.path)]) == 2
    assert "measured.json: no such file" in capsys.readouterr().err


def test_the_tab_key_completes_commands():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from meshwright.cli import main; main()"],
        env={**os.environ, "_MESHWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": "meshwright tr", "COMP_CWORD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stdout.split() == ["plain,train"]


def test_bash_completes_options_by_the_script_that_is_printed(tmp_path):
    program = tmp_path / "meshwright"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m meshwright "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = subprocess.run(
        [program, "completion", "bash"], env=environment, capture_output=True, text=True, check=True
    )
    pressed = (
        'COMP_WORDS=(meshwright plan --target); COMP_CWORD=2; _meshwright_completion meshwright; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", f"{script.stdout}\n{pressed}"], env=environment, capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["--target-mfu", "--target-step-time", "--target-days"], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed_where_the_shell_looks(shell, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))

    assert cli.run_command(["completion", shell, "--install"]) == 0
    path = capsys.readouterr().out.split(": ")[0]
    assert path.startswith(str(tmp_path))
    assert "_MESHWRIGHT_COMPLETE" in Path(path).read_text()
