"""Single GPUs and NICs by amd-smi static, fi_info -v and lldpctl, and files that are for another command."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.cluster.dumps.detect import load_dumps, parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
CARD = """GPU: {n}
    ASIC:
        MARKET_NAME: AMD Instinct MI325X
        VENDOR_ID: 0x1002
        OAM_ID: {n}
    BUS:
        BDF: 0000:{n}1:00.0
        MAX_PCIE_WIDTH: 16
        MAX_PCIE_SPEED: 32 GT/s
        SLOT_TYPE: OAM
    VBIOS:
        NAME: AMD MI325X
    VRAM:
        TYPE: HBM
        VENDOR: N/A
        SIZE: 262128 MB
    NUMA:
        NODE: {numa}
        AFFINITY: {numa}
    PARTITION:
        COMPUTE_PARTITION: {part}
        MEMORY_PARTITION: NPS1
"""


def cards(part="SPX"):
    return "".join(CARD.format(n=n, numa=n // 2, part=part if n == 1 else "SPX") for n in range(4))


def test_amd_smi_static_names_the_gpus_with_memory_node_and_bus():
    cluster = parse_dump("$ amd-smi static\n" + cards(), "t", CATALOGUE)

    assert [(gpu.id, gpu.numa) for gpu in cluster.devices] == [("GPU0", 0), ("GPU1", 0), ("GPU2", 1), ("GPU3", 1)]
    assert {gpu.model for gpu in cluster.devices} == {"mi325x"}
    assert any(said.startswith("GPU0 is 0000:01:00.0, GPU1 is 0000:11:00.0") for said in cluster.warnings)
    assert any("GPU0 to GPU3: PCIe to the host carries at most 63 GB/s" in said for said in cluster.warnings)
    assert not any("is split" in said for said in cluster.warnings)


def test_a_card_in_compute_partitions_is_said_to_be_split():
    assert any(said.startswith("GPU1 is split (compute partition CPX)") for said in parse_dump(
        cards("CPX"), "t", CATALOGUE).warnings)  # fmt: skip


def test_static_in_the_file_of_a_topology_settles_rates_and_beside_it_completes_the_gpus(tmp_path):
    names = [f"0000:{n}1:00.0" for n in range(4)]
    rows = "\n".join(" ".join([a, *("SELF" if a == b else "XGMI" for b in names)]) for a in names)
    table = "LINK TYPE TABLE:\n" + " ".join(["             ", *names]) + "\n" + rows + "\n"
    for name, text in (("static.txt", cards()), ("topology.txt", table)):
        (tmp_path / name).write_text(text)

    one = parse_dump(cards() + table, "t", CATALOGUE)
    two = load_dumps([tmp_path / "static.txt", tmp_path / "topology.txt"], CATALOGUE)

    assert all(link.kind == "xGMI" and link.bandwidth_bytes_per_s for link in one.links)
    assert [len(one.links), len(two.links)] == [6, 6]
    assert [gpu.numa for gpu in two.of_kind("gpu")] == [0, 0, 1, 1]


def test_the_json_of_amd_smi_static_says_the_same_also_in_newer_versions():
    card = {"gpu": 3, "asic": {"market_name": "AMD Instinct MI325X"}, "bus": {"bdf": "0000:01:00.0"}}
    card |= {"vram": {"size": {"value": 262128, "unit": "MB"}}, "numa": {"node": 1, "affinity": 1}}

    for data in ([card], {"gpu_data": [card]}):
        cluster = parse_dump(json.dumps(data), "t", CATALOGUE)

        assert [(gpu.id, gpu.model, gpu.numa) for gpu in cluster.devices] == [("GPU3", "mi325x", 1)]
        assert "GPU3 is 0000:01:00.0" in cluster.warnings


def test_dcgmi_nvlink_names_the_links_that_are_down_of_gpus_and_switches():
    text = (
        "|  NvLink Link Status  |\nGPUs:\n    gpuId 0:\n        U U U U _ _\n    gpuId 1:\n        U D U X _ _\n"
        "NvSwitches:\n    physicalId 8:\n        X U D U\nKey: Up=U, Down=D, Disabled=X, Not Supported=_\n"
    )
    cluster = parse_dump(text, "t", CATALOGUE)

    assert [gpu.id for gpu in cluster.devices] == ["GPU0", "GPU1"]
    assert cluster.warnings[:5] == (
        "GPU1 has 1 of 4 NVLinks down (link 1)",
        "GPU1 has 1 of 4 NVLinks disabled (link 3)",
        "NVSwitch 8 has 1 of 4 NVLinks down (link 2)",
        "4 NVLinks are up on GPU0",
        "2 NVLinks are up on GPU1",
    )


NIC = """---
fi_info:
    caps: [ FI_MSG, FI_RMA ]
    fi_domain_attr:
        domain: 0x0
        name: {name}-rdm
    nic:
        fi_device_attr:
            name: {name}
            device_id: 0xefa2
            driver: efa
        fi_bus_attr:
            bus_type: FI_BUS_PCI
        fi_link_attr:
            address: EFA-fe80::1
            mtu: 8760
            speed: {speed}
            state: {state}
            network_type: Ethernet
"""


def test_fi_info_has_each_nic_once_with_its_rate_and_names_those_without():
    nics = [("rdmap1s0", 200_000_000_000, "FI_LINK_UP"), ("rdmap2s0", 0, "FI_LINK_UP"),
            ("rdmap3s0", 200_000_000_000, "FI_LINK_DOWN")]  # fmt: skip
    text = "".join(NIC.format(name=n, speed=s, state=state) * 2 for n, s, state in nics)
    cluster = parse_dump(text, "t", CATALOGUE)

    assert [(nic.id, nic.network_bandwidth_bytes_per_s) for nic in cluster.devices] == [
        ("rdmap1s0", 25e9), ("rdmap2s0", None), ("rdmap3s0", None)
    ]  # fmt: skip
    assert cluster.warnings[:2] == (
        "rdmap2s0: libfabric does not know its rate", "rdmap3s0 carries nothing (FI_LINK_DOWN)"
    )  # fmt: skip


NEIGHBOUR = """Interface:    {name}, via: LLDP, RID: 1, Time: 2 days, 00:00:20
  Chassis:
    ChassisID:    mac aa:bb:cc:00:00:01
    SysName:      {switch}
  Port:
    PortID:       ifname swp7
    PMD autoneg:  supported: yes, enabled: yes
      MAU oper type: {medium}
-------------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("medium", "rate"),
    [
        ("100GbaseCR4 - 100GBASE-R PCS/PMA over 4 lane shielded copper", 12.5e9),
        ("1000BaseTFD - Four-pair Category 5 UTP, full duplex mode", 0.125e9),
        ("10GigBaseCX4 - X copper over 8 pair 100-Ohm balanced cable", 1.25e9),
        ("unknown", None),
    ],
)
def test_lldp_names_the_switch_of_an_interface_and_the_rate_that_it_says(medium, rate):
    text = "LLDP neighbors:\n" + NEIGHBOUR.format(name="ens3f0", switch="leaf-a", medium=medium)
    cluster = parse_dump(text + NEIGHBOUR.format(name="ens3f0", switch="leaf-b", medium="unknown"), "t", CATALOGUE)

    assert [(nic.id, nic.network_bandwidth_bytes_per_s) for nic in cluster.devices] == [("ens3f0", rate)]
    assert cluster.warnings[0] == "ens3f0 hangs on swp7 of leaf-a"


def test_a_file_for_the_other_command_is_refused_with_the_command_that_reads_it(tmp_path, capsys):
    (tmp_path / "ports").write_text("CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n")
    (tmp_path / "table").write_text(
        "# OSU MPI-CUDA Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n1048576  24000.1\n"
    )

    codes = [
        run_command([command, "--from", str(tmp_path / name)])
        for command, name in (("bench", "ports"), ("topo", "table"))
    ]

    assert codes == [2, 2]
    said = capsys.readouterr().err
    assert "this is of ibstat: what is linked, not what was measured; meshwright topo --from reads it" in said
    assert "this is a table of OSU micro-benchmarks" in said
    assert "meshwright bench --from reads it" in said


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Successfully ran diagnostic for group.\n| PCIe   | Pass - All   |\n", "dcgmi diag"),
        (
            "[--- matmul ---]\n      |  fp16\n1 threads: ----\n  256 |  11.2\n\nTimes are in microseconds (us).\n",
            "torch.utils.benchmark",
        ),
    ],
)
def test_what_measures_no_link_is_named_where_a_table_was_expected(text, name, tmp_path, capsys):
    (tmp_path / "d").write_text(text)

    assert run_command(["bench", "--from", str(tmp_path / "d")]) == 2
    assert f"this is of {name}" in capsys.readouterr().err
