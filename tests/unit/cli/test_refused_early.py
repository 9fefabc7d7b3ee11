"""Bad input is refused before torch is loaded, which takes seconds on a busy machine."""

import json
import subprocess
import sys

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
