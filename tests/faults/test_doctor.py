"""Every fault that is planted in an emulated cluster is found, and a healthy cluster has none."""

import json
import shlex
import subprocess
import sys

import pytest

from meshwright.cluster.doctor import CHECKS
from meshwright.native import c_compiler
from testkit.skew import set_clock

pytestmark = pytest.mark.netns
DOCTOR = [sys.executable, "-m", "meshwright", "doctor", "--json", "--wait", "4s"]


@pytest.fixture(autouse=True)
def no_compiler_is_missed(monkeypatch):
    """Let a machine without a compiler be healthy: what is planted is all that is wrong."""
    if c_compiler() is None:
        monkeypatch.setenv("MESHWRIGHT_HELPER", "0")


def diagnosed(cluster, plant=None, *, node=1, wait="4s"):
    """Start the doctor on every node, after the shell commands `plant` on one of them; return findings and exit codes.

    What is planted lies in the shell of that node's own doctor: `exec` keeps limits and variables.
    """
    script = f'if [ "$NODE_RANK" = {node} ]; then {plant or "true"}; fi; exec {shlex.join(DOCTOR[:-1])} {wait}'
    job = cluster.start_nodes(["sh", "-ec", script])
    codes = job.wait(timeout_s=200)
    reports = [json.loads(job.stdout(i)) for i in range(cluster.spec.nodes) if job.stdout(i)]
    assert reports, job.stderr(0)
    return [(f["check"], f["host"]) for f in reports[0]["findings"]], codes


def test_a_healthy_cluster_has_nothing_wrong(emulated):
    cluster = emulated(nodes=3, ranks_per_node=2, nic_bytes_per_s=1e8)

    assert diagnosed(cluster) == ([], (0, 0, 0))


def test_healthy_ranks_have_nothing_wrong(emulated):
    cluster = emulated(nodes=2, ranks_per_node=2)

    job = cluster.start_ranks(DOCTOR)

    assert job.wait(timeout_s=200) == (0, 0, 0, 0), job.stdout(0)
    assert json.loads(job.stdout(0))["findings"] == []


def test_this_machine_alone_can_be_examined():
    run = subprocess.run(DOCTOR, capture_output=True, text=True)

    report = json.loads(run.stdout)
    assert run.returncode == (0 if report["healthy"] else 1)
    assert report["checks"] == [check.name for check in CHECKS]


PLANTED = {
    "gloo-interface": "export GLOO_SOCKET_IFNAME=^lo",
    "gloo-interface, absent": "export GLOO_SOCKET_IFNAME=eth7",
    "gloo-interface, loopback": "export GLOO_SOCKET_IFNAME=lo",
    "gloo-interface, down": "ip link add dummy7 type veth peer name dummy8; export GLOO_SOCKET_IFNAME=dummy7",
    "gloo-default": "ip addr add 10.9.9.9/32 dev lo; echo 10.9.9.9 $(hostname) > /etc/hosts; unset GLOO_SOCKET_IFNAME",
    "nccl-interface": "export NCCL_SOCKET_IFNAME=ib",
    "nccl-interface, left out": "export NCCL_SOCKET_IFNAME=^eth",
    "nccl-interface, loopback": "export NCCL_SOCKET_IFNAME==lo",
    "host-name": "echo 127.0.1.1 $(hostname) > /etc/hosts",
    "host-name, none": "echo 127.0.0.1 localhost > /etc/hosts",
    "mtu": "ip link set eth0 mtu 1400",
    "shared-memory": "mount -o remount,size=64m /dev/shm",
    "shared-memory, full": "mount -o remount,size=1g /dev/shm; fallocate -l 900M /dev/shm/stale",
    "memlock": """
        T=$(mktemp -d); mount -t tmpfs none $T; mkdir -p $T/infiniband/mlx5_0 $T/net
        mount --bind /sys/class/net $T/net; mount --bind $T /sys/class; ulimit -l 64""",
    "numa-binding": """
        mount -t tmpfs none /sys/devices/system/node; cd /sys/devices/system/node; mkdir node0 node1
        echo 0 > node0/cpulist; echo 1-63 > node1/cpulist; cd /
        export RANK=2 LOCAL_WORLD_SIZE=2 OMP_NUM_THREADS=1""",
    "cpu-governor": """
        mount -t tmpfs none /sys/devices/system/cpu; mkdir -p /sys/devices/system/cpu/cpu0/cpufreq
        echo powersave > /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor""",
    "omp-threads": "export RANK=2 LOCAL_WORLD_SIZE=2; unset OMP_NUM_THREADS",
    "cpu-oversubscription": "export OMP_NUM_THREADS=4096",
    "c-compiler": "export PATH=/nowhere; unset CC MESHWRIGHT_HELPER",
    "nccl-switches": "export NCCL_P2P_DISABLE=1",
    "versions": """
        T=$(mktemp -d); mkdir $T/torch-0.4.dist-info; echo Version: 0.4 > $T/torch-0.4.dist-info/METADATA
        export PYTHONPATH=$T:$PYTHONPATH""",
    "same-nccl": "export NCCL_ALGO=Ring",
    "clock": set_clock(-10),
    "clock, ahead": set_clock(3600),
}
ALSO = {"nccl-switches": {"same-nccl"}}  # a variable on one node only is two faults


def test_all_planted_faults_are_found_at_once_each_on_its_own_node(emulated):
    cluster = emulated(nodes=1 + len(PLANTED))
    cases = "".join(f"{number}) {plant};;\n" for number, plant in enumerate(PLANTED.values(), start=1))

    job = cluster.start_nodes(["sh", "-ec", f'case "$NODE_RANK" in\n{cases}esac\nexec {shlex.join(DOCTOR[:-1])} 20s'])

    assert set(job.wait(timeout_s=200)) == {1}
    found = {(f["check"], f["host"]) for f in json.loads(job.stdout(0))["findings"]}
    expected = set()
    for number, fault in enumerate(PLANTED, start=1):
        check = fault.partition(",")[0]
        expected |= {(name, f"node{number}") for name in {check} | ALSO.get(check, set())}
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_where_it_is_and_nothing_else(emulated, fault):
    cluster = emulated(nodes=2)
    check = fault.partition(",")[0]

    findings, codes = diagnosed(cluster, PLANTED[fault])

    assert set(findings) == {(name, "node1") for name in {check} | ALSO.get(check, set())}
    assert codes == (1, 1)


def test_every_check_has_a_planted_fault():
    elsewhere = {"master-address", "same-rendezvous"}  # tested below: nodes that do not meet
    elsewhere |= {"busy-processors"}  # in tests/unit/cluster/test_doctor_load.py: emulated nodes share the processors

    assert {fault.partition(",")[0] for fault in PLANTED} | elsewhere == {check.name for check in CHECKS}


def test_a_node_that_is_cut_off_is_named_on_both_sides(emulated):
    cluster = emulated(nodes=3)
    cluster.fault("cut node2")

    job = cluster.start_nodes([*DOCTOR[:-1], "1s"])

    assert job.wait(timeout_s=200) == (1, 1, 1)
    here, there = json.loads(job.stdout(0)), json.loads(job.stdout(2))
    assert [(f["check"], f["host"]) for f in here["findings"]] == [("rendezvous", "node0")]
    assert "node 2" in here["findings"][0]["found"]
    assert ("rendezvous", "node2") in [(f["check"], f["host"]) for f in there["findings"]]


def test_a_taken_rendezvous_port_is_found(emulated):
    cluster = emulated(nodes=2)
    taker = "import socket,time;s=socket.create_server(('', 29500));print('taken',flush=True);time.sleep(100)"
    job = cluster.start_on(0, [sys.executable, "-c", taker])
    assert cluster.await_until(lambda: "taken" in job.stdout(0), 200)

    findings, codes = diagnosed(cluster, wait="0.5s")

    assert ("rendezvous-port", "node0") in findings
    assert codes == (1, 1)


def test_a_master_address_that_leads_home_is_found(emulated):
    cluster = emulated(nodes=2)

    job = cluster.start_on(1, [*DOCTOR[:-1], "0.5s"], env={"MASTER_ADDR": "127.0.0.1", "NNODES": "2"})

    assert job.wait(timeout_s=200) == (1,)
    findings = [f["check"] for f in json.loads(job.stdout(0))["findings"]]
    assert "master-address" in findings
    assert "rendezvous" in findings


def test_nodes_with_different_rendezvous_are_found(emulated):
    cluster = emulated(nodes=2)
    findings, codes = diagnosed(cluster, 'export MASTER_ADDR="node0"')

    assert findings == [("same-rendezvous", "node1")]
    assert codes == (1, 1)


def test_the_list_of_checks_says_why_each_matters():
    run = subprocess.run([*DOCTOR[:4], "--list"], capture_output=True, text=True)

    assert run.returncode == 0
    assert [line.partition(":")[0] for line in run.stdout.splitlines()] == [check.name for check in CHECKS]
