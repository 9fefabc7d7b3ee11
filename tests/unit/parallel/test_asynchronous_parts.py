"""The small parts of asynchronous data parallelism: cuts, leases, rows, connections."""

import contextlib
import socket
import threading
import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.handshake import CHALLENGE_BYTES, MOST_STRANGERS, SEAL_BYTES, answer, exactly, guarded
from meshwright.parallel.asynchronous.connection import CHECK, HEADER, ConnectionLost, RefusedError, connect
from meshwright.parallel.asynchronous.leases import Leases, ShareRun
from meshwright.parallel.asynchronous.ledger import DoneShare, Ledger
from meshwright.parallel.asynchronous.messages import LeaseRequest
from meshwright.parallel.asynchronous.pieces import cut_pieces
from meshwright.parallel.asynchronous.server import Listener
from meshwright.parallel.asynchronous.server_group import ServerShard


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    fragments=st.integers(1, 5),
    servers=st.integers(1, 5),
)
def test_every_tensor_lies_in_one_piece_and_in_order(sizes, fragments, servers):
    pieces = cut_pieces(sizes, fragments, servers)

    assert len(pieces) == fragments * servers
    assert [i for piece in pieces for i in piece] == list(range(len(sizes)))


def test_servers_hold_about_as_much_each():
    sizes = [7, 100, 3, 60, 60, 60, 90, 10, 10]

    held = [sum(sizes[i] for i in piece) for piece in cut_pieces(sizes, 1, 4)]

    assert held == [107, 63, 120, 110]  # of 400


def test_what_a_dead_worker_had_is_leased_again_first():
    leases = Leases(0, 10)
    leases.take(1, 2)
    leases.take(2, 3)

    leases.give_back(1)

    assert leases.take(3, 1) == ShareRun(0, 1)
    assert leases.take(3, 5) == ShareRun(1, 1)
    assert leases.take(3, 5) == ShareRun(5, 5)
    assert leases.take(3, 5) is None


def test_the_next_share_is_as_far_ahead_as_its_step_is_of_the_oldest_under_way():
    leases = Leases(0, 100)
    leases.take(1, 1)
    for _ in range(7):
        leases.take(2, 1)
        leases.finish(2, leases._next - 1)

    assert leases.reach(workers=4) == 2
    leases.give_back(1)
    assert leases.reach(workers=4) == 0


def test_nothing_is_left_after_a_stop_but_what_is_under_way():
    leases = Leases(0, 10)
    leases.take(1, 4)

    leases.stop()

    assert leases.take(2, 1) is None
    assert not leases.is_over
    leases.finish(1, 0)
    assert leases.is_over
    assert leases.done == 4


def test_rows_wait_for_the_validation_of_one_before_them():
    written = []
    ledger = Ledger(first_step=5, workers=2, tokens_per_share=10, write=written.append)
    ledger.start(0.0)
    shares = [DoneShare(loss=20.0, rate=0.1, norm=1.0, staleness=i, delay=i) for i in range(5)]

    rows = ledger.add(shares, moved_bytes=7, ranks=[0, 3], now_s=4.0)
    ledger.hold(5)
    ledger.release()

    assert [row["step"] for row in rows] == [5, 6]
    assert not written
    ledger.let_go(5, validation_loss=1.5)
    ledger.release()
    assert [row["step"] for row in written] == [5, 6]
    assert written[0]["validation_loss"] == 1.5
    assert written[0] | {"loss": 2.0, "step_time_s": 2.0, "tokens_per_s": 10.0, "ranks": [0, 3]} == written[0]
    assert [row["staleness_max"] for row in written] == [1, 3]
    assert [row["moved_bytes"] for row in written] == [0, 7]


WORD = "right"


@pytest.fixture
def listener():
    listening = Listener("127.0.0.1", WORD, ServerShard({}))
    listening.start()
    yield listening
    listening.close()


def stranger_at(listener):
    host, _, port = listener.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


def test_who_does_not_know_the_word_is_not_let_in(listener):
    with pytest.raises(ConnectionLost, match="cannot reach the server"):
        connect(listener.address, "wröng", timeout_s=0.2)

    assert listener._connections == set()


def flood(listener, said, count):
    """Return open connections of strangers who have all said the same."""
    held = [stranger_at(listener) for _ in range(count)]
    for stranger in held:
        with contextlib.suppress(OSError):  # it has been let go
            stranger.sendall(said)
    return held


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"x",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        HEADER.pack(CHECK, 2**26, 0) + b" " * 2**12,
        HEADER.pack(CHECK, 200_000, 0) + b"[" * 2000,
    ],
)
def test_strangers_get_no_thread_no_memory_and_hold_up_nobody(listener, said):
    process = psutil.Process()
    threads, before_bytes = threading.active_count(), process.memory_info().rss
    held = flood(listener, said, MOST_STRANGERS + 20)

    connection = connect(listener.address, WORD)

    assert threading.active_count() <= threads + 1  # that of the connection
    assert process.memory_info().rss < before_bytes + 20 * 2**20
    connection.close()
    for stranger in held:
        stranger.close()


def test_a_greeting_that_was_heard_is_worth_nothing(listener):
    with socket.create_server(("127.0.0.1", 0)) as tap:
        heard = []

        def listen():
            guest, _ = tap.accept()
            with guest, stranger_at(listener) as onward:
                guest.sendall(exactly(onward, CHALLENGE_BYTES, time.monotonic() + 5))
                heard.append(exactly(guest, CHALLENGE_BYTES + SEAL_BYTES, time.monotonic() + 5))

        listening = threading.Thread(target=listen)
        listening.start()
        with pytest.raises(ConnectionLost):
            connect(f"127.0.0.1:{tap.getsockname()[1]}", WORD, timeout_s=0.2)
        listening.join()

    with stranger_at(listener) as stranger:
        exactly(stranger, CHALLENGE_BYTES, time.monotonic() + 5)
        stranger.sendall(heard[0])
        assert stranger.recv(1) == b""


def test_a_guest_whose_message_nests_without_end_loses_its_connection_alone(listener):
    deep, other = connect(listener.address, WORD), connect(listener.address, WORD)
    text = b'{"type":"WorkerHeartbeat","member":' + b"[" * 100_000
    deep._stream.sendall(HEADER.pack(CHECK, len(text), 0) + text)

    with pytest.raises(ConnectionLost):
        deep.receive()
    with pytest.raises(RefusedError, match="elsewhere"):
        other.ask(LeaseRequest(1))
    deep.close()
    other.close()


def test_a_server_that_was_too_crowded_is_asked_again():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            server.accept()[0].close()  # let go as the oldest stranger
            with guarded(server) as door:
                guest = door.next(time.monotonic() + 5)
                guest.connection.sendall(answer(guest, WORD.encode()))
                guest.connection.close()

        serving = threading.Thread(target=serve)
        serving.start()
        connect(f"127.0.0.1:{server.getsockname()[1]}", WORD).close()
        serving.join(5)


def test_a_server_that_has_gone_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

    with pytest.raises(ConnectionLost, match="refused"):
        connect(address, WORD, timeout_s=60)


def test_bytes_are_counted_at_both_ends(listener):
    connection = connect(listener.address, WORD)

    with pytest.raises(RefusedError):
        connection.ask(LeaseRequest(1))

    (other,) = listener._connections
    assert connection.moved_bytes == other.moved_bytes > 0
    listener.close()
    with pytest.raises(ConnectionLost):
        connection.ask(LeaseRequest(1))
    connection.close()
