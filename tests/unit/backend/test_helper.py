"""The C helper: built once into a folder of the user's, left out where it cannot be, equal to plain sums."""

import ctypes
import fcntl
import os
import subprocess

import numpy as np
import pytest
import torch

from meshwright import native
from meshwright.backend.group import native_calls as calls
from meshwright.backend.local import helper
from meshwright.errors import InputError
from meshwright.native import cache_folder

TYPES = {0: np.float32, 1: np.float64, 2: np.int32, 3: np.int64}


def test_it_is_built_once_and_left_out_on_demand(tmp_path, monkeypatch):
    built = helper.built_library(tmp_path)
    before = built.stat().st_mtime_ns

    assert helper.built_library(tmp_path) == built
    assert built.stat().st_mtime_ns == before
    assert {path.name for path in tmp_path.iterdir()} == {built.name, ".lock"}
    monkeypatch.setenv("MESHWRIGHT_HELPER", "0")
    assert helper.load_helper() is None


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """The library in a folder of its own: seconds of a compiler's work."""
    return helper.built_library(tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("kept", [0, 4096, 20_000, -40, -1])
def test_a_library_of_which_a_part_is_missing_is_built_anew_and_never_loaded(tmp_path, made_once, kept):
    whole = made_once.read_bytes()
    built = tmp_path / made_once.name
    built.write_bytes(whole[:kept])
    built.chmod(made_once.stat().st_mode)

    ctypes.CDLL(str(helper.built_library(tmp_path)))

    assert len(built.read_bytes()) == len(whole)


def test_without_a_compiler_or_with_a_broken_one_it_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match="no C compiler"):
        helper.built_library(tmp_path)
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises((subprocess.CalledProcessError, OSError)):
        helper.built_library(tmp_path)
    assert not list(tmp_path.glob("*.so"))


def test_what_a_killed_compiler_left_goes_with_the_next_one_but_not_what_is_being_compiled(tmp_path):
    left, young, other = (tmp_path / name for name in ("tmpabc.so", "tmpdef.so", "helper-0.so"))
    for path in (left, young, other):
        path.write_text("half a library")
    for path in (left, other):
        os.utime(path, (0, 0))

    built = helper.built_library(tmp_path)

    assert {path.name for path in tmp_path.glob("*.so")} == {young.name, other.name, built.name}


def test_without_headers_of_python_or_an_interface_to_tensors_there_is_no_short_way(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calls.sysconfig, "get_path", lambda name: str(tmp_path))
    assert calls.load_calls() is None
    monkeypatch.undo()
    monkeypatch.setattr(calls, "EXCHANGE", "__no_such_interface__")
    assert calls.load_calls() is None


@pytest.fixture
def warnings_of_folders(tmp_path, monkeypatch, caplog):
    """Return the lines of warning; the temporary folder is one of this test."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(native.tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv(native.TOLD_VARIABLE, "")  # whatever other tests have said
    native.warn_once.cache_clear()
    yield lambda: [record.getMessage() for record in caplog.records]
    native.warn_once.cache_clear()


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_that_others_can_write_is_passed_over_with_one_line(tmp_path, monkeypatch, warnings_of_folders, mode):
    (tmp_path / "meshwright").mkdir()
    (tmp_path / "meshwright").chmod(mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    for _ in range(2):
        assert cache_folder() == tmp_path / "tmp" / f"meshwright-{os.getuid()}"
    (line,) = warnings_of_folders()
    assert line.endswith(f"{tmp_path / 'meshwright'} can be written by others")


def test_a_folder_that_cannot_be_made_is_named_with_the_reason(monkeypatch, warnings_of_folders):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nonexistent")

    cache_folder()
    (line,) = warnings_of_folders()
    assert line.endswith(": /proc/nonexistent: No such file or directory")
    assert "Errno" not in line


def no_passwd_entry():
    raise RuntimeError("Could not determine home directory.")


def test_without_a_home_the_temporary_folder_serves(tmp_path, monkeypatch, warnings_of_folders):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(native.Path, "home", no_passwd_entry)

    assert cache_folder() == tmp_path / "tmp" / f"meshwright-{os.getuid()}"
    assert len(warnings_of_folders()) == 1


@pytest.mark.parametrize("what", ["link", "open", "file"])
def test_a_temporary_folder_that_others_can_change_is_not_taken(tmp_path, monkeypatch, warnings_of_folders, what):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nonexistent")
    place = tmp_path / "tmp" / f"meshwright-{os.getuid()}"
    if what == "link":
        place.symlink_to(tmp_path)
    elif what == "open":
        (tmp_path / "tmp").chmod(0o777)  # and not sticky
    else:
        place.write_text("")

    assert cache_folder() is None
    assert len(warnings_of_folders()) == 2


@pytest.mark.parametrize("name", ["tokens", "calibration"])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_kept_of_a_users_work_no_other_user_can_read(tmp_path, monkeypatch, name, umask):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = os.umask(umask)
    try:
        folder = native.kept_folder(name)
    finally:
        os.umask(before)

    assert folder == tmp_path / "meshwright" / name
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_an_earlier_version_left_open_is_closed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "meshwright" / "tokens").mkdir(parents=True)
    (tmp_path / "meshwright").chmod(0o755)
    (tmp_path / "meshwright" / "tokens").chmod(0o755)

    assert native.kept_folder("tokens").stat().st_mode & 0o777 == 0o700


def test_without_a_home_what_is_kept_goes_where_everything_else_goes(tmp_path, monkeypatch, warnings_of_folders):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(native.Path, "home", no_passwd_entry)

    assert native.kept_folder("tokens") == tmp_path / "tmp" / f"meshwright-{os.getuid()}" / "tokens"
    assert len(warnings_of_folders()) == 1


def test_without_any_cache_a_line_says_what_to_set(tmp_path, monkeypatch, warnings_of_folders):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nonexistent")
    (tmp_path / "tmp" / f"meshwright-{os.getuid()}").write_text("")

    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        native.kept_folder("tokens")


def test_what_cannot_be_loaded_from_the_cache_is_built_again_in_the_temporary_folder(
    tmp_path, monkeypatch, warnings_of_folders
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "answer.c"
    source.write_text("int answer(void) { return 42; }")
    built = native.compiled(source, ("-shared", "-fPIC"), native.cache_folder())
    built.write_bytes(b"no library" + native._seal(b"no library"))  # as it was made, of another machine say

    assert native.load_compiled(source, ("-shared", "-fPIC")).answer() == 42
    assert list((tmp_path / "tmp").glob("*/answer-*.so"))


@pytest.fixture
def held_lock(tmp_path):
    """The lock of a folder, held by a process that goes on compiling, or was stopped."""
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


ANSWER = "int answer(void) { return 42; }"


def test_what_is_built_is_found_while_another_process_compiles_something_else(tmp_path, monkeypatch, request):
    source = tmp_path / "answer.c"
    source.write_text(ANSWER)
    built = native.compiled(source, ("-shared", "-fPIC"), tmp_path)
    request.getfixturevalue("held_lock")
    monkeypatch.setattr(native.time, "sleep", lambda _: pytest.fail("it waits"))

    assert native.compiled(source, ("-shared", "-fPIC"), tmp_path) == built


def test_a_process_that_never_ends_compiling_is_waited_for_no_longer_than_a_compiler(tmp_path, monkeypatch, held_lock):
    monkeypatch.setattr(native, "COMPILE_S", 30.0)
    passed_s = iter([0.0, 15.0, 31.0])
    monkeypatch.setattr(native.time, "monotonic", lambda: next(passed_s, 60.0))
    monkeypatch.setattr(native.time, "sleep", lambda _: None)
    monkeypatch.setattr(native.subprocess, "run", lambda *_, **__: None)  # only the waiting is tried
    source = tmp_path / "answer.c"
    source.write_text(ANSWER)

    assert native.compiled(source, ("-shared", "-fPIC"), tmp_path).exists()


def test_a_compiler_that_refuses_is_told_of_in_one_line(tmp_path, monkeypatch, warnings_of_folders):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sources = [tmp_path / "one.c", tmp_path / "two.c"]
    for source in sources:
        source.write_text("#error out of order")
        assert native.load_compiled(source, ("-shared", "-fPIC")) is None

    lines = warnings_of_folders()
    assert len(lines) == 2  # one for each source, whatever the folders
    assert all("Python code takes its place" in line for line in lines)


def test_a_missing_compiler_is_told_of_once_for_all_helpers(tmp_path, monkeypatch, warnings_of_folders):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    for name in ("one.c", "two.c"):
        assert native.load_compiled(tmp_path / name, ("-shared",)) is None

    (line,) = warnings_of_folders()
    assert "no C compiler on PATH" in line


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("inputs", [2, 3, 4, 5, 9])
def test_sums_equal_numpy_in_the_same_order(code, inputs):
    library = helper.load_helper()
    assert library is not None
    rng = np.random.default_rng(3)
    for count in (1, 7, 2048, 5001):
        blocks = [(rng.standard_normal(count) * 1000).astype(TYPES[code]) for _ in range(inputs)]
        want = blocks[0].copy()
        for block in blocks[1:]:
            want += block
        for out in (np.empty_like(want), blocks[-1]):  # the second time, the result replaces an input
            addresses = (ctypes.c_void_p * inputs)(*(block.ctypes.data for block in blocks))
            library.mw_sum(code, out.ctypes.data, addresses, inputs, count)
            assert np.array_equal(out, want)


def test_bfloat16_sums_are_rounded_once_to_nearest_even():
    library = helper.load_helper()
    assert library is not None
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    a = bits.view(torch.bfloat16)
    b = bits[torch.randperm(2**16, generator=torch.Generator().manual_seed(0))].view(torch.bfloat16)
    out = torch.empty_like(a)
    addresses = (ctypes.c_void_p * 2)(a.data_ptr(), b.data_ptr())

    library.mw_sum(4, out.data_ptr(), addresses, 2, 2**16)

    want = (a.float() + b.float()).bfloat16()
    assert torch.equal(out.isnan(), want.isnan())
    assert torch.equal(out[~want.isnan()], want[~want.isnan()])


def test_streamed_copies_take_any_length_and_alignment():
    stream = helper.load_helper().mw_stream
    source = np.random.default_rng(0).integers(0, 255, 400, np.uint8)
    for offset in range(0, 18):
        for length in (0, 1, 15, 16, 63, 64, 65, 130, 300):
            target = np.zeros(400, np.uint8)
            stream(target.ctypes.data + offset, source.ctypes.data + 3, length)
            assert np.array_equal(target[offset : offset + length], source[3 : 3 + length])
            assert not target[:offset].any()
            assert not target[offset + length :].any()
