import os
import pickle
import socket

import pytest
import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from meshwright.errors import InputError
from meshwright.train.asynchronous import meeting
from meshwright.train.elastic.agent import SealedBackend
from meshwright.train.elastic.meeting import connections_to, join_torchruns
from meshwright.train.run.run_folder import RunFolder


class Payload:
    """An object whose pickle, when loaded, makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_store_whose_machine_is_silent_is_given_up_by_the_kernel():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    joined = join_torchruns("127.0.0.1", store.port, 25)

    limits_ms = set()
    for connection in connections_to(store.port):
        with connection:
            limits_ms.add(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    assert 25_000 in limits_ms
    joined.set("key", "value")
    assert store.get("key") == b"value"


def test_what_a_stranger_writes_at_the_rendezvous_is_not_unpickled(tmp_path):
    store = dist.HashStore()
    ours = SealedBackend(store, "job", b"secret")
    stranger = C10dRendezvousBackend(store, "job")

    stranger.set_state(pickle.dumps(Payload(tmp_path / "mark")))

    with pytest.raises(RendezvousStateError, match="not written by this job"):
        ours.get_state()
    with pytest.raises(RendezvousStateError, match="not written by this job"):
        ours.set_state(b"state")
    assert not (tmp_path / "mark").exists()


def test_agents_of_one_job_read_what_each_other_wrote_and_only_the_first_of_two_wins():
    store = dist.HashStore()
    one, other = SealedBackend(store, "job", b"secret"), SealedBackend(store, "job", b"secret")
    assert one.get_state() is None

    state, token, written = one.set_state(b"first")

    assert (state, written) == (b"first", True)
    assert other.get_state() == (b"first", token)
    assert other.set_state(b"second")[0::2] == (b"first", False)
    assert other.set_state(b"second", token)[0::2] == (b"second", True)
    assert one.get_state()[0] == b"second"


def test_the_secret_of_a_run_is_the_same_on_all_machines_and_nobody_elses(tmp_path):
    first, second = RunFolder(tmp_path / "run").secret(), RunFolder(tmp_path / "run").secret()

    assert first == second
    assert len(first) == 32
    assert (tmp_path / "run" / "secret").stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["secret"]
    assert RunFolder(tmp_path / "another").secret() != first


def test_a_secret_that_is_there_is_read_where_nothing_can_be_written_any_more(tmp_path, monkeypatch):
    first = RunFolder(tmp_path / "run").secret()

    def refuse(**_):
        raise OSError("No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)

    assert RunFolder(tmp_path / "run").secret() == first


@pytest.mark.parametrize("size", [0, 31, 33, 2**20])
def test_a_secret_that_is_not_whole_is_refused(tmp_path, size):
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_bytes(bytes(size))

    with pytest.raises(InputError, match=r"secret: holds .* bytes, expected 32 random ones; remove it"):
        RunFolder(tmp_path).secret()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660, 0o620])
def test_a_secret_that_others_can_read_or_write_is_refused(tmp_path, mode):
    RunFolder(tmp_path).secret()
    (tmp_path / "secret").chmod(mode)

    with pytest.raises(InputError, match=f"secret: is open to others .mode {mode:o}."):
        RunFolder(tmp_path).secret()


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null", "elsewhere", "nowhere"])
def test_a_secret_that_is_a_link_is_refused(tmp_path, target):
    (tmp_path / "elsewhere").write_bytes(bytes(32))
    (tmp_path / "secret").symlink_to(target)

    with pytest.raises(InputError, match="secret: is a link"):
        RunFolder(tmp_path).secret()


def test_a_pipe_in_the_place_of_a_secret_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "secret", 0o600)

    with pytest.raises(InputError, match="secret: is no file"):
        RunFolder(tmp_path).secret()


def test_the_files_of_servers_are_their_owners_from_the_first_moment_and_refused_when_open(tmp_path):
    before = os.umask(0)
    try:
        meeting.forget_servers(tmp_path / "servers")
        meeting.announce(tmp_path / "servers", 0, meeting.Address("127.0.0.1:1", "word"))
    finally:
        os.umask(before)
    path = tmp_path / "servers" / "0.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert meeting.find_servers(tmp_path / "servers", 1, 1.0)[0].word == "word"

    path.chmod(0o644)
    with pytest.raises(InputError, match=r"0\.json: is open to others"):
        meeting.find_servers(tmp_path / "servers", 1, 1.0)
