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


@pytest.mark.timeout(120)
def test_a_lane_that_fails_is_shown_and_fails_all(monkeypatch, tmp_path, capfd):
    for name, said in (("good", "assert True"), ("bad", "assert 'gone' == 'wrong'")):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}():\n    {said}\n")
    monkeypatch.setattr("tests.lanes.LANES", {name: [tmp_path / f"test_{name}.py"] for name in ("good", "bad")})

    assert main("-q", "-p", "no:xdist") == 1

    out = capfd.readouterr().out
    assert "1 passed" in out
    assert "assert 'gone' == 'wrong'" in out
