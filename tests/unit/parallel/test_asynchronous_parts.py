"""The small parts of asynchronous data parallelism: cuts, leases, rows, connections."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.parallel.asynchronous.connection import Connection, ConnectionLost, connect, welcome
from meshwright.parallel.asynchronous.leases import Leases, Run
from meshwright.parallel.asynchronous.ledger import Ledger, Share
from meshwright.parallel.asynchronous.messages import Done, Next
from meshwright.parallel.asynchronous.pieces import cut


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    fragments=st.integers(1, 5),
    servers=st.integers(1, 5),
)
def test_every_tensor_lies_in_one_piece_and_in_order(sizes, fragments, servers):
    pieces = cut(sizes, fragments, servers)

    assert len(pieces) == fragments * servers
    assert [i for piece in pieces for i in piece] == list(range(len(sizes)))


def test_servers_hold_about_as_much_each():
    sizes = [7, 100, 3, 60, 60, 60, 90, 10, 10]

    held = [sum(sizes[i] for i in piece) for piece in cut(sizes, 1, 4)]

    assert held == [107, 63, 120, 110]  # of 400


def test_what_a_dead_worker_had_is_leased_again_first():
    leases = Leases(0, 10)
    leases.take(1, 2)
    leases.take(2, 3)

    leases.give_back(1)

    assert leases.take(3, 1) == Run(0, 1)
    assert leases.take(3, 5) == Run(1, 1)
    assert leases.take(3, 5) == Run(5, 5)
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
    shares = [Share(loss=20.0, rate=0.1, norm=1.0, staleness=i, delay=i) for i in range(5)]

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


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def serve_one(server, answers):
    def accept():
        connection = welcome(server.accept()[0], "right")
        answers.append(connection)
        if connection is not None:
            connection.receive()
            connection.send(Done())
            connection.close()

    thread = threading.Thread(target=accept)
    thread.start()
    return thread


def test_who_does_not_know_the_word_is_not_let_in(server):
    answers = []
    thread = serve_one(server, answers)

    with pytest.raises(ConnectionLost):
        connect(f"127.0.0.1:{server.getsockname()[1]}", "wröng")

    thread.join()
    assert answers == [None]


def test_a_stranger_that_sends_anything_else_is_not_let_in(server):
    answers = []
    thread = serve_one(server, answers)
    with socket.create_connection(server.getsockname()) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        thread.join()

    assert answers == [None]


def test_bytes_are_counted_at_both_ends(server):
    answers = []
    thread = serve_one(server, answers)
    connection = connect(f"127.0.0.1:{server.getsockname()[1]}", "right")

    connection.ask(Next(1))
    thread.join()

    assert isinstance(answers[0], Connection)
    assert connection.moved_bytes == answers[0].moved_bytes > 0
    with pytest.raises(ConnectionLost):
        connection.ask(Next(1))
    connection.close()
