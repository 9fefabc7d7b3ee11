import socket
import struct
import threading
import time

from meshwright.cluster.doctor.exchange import meet
from meshwright.cluster.doctor.facts import Facts

WAIT_S = 20.0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def break_off(port):
    """Connect once somebody listens, and break the connection off with a reset."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
        except ConnectionRefusedError:
            time.sleep(0.01)


def test_nodes_bring_their_facts_together_although_a_stranger_breaks_off():
    port, found = free_port(), {}

    def node(number):
        facts = Facts(node=number, nodes=2, host=f"node{number}")
        found[number] = {finding.check for finding in meet(facts, "127.0.0.1", port, WAIT_S)}

    first = threading.Thread(target=node, args=(0,))
    first.start()
    break_off(port)
    time.sleep(0.1)  # the reset comes before the other node
    node(1)
    first.join()

    assert found[0] == found[1]
    assert "rendezvous" not in {check.split()[0] for check in found[0]}
