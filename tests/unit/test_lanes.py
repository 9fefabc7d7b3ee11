"""Every test file is in one lane of `make test`, so that none is forgotten or run twice."""

from collections import Counter
from pathlib import Path

import pytest

from tests.lanes import LANES, TESTS, main


def files_of(arguments) -> list[Path]:
    """Return the test files that a lane's arguments name."""
    left_out = {Path(word.removeprefix("--ignore=")) for word in map(str, arguments) if word.startswith("--ignore=")}
    found = [path for path in arguments if isinstance(path, Path)]
    files = [file for path in found for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    return [file for file in files if file not in left_out]


def test_each_test_file_is_in_one_lane():
    found = Counter(file for arguments in LANES.values() for file in files_of(arguments))

    assert found == Counter(TESTS.rglob("test_*.py"))


def lanes_of(folder, monkeypatch, **tests):
    """Write a test for each lane that passes where what it says holds, and one in the first that is to run alone."""
    for name, said in tests.items():
        (folder / f"test_{name}.py").write_text(f"def test_{name}():\n    {said}\n")
    first = folder / f"test_{next(iter(tests))}.py"
    first.write_text(f"import pytest\n{first.read_text()}@pytest.mark.alone\ndef test_alone():\n    pass\n")
    monkeypatch.setattr("tests.lanes.TESTS", folder)
    monkeypatch.setattr("tests.lanes.LANES", {name: [folder / f"test_{name}.py"] for name in tests})


@pytest.mark.timeout(400)
def test_a_lane_that_fails_is_shown_and_fails_all(monkeypatch, tmp_path, capfd):
    lanes_of(tmp_path, monkeypatch, good="assert True", bad="assert 'gone' == 'wrong'")

    assert main("-q", "-p", "no:xdist") == 1

    out = capfd.readouterr().out
    assert out.count("1 passed") == 2
    assert "assert 'gone' == 'wrong'" in out


@pytest.mark.timeout(400)
def test_what_is_marked_alone_runs_once_after_the_lanes(monkeypatch, tmp_path, capfd):
    lanes_of(tmp_path, monkeypatch, good="assert True")

    assert main("-q", "-p", "no:xdist") == 0

    alone = capfd.readouterr().out.partition("\nalone\n")[2]
    assert "1 passed" in alone
    assert "1 deselected" in alone
