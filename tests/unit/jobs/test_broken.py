"""However a configuration is damaged, the answer is a job or one line."""

import random
from pathlib import Path

import pytest

from benchmarks.published_jobs import renderings
from meshwright.errors import InputError
from meshwright.jobs.draft import JobOptions
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
