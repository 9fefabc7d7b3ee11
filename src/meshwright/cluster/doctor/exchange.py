"""Bring the facts of all nodes of a job together at its own rendezvous, which tests that rendezvous on the way.

Node 0 listens at MASTER_ADDR:MASTER_PORT, the others send their facts as one line of JSON and get the findings back.
Plain TCP, no torch: it works where the job itself does not start.
"""

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Mapping

import msgspec

from ...errors import InputError
from ...handshake import HandshakeListener
from .checks import Finding, run_checks
from .facts import NodeFacts

_MAX_BYTES = 2**17  # of the facts of a node
_MAX_ANSWER_BYTES = 2**24
_RETRY_S = 0.1
_ANSWER_S = 1.0  # what node 0 may take longer than we wait ourselves
_REASON = "every node must reach node 0 at MASTER_ADDR:MASTER_PORT before a job can start"


def node_position(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return this node's number and the number of nodes, from torchrun's, Meshwright's or SLURM's variables."""
    for rank, count in (("GROUP_RANK", "GROUP_WORLD_SIZE"), ("NODE_RANK", "NNODES"), ("SLURM_NODEID", "SLURM_NNODES")):
        if environ.get(rank, "").isdecimal() and environ.get(count, "").isdecimal():
            node, nodes = int(environ[rank]), int(environ[count])
            if node >= nodes:
                raise InputError(f"{rank}={node}: expected less than {count}={nodes}")
            return node, nodes
    return 0, 1


def meet_nodes(mine: NodeFacts, address: str, port: int, wait_s: float) -> list[Finding]:
    """Return what is wrong on any node: node 0 examines all, the others get its findings. Blocks up to `wait_s`."""
    return _host(mine, address, port, wait_s) if mine.node == 0 else _guest(mine, address, port, wait_s)


def _host(mine: NodeFacts, address: str, port: int, wait_s: float) -> list[Finding]:
    try:
        listener = socket.create_server((address, port), backlog=128)
    except OSError as error:
        return [*run_checks([mine]), _cannot_listen(mine, address, port, error)]
    with listener:
        guests = _collect(listener, mine.nodes, wait_s)
        try:
            facts = [mine, *(told for _, (told, _) in sorted(guests.items()))]
            absent = [node for node in range(1, mine.nodes) if node not in guests]
            findings = [*run_checks(facts), *(_not_here(mine, node, address, port, wait_s) for node in absent)]
            answer = msgspec.json.encode(findings) + b"\n"
            for _, connection in guests.values():
                with contextlib.suppress(OSError):  # it has gone, and says itself that it got no answer
                    connection.sendall(answer)
            return findings
        finally:
            for _, connection in guests.values():
                connection.close()


def _collect(listener: socket.socket, nodes: int, wait_s: float) -> dict[int, tuple[NodeFacts, socket.socket]]:
    """Accept guests until all nodes are here or the time is over; who sends anything but facts is turned away."""
    end_s = time.monotonic() + wait_s
    found: dict[int, tuple[NodeFacts, socket.socket]] = {}
    with HandshakeListener(
        listener, _MAX_BYTES, patience_s=wait_s, is_whole=lambda heard: heard.endswith(b"\n")
    ) as door:
        while len(found) < nodes - 1 and (guest := door.next(end_s)) is not None:
            facts = _facts(guest.greeting)
            if facts is None or not 0 < facts.node < nodes:
                guest.connection.close()
                continue
            if facts.node in found:  # it has tried again
                found[facts.node][1].close()
            guest.connection.settimeout(wait_s)
            if facts.clock_s is not None:
                facts = msgspec.structs.replace(facts, clock_ahead_s=facts.clock_s - time.time())
            found[facts.node] = facts, guest.connection
    return found


def _facts(line: bytes) -> NodeFacts | None:
    try:
        return msgspec.json.decode(line, type=NodeFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _guest(mine: NodeFacts, address: str, port: int, wait_s: float) -> list[Finding]:
    end = time.monotonic() + wait_s
    while True:
        try:
            with socket.create_connection((address, port), timeout=max(0.1, end - time.monotonic())) as connection:
                told = msgspec.structs.replace(mine, clock_s=time.time())
                connection.sendall(msgspec.json.encode(told) + b"\n")
                answer = _read_line(connection, max(time.monotonic(), end) + _ANSWER_S)
                return msgspec.json.decode(answer, type=list[Finding])
        except (OSError, ValueError, RecursionError) as error:  # ValueError: of msgspec, or not UTF-8
            if time.monotonic() + _RETRY_S > end:
                return [*run_checks([mine]), _cannot_reach(mine, address, port, error)]
            time.sleep(_RETRY_S)


def _read_line(connection: socket.socket, end_s: float) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        left_s = end_s - time.monotonic()
        if left_s <= 0 or len(line) > _MAX_ANSWER_BYTES:
            raise TimeoutError(errno.ETIMEDOUT, "no whole answer")
        connection.settimeout(left_s)
        data = connection.recv(_MAX_BYTES)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "hung up")
        line += data
    return bytes(line)


def _finding(check: str, remedy: str) -> Callable[[NodeFacts, str], Finding]:
    def make(facts: NodeFacts, found: str) -> Finding:
        return Finding(check=check, host=facts.host, found=found, reason=_REASON, remedy=remedy)

    return make


def _cannot_listen(mine: NodeFacts, address: str, port: int, error: OSError) -> Finding:
    taken = error.errno == errno.EADDRINUSE
    make = _finding(
        "rendezvous-port",
        "end the process that holds the port (ss -ltnp), or choose another MASTER_PORT on all nodes"
        if taken
        else "set MASTER_ADDR to an address of node 0 itself",
    )
    return make(mine, f"cannot listen at {address}:{port}: {error.strerror}")


def _not_here(mine: NodeFacts, node: int, address: str, port: int, wait_s: float) -> Finding:
    make = _finding("rendezvous", f"look at node {node}: is it up, is the command running there, is the cable in?")
    return make(mine, f"node {node} did not report at {address}:{port} within {wait_s:g} s")


def _cannot_reach(mine: NodeFacts, address: str, port: int, error: Exception) -> Finding:
    if isinstance(error, ConnectionRefusedError):
        remedy = f"start the job on node 0 first; if it runs, open port {port} in its firewall"
    elif isinstance(error, TimeoutError):
        remedy = f"packets get lost: look at cables and switches, and open port {port} in the firewalls"
    else:
        remedy = f"nothing that understands us answers: check what listens there (ss -ltnp 'sport = :{port}')"
    return _finding("rendezvous", remedy)(mine, f"cannot reach node 0 at {address}:{port}: {error}")
