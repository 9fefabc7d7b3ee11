import os

import pytest

from meshwright.cluster.discovery.processes import start_time
from meshwright.cluster.emulation import state
from meshwright.errors import InputError


def entry(base, pid, started):
    folder = base / f"emulation-{pid}-{started}"
    folder.mkdir()
    return folder


def test_only_folders_of_living_owners_are_running(tmp_path):
    mine = entry(tmp_path, os.getpid(), start_time(os.getpid()))
    reused = entry(tmp_path, os.getpid(), 1)
    dead = entry(tmp_path, 2**22 + 1, 5)  # above the largest pid

    assert [found.folder for found in state.running(tmp_path)] == [str(mine)]
    assert set(state.sweep_dead(tmp_path)) == {reused.name, dead.name}
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]


def test_the_only_emulation_needs_no_id_and_several_do(tmp_path):
    with pytest.raises(InputError, match="no emulation is running"):
        state.find_emulation(tmp_path, None)
    for pid in (os.getpid(), os.getppid()):
        entry(tmp_path, pid, start_time(pid))
        if pid == os.getpid():
            assert state.find_emulation(tmp_path, None).owner_pid == pid

    with pytest.raises(InputError, match="choose one with --id"):
        state.find_emulation(tmp_path, None)
    assert state.find_emulation(tmp_path, os.getppid()).owner_pid == os.getppid()
    with pytest.raises(InputError, match="no such emulation"):
        state.find_emulation(tmp_path, 1 << 30)


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    link = tmp_path / f"meshwright-{os.geteuid()}"
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InputError, match="belongs to somebody else"):
        state.root()
