"""Faults of a running job from outside: junk connections to its ports."""

import contextlib
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.faults_rig import PATIENCE_S, Peer, Rig, Row, until
from testkit.fault_jobs import steps_done

QUIET_STEPS, JUNK_STEPS = 500, 6000
TURNS = 10
PAUSE_BETWEEN_S = 0.005  # between two connections


def junk(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Open junk connections to every port that a job listens on while it runs, and in turns as many to a port of ours.

    Who sends the junk takes processor time from the ranks, on two cores at least; what the job itself loses by it is
    the difference between the two.
    """
    folder, job = Rig(place).begin("junk", layout="dp=2,mbs=4", steps=JUNK_STEPS, checkpoint_every=0)
    job.wait_until(lambda: steps_done(folder) > QUIET_STEPS, PATIENCE_S)
    ports = _ports(job.members())
    made, turns = _in_turns(rng, ports, count, lambda: steps_done(folder))
    code, _ = job.end(timeout_s=PATIENCE_S)
    times = [row["step_time_s"] for row in folder.metric_rows()]
    ours = _compared("meshwright", made, ports, times, turns) | {"ended normally": code == 0}
    peer = Peer(place / "peer-junk", ranks=2, steps=JUNK_STEPS)
    until(lambda: peer.steps_done() > QUIET_STEPS)
    process = psutil.Process(peer.process.pid)
    ports = _ports([process, *process.children(recursive=True)])
    made, turns = _in_turns(rng, ports, count, peer.steps_done)
    ended = peer.ended()
    theirs = _compared("Gloo + DCP", made, ports, peer.step_times_s(), turns) | {"ended normally": ended == 0}
    return [ours, theirs]


def _ports(processes: list[psutil.Process]) -> list[int]:
    """Return every port that these processes listen on."""
    found = set()
    for process in processes:
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                found.add(connection.laddr.port)
    return sorted(found)


def _in_turns(
    rng: random.Random, ports: list[int], count: int, steps: Callable[[], int]
) -> tuple[int, dict[str, list[range]]]:
    """Send junk to these ports and to one of our own, in turns; return how much reached them, and the steps of each."""
    made = 0
    turns: dict[str, list[range]] = {"theirs": [], "ours": []}
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        threading.Thread(target=_take_in, args=(server,), daemon=True).start()
        for turn in range(2 * TURNS):
            name, targets = ("theirs", ports) if turn % 2 else ("ours", [server.getsockname()[1]])
            first = steps()
            reached = _strangers(rng, targets, count // TURNS)
            turns[name].append(range(first, steps()))
            made += reached if name == "theirs" else 0
    return made, turns


def _take_in(server: socket.socket) -> None:
    """Accept everybody, read what they send, and let them go."""
    with contextlib.suppress(OSError):  # closed
        while True:
            guest, _ = server.accept()
            with guest, contextlib.suppress(OSError):
                guest.settimeout(1)
                guest.recv(4096)


def _strangers(rng: random.Random, ports: list[int], count: int) -> int:
    """Connect, send junk, and leave, again and again; return how many connections were made."""
    made = 0
    for number in range(count):
        time.sleep(PAUSE_BETWEEN_S)
        with socket.socket() as stranger:
            stranger.settimeout(1)
            try:
                stranger.connect(("127.0.0.1", ports[number % len(ports)]))
                stranger.sendall(rng.randbytes(rng.randrange(1, 2000)))
            except OSError:
                continue
            made += 1
    return made


def _compared(system: str, made: int, ports: list[int], times: list[float], turns: dict[str, list[range]]) -> Row:
    """Compare the steps while junk went to the job with those while it went elsewhere."""
    steps = {name: [times[i] for turn in some for i in turn if i < len(times)] for name, some in turns.items()}
    ratio = statistics.median(steps["theirs"]) / statistics.median(steps["ours"])
    return {
        "fault": "junk connections",
        "system": system,
        "times": made,
        "ports": len(ports),
        "steps meanwhile": len(steps["theirs"]),
        "step over those while it went elsewhere": round(ratio, 3),
    }
