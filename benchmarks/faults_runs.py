"""Faults of a running job from outside: junk connections, and everything at random for long."""

import contextlib
import random
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.faults_rig import PATIENCE_S, RANKS, Peer, Rig, Row, until
from tests.faults.jobs import kill, pid_of, steps_done

QUIET_STEPS, JUNK_STEPS = 500, 6000
TURNS = 10
PAUSE_BETWEEN_S = 0.005  # between two connections
SOAK_EVERY = 500  # steps between faults, on average
PAUSE_S = 2.0
WARM_UP_SHARE = 0.25  # of the longest life of rank 0, before its memory is compared


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


def soak(place: Path, rng: random.Random, steps: int) -> list[Row]:
    """Run for long with a random fault about every 500 steps; watch memory and descriptors of rank 0."""
    folder, job = Rig(place).begin("soak", steps=steps, checkpoint_every=100)
    kills = pauses = 0
    seen: list[tuple[int, float, int, int]] = []  # pid, hours, bytes, descriptors
    start = time.monotonic()
    following = rng.randrange(SOAK_EVERY // 2, SOAK_EVERY * 3 // 2)
    while job.process.poll() is None:
        done = steps_done(folder)
        if following <= done < steps - SOAK_EVERY // 2:
            rank = rng.randrange(RANKS)
            if rng.random() < 0.5:
                kill(folder, rank)
                kills += 1
            else:
                kill(folder, rank, signal.SIGSTOP)
                time.sleep(PAUSE_S)
                kill(folder, rank, signal.SIGCONT)
                pauses += 1
            following = done + rng.randrange(SOAK_EVERY // 2, SOAK_EVERY * 3 // 2)
        try:
            process = psutil.Process(pid_of(folder, 0))
            hours = (time.monotonic() - start) / 3600
            seen.append((process.pid, hours, process.memory_info().rss, process.num_fds()))
        except (psutil.Error, OSError):
            pass
        time.sleep(1)
    code = job.process.wait()
    lives = {pid: [entry for entry in seen if entry[0] == pid] for pid, *_ in seen}
    longest = max(lives.values(), key=len)
    steady = longest[int(len(longest) * WARM_UP_SHARE) :]
    hours = steady[-1][1] - steady[0][1]
    return [
        {
            "fault": "a soak with random faults",
            "system": "meshwright",
            "times": kills + pauses,
            "killed": kills,
            "paused": pauses,
            "steps": steps_done(folder),
            "ended normally": code == 0,
            "memory MiB per hour": round(_slope(steady) / 2**20, 2),
            "over hours": round(hours, 3),
            "descriptors": sorted({entry[3] for entry in steady}),
        }
    ]


def _slope(entries: list[tuple[int, float, int, int]]) -> float:
    """Return the bytes per hour of the straight line through what was seen."""
    return statistics.linear_regression([e[1] for e in entries], [e[2] for e in entries]).slope
