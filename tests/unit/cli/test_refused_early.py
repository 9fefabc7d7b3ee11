"""Bad input is refused before torch is loaded, which takes seconds on a busy machine."""

import json
import os
import subprocess
import sys

import pytest

from meshwright.cli import run_command

RUN = """
import json, sys
from meshwright.cli import run_command
codes = [run_command(command) for command in json.loads(sys.argv[1])]
print(json.dumps([codes, "torch" in sys.modules]))
"""


def test_a_setting_beside_resume_is_told_where_to_change_it(tmp_path, capsys):
    assert run_command(["train", "--resume", str(tmp_path / "run"), "--layout", "dp=4"]) == 2

    told = capsys.readouterr().err
    assert f"as {tmp_path / 'run' / 'config.toml'} says" in told
    assert "--changed KEY" in told


def test_bad_files_are_refused_before_torch_is_loaded(tmp_path):
    (tmp_path / "job.toml").write_text("[train]\nlr = nan\n")
    (tmp_path / "plan.json").write_text('{"schema": "meshwright.plan/2"}')
    (tmp_path / "table.txt").write_text("# nThread 1\n" + "x" * 10**6 + "\n")
    none = str(tmp_path / "none")
    commands = [
        *(["train", str(tmp_path / name)] for name in ("job.toml", "plan.json", "none.toml")),
        *(["bench", "--from", str(tmp_path / name)] for name in ("table.txt", "none")),
        *(["checkpoint", *words] for words in (["verify", none], ["show", none], ["convert", none, none])),
    ]

    ran = subprocess.run([sys.executable, "-c", RUN, json.dumps(commands)], capture_output=True, text=True, check=True)

    assert json.loads(ran.stdout) == [[2] * len(commands), False]
    lines = ran.stderr.splitlines()
    assert len(lines) == len(commands)
    assert all(line.startswith(f"meshwright: {tmp_path}") or "plan" in line or "layout" in line for line in lines)


def test_a_dump_without_its_option_is_told_the_option(tmp_path, capsys):
    matrix, ports = tmp_path / "matrix.txt", tmp_path / "ports.txt"
    matrix.write_text("GPU0 GPU1\n")
    ports.write_text("CA 'mlx5_0'\n")

    assert run_command(["topo", str(matrix), str(ports)]) == 2
    assert f"expected --from {matrix} --from {ports} to read a dump" in " ".join(capsys.readouterr().err.split())


def test_a_folder_of_runs_is_no_run_and_its_newest_is_named(tmp_path, capsys):
    for number, name in enumerate(["later", "earlier"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text("")
        os.utime(tmp_path / name / "config.toml", (1000 - number, 1000 - number))
    assert run_command(["train", "--resume", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"holds no run (config.toml); the newest below it: --resume {tmp_path / 'later'}" in said

    (tmp_path / "empty").mkdir()
    assert run_command(["train", "--resume", str(tmp_path / "empty")]) == 2
    assert "holds no run (config.toml)\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["topo", "--from", "-"], ["bench", "--from", "-"], ["doctor", "--logs", "-"], ["plan", "--job", "-"]]
)
def test_what_is_piped_is_told_to_go_into_a_file_first(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(words) == 2
    assert "what is piped is written to a file first: COMMAND > FILE" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("collectives draw all_gather --ranks 4", "'all_gather': is a collective; its algorithms: "),
        ("collectives verify reduce-scatter --ranks 4", "'reduce-scatter': is a collective; its algorithms: "),
        ("collectives price all_gather --like nccl --ranks 8 --bytes 1M --cluster dgx-h100", "--collective all_gather"),
        ("emulate --nodes 2 --nic 10G -- true", "--nic: '10G': unknown unit"),
    ],
)
def test_a_refusal_names_the_option_or_the_kind_of_name_that_is_expected(words, said, capsys):
    assert run_command(words.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())
