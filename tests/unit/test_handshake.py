"""Strangers at a listening socket: few bytes, few connections, one deadline, and nobody else is held up by them."""

import contextlib
import errno
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
import torch.distributed as dist

from meshwright.backend.wire.transport import TransportError
from meshwright.backend.wire.transport_tcp import TcpTransport
from meshwright.handshake import MOST_STRANGERS, HandshakeListener, answer, exactly, guarded, prove

SECRET = b"the secret of this job"


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield listening


def connected(server):
    return socket.create_connection(server.getsockname(), timeout=5)


def in_s(seconds):
    return time.monotonic() + seconds


def address_of(store, rank):
    host, _, port = store.get(f"meshwright/{rank}").decode().rpartition(" ")
    return host, int(port)


def test_ranks_meet_while_strangers_stand_at_the_door_and_say_nothing():
    store, met = dist.HashStore(), {}

    def first():
        met[0] = TcpTransport(store, 0, 2, timeout_s=20)

    thread = threading.Thread(target=first)
    thread.start()
    silent = [socket.create_connection(address_of(store, 0)) for _ in range(8)]  # five seconds each would be too long
    for number, stranger in enumerate(silent):
        stranger.sendall(b"x" * number)
    reset = socket.create_connection(address_of(store, 0))
    reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.close()
    with socket.create_connection(address_of(store, 0)) as liar:
        liar.sendall(bytes(36))
        met[1] = TcpTransport(store, 1, 2, timeout_s=20)
        thread.join()

    assert [sorted(met[rank].connections) for rank in range(2)] == [[1], [0]]
    for end in (*silent, met[0], met[1]):
        end.close()


def test_a_crowd_at_the_door_does_not_grow_without_end(server):
    crowd = [connected(server) for _ in range(MOST_STRANGERS + 20)]
    with HandshakeListener(server, 4) as handshake, connected(server) as guest:
        guest.sendall(b"name")
        found = handshake.next(in_s(20))
        assert found.greeting == b"name"
        assert found.connection.getpeername() == guest.getsockname()
        assert len(handshake._strangers) <= handshake.most
        found.connection.close()
    for stranger in crowd:
        stranger.close()


def test_nobody_at_the_door_is_nobody(server):
    with HandshakeListener(server, 4) as handshake:
        assert handshake.next(in_s(0.05)) is None


def test_a_stranger_that_sends_a_byte_now_and_then_has_one_deadline_for_all_of_them(server):
    with HandshakeListener(server, 100, patience_s=0.3) as handshake, connected(server) as slow:
        begin_s = time.monotonic()
        gone = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not gone.wait(0.05):
                    slow.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert handshake.next(in_s(0.6)) is None
        assert handshake._strangers == {}
        gone.set()
        dripping.join()
        assert 0.5 < time.monotonic() - begin_s < 5


def test_an_end_by_a_separator_is_a_whole_greeting(server):
    with (
        HandshakeListener(server, 100, is_whole=lambda heard: heard.endswith(b"\n")) as handshake,
        connected(server) as guest,
    ):
        guest.sendall(b"hello\n")
        found = handshake.next(in_s(5))
        assert found.greeting == b"hello\n"
        found.connection.close()


def test_a_door_whose_listening_socket_is_shut_down_says_so(server):
    raised = []

    def wait():
        with HandshakeListener(server, 4) as handshake:
            try:
                handshake.next()
            except OSError as error:
                raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    server.shutdown(socket.SHUT_RDWR)
    waiting.join(5)

    assert len(raised) == 1


CROWDED = """
import os, resource, socket, sys, time
from meshwright.handshake import HandshakeListener
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
with socket.create_server(("127.0.0.1", 0), backlog=1024) as server, HandshakeListener(server, 4) as door:
    print(server.getsockname()[1], flush=True)
    sys.stdin.readline()
    door.next(time.monotonic() + 0.5)
    own = [os.open("/dev/null", os.O_RDONLY) for _ in range(limit // 2)]
    print(len(door._strangers), flush=True)
    for descriptor in own:
        os.close(descriptor)
    guest = door.next(time.monotonic() + 5)
    print(guest.greeting, flush=True)
"""


@pytest.mark.parametrize("limit", [32, 128, 1024])
def test_strangers_leave_a_process_most_of_its_descriptors(limit):
    command = [sys.executable, "-c", CROWDED, str(limit)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        address = ("127.0.0.1", int(process.stdout.readline()))
        crowd = [socket.create_connection(address) for _ in range(limit // 2)]
        process.stdin.write("\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == limit // 4
        with socket.create_connection(address) as guest:
            guest.sendall(b"name")
            assert process.stdout.readline() == "b'name'\n"
        for stranger in crowd:
            stranger.close()


STARVED = """
import errno, os, resource, socket, sys, time
from meshwright.handshake import HandshakeListener
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
server = socket.create_server(("127.0.0.1", 0))
with HandshakeListener(server, 4, starving_s=0.2) as door:
    own = []
    while not own or own[-1] < 63:
        own.append(os.dup(0))
    print(server.getsockname()[1], flush=True)
    try:
        door.next(time.monotonic() + 10)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


def test_a_door_without_descriptors_raises_once_it_has_starved_for_as_long_as_told():
    start_s = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", STARVED], stdout=subprocess.PIPE, text=True) as process:
        waiting = socket.create_connection(("127.0.0.1", int(process.stdout.readline())))
        said = process.stdout.readline()
    waiting.close()

    assert said == "EMFILE\n"
    assert time.monotonic() - start_s < 9


def test_a_rank_that_cannot_let_others_in_says_so_to_all(monkeypatch):
    def starved(self, end_s):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(HandshakeListener, "next", starved)
    store, said = dist.HashStore(), "rank 0 cannot let other ranks connect to it: [Errno 24] Too many open files"

    with pytest.raises(TransportError) as raised:
        TcpTransport(store, 0, 2, timeout_s=20)
    assert str(raised.value) == store.get("meshwright/failed").decode() == said


def greet(server, secret, found):
    with connected(server) as connection:
        try:
            prove(connection, secret, in_s(5))
            found.append("let in")
        except OSError as error:
            found.append(str(error))


@pytest.mark.parametrize(("known", "said"), [(True, "let in"), (False, "the other side closed the connection")])
def test_who_knows_the_secret_is_let_in_and_nobody_else(server, known, said):
    found = []
    thread = threading.Thread(target=greet, args=(server, SECRET if known else b"a guess", found))
    thread.start()
    with guarded(server) as door:
        guest = door.next(in_s(5))
        seal = answer(guest, SECRET)
        if seal is not None:
            guest.connection.sendall(seal)
        guest.connection.close()
    thread.join(5)

    assert (seal is not None) == known
    assert found == [said]


def test_a_server_that_only_repeats_what_it_hears_is_found_out(server):
    def repeat():
        connection, _ = server.accept()
        with connection:
            connection.sendall(bytes(32))
            connection.sendall(connection.recv(64)[32:])

    thread = threading.Thread(target=repeat)
    thread.start()
    found = []
    greet(server, SECRET, found)
    thread.join(5)

    assert found == ["it does not know the secret of this job"]


def test_bytes_that_come_one_by_one_must_all_come_in_time():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stop = threading.Event()

        def drip():
            while not stop.wait(0.05):
                theirs.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(TimeoutError, match="of 1000 bytes"):
            exactly(ours, 1000, in_s(0.3))
        stop.set()
        dripping.join()
