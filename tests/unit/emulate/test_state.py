import json
import os
import socket

import pytest

from meshwright import cli
from meshwright.cluster.discovery.processes import start_time
from meshwright.cluster.emulation import protocol, state
from meshwright.cluster.emulation.session import send_request
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


def test_an_emulation_that_is_not_up_yet_is_neither_listed_nor_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    entry(state.root(), os.getpid(), start_time(os.getpid()))  # no socket in it

    assert cli.run_command(["emulate", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert cli.run_command(["emulate", "fault", "cut", "node0"]) == 1
    assert "starts or has ended" in capsys.readouterr().err


def test_an_emulation_that_ends_before_it_replies_has_ended_in_a_word(tmp_path, monkeypatch):
    folder = entry(tmp_path, os.getpid(), start_time(os.getpid()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with protocol.control_path(folder) as path:
            listener.bind(path)
        listener.listen()
        sent = protocol.send_message

        def send_message(connection, *message):
            listener.accept()[0].close()  # the supervisor takes itself down
            sent(connection, *message)

        monkeypatch.setattr(protocol, "send_message", send_message)
        with pytest.raises(protocol.NoAnswerError, match="the emulation has ended"):
            send_request(str(folder), {"op": "status"})


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
