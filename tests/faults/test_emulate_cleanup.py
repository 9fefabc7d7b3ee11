"""However an emulation ends, nothing of it stays: processes, namespaces, links, queues, mounts, files."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from meshwright.cluster.discovery.processes import start_time
from meshwright.cluster.emulation import Emulation, EmulationSpec
from tests.emulated import command_line

pytestmark = pytest.mark.netns

ENDINGS = ("by itself", "interrupted", "launcher killed", "supervisor killed", "a rank killed", "all ranks killed")
_MARK = "MESHWRIGHT_CLEANUP_TEST"


def machine():
    """Return what the machine has of links, queues and mounts, as its own tools print them."""
    queues = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
    return sorted(socket.if_nameindex()), queues, Path("/proc/self/mountinfo").read_text()


def marked(mark):
    """Return the pids of all processes that descend from a launcher with this mark."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"{_MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def namespaces(pids):
    """Return the namespaces that these processes are in and this one is not."""
    kinds = ("net", "mnt", "uts", "ipc", "pid")
    ours = {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}
    found = set()
    for pid in pids:
        for kind in kinds:
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found - ours


def all_until(ticks):
    """Return all processes that began no later: what begins after may be in a new namespace with an old number."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if (began := start_time(pid)) is not None and began <= ticks]


def left_over(mark, had, within_s=10.0):
    """Return the processes with the mark and the namespaces among `had` that are still there, given time to go."""
    end, now = time.monotonic() + within_s, int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    while (left := (marked(mark), had & namespaces(all_until(now)))) != ([], set()) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def run_and_end(ending, nodes, environment, rng):
    """Start an emulation whose ranks have children of their own, end it, return the namespaces that it had."""
    ranks = nodes * 2
    script = "setsid sleep 1000 & echo up; " + ("exit 0" if ending == "by itself" else "sleep 1000")
    command = command_line("--nodes", str(nodes), "--ranks-per-node", "2", "--stop-after", "0.1", "--nic", "1Gbps")
    with subprocess.Popen(
        [*command, "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as run:
        for _ in range(ranks):
            assert b"up" in run.stdout.readline()
        pids = marked(environment[_MARK])
        had = namespaces(pids)
        (supervisor,) = map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split() or [0])
        shells = [pid for pid in pids if _name(pid) == "sh"]
        match ending:
            case "interrupted":
                run.send_signal(signal.SIGINT)
            case "launcher killed":
                run.kill()
            case "supervisor killed":
                os.kill(supervisor, signal.SIGKILL)
            case "a rank killed":
                os.kill(rng.choice(shells), signal.SIGKILL)
            case "all ranks killed":
                for pid in shells:
                    os.kill(pid, signal.SIGKILL)
        run.communicate(timeout=200)
    return had


def _name(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def end_many(count, tmp_path, seed):
    rng = random.Random(seed)
    before = machine()
    runtime = tmp_path / "run"
    runtime.mkdir()
    for number in range(count):
        ending, nodes = ENDINGS[number % len(ENDINGS)], rng.randint(2, 8)
        mark = uuid.uuid4().hex
        environment = {**os.environ, _MARK: mark, "XDG_RUNTIME_DIR": str(runtime)}

        had = run_and_end(ending, nodes, environment, rng)

        assert left_over(mark, had) == ([], set()), f"{ending}, {nodes} nodes, seed {seed}"
        if ending != "by itself":
            assert (
                len(had) == 1 + 5 * nodes
            )  # the switches' network, and five kinds a node: the test saw the real thing
    subprocess.run(
        command_line("--", "true"),
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        check=True,
        stderr=subprocess.DEVNULL,
    )
    assert list(runtime.glob("*/*")) == []  # what SIGKILL of the supervisor left has been swept by the last start
    assert machine() == before


def test_nothing_is_left_after_every_way_to_end(tmp_path):
    end_many(len(ENDINGS), tmp_path, seed=1)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_nothing_is_left_after_fifty_emulations(tmp_path):
    end_many(50, tmp_path, seed=2)


def test_an_exception_in_the_block_takes_the_cluster_down():
    seen = {}

    def use_it():
        with Emulation(EmulationSpec(nodes=2)) as cluster:
            cluster.start_ranks(["sleep", "1000"])
            seen["pids"] = [program["pid"] for program in cluster.status()["programs"]]
            seen["folder"] = cluster.folder
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use_it()

    assert not seen["folder"].exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in seen["pids"])


def test_one_emulation_ends_and_its_neighbour_goes_on(tmp_path):
    with Emulation(EmulationSpec(nodes=2)) as stays:
        job = stays.start_ranks(["sleep", "1000"])
        with Emulation(EmulationSpec(nodes=2)) as goes:
            goes.start_ranks(["sleep", "1000"])
        with Emulation(EmulationSpec(nodes=2)) as goes:
            goes.fault("kill node0")

        assert job.codes() == (None, None)
        assert stays.run_on(
            0, [sys.executable, "-c", "import socket; print(socket.gethostbyname('node1'))"]
        ).strip() == (stays.address(1))


def test_a_folder_of_a_reused_pid_is_swept_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    old = tmp_path / f"meshwright-{os.geteuid()}" / f"emulation-{os.getpid()}-1"  # this pid lives, but began later
    old.mkdir(parents=True)

    with Emulation(EmulationSpec(nodes=1)) as cluster:
        assert not old.exists()
        assert cluster.folder.exists()
