"""The command line as a user types it."""

import importlib
import json
import subprocess
import sys

import pytest

from meshwright import cli


def test_help_lists_every_command_and_imports_no_torch():
    code = "import sys; from meshwright import cli; cli.run_command(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert [name for name in cli.COMMANDS if name not in done.stdout] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["trian"], "trian"), (["train", "--ranks", "0"], "--ranks"), (["train", "none.toml"], "none.toml: no such file")],
)
def test_a_bad_command_line_is_one_line_and_exit_code_two(arguments, message, capsys):
    assert cli.run_command(arguments) == 2
    errors = capsys.readouterr().err

    assert message in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("name", ["collectives", "checkpoint", "emulate"])
@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_group_says_all_of_what_each_of_its_commands_does(name, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)

    assert cli.run_command([name, "--help"]) == 0

    said = " ".join(capsys.readouterr().out.partition("Commands:")[2].split())
    commands = importlib.import_module(f"meshwright.cli.{name}").command.commands
    assert commands
    for each in commands.values():
        assert f"{each.name} {each.get_short_help_str(limit=10**4)}" in said


@pytest.mark.parametrize("arguments", [[], ["collectives"], ["checkpoint"], ["emulate"]])
def test_a_group_by_itself_shows_its_help_as_it_is(arguments, capsys):
    assert cli.run_command(arguments) == 0
    alone = capsys.readouterr()
    assert cli.run_command([*arguments, "--help"]) == 0

    assert alone.out == capsys.readouterr().out
    assert alone.err == ""


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["plann"], "plan"),
        (["collectives", "verfy"], "verify"),
        (["checkpoint", "shw"], "show"),
        (["emulate", "lst"], "list"),
    ],
)
def test_a_mistyped_command_is_told_the_nearest(arguments, hint, capsys):
    assert cli.run_command(arguments) == 2
    said = capsys.readouterr().err.lower()
    assert f"did you mean {hint}?" in said
    assert said.count("did you mean") == 1


def test_a_word_that_is_like_no_command_is_told_all_of_them(capsys):
    assert cli.run_command(["hardware"]) == 2
    assert "Known: bench, checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["simulate", "--collective", "all_reduc"], "all_reduce"),
        (["train", "--backend", "glo"], "gloo"),
        (["completion", "bsh"], "bash"),
    ],
)
def test_a_mistyped_value_of_a_closed_set_is_told_the_nearest(arguments, hint, capsys):
    assert cli.run_command(arguments) == 2
    assert " is not one of " in (said := capsys.readouterr().err)
    assert said.endswith(f" Did you mean {hint}?\n")


@pytest.mark.parametrize("arguments", [["doctor", "--list"], ["completion", "bash"]])
def test_what_prints_text_prints_an_object_on_demand(arguments, capsys):
    assert cli.run_command([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_interrupt_is_exit_code_130(wrapped, monkeypatch, capsys):
    def interrupted(*_, **__):
        if wrapped:  # as Python 3.11 does while a class names its attributes
            raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()
        raise KeyboardInterrupt

    monkeypatch.setattr("meshwright.train.job.config.load_job", interrupted)
    assert cli.run_command(["train"]) == 130
    assert capsys.readouterr().err.strip() == "meshwright: interrupted"
