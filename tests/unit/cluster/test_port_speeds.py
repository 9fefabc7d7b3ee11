"""Ports by ethtool and mlxlink, PCIe links by a cut lspci, nodes by SLURM: what each says, and what it leaves open."""

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.drawing.draw import draw
from meshwright.cluster.dumps import load_dump, load_dumps
from meshwright.hardware import load_catalogue

MLXLINK = """$ sudo mlxlink -d /dev/mst/mt4129_pciconf0 -p 1

Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x
FEC                                : Standard_RS-FEC - (544,514)

Troubleshooting Info
--------------------
Status Opcode                      : 0
Recommendation                     : No issue was observed
$ sudo mlxlink -d mlx5_1

Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-SDR
Width                              : 4x

Troubleshooting Info
--------------------
Status Opcode                      : 25
Recommendation                     : Cable speed not enabled

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 300.5
Effective Physical Errors          : 7000
Effective Physical BER             : 2E-9
Link Down Counter                  : 3
Raw Physical BER                   : 1E-7
$ sudo mlxlink -d mlx5_2

Operational Info
----------------
State                              : Polling
Physical state                     : ETH_AN_FSM_ENABLE
Speed                              : N/A
Width                              : N/A
"""
ETHTOOL = """Settings for ens1np0:
\tSupported ports: [ FIBRE ]
\tSpeed: 200000Mb/s
\tLanes: 4
\tDuplex: Full
\tLink detected: yes
Settings for ens2np0:
\tSpeed: Unknown!
\tDuplex: Unknown! (255)
\tLink detected: no
"""
MLXLINK_JSON = """{"result": {"output": {
  "Operational Info": {"Physical state": "LinkUp", "Speed": "100G", "Width": "4x"},
  "Troubleshooting Info": {"Status Opcode": "0", "Recommendation": "No issue was observed"}
}}}"""
DEVINFO = """hca_id: mlx5_0
        transport:                      InfiniBand (0)
        phys_port_cnt:                  1
                port:   1
                        state:                  PORT_DOWN (1)
                        link_layer:             Ethernet
                        active_width:           4X (2)
                        active_speed:           10.0 Gbps (4)
                        phys_state:             DISABLED (3)

hca_id: mlx5_1
        transport:                      InfiniBand (0)
                port:   1
                        state:                  PORT_ACTIVE (4)
                        link_layer:             InfiniBand
                        active_width:           4X (2)
                        active_speed:           50.0 Gbps (64)
                        phys_state:             LINK_UP (5)
"""
MATRIX = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tSYS\tPIX\tFIRST\t0
GPU1\tSYS\t X \tSYS\t16-31\t1
NIC0\tPIX\tSYS\t X
NIC Legend:
  NIC0: mlx5_1
"""
LINKS = """1a:00.0
\tLnkCap: Port #0, Speed 32GT/s, Width x16, ASPM L1
\tLnkSta: Speed 32GT/s, Width x4 (downgraded)
1b:00.0
\tLnkCap: Port #0, Speed 32GT/s, Width x16, ASPM L1
\tLnkSta: Speed 2.5GT/s (downgraded), Width x16
1c:00.0
\tLnkCap: Port #0, Speed 32GT/s, Width x16, ASPM L1
\tLnkSta: Speed 32GT/s, Width x16
"""
NODE = """NodeName=gp07 Arch=x86_64 CoresPerSocket=48
   CPUAlloc=4 CPUEfctv=92 CPUTot=96 CPULoad=1.00
   Gres=gpu:a100:4(S:0-1)
   RealMemory=900000 Sockets=2 Boards=1
   CoreSpecCount=4 CPUSpecList=46-47,94-95
   State=MIXED ThreadsPerCore=1
   CfgTRES=cpu=92,gres/gpu=4
   AllocTRES=cpu=4,gres/gpu=1
"""
FILE = """<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
  </cpu>
  <cpu numaid="1" affinity="0000ff00" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
  </cpu>
</system>
"""


def loaded(tmp_path, text, name="d.txt"):
    (tmp_path / name).write_text(text)
    return load_dump(tmp_path / name, load_catalogue())


def rates(cluster):
    return {nic.id: nic.network_bandwidth_bytes_per_s for nic in cluster.of_kind("nic")}


def test_mlxlink_says_rates_what_it_advises_and_errors(tmp_path):
    cluster = loaded(tmp_path, MLXLINK)

    assert rates(cluster) == {"mt4129_pciconf0": 50e9, "mlx5_1": 1.25e9, "mlx5_2": None}
    assert cluster.warnings[:4] == (
        "mlx5_1: mlxlink says Cable speed not enabled",
        "mlx5_1: bit errors of 2E-9 behind error correction: packets are sent again; a bad cable or transceiver",
        "mlx5_1: the link was down 3 times in 300.5 minutes",
        "mlx5_2 carries nothing (Physical state: ETH_AN_FSM_ENABLE)",
    )


def test_ethtool_says_the_rate_of_interfaces_that_have_a_link(tmp_path):
    cluster = loaded(tmp_path, ETHTOOL)

    assert rates(cluster) == {"ens1np0": 25e9, "ens2np0": None}
    assert cluster.warnings[0] == "ens2np0 carries nothing (Link detected: no)"


def test_a_port_of_mlxlink_s_json_has_its_file_s_name(tmp_path):
    assert rates(loaded(tmp_path, MLXLINK_JSON, "mlx5_4.json")) == {"mlx5_4": 12.5e9}


@pytest.mark.parametrize("turned", [False, True])
def test_ports_give_rates_to_the_nics_of_a_matrix_and_add_none(tmp_path, turned):
    files = {"matrix.txt": MATRIX.replace("FIRST", "0-15"), "ports.txt": MLXLINK}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [tmp_path / name for name in files]

    cluster = load_dumps(paths[::-1] if turned else paths, load_catalogue())

    assert rates(cluster) == {"NIC0": 1.25e9}
    assert cluster.warnings[0].startswith("mt4129_pciconf0, mlx5_2: no NIC of the other dumps has such a name")


def test_links_of_functions_without_names_say_what_they_run_at(tmp_path):
    cluster = loaded(tmp_path, LINKS)

    assert cluster.warnings == (
        "1a:00.0 runs at 32 GT/s x4 (15.8 GB/s) of 32 GT/s x16 (63 GB/s)",
        "1b:00.0 runs at 2.5 GT/s x16 (4 GB/s) of 32 GT/s x16 (63 GB/s) (a lower speed may be that of an idle link)",
        "which devices these PCIe links are of is not said: lspci -vvnn does",
    )


def test_slurm_counts_gpus_and_the_cpus_of_jobs(tmp_path):
    cluster = loaded(tmp_path, NODE)

    assert [gpu.model for gpu in cluster.of_kind("gpu")] == ["a100"] * 4
    assert cluster.warnings == (
        "96 CPUs (2 sockets x 48 cores x 1 threads), of which jobs may use 92: 46-47,94-95 are kept for the system",
        "the 4 GPUs hang on sockets 0-1: which GPU is at which is not said",
        "1 of 4 GPUs are in use",
        "SLURM names no links: give the output of nvidia-smi topo -m as well",
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [(FILE, "t.xml"), (MATRIX.replace("FIRST", "0-31"), "t.txt")],
    ids=["NCCL XML", "nvidia-smi topo -m"],
)
def test_cpus_that_two_numa_nodes_claim_are_of_neither(tmp_path, text, name):
    cluster = loaded(tmp_path, text, name)

    assert {device.cpu_affinity for device in cluster.devices} == {None}
    assert not cluster.hosts
    assert cluster.warnings[0].startswith("NUMA nodes 0, 1 are said to have the same CPUs (0-")


def test_a_file_of_pci_classes_does_not_say_that_there_is_no_nvlink(tmp_path):
    cluster = loaded(tmp_path, FILE, "t.xml")

    assert any(warning.startswith("a PCI tree shows no NVLink and no xGMI") for warning in cluster.warnings)
    assert "GB/s per direction, over PCIe" in draw(cluster, analyse(cluster))


def test_ibstatus_says_which_ports_are_roce(tmp_path):
    text = "Infiniband device 'mlx5_0' port 1 status:\n\tstate: 4: ACTIVE\n\trate: 100 Gb/sec (4X EDR)\n"
    text += "\tlink_layer: LAYER\n"

    said = [loaded(tmp_path, text.replace("LAYER", layer)).warnings[:-1] for layer in ("Ethernet", "InfiniBand")]

    assert said == [("mlx5_0: Ethernet (RoCE), no InfiniBand",), ()]


def test_ibv_devinfo_says_the_rate_of_active_ports(tmp_path):
    cluster = loaded(tmp_path, DEVINFO)

    assert rates(cluster) == {"mlx5_0": None, "mlx5_1": 25e9}
    assert cluster.warnings[0] == "mlx5_0 carries nothing (Down and Disabled)"


def test_ibv_devinfo_without_its_speeds_says_that_rates_are_missing(tmp_path):
    text = "\n".join(line for line in DEVINFO.splitlines() if "active_" not in line)

    assert (
        "this says which ports are up, and no rates: give the output of ibstat as well"
        in loaded(tmp_path, text).warnings
    )


def test_both_forms_of_rdma_link_are_read(tmp_path):
    lines = "0/1: mlx5_0/1: subnet_prefix fe80:: lid 9 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"
    lines += "link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev eth0\n"

    assert [nic.id for nic in loaded(tmp_path, lines).devices] == ["mlx5_0", "mlx5_1"]
