import json
import os
import stat
import threading

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.files import read_struct, to_json, write_atomic, write_struct
from meshwright.layout import Candidate, Layout


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: int = 1


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[inner]\nwidht = 2", r"unknown key inner.widht \(did you mean width\?\)"),
        ("inner = 3", "inner: Expected `object`"),
        ("[inner]\nwidth = 'x'", "inner.width: Expected `int`"),
        ("[[rows]]\nwodth = 1", r"rows\[0\]?.*wodth \(did you mean width"),
        ("[inner", "Expected .]. at the end"),
    ],
)
def test_a_bad_file_names_file_key_and_expectation(tmp_path, text, message):
    path = tmp_path / "config.toml"
    path.write_text(text)

    with pytest.raises(InputError, match=message) as caught:
        read_struct(path, Outer)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_struct(tmp_path / "none.json", Outer)
    with pytest.raises(InputError, match="is a folder"):
        read_struct(tmp_path, Outer)


def test_a_written_struct_reads_back(tmp_path):
    write_struct(tmp_path / "layout.json", Layout(tp=2))

    assert read_struct(tmp_path / "layout.json", Layout) == Layout(tp=2)


def test_a_struct_that_checks_itself_names_the_file(tmp_path):
    (tmp_path / "c.json").write_text('{"layout": {"tp": 0}, "predicted": {}}')

    with pytest.raises(InputError, match="tp: expected a whole number, 1 or more"):
        read_struct(tmp_path / "c.json", Candidate)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o027, 0o640), (0o002, 0o664)])
def test_what_is_written_has_the_permissions_that_the_umask_leaves(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "file", b"text")
        write_struct(tmp_path / "struct.json", Inner())
        write_atomic(tmp_path / "private", b"text", mode=0o600)
    finally:
        os.umask(before)

    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "struct.json")] == [mode, mode]
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "private", "struct.json"]


def test_a_name_of_the_greatest_length_can_be_written(tmp_path):
    write_atomic(tmp_path / ("x" * 255), b"text")

    assert (tmp_path / ("x" * 255)).read_bytes() == b"text"


def test_a_file_name_that_is_no_utf8_is_written_with_escapes(tmp_path):
    name = os.fsdecode(b"caf\xe9")

    assert to_json({name: [name, 1]}) == '{"caf\\\\udce9":["caf\\\\udce9",1]}'
    write_struct(tmp_path / "x.json", {"path": name})
    assert json.loads((tmp_path / "x.json").read_text()) == {"path": "caf\\udce9"}


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()

    write_atomic(pipe, b"text")

    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert read == [b"text"]


def test_a_link_stays_and_what_it_points_at_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "newest.json"
    link.symlink_to(tmp_path / "real" / "plan.json")

    write_atomic(link, b"first")
    write_atomic(link, b"second")

    assert link.is_symlink()
    assert (tmp_path / "real" / "plan.json").read_bytes() == b"second"
    assert os.listdir(tmp_path / "real") == ["plan.json"]


def test_a_script_in_place_of_a_noun_is_told_what_was_expected(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text("torchrun train.py\n")

    with pytest.raises(InputError, match="train.sh: neither JSON nor named .toml"):
        read_struct(path, Outer)
