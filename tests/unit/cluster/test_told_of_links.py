"""Faults of links that a dump tells beside rates and widths: redirection, error counters, direct access, modes."""

import pytest

from meshwright.cluster.dumps.detect import parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
X16 = "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n\t\tLnkSta:\tSpeed 16GT/s, Width x16\n"
CAN = "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+\n"
ON = f"{CAN}\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
OFF = f"{CAN}\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n"


def port(place, below, flags, kind="Downstream"):
    first = place[:2]
    return (
        f"{place} PCI bridge [0604]: PLX Technology, Inc. PEX 88096 [1000:c010]\n"
        f"\tBus: primary={first}, secondary={below}, subordinate={below}, sec-latency=0\n"
        f"\tCapabilities: [68] Express (v2) {kind} Port (Slot+), MSI 00\n{X16}{flags}"
    )


def card(place, *, ats="-"):
    return (
        f"{place} 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5]\n\tNUMA node: 1\n{X16}"
        f"\t\tATSCtl:\tEnable{ats}, Smallest Translation Unit: 00\n"
    )


def redirections(text):
    return [said for said in parse_dump(text, "l", CATALOGUE).warnings if "ACS" in said]


def below_a_switch(first, second, kind="Downstream", ats="-"):
    return port("51:00.0", "52", first, kind) + card("52:00.0", ats=ats) + port("51:01.0", "53", second, kind) + card(
        "53:00.0", ats=ats
    )  # fmt: skip


def test_ports_of_a_switch_that_redirect_peer_traffic_are_named_with_what_is_below_them():
    (said,) = redirections(below_a_switch(ON, ON))

    assert said.startswith("ACS redirects peer traffic at 0000:51:00.0 (above GPU0), 0000:51:01.0 (above GPU1): ")


def test_one_port_that_redirects_is_enough():
    (said,) = redirections(below_a_switch(OFF, ON))

    assert said.startswith("ACS redirects peer traffic at 0000:51:01.0 (above GPU1): ")


def test_a_listing_behind_the_name_of_its_host_is_read_as_well():
    text = "".join(f"n12: {line}\n" for line in below_a_switch(ON, ON).splitlines())

    assert redirections(text) == redirections(below_a_switch(ON, ON))


@pytest.mark.parametrize("flags", ["", CAN, OFF])
def test_what_a_port_could_redirect_is_no_redirection(flags):
    assert redirections(below_a_switch(flags, flags)) == []


def test_root_ports_redirect_nothing_that_would_not_pass_the_root_anyway():
    assert redirections(below_a_switch(ON, ON, kind="Root")) == []


def test_translated_addresses_pass_a_port_that_lets_them():
    direct = ON.replace("EgressCtrl- DirectTrans-", "EgressCtrl- DirectTrans+")

    assert redirections(below_a_switch(direct, direct, ats="+")) == []
    assert redirections(below_a_switch(direct, direct, ats="-"))


def test_ports_whose_upstream_port_was_left_out_are_of_one_switch():
    kinds = {
        kind: {link.kind for link in parse_dump(below_a_switch(OFF, OFF, kind), "l", CATALOGUE).links}
        for kind in ("Downstream", "Root")
    }

    assert "PIX" in kinds["Downstream"]
    assert "PHB" in kinds["Root"]
    assert "PIX" not in kinds["Root"]


def counters(*errors, kind="Replay Errors"):
    lines = ["GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0a0b0c0d-1111-2222-3333-444455556666)"]
    return "\n".join([*lines, *(f"\t Link {link}: {kind}: {count}" for link, count in enumerate(errors))]) + "\n"


def nvlinks(text):
    return [said for said in parse_dump(text, "n", CATALOGUE).warnings if "NVLink" in said]


def test_a_link_with_errors_is_named_with_its_kinds_and_counts():
    (said,) = nvlinks(counters(0, 0, 7021, 0) + counters(0, 0, 3, 0, kind="CRC Errors").split("\n", 1)[1])

    assert said.startswith("1 of 4 NVLinks has errors: GPU0 link 2 (Replay 7,021, CRC 3): ")


@pytest.mark.parametrize("kind", ["Effective Errors", "Rx remote Errors", "Link recovery failed events"])
def test_errors_of_newer_kinds_are_errors(kind):
    assert nvlinks(counters(0, 4, kind=kind))[0].startswith("1 of 2 NVLinks has errors: GPU0 link 1 (")


def test_counters_that_are_all_zero_are_said_to_be():
    assert nvlinks(counters(0, 0, 0)) == ["the error counters of 3 NVLinks are 0"]


@pytest.mark.parametrize("kind", ["Symbol Errors", "FEC Errors", "Link recovery successful events"])
def test_what_a_link_mends_by_itself_is_no_error(kind):
    assert nvlinks(counters(12, 5, kind=kind)) == ["the error counters of 2 NVLinks are 0"]


NCCL = """<system version="1"><cpu numaid="0" affinity="ffff" arch="x86_64" vendor="AuthenticAMD">
<pci busid="0000:41:00.0" class="0x030200" vendor="0x10de" device="0x20b5" link_speed="16.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="80" rank="0" gdr="1"/></pci>
<pci busid="0000:45:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
<net name="ibp1" dev="0" speed="200000" port="1" guid="0x1" maxconn="1"{}/>
<net name="ibp2" dev="1" speed="200000" port="2" guid="0x2" maxconn="1"{}/></nic></pci>
</cpu></system>
"""


def gpudirect(first, second):
    return [said for said in parse_dump(NCCL.format(first, second), "x", CATALOGUE).warnings if "GPUDirect" in said]


def test_a_nic_without_gpudirect_is_named_beside_one_that_has_it():
    (said,) = gpudirect(' gdr="1"', ' gdr="0"')

    assert said.startswith('ibp2: no GPUDirect RDMA (gdr="0" in the file), ibp1 has it: what it sends and receives')


def test_nics_that_all_lack_gpudirect_are_named_together():
    (said,) = gpudirect(' gdr="0"', ' gdr="0"')

    assert said.startswith('ibp1, ibp2: no GPUDirect RDMA (gdr="0" in the file): what they send and receive')


@pytest.mark.parametrize("answers", [("", ""), (' gdr="1"', ' gdr="1"')])
def test_a_file_that_says_nothing_against_gpudirect_gives_no_warning(answers):
    assert gpudirect(*answers) == []


@pytest.mark.parametrize(("of_gpu2", "way"), [(1, "between two NUMA nodes"), (0, "within a NUMA node")])
def test_a_pcie_path_crosses_the_sockets_by_the_numa_nodes_of_its_gpus(of_gpu2, way):
    head = "       GPU0   GPU1   GPU2\n"
    kinds = "GPU0   0      XGMI   XGMI\nGPU1   XGMI   0      PCIE\nGPU2   XGMI   PCIE   0\n"
    hops = "GPU0   0      1      1\nGPU1   1      0      2\nGPU2   1      2      0\n"
    numa = "".join(f"GPU[{gpu}]\t\t: (Topology) Numa Node: {node}\n" for gpu, node in enumerate((0, 0, of_gpu2)))
    text = (
        f"==== Hops between two GPUs ====\n{head}{hops}\n==== Link Type between two GPUs ====\n{head}{kinds}\n"
        f"==== Numa Nodes ====\n{numa}"
    )

    assert f"GPU1-GPU2 is PCIe {way}: slow" in parse_dump(text, "r", CATALOGUE).warnings


MODES = """Settings for {name}:
\tSupported link modes:   25000baseCR/Full
\t                        {able}baseCR4/Full
\tAdvertised link modes:  25000baseCR/Full
\t                        {offered}baseCR4/Full
{partner}\tSpeed: {now}Mb/s
\tLink detected: yes
"""


def partner(mode):
    return f"\tLink partner advertised link modes:  25000baseCR/Full\n\t\t\t{mode}\n"


@pytest.mark.parametrize(
    ("able", "offered", "other", "now", "words"),
    [
        (400000, 400000, partner("200000baseCR4/Full"), 200000, "advertises no more than 200: the switch's port"),
        (200000, 100000, partner("200000baseCR4/Full"), 100000, "it advertises no more than 100 itself"),
        (200000, 200000, partner("200000baseCR4/Full"), 100000, "its link partner advertises 200 too: the cable"),
        (200000, 200000, "\tLink partner advertised link modes:  Not reported\n", 100000, "modes are not said"),
    ],
)
def test_a_port_below_what_it_supports_is_named_with_the_side_that_keeps_it_there(able, offered, other, now, words):
    text = MODES.format(name="ens9", able=able, offered=offered, partner=other, now=now)
    (said,) = [said for said in parse_dump(text, "e", CATALOGUE).warnings if said.startswith("ens9")]

    assert said.startswith(f"ens9: runs at {now // 1000} of the {able // 1000} Gb/s that it supports: ")
    assert words in said


def test_a_port_at_its_highest_mode_is_sound():
    text = MODES.format(name="ens9", able=200000, offered=200000, partner="", now=200000)

    assert not [said for said in parse_dump(text, "e", CATALOGUE).warnings if said.startswith("ens9")]


FABRIC = """Switch: 0x0003 MF0;leaf-7:MQM8700/U1:
    6    1[  ] ==( 4X      {} Gbps Active/  LinkUp)==>      21    1[  ] "a1 mlx5_0" ( {} )
    6    2[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>      22    1[  ] "a2 mlx5_0" ( )
    6    3[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>      23    1[  ] "a3 mlx5_0" ( )
    6   31[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>      24    9[  ] "{}" ( )
"""


def test_an_adapter_that_supports_no_more_is_told_from_a_link_that_lost_its_rate():
    older, damaged = (
        [w for w in parse_dump(FABRIC.format("25.78125", remark, "spine"), "i", CATALOGUE).warnings if "1 link" in w]
        for remark in ("", "Could be 53.125 Gbps")
    )

    assert older[0].startswith("1 link runs at less than others of the same switch, and one end supports no more")
    assert damaged[0].startswith("1 link runs narrower or slower than others of the same switch: ")


@pytest.mark.parametrize(
    "spine", ["MF0;core-1:MQM8700/U1", "core-1:MQM9700/U1", "Quantum Mellanox Technologies", "SwitchIB Mellanox"]
)
def test_a_switch_that_has_no_lines_of_its_own_is_no_node(spine):
    cluster = parse_dump(FABRIC.format("53.125", "", spine), "i", CATALOGUE)

    assert [placement.node for placement in cluster.placements] == ["a1", "a2", "a3"]
    assert all(len(placement.switches) == 2 for placement in cluster.placements)


def test_links_that_all_run_below_what_both_ends_support_are_named():
    text = FABRIC.format("53.125", "Could be 106.25 Gbps", "MF0;core-1:MQM8700/U1")

    assert any(
        said == "1 link runs below what both of its ends support: leaf-7 [1] - a1 [1] at 4X 53.125 Gb/s "
        "(Could be 106.25 Gbps)"
        for said in parse_dump(text, "i", CATALOGUE).warnings
    )
