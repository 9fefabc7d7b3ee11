import os
import shutil
import subprocess
import sys

import pytest

from meshwright.cluster.discovery.binding import Binding, bind, binding, binding_of_gpu
from meshwright.cluster.discovery.local import parse_cores
from meshwright.cluster.graph import Cluster, Device
from meshwright.errors import MeshwrightError

TWO_SOCKETS = tuple(
    Device(id=f"CPU{n}", kind="cpu", numa=n, cores=8, cpu_affinity=f"{8 * n}-{8 * n + 7}") for n in range(2)
)
GPUS = tuple(Device(id=f"GPU{i}", kind="gpu", numa=i // 2) for i in range(4))
BOUND = """
import os, subprocess
from meshwright.cluster.discovery.binding import Binding, bind
bind(Binding("{cpus}", {numa}, "CPU0"))
print(subprocess.run(["taskset", "-pc", str(os.getpid())], capture_output=True, text=True).stdout.split(":")[1].strip())
print(subprocess.run(["numactl", "--show"], capture_output=True, text=True).stdout if {numactl} else "")
"""


def test_ranks_follow_their_gpus():
    cluster = Cluster(name="c", devices=(*TWO_SOCKETS, *GPUS))

    assert [binding(cluster, rank, 4).cpus for rank in range(4)] == ["0-7", "0-7", "8-15", "8-15"]
    assert binding(cluster, 3, 4) == Binding("8-15", 1, "GPU3")


def test_a_rank_goes_where_the_address_of_its_gpu_is_whatever_the_order_of_gpus(tmp_path):
    function = tmp_path / "bus/pci/devices/0000:c7:00.0"
    function.mkdir(parents=True)
    (function / "numa_node").write_text("1\n")
    cluster = Cluster(name="c", devices=TWO_SOCKETS)

    assert binding_of_gpu("0000:c7:00.0", cluster, tmp_path) == Binding("8-15", 1, "0000:c7:00.0")
    (function / "local_cpulist").write_text("12-15\n")
    assert binding_of_gpu("0000:c7:00.0", cluster, tmp_path) == Binding("12-15", 1, "0000:c7:00.0")
    assert binding_of_gpu("0000:01:00.0", cluster, tmp_path) is None
    assert binding_of_gpu("0000:c7:00.0", Cluster(name="c", devices=TWO_SOCKETS[:1]), tmp_path) is None


def test_ranks_without_gpus_are_spread_in_blocks():
    cluster = Cluster(name="c", devices=TWO_SOCKETS)

    assert [binding(cluster, rank, 4).numa for rank in range(4)] == [0, 0, 1, 1]


def test_one_node_leaves_nothing_to_choose():
    assert binding(Cluster(name="c", devices=TWO_SOCKETS[:1]), 0, 2) is None


def test_a_process_is_bound_where_taskset_and_numactl_say():
    core = max(os.sched_getaffinity(0))
    numactl = shutil.which("numactl") is not None
    code = BOUND.format(cpus=core, numa=0, numactl=numactl)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200).stdout

    assert parse_cores(out.splitlines()[0]) == [core]
    if numactl:
        assert "policy: preferred" in out
        assert f"physcpubind: {core}" in out


def test_cpus_that_are_not_ours_are_refused():
    with pytest.raises(MeshwrightError, match="cannot bind to CPUs 9999"):
        bind(Binding("9999", None, "GPU0"))
