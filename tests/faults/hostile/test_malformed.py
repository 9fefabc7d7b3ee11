"""Malformed files of every format: one line that names the file, exit 2, nothing written, no traceback."""

import random

import pytest

from testkit.caches import new_cache
from tests.faults.hostile.formats import FORMATS
from tests.faults.hostile.malform import malformed

EACH = 30  # per format: more than 300 in all


def listing(folder):
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=FORMATS, ids=lambda chosen: chosen.name)
def chosen(request):
    return request.param


def test_a_good_file_is_read(chosen, tmp_path, capsys):
    chosen.make(tmp_path)

    code = chosen.read(tmp_path)

    assert (code, capsys.readouterr().err.count("Traceback")) == (0, 0)


def test_malformed_files_are_refused_in_one_line(chosen, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", new_cache(tmp_path.parent / "cache"))
    chosen.make(tmp_path)
    file = tmp_path / chosen.file
    good = file.read_bytes()
    rng = random.Random(chosen.name)
    refused = 0
    for number in range(10 * EACH):
        way, data = malformed(good, rng)
        if data == good:
            continue
        file.write_bytes(data)
        before = listing(tmp_path)
        what = f"{chosen.name} number {number}: {way}"
        try:
            code = chosen.read(tmp_path)
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        errors = capsys.readouterr().err.splitlines()
        assert code in (0, 1, 2), f"{what}: {errors}"  # 1: read, with a bad verdict
        assert not any("Traceback" in line for line in errors), what
        if code == 2:
            refused += 1
            said = [line for line in errors if line.startswith("meshwright: ")]
            assert len(said) == 1, f"{what}: {errors}"
            assert "\x1b" not in said[0], what
            assert str(tmp_path) in said[0], f"{what}: {said}"
            assert listing(tmp_path) == before, what
        for path in set(listing(tmp_path)) - set(before):
            path.unlink()
        if refused == EACH:
            return
    assert refused >= 10, f"{chosen.name}: the generator made {refused} files that are refused"
