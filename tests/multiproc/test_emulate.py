"""The cluster in a box, as its user sees it: programs inside, rates, exit codes, clean-up."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.errors import InputError
from tests.emulated import MEGABIT, carries, command_line, knock, rate_of, transfer

pytestmark = pytest.mark.netns


def test_every_rank_sees_its_own_host_and_network(emulated):
    cluster = emulated(nodes=2, ranks_per_node=2)
    program = """
import json, os, socket
seen = os.environ["RANK"], socket.gethostname(), os.listdir("/sys/class/net"), socket.gethostbyname("node1")
print(json.dumps(seen))
"""

    job = cluster.start_ranks([sys.executable, "-c", program])

    assert job.wait(timeout_s=200) == (0, 0, 0, 0)
    found = [json.loads(job.stdout(rank)) for rank in range(4)]
    assert [f[:2] for f in found] == [["0", "node0"], ["1", "node0"], ["2", "node1"], ["3", "node1"]]
    assert all(sorted(f[2]) == ["eth0", "lo"] for f in found)
    assert {f[3] for f in found} == {cluster.address(1)}


def test_shared_memory_ends_at_the_node(emulated):
    cluster = emulated(nodes=2)

    cluster.run_on(0, ["touch", "/dev/shm/mine"])

    assert cluster.run_on(0, ["ls", "/dev/shm"]) == "mine\n"
    assert cluster.run_on(1, ["ls", "/dev/shm"]) == ""
    assert not Path("/dev/shm/mine").exists()


@pytest.mark.parametrize("megabits", [10, 100, 1000])
def test_a_nic_carries_what_was_asked(emulated, megabits):
    rate = megabits * MEGABIT
    cluster = emulated(nodes=2, nic_bytes_per_s=rate)

    assert carries(cluster, 0, 1, rate, max(rate, 1.5e6))


def test_a_fat_tree_halves_crossing_traffic_only(emulated):
    rate = 200 * MEGABIT
    cluster = emulated(nodes=4, nic_bytes_per_s=rate, topology="fat-tree", oversubscription=2)

    crossing = [transfer(cluster, 0, 2, rate * 0.7, "5001"), transfer(cluster, 1, 3, rate * 0.7, "5002")]
    crossing_rates = [rate_of(job) for job in crossing]
    local = [transfer(cluster, 0, 1, rate, "5003"), transfer(cluster, 2, 3, rate, "5004")]
    local_rates = [rate_of(job) for job in local]

    assert sum(crossing_rates) == pytest.approx(rate, rel=0.1)  # two NICs, one uplink of the rate of one
    assert local_rates == pytest.approx([rate, rate], rel=0.1)


def test_a_nodes_loopback_can_have_a_rate_of_its_own(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=40 * MEGABIT, intra_bytes_per_s=400 * MEGABIT)

    assert carries(cluster, 0, 0, 400 * MEGABIT, 4e7)
    assert carries(cluster, 0, 1, 40 * MEGABIT, 5e6)


def test_two_emulations_do_not_meet(emulated):
    first, second = emulated(nodes=2), emulated(nodes=2)
    assert first.owner_pid != second.owner_pid
    assert knock(first, 0, first.address(1)) == "ConnectionRefusedError"  # is there, with nobody at the port
    assert knock(first, 0, second.address(1)) == "OSError"  # no route


def test_the_machines_own_network_is_not_touched(emulated):
    before = sorted(name for _, name in socket.if_nameindex())

    emulated(nodes=2, nic_bytes_per_s=1e6)

    assert sorted(name for _, name in socket.if_nameindex()) == before


def test_a_program_that_does_not_exist_is_named(emulated):
    cluster = emulated(nodes=1)

    with pytest.raises(InputError, match="no-such-program"):
        cluster.start_ranks(["no-such-program"])


def test_the_command_prefixes_output_and_ends_with_the_worst_code():
    script = "echo out $RANK; echo err >&2; exit $RANK"
    run = subprocess.run(
        command_line("--nodes", "2", "--ranks-per-node", "2", "--", "sh", "-c", script), capture_output=True, text=True
    )

    assert run.returncode == 3
    assert sorted(run.stdout.splitlines()) == [
        "[node0:rank0] out 0",
        "[node0:rank1] out 1",
        "[node1:rank2] out 2",
        "[node1:rank3] out 3",
    ]
    assert run.stderr.count("] err\n") == 4


def test_bad_input_is_one_line_and_exit_code_two():
    for arguments in (["--nodes", "0", "--", "true"], ["--nic", "1Gbs", "--", "true"], ["true"]):
        run = subprocess.run(command_line(*arguments), capture_output=True, text=True)

        assert run.returncode == 2
        assert len(run.stderr.splitlines()) == 1, run.stderr


def test_an_interrupt_reaches_the_ranks_and_ends_the_run():
    script = "trap 'echo interrupted; exit 7' INT; echo waiting; while :; do sleep 0.05; done"
    with subprocess.Popen(command_line("--nodes", "2", "--", "sh", "-c", script), stdout=subprocess.PIPE) as run:
        for _ in range(2):
            assert b"waiting" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        rest = run.stdout.read()

    assert rest.count(b"interrupted") == 2
    assert run.returncode == 7


@pytest.mark.slow
def test_the_json_of_an_emulation_and_of_a_fault_in_it_is_all_that_they_print():
    cluster = command_line("--nodes", "2", "--json", "--", "sh", "-c", "echo up; exec sleep 1000")
    with subprocess.Popen(cluster, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        ready = run.stderr.readline()
        assert [run.stderr.readline()[-3:] for _ in range(2)] == ["up\n"] * 2
        name = ready.split("emulation ")[1].split()[0]
        fault = subprocess.run(
            command_line("fault", "--id", name, "--json", "kill", "rank1"), capture_output=True, text=True, check=True
        )
        out, _ = run.communicate(timeout=200)

    assert json.loads(fault.stdout)["id"] == int(name)
    ended = json.loads(out)
    assert ended["spec"]["nodes"] == 2
    assert ended["worst"] == run.returncode != 0


def test_one_failure_ends_the_others(tmp_path):
    script = '[ "$RANK" = 0 ] && exit 5; sleep 1000'
    run = subprocess.run(command_line("--nodes", "2", "--stop-after", "0.1", "--", "sh", "-c", script))

    assert run.returncode == 128 + signal.SIGTERM


def test_nothing_is_left_when_the_launcher_is_killed():
    with subprocess.Popen(command_line("--nodes", "2", "--", "sh", "-c", "echo up; sleep 1000"), stdout=-1) as run:
        for _ in range(2):
            assert b"up" in run.stdout.readline()
        (supervisor,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        watch = os.pidfd_open(int(supervisor))
        run.kill()

        with open(watch, "rb"):
            assert select.select([watch], [], [], 10)[0]  # the supervisor has seen it and is gone, with all it owned


def test_topo_inside_finds_the_emulated_hosts_and_their_rates(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=500 * MEGABIT)

    seen = cluster.run_on(1, [sys.executable, "-m", "meshwright", "topo"]).splitlines()

    assert [line.split(":")[0] for line in seen[:2]] == ["node0", "node1"]
    assert [line.split()[-2:] for line in seen if "emulated" in line] == [["0.5", "Gb/s"]] * 2


@pytest.mark.slow
def test_bench_inside_measures_the_rate_that_was_asked(emulated):
    rate = 500 * MEGABIT
    cluster = emulated(nodes=2, nic_bytes_per_s=rate)
    bench = [sys.executable, "-m", "meshwright", "bench", "all_reduce", "--backend", "gloo", "--json"]

    job = cluster.start_ranks([*bench, "--min", "16M", "--max", "16M"])

    assert job.wait(timeout_s=200) == (0, 0), job.stderr(0)
    (row,) = map(json.loads, job.stdout(0).splitlines())
    assert row["busbw_GBps"] * 1e9 == pytest.approx(rate, rel=0.1)


@pytest.mark.slow
def test_bench_p2p_inside_is_held_against_the_nic(emulated):
    cluster = emulated(nodes=2, nic_bytes_per_s=500 * MEGABIT)

    job = cluster.start_ranks([sys.executable, "-m", "meshwright", "bench", "p2p", "--backend", "gloo"])

    assert job.wait(timeout_s=200) == (0, 0), job.stderr(0)
    assert "of 0.0625 GB/s per direction, the NIC" in job.stdout(0).splitlines()[-1]
