"""The tab key completes values: models, clusters, stacks, algorithms, and files where no name begins like that."""

import os
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from meshwright import cli
from meshwright.cli.values import ARGUMENTS, OF_A_COMMAND, ONLY_FILES, OPTIONS
from tests.unit.cli.test_terminal import commands


def completed(*words, typed):
    """Return what the tab key offers after these words, with the kind of each."""
    shell = ShellComplete(cli.group, {}, "meshwright", "_MESHWRIGHT_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(list(words), typed)]


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        (["plan", "--model"], "llama3-7", "llama3-70b"),
        (["plan", "--cluster"], "thi", "this"),
        (["plan", "--cluster"], "dgx-h1", "dgx-h100"),
        (["plan", "--stack"], "megat", "megatron"),
        (["plan", "--engine"], "torcht", "torchtitan"),
        (["plan", "--emit"], "deeps", "deepspeed"),
        (["plan", "--precision"], "mxf", "mxfp8"),
        (["simulate", "--algorithm"], "rin", "ring"),
        (["simulate", "--collective"], "all_to", "all_to_all"),
        (["simulate", "--fabric"], "drag", "dragonfly"),
        (["collectives", "draw"], "hier", "hierarchical"),
        (["collectives", "price", "--cluster"], "aws-p5", "aws-p5"),
        (["validate", "--model"], "gpt2", "gpt2"),
        (["bench"], "all_g", "all_gather"),
        (["bench", "--node"], "dgx-h1", "dgx-h100"),
        (["topo", "--gpu"], "a100-4", "a100-40g"),
        (["topo", "--catalogue"], "dgx-h1", "dgx-h100"),
        (["train", "--backend"], "mesh", "meshwright"),
        (["completion"], "fi", "fish"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_value_is_completed(words, typed, expected):
    assert ("plain", expected) in completed(*words, typed=typed)


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_the_tab_key_behind_a_command_prints_nothing_else(path, capsys):
    completed(*path, typed="")

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["plan", "--model"], ["plan", "--cluster"], ["collectives", "show"]])
def test_files_are_completed_where_no_name_begins_like_that(words):
    assert completed(*words, typed="./mine") == [("file", "./mine")]


def test_every_option_that_takes_a_name_is_completed():
    known = {(path[-1], flag) for path, command in commands() for flag in OPTIONS if path}
    bare = []
    for path, command in commands():
        for option in command.params:
            if isinstance(option, click.Option) and option.metavar == "NAME":
                completes = type(option.type).__name__ == "Completed" or isinstance(option.type, click.Choice)
                if not completes:
                    bare.append(" ".join([*path, option.opts[-1]]))
    assert bare == []
    assert set(OF_A_COMMAND) | ONLY_FILES <= known
    assert {name for name, _ in ARGUMENTS} <= {path[-1] for path, _ in commands() if path}


@pytest.mark.parametrize(("shell", "separator"), [("bash", ","), ("zsh", "\n"), ("fish", ",")])
def test_every_shell_gets_the_values(shell, separator):
    line = {
        "bash": "meshwright plan --model gpt",
        "zsh": "meshwright plan --model gpt",
        "fish": "meshwright plan --model",
    }
    done = subprocess.run(
        [sys.executable, "-m", "meshwright"],
        env={
            **os.environ, "_MESHWRIGHT_COMPLETE": f"{shell}_complete", "COMP_WORDS": line[shell],
            "COMP_CWORD": "gpt" if shell == "fish" else "3",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert f"plain{separator}gpt2" in done.stdout, done.stderr
