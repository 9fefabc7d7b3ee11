"""However a configuration is damaged, the answer is a job or one line."""

import random
from pathlib import Path

import pytest

from benchmarks.published_jobs import renderings
from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

PIECES = (
    *"\"'`$(){}[]<>|&;=\\\n #:,-*019az!%~^\t",
    *("${", "$((", "))", "<<EOF\n", "[[ ", "]] ", "fi\n", "done\n", "if ", "then\n", "null", "-1", "1e9", "9" * 20),
    *("&a", "*a", "!!python/name:os.system", "true", "auto", "\x00", "\ue000", "é"),
)


def damaged(files: dict[str, str], rng: random.Random) -> dict[str, str]:
    """Return files of which one has pieces cut out and put in."""
    name = rng.choice(sorted(files))
    text = files[name]
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 0, 1, 2, 5, 20, 100]))
        text = text[:start] + "".join(rng.choices(PIECES, k=rng.randint(0, 3))) + text[end:]
    return {**files, name: text}


def answer(files: dict[str, str], folder: Path, rng: random.Random) -> str:
    """Return the error that damaged files give, "" where a job could still be read."""
    for name, text in files.items():
        (folder / name.partition(":")[0]).write_text(text)
    try:
        read_job([str(folder / name) for name in files], JobOptions(gpus=rng.choice([None, 8, 64])))
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_damaged_files_give_a_job_or_one_line(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    entries = renderings()

    errors = [answer(damaged(rng.choice(entries)["files"], rng), tmp_path, rng) for _ in range(40)]

    assert [error for error in errors if "\n" in error] == []


MEGATRON = "pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64"
MAXTEXT = "model_name: llama3.1-8b\nhardware: gpu\nici_fsdp_parallelism: 8\nmax_target_length: 64\n"


BATCH = "per_device_batch_size"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.sh", f"torchrun --nproc_per_node {'9' * 30} {MEGATRON} --micro-batch-size 1", "a.sh: .*at most 8388608"),
        ("a.sh", f"torchrun --nproc_per_node 8 {MEGATRON} --micro-batch-size {'9' * 30}", "expected a whole number"),
        ("m.yml", f"{MAXTEXT}{BATCH}: {2**63}\n", f"{BATCH}: expected a number, more than 0"),
        ("m.yml", f"{MAXTEXT}{BATCH}: 1.0e+308\n", f"{BATCH}: expected a number, more than 0"),
    ],
)
def test_figures_that_no_job_has_are_refused_by_name(name, text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        raise InputError(answer({name: text}, tmp_path, random.Random(1)))


def test_a_number_of_thousands_of_digits_in_slurms_lines_is_none(tmp_path):
    script = f"#!/bin/bash\n#SBATCH --nodes={'9' * 5000} --ntasks-per-node=8\nsrun python {MEGATRON}\n"

    assert "\n" not in answer({"a.sh": script}, tmp_path, random.Random(1))


@pytest.mark.parametrize("name", ["run.sh", "own.yaml", "ds.json"])
def test_a_merge_that_nobody_finished_is_named_with_its_line(tmp_path, name):
    (tmp_path / name).write_text("a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> theirs\n")

    with pytest.raises(InputError, match=f"{name}: line 2: a merge conflict"):
        read_job([str(tmp_path / name)], JobOptions())


def test_lines_that_underline_a_title_are_no_merge_conflict(tmp_path):
    (tmp_path / "own.yaml").write_text("# Title\n# =======\n# <<<<<<< not git's\nbase_model: a\n")

    with pytest.raises(InputError, match="no engine's configuration"):
        read_job([str(tmp_path / "own.yaml")], JobOptions())
