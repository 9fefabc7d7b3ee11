import socket
import struct
import threading

import torch.distributed as dist

from meshwright.backend.doorway import MOST_WAITING, Doorway
from meshwright.backend.transport_stream import Deadline
from meshwright.backend.transport_tcp import TcpTransport


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


def test_a_crowd_at_the_door_does_not_grow_without_end():
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        server.setblocking(False)
        crowd = [socket.create_connection(server.getsockname()) for _ in range(MOST_WAITING + 20)]
        with Doorway(server, 4) as doorway, socket.create_connection(server.getsockname()) as guest:
            guest.sendall(b"name")
            connection, greeting = doorway.next(Deadline(20))
            assert greeting == b"name"
            assert connection.getpeername() == guest.getsockname()
            connection.close()
        for stranger in crowd:
            stranger.close()


def test_nobody_at_the_door_is_nobody():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        with Doorway(server, 4) as doorway:
            assert doorway.next(Deadline(0.05)) is None
