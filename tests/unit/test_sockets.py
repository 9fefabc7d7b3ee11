"""Options of connections: what a cable has lost is sent again soon after it is back."""

import socket

import pytest

from meshwright.parallel.asynchronous.connection import Connection
from meshwright.sockets import RESEND_S, resend_soon, send_promptly
from meshwright.train.elastic.meeting import host_store
from meshwright.train.elastic.store import SealedStore
from tests.unit.backend.test_stream import transports

RTO_MAX_MS = 44  # of linux/tcp.h


def longest_s(connection):
    """Return after how long at most a connection sends again what was lost."""
    return connection.getsockopt(socket.IPPROTO_TCP, RTO_MAX_MS) / 1000


def has_bound():
    with socket.socket() as probe:
        try:
            return longest_s(probe) > 0
        except OSError:
            return False


BOUNDED = pytest.mark.skipif(not has_bound(), reason="this kernel (before Linux 6.15) bounds no connection")


@BOUNDED
def test_every_connection_of_a_collective_sends_lost_bytes_again_within_a_second(monkeypatch):
    with transports(monkeypatch, (True, True)) as met:
        assert [longest_s(one) for end in met for one in end.connections.values()] == [RESEND_S, RESEND_S]


@BOUNDED
def test_both_ends_of_the_store_do():
    server = host_store("127.0.0.1", 0, 10.0, b"s" * 32)
    guest = SealedStore("127.0.0.1", server.port, 10.0, b"s" * 32)
    try:
        guest.set("key", "value")
        ends = [guest._connection, *(one.connection for one in server.server._guests)]
        assert len(ends) == 3
        assert {longest_s(one) for one in ends} == {RESEND_S}
    finally:
        guest.close()
        server.close()


@BOUNDED
def test_a_connection_of_an_asynchronous_job_does():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as stream:
        Connection(stream)
        assert longest_s(stream) == RESEND_S


def test_a_kernel_without_the_bound_is_no_error(monkeypatch):
    monkeypatch.setattr("meshwright.sockets._RTO_MAX_MS", 999)
    with socket.socket() as stream:
        resend_soon(stream)
        send_promptly(stream)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
