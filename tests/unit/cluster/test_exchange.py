import contextlib
import socket
import struct
import threading
import time

import msgspec

from meshwright.cluster.doctor.exchange import meet_nodes
from meshwright.cluster.doctor.facts import NodeFacts

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
        facts = NodeFacts(node=number, nodes=2, host=f"node{number}")
        found[number] = {finding.check for finding in meet_nodes(facts, "127.0.0.1", port, WAIT_S)}

    first = threading.Thread(target=node, args=(0,))
    first.start()
    break_off(port)
    time.sleep(0.1)  # the reset comes before the other node
    node(1)
    first.join()

    assert found[0] == found[1]
    assert "rendezvous" not in {check.split()[0] for check in found[0]}


def test_neither_junk_nor_a_node_that_is_not_of_the_job_nor_one_that_leaves_disturbs_the_others():
    port, found = free_port(), {}

    def node(number):
        facts = NodeFacts(node=number, nodes=3, host=f"node{number}")
        found[number] = {finding.check for finding in meet_nodes(facts, "127.0.0.1", port, WAIT_S)}

    first = threading.Thread(target=node, args=(0,))
    first.start()
    break_off(port)
    liar = msgspec.json.encode(NodeFacts(node=7, nodes=3, host="liar")) + b"\n"
    leaver = msgspec.json.encode(NodeFacts(node=2, nodes=3, host="leaver")) + b"\n"
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"[" * 50_000 + b"\n", b"x" * 2**18, liar, leaver):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(said)
    node(1)
    first.join()

    assert set(found) == {0, 1}
    assert found[0] == found[1]


def test_a_node_whose_clock_is_wrong_is_named_by_all(monkeypatch):
    port, found = free_port(), {}
    guest = threading.local()
    right = time.time

    def node(number, wrong_s):
        guest.wrong_s = wrong_s
        findings = meet_nodes(NodeFacts(node=number, nodes=3, host=f"node{number}"), "127.0.0.1", port, WAIT_S)
        found[number] = [(finding.host, finding.found) for finding in findings if finding.check == "clock"]

    monkeypatch.setattr("meshwright.cluster.doctor.exchange.time.time", lambda: right() + getattr(guest, "wrong_s", 0))
    threads = [threading.Thread(target=node, args=(number, wrong_s)) for number, wrong_s in enumerate((0, -3600, 0.5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [(host, said)] = found[0]
    assert host == "node1"
    assert said.startswith(("its clock is 3600.", "its clock is 3599.", "its clock is 3601."))
    assert said.endswith(" s behind that of node0")
    assert found[1] == found[2] == found[0]
