"""Lists of PCI functions without numbers, trees of lspci, lines of iblinkinfo, noted names, SLURM's block sizes."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.cluster.analysis import analyse
from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
TREE = """$ lspci -tv
-+-[0000:00]-+-00.0  Intel Corporation 82G33/G31/P35/P31 Express DRAM Controller
 |           \\-1f.0  Intel Corporation 82801IB (ICH9) LPC Interface Controller
 +-[0000:80]---00.0-[81-86]----00.0-[82-86]--+-00.0-[83-85]----00.0-[85]----00.0  NVIDIA GB110 [B300 SXM6 AC]
 |                                           \\-01.0-[86]--+-00.0  Mellanox ConnectX Family mlx5Gen Virtual Function
 |                                                        \\-00.1  Mellanox ConnectX Family mlx5Gen Virtual Function
 \\-[0000:88]---00.0-[89-8e]----00.0-[8a-8e]--+-00.0-[8b]----00.0  NVIDIA Corporation GB110 [B300 SXM6 AC]
                                             \\-01.0-[8e]----00.0  Mellanox ConnectX Family mlx5Gen Virtual Function
"""
PAIRS = """-[0000:00]-+-00.0  Intel Corporation Xeon E7 v4/Xeon E5 v4 DMI2
           +-02.0-[02-05]----00.0-[03-05]--+-08.0-[04]--+-00.0  NVIDIA Corporation GP102 [TITAN X]
           |                               |            \\-00.1  NVIDIA Corporation GP102 HDMI Audio Controller
           |                               \\-10.0-[05]--+-00.0  NVIDIA Corporation GP102 [TITAN X]
           |                                            \\-00.1  NVIDIA Corporation GP102 HDMI Audio Controller
           \\-03.0-[06-09]----00.0-[07-09]--+-08.0-[08]----00.0  NVIDIA Corporation GP102 [TITAN X]
                                           \\-10.0-[09]----00.0  NVIDIA Corporation GP102 [TITAN X]
"""
LISTED = """17:00.0 PCI bridge: PLX Technology, Inc. PEX 8747 (rev ca) (prog-if 00 [Normal decode])
\tBus: primary=17, secondary=18, subordinate=19, sec-latency=0
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x16, ASPM L1, Exit Latency L1 <4us
\t\tLnkSta:\tSpeed 8GT/s, Width x16
18:00.0 VGA compatible controller: NVIDIA Corporation TU102GL [Quadro RTX 6000/8000] (rev a1) (prog-if 00 [VGA])
\tNUMA node: 0
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x16, ASPM L0s L1, Exit Latency L0s <512ns
\t\tLnkSta:\tSpeed 8GT/s, Width x8 (downgraded)
18:00.1 Audio device: NVIDIA Corporation TU102 High Definition Audio Controller (rev a1)
18:01.0 Ethernet controller: Mellanox Technologies MT27800 Family [ConnectX-5]
\t\tLnkCap:\tPort #0, Speed 8GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 8GT/s, Width x16
40:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 41)
"""


def kinds(cluster, a="GPU"):
    return {(link.a, link.b): link.kind for link in cluster.links if link.a.startswith(a)}


def test_a_tree_of_lspci_gives_devices_and_paths_and_says_what_it_leaves_open():
    cluster = parse_dump(TREE, "t", CATALOGUE)

    assert [gpu.model for gpu in cluster.of_kind("gpu")] == ["b300", "b300"]
    assert len(cluster.of_kind("nic")) == 3
    assert {gpu: nic for gpu, (nic, _) in analyse(cluster).nic_of_gpu.items()} == {"GPU0": "NIC0", "GPU1": "NIC2"}
    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {None}
    assert any("NUMA" in warning for warning in cluster.warnings)
    assert analyse(cluster).verdicts == ()


def test_gpus_below_one_switch_in_a_tree_are_nearer_than_those_below_two():
    cluster = parse_dump(PAIRS, "t", CATALOGUE)

    assert kinds(cluster) == {
        ("GPU0", "GPU1"): "PIX", ("GPU2", "GPU3"): "PIX", ("GPU0", "GPU2"): "PHB", ("GPU0", "GPU3"): "PHB",
        ("GPU1", "GPU2"): "PHB", ("GPU1", "GPU3"): "PHB",
    }  # fmt: skip


def test_a_tree_without_names_is_refused_by_its_name():
    with pytest.raises(InputError, match="lspci -t"):
        parse_dump("-[0000:00]-+-00.0\n           +-01.1-[01]--+-00.0\n", "t", CATALOGUE)


def test_a_list_without_numbers_is_read_by_its_names():
    cluster = parse_dump(LISTED, "l", CATALOGUE)
    (link,) = [link for link in cluster.links if {link.a, link.b} == {"GPU0", "NIC0"}]

    assert [device.id for device in cluster.devices if device.kind == "gpu"] == ["GPU0"]
    assert link.bandwidth_bytes_per_s == pytest.approx(8e9 * 128 / 130)  # of the eight lanes that are trained


def test_a_device_on_some_of_its_lanes_is_named():
    cluster = parse_dump(LISTED, "l", CATALOGUE)

    assert [w for w in cluster.warnings if "lanes" in w] == ["GPU0 has 8 of 16 PCIe lanes trained"]


SLOW = """Switch: 0x0001 leaf-a:
           1    1[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       7    1[  ] "n01 mlx5_0" ( )
           1    2[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       8    1[  ] "n02 mlx5_0" ( Could be 53 Gbps)
           1    3[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       9    1[  ] "n03 mlx5_0" ( )
           1   37[  ] ==( 2X      53.125 Gbps Active/  LinkUp)==>       4    1[  ] "spine" ( Could be 4X)
           1   38[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       4    2[  ] "spine" ( )
           1   39[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       4    3[  ] "spine" ( )
           1   40[  ] ==(                Down/ Polling)==>             [  ] "" ( )
Switch: 0x0002 spine:
           4    1[  ] ==( 2X      53.125 Gbps Active/  LinkUp)==>       1   37[  ] "leaf-a" ( Could be 4X)
           4    2[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       1   38[  ] "leaf-a" ( )
           4    3[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       1   39[  ] "leaf-a" ( )
"""


def test_links_of_iblinkinfo_that_are_slower_than_others_are_named_once_with_both_ends():
    (said,) = [w for w in parse_dump(SLOW, "i", CATALOGUE).warnings if "slower" in w]

    assert said == (
        "2 links run narrower or slower than others of the same switch: leaf-a [2] - n02 [1] at 4X 25.78125 Gb/s of "
        "4X 53.125 Gb/s; leaf-a [37] - spine [1] at 2X 53.125 Gb/s of 4X 53.125 Gb/s"
    )


def test_links_of_iblinkinfo_that_are_all_alike_are_not_slow():
    even = SLOW.replace("25.78125", "53.125").replace("2X", "4X")

    assert not [w for w in parse_dump(even, "i", CATALOGUE).warnings if "slower" in w]


def test_lines_of_iblinkinfo_that_a_filter_left_still_name_the_switch():
    text = """[root@n01]# iblinkinfo | grep Up
      0xec0d9a03003d62be 4 1[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==>       2   17[  ] "MF0;SB7700:MSB7700/U1" ( )
           2   17[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==>       4    1[  ] "n02 HCA-1" ( )
           2   18[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==>       1    1[  ] "n01 HCA-1" ( )
"""
    placements = parse_dump(text, "i", CATALOGUE).placements

    assert {place.node: place.switches for place in placements} == {"n01": ("SB7700",), "n02": ("SB7700",)}
    slow = parse_dump(
        text.replace("25.78125 Gbps Active/  LinkUp)==>       1 ", "10.0 Gbps Active/  LinkUp)==>       1 "),
        "i",
        CATALOGUE,
    )
    assert "n01 [1] at 4X 10.0 Gb/s of 4X 25.78125 Gb/s" in slow.warnings[-1]


def test_each_line_of_iblinkinfo_may_name_both_its_ends():
    line = '0x0002c9 "SwitchX"  4   {}[  ] ==( 4X 25.78 Gbps Active/  LinkUp)==>  0x0011  {}    1[  ] "{} HCA-1" ( )\n'
    text = line.format(3, 15, "exe2") + line.format(17, 5, "exe1")

    assert {p.node: p.switches for p in parse_dump(text, "i", CATALOGUE).placements} == {
        "exe1": ("SwitchX",), "exe2": ("SwitchX",),
    }  # fmt: skip


def test_adapters_that_are_cabled_to_each_other_are_no_fabric():
    text = """CA: hostname mlx4_0:
      0x0002c90300002f79      3    1[  ] ==( 4X           5.0 Gbps Active/  LinkUp)==>       4    1[  ] "kvm mlx4_0" ( )
"""
    with pytest.raises(InputError, match="no switches"):
        parse_dump(text, "i", CATALOGUE)


def test_names_that_are_noted_beside_a_matrix_settle_its_rates():
    text = """GPU0: NVIDIA GeForce RTX 4090, 24564 MiB, driver 590.44.01
GPU1: NVIDIA GeForce RTX 4090, 24564 MiB, driver 590.44.01
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NODE    NODE    0-63            0               N/A
GPU1    NODE     X      NODE    0-63            0               N/A
NIC0    NODE    NODE     X
"""
    assert {gpu.model for gpu in parse_dump(text, "m", CATALOGUE).of_kind("gpu")} == {"rtx-4090"}


def test_gpus_share_nics_without_a_verdict_where_there_are_fewer_nics_than_gpus():
    text = """        GPU0    GPU1    GPU2    NIC0    NIC1    CPU Affinity    NUMA Affinity
GPU0     X      NV4     NODE    NODE    NODE    64-71   1
GPU1    NV4      X      NODE    NODE    NODE    64-71   1
GPU2    NODE    NODE     X      PHB     PHB     64-71   1
NIC0    NODE    NODE    PHB      X      PIX
NIC1    NODE    NODE    PHB     PIX      X
"""
    assert analyse(parse_dump(text, "m", CATALOGUE)).verdicts == ()


BLOCKS = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockName=b3 Nodes=n[5-6]\nBlockName=b4 Nodes=n[7-8]\n"


def test_block_sizes_join_blocks_in_the_order_of_the_file():
    placements = {p.node: p.switches for p in parse_dump(BLOCKS + "BlockSizes=2,4,8\n", "s", CATALOGUE).placements}

    assert placements["n1"] == ("b1", "b1 to b2", "b1 to b4")
    assert placements["n8"] == ("b4", "b3 to b4", "b1 to b4")


def test_one_block_size_joins_nothing():
    assert {p.switches for p in parse_dump(BLOCKS + "BlockSizes=2\n", "s", CATALOGUE).placements} == {
        ("b1",), ("b2",), ("b3",), ("b4",),
    }  # fmt: skip


@pytest.mark.parametrize("sizes", ["2,6", "2,x", "", "0,4"])
def test_block_sizes_that_slurm_refuses_are_refused(sizes):
    with pytest.raises(InputError, match="BlockSizes"):
        parse_dump(f"{BLOCKS}BlockSizes={sizes}\n", "s", CATALOGUE)


def nvlinks(name, states, numbers=range(18), gpus=(0, 1)):
    lines = [f"         Link {k}: {states(k)}" for k in numbers]
    return "\n".join(line for gpu in gpus for line in (f"GPU {gpu}: {name} (UUID: GPU-{gpu})", *lines)) + "\n"


def test_links_that_an_abbreviated_list_leaves_out_are_not_counted():
    cluster = parse_dump(nvlinks("NVIDIA H20", lambda k: "26.562 GB/s", (0, 1, 17)), "n", CATALOGUE)

    assert cluster.links == ()
    assert "left out of the list" in cluster.warnings[0]
    assert not any("NVLinks of" in warning for warning in cluster.warnings)


def test_links_of_a_card_that_no_bridge_reaches_are_not_down():
    states = dict.fromkeys((4, 5, 10, 11, 16, 17), "<inactive>")
    cluster = parse_dump(nvlinks("NVIDIA H100 PCIe", lambda k: states.get(k, "26.562 GB/s")), "n", CATALOGUE)

    assert [(link.kind, link.bandwidth_bytes_per_s) for link in cluster.links] == [("NV12", 300e9)]
    assert not any("down" in warning for warning in cluster.warnings)


def test_a_bridge_that_is_off_is_down():
    cluster = parse_dump(
        nvlinks("NVIDIA H100 PCIe", lambda k: "26.562 GB/s" if k < 8 else "<inactive>"), "n", CATALOGUE
    )

    assert "GPU0 has 8 of 12 NVLinks up: 4 down" in cluster.warnings


def test_a_link_of_no_rate_is_down_also_where_no_uuid_is_said():
    text = nvlinks("NVIDIA H100 80GB HBM3", lambda k: "0 GB/s" if k == 11 else "26.562 GB/s", gpus=(0,))
    cluster = parse_dump(text.replace(" (UUID: GPU-0)", ""), "n", CATALOGUE)

    assert "GPU0 has 17 of 18 NVLinks up: 1 down (link 11)" in cluster.warnings


def test_a_log_of_nccl_on_a_machine_without_numa_nodes_is_read():
    lines = (
        "=== System : maxBw 0.3 totalBw 12.0 ===", "CPU/FFFFFFFFFFFFFFFF (1/1/1)", "+ PCI[5000.0] - NIC/0",
        "                + NET[0.3] - NET/0 (6216a3feff3e16f8/1/0.312500)", "+ PCI[12.0] - GPU/80 (0)", "=" * 42,
    )  # fmt: skip
    cluster = parse_dump("".join(f"node0:4744:4763 [0] NCCL INFO {line}\n" for line in lines), "n", CATALOGUE)

    assert [(device.id, device.numa) for device in cluster.devices] == [("CPU0", None), ("GPU0", None), ("NIC0", None)]


AGGREGATED = """Switch 41 "S-spine" # "MF0;spine0:MQM8700/U1" base port 0 lid 1 lmc 0
[1] "S-leaf"[41] # "MF0;leaf0:MQM8700/U1" lid 2 4xHDR
[41] "H-sums"[1](c1) # "Mellanox Technologies Aggregation Node" lid 9 4xHDR
Switch 41 "S-leaf" # "MF0;leaf0:MQM8700/U1" base port 0 lid 2 lmc 0
[41] "S-spine"[1] # "MF0;spine0:MQM8700/U1" lid 1 4xHDR
[1] "H-1"[1](a1) # "node01 mlx5_0" lid 3 4xHDR
Ca 1 "H-1" # "node01 mlx5_0"
Ca 1 "H-sums" # "Mellanox Technologies Aggregation Node"
"""


def test_what_adds_up_inside_a_switch_is_no_node_and_makes_a_spine_no_leaf():
    cluster = parse_dump(AGGREGATED, "ib.txt", CATALOGUE)

    assert [(one.node, one.switches) for one in cluster.placements] == [("node01", ("leaf0", "spine0"))]


def test_a_fabric_without_devices_has_its_nodes_in_json_and_is_read_back(tmp_path, capsys):
    (tmp_path / "topology.conf").write_text("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n")

    assert run_command(["topo", "--from", str(tmp_path / "topology.conf"), "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["placements"][0] == {"node": "n1", "switches": ["b1"], "block": "b1"}
    (tmp_path / "fabric.json").write_text(printed)
    assert len(load_dump(tmp_path / "fabric.json", CATALOGUE).placements) == 4


def test_a_matrix_set_anew_with_a_short_title_is_read():
    text = "GPU0 GPU1 CPU Affinity NUMA\nGPU0 X NV18 0-51 0\nGPU1 NV18 X 52-103 1\nLegend:\nNV# = NVLinks\n"
    cluster = parse_dump(text, "t", CATALOGUE, "h100")

    assert [(gpu.cpu_affinity, gpu.numa) for gpu in cluster.of_kind("gpu")] == [("0-51", 0), ("52-103", 1)]


def test_where_links_end_is_not_taken_for_a_machine_without_links():
    text = "GPU 6: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n         Link 0: Remote Device 00000000:06:00.0: Link 57\n"

    assert "nvlink -R" in parse_dump(text, "t", CATALOGUE).warnings[-1]


def test_a_virtual_bridge_of_one_lane_is_named():
    place = '<pci busid="0000:{0}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="0">'
    gpu = place + '<gpu dev="{1}" sm="90"/></pci>'
    slow = '<pci busid="0000:b{1}:00.0" class="0x060400" link_speed="2.5 GT/s PCIe" link_width="1">{0}</pci>'
    inside = "".join(slow.format(gpu.format(f"1{i}", i), i) for i in range(2))
    cluster = parse_dump(f'<system version="1"><cpu numaid="0">{inside}</cpu></system>', "t", CATALOGUE)

    assert any("GPU0, GPU1 reach the CPU at 0.25 GB/s" in said for said in analyse(cluster).verdicts)


def test_a_switch_of_which_iblinkinfo_shows_two_ports_alone_is_a_switch():
    line = (
        '0xe8ebd30300aa0001 "MF0;leaf7:MQM8700/U1"  3  {0}[  ] ==( 4X  53.125 Gbps Active/  LinkUp)==>  '
        '0x10{0}  1{0}  1[  ] "ida{0} HCA-1" ( )\n'
    )
    cluster = parse_dump(line.format(1) + line.format(2), "t", CATALOGUE)

    assert [(place.node, place.switches) for place in cluster.placements] == [
        ("ida1", ("leaf7",)),
        ("ida2", ("leaf7",)),
    ]


def test_what_nvlinks_can_do_is_no_word_on_which_are_up():
    text = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n\t Link 0, P2P is supported: true\n"

    assert "nvlink -c" in parse_dump(text, "t", CATALOGUE).warnings[-1]


def test_a_gpu_whose_number_a_matrix_leaves_out_is_named():
    text = "\tGPU0\tGPU2\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU2\tNV4\t X \t0-7\n"

    said = [warning for warning in parse_dump(text, "t", CATALOGUE).warnings if "no GPU1" in warning]
    assert said == ["no GPU1 between the others: left out of the matrix, or a GPU that the driver lost"]


CARD = """<system version="1"><cpu numaid="0" affinity="000000ff" arch="x86_64">
<pci busid="0000:3b:00.0" class="0x020700" link_speed="8.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1" maxconn="1" gdr="0"/></nic></pci>
<pci busid="0000:{}" class="0x020700" link_speed="8.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_1" dev="1" speed="100000" port="1" guid="0x2" maxconn="1" gdr="0"/></nic></pci>
</cpu></system>
"""


def test_ports_of_one_card_that_carry_more_than_its_slot_are_said():
    shared, apart = (parse_dump(CARD.format(bus), "t", CATALOGUE).warnings for bus in ("3b:00.1", "5e:00.0"))

    assert "mlx5_0, mlx5_1 share the PCIe link of one card: 15.8 GB/s together, not the 25 of their ports" in shared
    assert not [warning for warning in apart if "one card" in warning]


@pytest.mark.parametrize("why", ["Unknown Error", "GPU is lost.  Reboot the system to recover this GPU"])
def test_a_gpu_that_the_driver_lost_is_named_where_the_others_have_no_gap(why):
    text = (
        f"Unable to determine the device handle for GPU0000:AB:00.0: {why}\n"
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV12\t X \t0-7\n"
    )
    cluster = parse_dump(text, "dump", CATALOGUE)

    assert any("lost the GPU 0000:AB:00.0" in warning for warning in cluster.warnings)


LEAF = """Switch: 0x01 west:
          1    1[  ] ==( 4X  106.25 Gbps Active/  LinkUp)==>  8  1[  ] "n1 mlx5_0" ( )
          1    2[  ] ==( 4X  106.25 Gbps Active/  LinkUp)==>  9  1[  ] "n2 mlx5_0" ( )
"""
UP = '          1   {n}[  ] ==( 4X  106.25 Gbps Active/  LinkUp)==>  2  {n}[  ] "crown" ( )\n'
CROWN = 'Switch: 0x02 crown:\n  2  {n}[  ] ==( 4X  106.25 Gbps Active/  LinkUp)==>  1  {n}[  ] "west" ( )\n'


@pytest.mark.parametrize(("uplinks", "share"), [(1, "west 50 % (425 of 850 Gb/s)"), (2, None), (0, None)])
def test_a_leaf_with_less_upwards_than_downwards_is_named_with_its_share(uplinks, share):
    ups = "".join(UP.format(n=40 + n) for n in range(uplinks))
    warnings = parse_dump(LEAF + ups + (CROWN.format(n=40) if uplinks else ""), "t", CATALOGUE).warnings

    found = [words.rpartition(": ")[2] for words in warnings if "share them" in words]
    assert found == ([share] if share else [])


CARD_ALONE = """{place} 3D controller: NVIDIA Corporation GA102GL [A40] (rev a1)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\tLnkSta:\tSpeed 16GT/s, Width x16
"""


def test_cards_of_which_the_bridges_are_left_out_meet_on_a_path_that_is_not_known():
    text = "".join(CARD_ALONE.format(place=place) for place in ("21:00.0", "a1:00.0"))
    cluster = parse_dump(text, "some.txt", CATALOGUE)
    assert [link.kind for link in cluster.links if link.a == "GPU0" and link.b == "GPU1"] == ["PCIe"]
    assert any("the bridges above GPU0, GPU1 are not in the list" in said for said in cluster.warnings)


@pytest.mark.parametrize(("nodes", "kind"), [((0, 1), "SYS"), ((0, 0), "PCIe")])
def test_numa_nodes_alone_tell_that_a_path_crosses_the_sockets_and_not_that_it_stays_below_a_switch(nodes, kind):
    places = zip(("21:00.0", "a1:00.0"), nodes, strict=True)
    text = "".join(
        CARD_ALONE.format(place=place).replace("\tLnkCap", f"\tNUMA node: {node}\n\tLnkCap") for place, node in places
    )
    assert [link.kind for link in parse_dump(text, "some.txt", CATALOGUE).links if link.b == "GPU1"] == [kind]


def test_cards_below_root_ports_that_are_listed_have_a_known_path_though_numa_stays_open():
    port = "{bus}:01.0 PCI bridge: Some maker Root Port (rev 01)\n\tBus: primary={bus}, secondary={below}\n"
    kind = "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
    text = "".join(
        port.format(bus=bus, below=below) + kind + CARD_ALONE.format(place=f"{below}:00.0")
        for bus, below in (("20", "21"), ("a0", "a1"))
    )
    cluster = parse_dump(text, "some.txt", CATALOGUE)
    assert [link.kind for link in cluster.links if link.b == "GPU1"] == ["SYS"]
    assert any("SYS may be NODE" in said for said in cluster.warnings)
    assert not any("not in the list" in said for said in cluster.warnings)


def test_a_bridge_that_redirects_peer_traffic_is_named_though_what_is_below_it_is_not_said():
    bridge = "00:03.1 PCI bridge: Some maker GPP Bridge\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{0} CmpltRedir{0}\n"
    said = parse_dump(bridge.format("+") + CARD_ALONE.format(place="21:00.0"), "some.txt", CATALOGUE).warnings
    assert any("ACS redirects peer traffic at 0000:00:03.1; what is below is not said" in w for w in said)
    said = parse_dump(bridge.format("-") + CARD_ALONE.format(place="21:00.0"), "some.txt", CATALOGUE).warnings
    assert not any("ACS" in w for w in said)
