"""Each fault does what its name says, and can be mended."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshwright.errors import InputError
from tests.emulated import MEGABIT, carries, command_line, knock, rate_of, transfer

pytestmark = pytest.mark.netns

_DATAGRAMS = """
import select, socket, sys
port = 7
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    if sys.argv[1] == "count":
        s.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE: a busy machine must not lose what the link kept
        s.bind(("0.0.0.0", port))
        print("ready", flush=True)
        seen = 0
        while True:
            word, sender = s.recvfrom(10)
            if word == b"end":
                break
            if word == b"x":
                seen += 1
            else:
                s.sendto(word, sender)
        print(seen)
    else:
        counter = sys.argv[2], port
        for number in range(int(sys.argv[3])):
            s.sendto(b"x", counter)
            # The kernel's queue between the hosts holds 1000: no more leave before an answer says that it is empty.
            answer = number % 100 != 99
            while not answer:
                s.sendto(b"%d" % number, counter)
                answer = select.select([s], [], [], 0.02)[0] and s.recv(10) == b"%d" % number
        for _ in range(50):  # some of these will arrive
            s.sendto(b"end", counter)
"""


def datagrams_that_arrive(cluster, sent):
    counting = cluster.start_on(1, [sys.executable, "-c", _DATAGRAMS, "count"])
    assert until(lambda: "ready" in counting.stdout(0))
    cluster.run_on(0, [sys.executable, "-c", _DATAGRAMS, "send", cluster.address(1), str(sent)])
    assert counting.wait(timeout_s=10) == (0,)
    return int(counting.stdout(0).split()[1])


def until(condition, turns=2000):
    """Ask again until it is true, a few milliseconds apart."""
    for _ in range(turns):
        if condition():
            return True
        time.sleep(0.005)
    return False


def kernel_has_netem(cluster):
    job = cluster.start_on(0, ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    return job.wait(timeout_s=5) == (0,)


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def pids_of(cluster):
    return [program["pid"] for program in cluster.status()["programs"]]


def test_a_cut_node_cannot_be_reached_until_it_is_restored(emulated):
    cluster = emulated(nodes=3)

    cluster.fault("cut node1")
    assert knock(cluster, 0, cluster.address(1), 0.3) in ("TimeoutError", "OSError")
    assert knock(cluster, 0, cluster.address(2)) == "ConnectionRefusedError"

    cluster.fault("restore node1")
    assert knock(cluster, 0, cluster.address(1)) == "ConnectionRefusedError"


def test_a_transfer_survives_a_cut_that_is_mended(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=40 * MEGABIT)
    arriving = transfer(cluster, 0, 1, 6e6)

    def received():
        return int(cluster.run_on(1, ["cat", "/sys/class/net/eth0/statistics/rx_bytes"]))

    assert until(lambda: received() > 1e6)
    cluster.fault("cut node0")
    stopped = received()
    assert arriving.codes() == (None,)
    assert received() - stopped < 1e5

    cluster.fault("restore node0")
    rate_of(arriving)


def test_cutting_a_leaf_separates_it_and_nothing_else(emulated):
    cluster = emulated(nodes=4, nic_bytes_per_s=1e8, topology="fat-tree")

    cluster.fault("cut leaf1")

    assert knock(cluster, 0, cluster.address(2), 0.3) in ("TimeoutError", "OSError")
    assert knock(cluster, 0, cluster.address(1)) == "ConnectionRefusedError"
    assert knock(cluster, 2, cluster.address(3)) == "ConnectionRefusedError"


def test_a_slow_nic_runs_at_its_new_rate_and_restore_brings_the_old_one_back(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=400 * MEGABIT)

    cluster.fault("slow node1 40Mbps")
    assert carries(cluster, 0, 1, 40 * MEGABIT, 5e6)

    cluster.fault("restore node1")
    assert carries(cluster, 0, 1, 400 * MEGABIT, 4e7)


def test_loss_is_the_share_that_was_asked(emulated):
    cluster = emulated(nodes=2)
    sent, share = 4000, 0.25
    deviation = (sent * share * (1 - share)) ** 0.5

    cluster.fault("lose node1 25%")
    assert datagrams_that_arrive(cluster, sent) == pytest.approx(sent * (1 - share), abs=6 * deviation)

    cluster.fault("restore node1")
    assert datagrams_that_arrive(cluster, sent) == sent


def test_delay_holds_packets_back_or_says_what_the_kernel_lacks(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=1e8)
    if not kernel_has_netem(cluster):
        with pytest.raises(InputError, match="sch_netem"):
            cluster.fault("delay node1 50ms")
        return
    cluster.fault("delay node1 50ms")
    program = """
import socket, sys, time
began = time.monotonic()
with socket.socket() as s:
    s.connect_ex((sys.argv[1], 9))
print(time.monotonic() - began)
"""
    waited_s = float(cluster.run_on(0, [sys.executable, "-c", program, cluster.address(1)]))
    assert 0.09 < waited_s < 0.5


@pytest.mark.parametrize(("target", "states"), [("rank2", ["S", "S", "T", "S"]), ("node1", ["S", "S", "T", "T"])])
def test_a_paused_rank_or_node_stands_still_and_resumes(emulated, target, states):
    cluster = emulated(nodes=2, ranks_per_node=2)
    cluster.start_ranks(["sleep", "1000"])
    pids = pids_of(cluster)

    cluster.fault(f"pause {target}")
    assert until(lambda: [state_of(pid) for pid in pids] == states)

    cluster.fault(f"resume {target}")
    assert until(lambda: [state_of(pid) for pid in pids] == ["S"] * 4)


def test_a_killed_rank_dies_alone(emulated):
    cluster = emulated(nodes=2, ranks_per_node=2)
    job = cluster.start_ranks(["sleep", "1000"])

    cluster.fault("kill rank3")

    assert cluster.await_until(lambda: job.codes() == (None, None, None, 137), 5)


def test_a_killed_node_takes_everything_on_it_down(emulated):
    cluster = emulated(nodes=2, ranks_per_node=2)
    job = cluster.start_ranks(["sh", "-c", "setsid sleep 1000 & wait"])

    cluster.fault("kill node0")

    assert cluster.await_until(lambda: job.codes() == (137, 137, None, None), 5)
    with pytest.raises(InputError, match="node0"):
        cluster.start_on(0, ["true"])


def test_a_rank_that_another_launcher_started_is_found_by_its_variables(emulated):
    cluster = emulated(nodes=2)
    job = cluster.start_nodes(["sh", "-c", "RANK=$((NODE_RANK + 4)) sleep 1000; echo $?; true"])
    assert until(lambda: all(len(children(pid)) == 1 for pid in pids_of(cluster)))

    cluster.fault("kill rank5")

    assert until(lambda: job.stdout(1).strip() == "137")
    assert job.codes()[0] is None


def children(pid):
    """Return the children of a process that have been executed, and so have their own variables."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [child for child in found if b"\0RANK=" in Path(f"/proc/{child}/environ").read_bytes()]


@pytest.mark.parametrize(
    "text", ["cut node7", "cut switch", "kill rank9", "pause node9", "explode node1", "slow node1"]
)
def test_a_fault_that_cannot_be_is_one_line(emulated, text):
    cluster = emulated(nodes=1)

    with pytest.raises(InputError, match=re.escape(text.split()[1] if "expl" not in text else "explode")):
        cluster.fault(text)


def test_another_terminal_lists_and_breaks_a_running_emulation(emulated):
    cluster = emulated(nodes=2)
    job = cluster.start_ranks(["sleep", "1000"])
    which = ["--id", str(cluster.owner_pid)]

    listed = subprocess.run(command_line("list"), capture_output=True, text=True)
    broken = subprocess.run(command_line("fault", *which, "kill", "rank1"), capture_output=True, text=True)
    wrong = subprocess.run(command_line("fault", *which, "kill", "rank7"), capture_output=True, text=True)

    assert f"{cluster.owner_pid}: 2 nodes, 2 programs running" in listed.stdout
    assert broken.returncode == 0
    assert "rank1" in broken.stdout
    assert cluster.await_until(lambda: job.codes()[1] == 137, 5)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_fault_without_an_emulation_says_so(tmp_path):
    run = subprocess.run(
        command_line("fault", "cut", "node0"),
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )

    assert run.returncode == 2
    assert "no emulation is running" in run.stderr


def test_a_visitor_runs_a_command_on_a_node_and_gets_its_exit_code(emulated):
    cluster = emulated(nodes=2)
    which = ["--id", str(cluster.owner_pid)]

    seen = subprocess.run(command_line("exec", *which, "node1", "--", "hostname"), capture_output=True, text=True)
    failed = subprocess.run(command_line("exec", *which, "node1", "--", "sh", "-c", "exit 9"))

    assert (seen.returncode, seen.stdout) == (0, "node1\n")
    assert failed.returncode == 9


def test_what_a_visitor_started_ends_with_the_visitor(emulated):
    cluster = emulated(nodes=1)
    words = command_line("exec", "--id", str(cluster.owner_pid), "node0", "--", "sh", "-c", "echo in; exec sleep 1000")
    with subprocess.Popen(words, stdout=subprocess.PIPE) as visitor:
        assert visitor.stdout.readline() == b"in\n"
        visitor.kill()

    assert until(lambda: [p["exit_code"] for p in cluster.status()["programs"]] == [129])
