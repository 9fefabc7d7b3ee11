import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.cluster.discovery.discover import assemble, discover
from meshwright.cluster.discovery.local import local_cluster, parse_cores
from meshwright.cluster.discovery.nvml import NvidiaGpu, NvmlError, nvidia_gpus
from meshwright.cluster.discovery.plugins import net_plugins
from meshwright.cluster.discovery.sysfs import InterfaceState, infiniband_rate, network_bytes_per_s
from meshwright.cluster.discovery.sysfs_host import host_of
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.cluster.graph import Cluster, Host
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from testkit.sysfs_folder import FakeSys

CATALOGUE = load_catalogue()
EMPTY = Cluster(name="h", hosts=(Host(name="h", cores=8, memory_bytes=2**30),))


@pytest.fixture
def sys_folder(tmp_path: Path) -> FakeSys:
    fake = FakeSys(tmp_path)
    switch = "pci0000:00/0000:00:01.0/0000:01:00.0"
    fake.gpu(f"{switch}/0000:02:00.0/0000:03:00.0")
    fake.gpu(f"{switch}/0000:02:01.0/0000:04:00.0")
    fake.nic(f"{switch}/0000:02:02.0/0000:05:00.0", infiniband="mlx5_0", net="ib0")
    fake.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", numa=1, cpus="4-7")
    fake.nic("pci0000:80/0000:80:02.0/0000:82:00.0", net="eth0", speed="25000", numa=1, cpus="4-7")
    fake.interface("lo", "", state="unknown")
    fake.interface("veth1", "10000")
    fake.interface("veth2", "10000", state="down")
    return fake


def assembled(fake: FakeSys, gpus: list[NvidiaGpu], interfaces: dict[str, InterfaceState] | None = None) -> Cluster:
    return assemble(EMPTY, CATALOGUE, gpus, None, fake.root, interfaces)


def test_the_network_of_a_host_is_that_of_its_fastest_kind_of_nic(sys_folder, tmp_path):
    assert network_bytes_per_s(sys_folder.root) == 50e9  # InfiniBand, beside Ethernet and a virtual interface

    plain = FakeSys(tmp_path / "plain")
    for slot in "01":
        plain.nic(f"pci0000:00/0000:00:0{slot}.0/0000:0{slot}:00.0", net=f"eth{slot}", speed="25000")
    plain.interface("veth0", "10000")
    assert network_bytes_per_s(plain.root) == 2 * 25e9 / 8

    inside = FakeSys(tmp_path / "inside")
    assert network_bytes_per_s(inside.root) is None
    inside.interface("eth0", "10000")
    assert network_bytes_per_s(inside.root) == 10e9 / 8


def test_devices_come_from_the_bus_with_numa_and_rates(sys_folder):
    by_id = {d.id: d for d in assembled(sys_folder, []).devices}

    assert set(by_id) == {"GPU0", "GPU1", "GPU2", "mlx5_0", "eth0", "veth1"}
    assert [by_id[f"GPU{i}"].numa for i in range(3)] == [0, 0, 1]
    assert by_id["GPU2"].cpu_affinity == "4-7"
    assert by_id["mlx5_0"].network_bandwidth_bytes_per_s == 50e9
    assert by_id["eth0"].network_bandwidth_bytes_per_s == 25e9 / 8
    assert by_id["veth1"].network_bandwidth_bytes_per_s == 10e9 / 8


def test_a_copy_of_sysfs_is_read_like_the_live_one(sys_folder):
    copied = load_dump(sys_folder.root, CATALOGUE, "a100")
    live = assembled(sys_folder, [])

    assert [d.id for d in copied.devices] == [d.id for d in live.devices]
    assert copied.links == live.links
    assert copied.devices[0].model.startswith("a100")


def test_a_folder_that_is_no_copy_of_sysfs_is_refused(tmp_path):
    with pytest.raises(InputError, match="no bus/pci/devices in this folder"):
        load_dump(tmp_path, CATALOGUE)


def test_paths_follow_the_pci_tree(sys_folder):
    links = {(link.a, link.b): link for link in assembled(sys_folder, []).links}

    assert links["GPU0", "GPU1"].kind == "PIX"
    assert links["GPU0", "mlx5_0"].kind == "PIX"
    assert links["GPU0", "GPU2"].kind == "SYS"
    assert links["GPU2", "eth0"].kind == "PHB"
    assert links["GPU0", "GPU1"].bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=0.001)


def test_the_driver_names_gpus_orders_them_and_knows_their_nvlinks(sys_folder):
    gpus = [
        NvidiaGpu("0000:81:00.0", "NVIDIA A100-SXM4-80GB", 79 * 2**30, to_switches=12),
        NvidiaGpu("0000:03:00.0", "NVIDIA A100-SXM4-80GB", 79 * 2**30, to_switches=12),
        NvidiaGpu("0000:04:00.0", "NVIDIA A100-SXM4-80GB", 79 * 2**30, {"0000:03:00.0": 4}),
    ]
    cluster = assembled(sys_folder, gpus)
    by_id = {d.id: d for d in cluster.devices}
    own = {(link.a, link.b): (link.kind, link.bandwidth_bytes_per_s) for link in cluster.links if link.kind[:2] == "NV"}

    assert by_id["GPU0"].numa == 1
    assert (by_id["GPU0"].model, by_id["GPU0"].memory_bytes) == ("a100-80g", 79 * 2**30)
    assert by_id["GPU0"].peak_flops_per_s["bf16"] == 312e12
    assert own == {("GPU0", "GPU1"): ("NV12", 300e9)}


def test_an_unknown_gpu_is_kept_with_a_warning(sys_folder):
    cluster = assembled(sys_folder, [NvidiaGpu("0000:03:00.0", "NVIDIA X999", 2**30)])

    assert any("X999 is not in the catalogue" in warning for warning in cluster.warnings)


def test_shaping_limits_the_rate_of_an_interface(sys_folder):
    limits = {"veth1": 125e6, "eth0": 1e12}
    cluster = assembled(sys_folder, [], {name: InterfaceState(True, limit) for name, limit in limits.items()})
    by_id = {d.id: d.network_bandwidth_bytes_per_s for d in cluster.devices}

    assert by_id["veth1"] == 125e6
    assert by_id["eth0"] == 25e9 / 8


def test_interfaces_of_another_namespace_that_sysfs_still_shows_are_left_out(sys_folder):
    cluster = assembled(
        sys_folder, [], {"lo": InterfaceState(True), "node0": InterfaceState(True, 1e8), "ifb0": InterfaceState(True)}
    )

    assert [d.id for d in cluster.of_kind("nic")] == ["mlx5_0", "node0"]


def test_xgmi_comes_from_the_kernel(tmp_path):
    fake = FakeSys(tmp_path)
    fake.gpu("pci0000:00/0000:00:01.0/0000:0c:00.0", "0x1002")
    fake.gpu("pci0000:00/0000:00:02.0/0000:22:00.0", "0x1002")
    for node, location in ((1, 0x0C00), (2, 0x2200)):
        folder = tmp_path / f"class/kfd/kfd/topology/nodes/{node}"
        (folder / "io_links/0").mkdir(parents=True)
        (folder / "properties").write_text(f"simd_count 304\ndomain 0\nlocation_id {location}\n")
        (folder / "io_links/0/properties").write_text(f"type 11\nnode_to {3 - node}\nmax_bandwidth 64000\n")
    links = assembled(fake, []).links

    assert [(link.kind, link.bandwidth_bytes_per_s) for link in links if link.kind == "xGMI"] == [("xGMI", 64e9)]


@pytest.mark.parametrize(
    ("text", "gigabits"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("100 Gb/sec (4X EDR)", 100),
        ("56 Gb/sec (4X FDR)", 56),
        ("40 Gb/sec", 40),
        ("200 Gb/sec (2X NDR)", 200),
    ],
)
def test_infiniband_rates(text, gigabits):
    assert infiniband_rate(text) == gigabits * 1e9 / 8


def test_an_infiniband_rate_that_cannot_be_read_is_open():
    assert infiniband_rate("") is None


class Library:
    """A management library with one GPU whose links go to a switch; `fail` names the call that fails."""

    def __init__(self, fail: str = "") -> None:
        self.fail = fail

    def __getattr__(self, name: str):
        def call(*arguments):
            if name == self.fail:
                return 999
            ours = type(self).__dict__.get(f"_{name}")
            return ours(self, *arguments) if ours else 0

        return call

    def _nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 1
        return 0

    def _nvmlDeviceGetName(self, handle, name, length):
        name.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def _nvmlDeviceGetPciInfo_v3(self, handle, pci):
        pci._obj.bus = 0x3B
        return 0

    def _nvmlDeviceGetMemoryInfo(self, handle, memory):
        memory._obj.total = 80 * 2**30
        return 0

    def _nvmlDeviceGetNvLinkState(self, handle, link, active):
        active._obj.value = 1
        return 0

    def _nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle, link, remote):
        remote._obj.bus = 0xC4
        return 0


def test_nvml_is_read_through_its_own_calls():
    assert nvidia_gpus(Library()) == [NvidiaGpu("0000:3b:00.0", "NVIDIA H100 80GB HBM3", 80 * 2**30, {}, 18)]


def test_a_failing_driver_is_named():
    with pytest.raises(NvmlError, match="nvmlDeviceGetName failed with code 999"):
        nvidia_gpus(Library("nvmlDeviceGetName"))


def test_this_machine_is_discovered_as_the_system_describes_it():
    cluster = discover(CATALOGUE)
    affinity = subprocess.run(["taskset", "-pc", str(os.getpid())], capture_output=True, text=True, check=True).stdout

    assert cluster.hosts[0].cores <= len(os.sched_getaffinity(0))
    assert sum(cpu.cores for cpu in cluster.of_kind("cpu")) == len(os.sched_getaffinity(0))
    assert parse_cores(affinity.split(":")[1].strip()) == sorted(
        core for cpu in cluster.of_kind("cpu") for core in parse_cores(cpu.cpu_affinity)
    )


@pytest.mark.skipif(shutil.which("lstopo") is None, reason="lstopo is not installed")
def test_what_lstopo_writes_of_this_machine_equals_what_sysfs_says(tmp_path):
    path = tmp_path / "here.xml"
    subprocess.run(["lstopo", "--of", "xml", str(path)], check=True, capture_output=True, timeout=200)

    theirs, ours = load_dump(path, CATALOGUE), discover(CATALOGUE)

    def cpus(cluster: Cluster) -> list[tuple[object, ...]]:
        return [(d.id, d.numa, d.cores, d.cpu_affinity) for d in cluster.of_kind("cpu")]

    assert cpus(theirs) == cpus(ours)
    assert theirs.hosts[0].cores == sum(cpu.cores for cpu in ours.of_kind("cpu"))
    for level in ("L2", "L3"):
        assert theirs.hosts[0].cache_bytes.get(level) == local_cluster().hosts[0].cache_bytes.get(level)
    with_bus = {d.id for d in ours.of_kind("nic") if d.model != "virtual"}
    assert {d.id for d in theirs.of_kind("nic")} == with_bus


def test_net_plugins_are_found_on_the_library_path_and_named(tmp_path):
    (tmp_path / "libnccl-net.so").write_bytes(b"\x7fELF...NET/OFI aws-ofi-nccl 1.9")
    (tmp_path / "libnccl-net-mine.so").write_bytes(b"\x7fELF")

    default = net_plugins({"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"}, [])
    named = net_plugins({"LD_LIBRARY_PATH": str(tmp_path), "NCCL_NET_PLUGIN": "mine"}, [])

    assert [Path(p.path).name for p in default] == ["libnccl-net.so"]
    assert "EFA" in default[0].what
    assert Path(named[0].path).name == "libnccl-net-mine.so"
    assert net_plugins({"LD_LIBRARY_PATH": str(tmp_path), "NCCL_NET_PLUGIN": "none"}, []) == ()


SHAPED = """
import json
from pyroute2 import IPRoute
from meshwright.cluster.discovery.discover import discover
from meshwright.cluster.discovery.sysfs_host import host_of
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

with IPRoute() as netlink:
    netlink.link("add", ifname="veth1", peer="veth2", kind="veth")
    for name in ("veth1", "veth2"):
        index = netlink.link_lookup(ifname=name)[0]
        netlink.link("set", index=index, state="up")
        if name == "veth1":
            netlink.tc("add", "tbf", index=index, handle=0x10000, rate=125_000_000, burst=2**20, limit=2**22)
print(json.dumps({d.id: d.network_bandwidth_bytes_per_s for d in discover(load_catalogue()).of_kind("nic")}))
"""


@pytest.mark.netns
def test_the_rate_of_a_shaped_interface_is_found_in_a_network_namespace():
    command = ["unshare", "-rn", sys.executable, "-c", SHAPED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace can be had: {done.stderr.strip()[:100]}")

    assert done.returncode == 0, done.stderr[-1500:]
    assert json.loads(done.stdout)["veth1"] == pytest.approx(125e6, rel=0.01)


def numa_copy(root, nodes, online="", off=()):
    """A copy of /sys: nodes as (number, CPUs, MiB); CPUs that say of themselves that they are off."""
    for number, cpus, mib in nodes:
        node = root / f"sys/devices/system/node/node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{cpus}\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal:  {mib * 1024} kB\n")
    for core in range(8):
        folder = root / f"sys/devices/system/cpu/cpu{core}"
        folder.mkdir(parents=True)
        (folder / "online").write_text(f"{int(core not in off)}\n")
    if online:
        (root / "sys/devices/system/cpu/online").write_text(f"{online}\n")
    return host_of(root / "sys")


def affinities(cluster):
    return {device.id: device.cpu_affinity for device in cluster.of_kind("cpu")}


def test_cpus_that_are_off_are_no_cores(tmp_path):
    cluster = numa_copy(tmp_path, [(0, "0-3", 64), (1, "4-7", 64)], off={2, 3, 7})

    assert affinities(cluster) == {"CPU0": "0-1", "CPU1": "4-6"}
    assert cluster.hosts[0].cores == 5


def test_cpus_of_no_numa_node_are_still_cores_of_the_machine(tmp_path):
    cluster = numa_copy(tmp_path, [(1, "1,3,5,7", 64)], online="0-7")

    assert affinities(cluster) == {"CPU1": "1,3,5,7", "CPU of no node": "0,2,4,6"}
    assert (cluster.hosts[0].cores, cluster.hosts[0].numa_nodes) == (8, 1)
    assert cluster.warnings == ("CPUs 0,2,4,6 are in no NUMA node of this copy: which is nearest is not known",)


def test_cpus_that_several_nodes_list_count_once(tmp_path):
    cluster = numa_copy(tmp_path, [(0, "0-7", 64), (1, "0-7", 64), (2, "0-7", 32)], online="0-7")

    assert affinities(cluster) == {"CPU0": "0-7"}
    assert cluster.hosts[0].cores == 8
    assert cluster.hosts[0].memory_bytes == 160 * 2**20
    assert "NUMA nodes 1, 2 list CPUs that another node lists too" in cluster.warnings[0]


def test_a_numa_node_with_nothing_in_it_is_not_shown(tmp_path):
    cluster = numa_copy(tmp_path, [(0, "0-7", 64), (1, "", 0), (2, "", 32)], online="0-7")

    assert [device.id for device in cluster.of_kind("memory")] == ["MEM2"]


def test_memory_of_gpus_is_no_memory_of_the_host(tmp_path):
    status = tmp_path / "proc/driver/nvidia/gpus/0004:05:00.0/numa_status"
    status.parent.mkdir(parents=True)
    status.write_text("Node:      255\nStatus:    online\nSize:      3f0000000\n")

    cluster = numa_copy(tmp_path, [(0, "0-7", 64), (255, "", 1024)], online="0-7")

    assert cluster.hosts[0].memory_bytes == 64 * 2**20
    assert not cluster.of_kind("memory")


def test_processing_units_that_no_node_of_lstopo_holds_are_cores_too():
    units = "".join(f'<object type="Core" os_index="{n}"><object type="PU" os_index="{n}"/></object>' for n in range(4))
    text = (
        '<?xml version="1.0"?><topology version="2.0"><object type="Machine" os_index="0" cpuset="0xf">'
        '<object type="NUMANode" os_index="0" cpuset="0x3" local_memory="1048576"/>'
        '<object type="NUMANode" os_index="1" cpuset="0x0" local_memory="0"/>'
        '<object type="NUMANode" os_index="2" cpuset="0x0" local_memory="4096" subtype="GPUMemory"/>'
        f"{units}</object></topology>"
    )

    cluster = parse_dump(text, "lstopo.xml", load_catalogue())

    assert affinities(cluster) == {"CPU0": "0-1", "CPU of no node": "2-3"}
    assert [device.id for device in cluster.of_kind("memory")] == ["MEM2"]
    assert (cluster.hosts[0].cores, cluster.hosts[0].memory_bytes) == (4, 1048576)
    assert "CPUs 2-3 are in no NUMA node" in " ".join(cluster.warnings)
