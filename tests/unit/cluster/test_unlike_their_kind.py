"""Single parts of a dump beside others of their kind, and what a dump itself says that it leaves out."""

import json

import pytest

from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
NIC = (
    '<pci busid="0000:{bus}:00.0" class="0x020700" vendor="0x15b3" device="0x1021" subsystem_vendor="0x15b3" '
    'subsystem_device="{sub}" link_speed="32.0 GT/s PCIe" link_width="{lanes}"><nic>'
    '<net name="mlx5_{n}" dev="{n}" speed="{speed}" port="1" guid="0x{n}" gdr="1"/></nic></pci>'
)


def of_nccl(*nics):
    cards = (
        NIC.format(n=n, bus=f"1{n}", lanes=lanes, speed=speed, sub=sub) for n, (lanes, speed, sub) in enumerate(nics)
    )
    return parse_dump(f'<system version="1"><cpu numaid="0">{"".join(cards)}</cpu></system>', "s", CATALOGUE)


def narrow(cluster):
    return [said for said in cluster.warnings if "of the same make" in said]


def test_a_nic_with_fewer_lanes_than_another_of_its_make_is_named_with_both_rates():
    assert narrow(of_nccl((16, 400000, "0x0023"), (8, 200000, "0x0023"))) == [
        "mlx5_1 has a PCIe link of 31.5 GB/s, mlx5_0 of the same make one of 63: fewer lanes or a slower slot, and "
        "runs at 200 Gb/s, not 400"
    ]


@pytest.mark.parametrize(
    "other",
    [(16, 200000, "0x0023"), (8, 200000, "0x0040"), (8, 200000, "")],
    ids=["as many lanes", "another card", "no subsystem"],
)
def test_a_nic_that_is_built_otherwise_is_not_called_narrow(other):
    assert narrow(of_nccl((16, 400000, "0x0023"), other)) == []


HWLOC_NIC = (
    '<object type="PCIDev" gp_index="{n}" pci_busid="0000:0{n}:00.0" pci_type="0207 [15b3:101b] [15b3:0007] 00" '
    'pci_link_speed="{speed}"/>'
)


def test_lstopo_and_sysfs_know_a_make_of_card_too(tmp_path):
    cards = HWLOC_NIC.format(n=3, speed=31.5) + HWLOC_NIC.format(n=4, speed=15.75)
    text = (
        '<topology version="2.0"><object type="Machine"><object type="PU" os_index="0"/>'
        f'<object type="Bridge" gp_index="9" bridge_type="0-1">{cards}</object></object></topology>'
    )
    for n, lanes in enumerate((16, 4)):
        folder = tmp_path / f"devices/pci0000:00/0000:00:0{n}.0/0000:0{n + 1}:00.0"
        ids = {"vendor": "0x15b3", "device": "0x1021", "subsystem_vendor": "0x15b3", "subsystem_device": "0x0023"}
        state = {"class": "0x020700", "current_link_speed": "32.0 GT/s PCIe", "current_link_width": str(lanes)}
        port = folder / f"infiniband/mlx5_{n}/ports/1"
        port.mkdir(parents=True)
        for name, value in (ids | state | {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}).items():
            (folder / name).write_text(f"{value}\n")
        (port / "link_layer").write_text("InfiniBand\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (folder / f"infiniband/mlx5_{n}/device").symlink_to(folder)
        for shelf, target in (("bus/pci/devices", folder), ("class/infiniband", folder / f"infiniband/mlx5_{n}")):
            (tmp_path / shelf).mkdir(parents=True, exist_ok=True)
            (tmp_path / shelf / target.name).symlink_to(target)

    of_hwloc, of_sysfs = parse_dump(text, "h", CATALOGUE), load_dump(tmp_path, CATALOGUE)

    assert narrow(of_hwloc) == [
        "NIC1 has a PCIe link of 15.8 GB/s, NIC0 of the same make one of 31.5: fewer lanes or a slower slot"
    ]
    assert [said.split(",")[0] for said in narrow(of_sysfs)] == ["mlx5_1 has a PCIe link of 15.8 GB/s"]


TABLE = """{title} TABLE:
             0000:0a:00.0 0000:1a:00.0 0000:2a:00.0 0000:3a:00.0
0000:0a:00.0 {same}         {a}         {a}         {a}
0000:1a:00.0 {a}         {same}         {a}         {b}
0000:2a:00.0 {a}         {a}         {same}         {a}
0000:3a:00.0 {a}         {b}         {a}         {same}

"""


@pytest.mark.parametrize("word", ["UNKNOWN", "N/A"])
def test_a_pair_whose_link_the_tool_does_not_know_has_none_and_is_named(word):
    text = TABLE.format(title="LINK TYPE", same="SELF", a="XGMI", b=word)
    text += TABLE.format(title="NUMA BW", same="N/A", a="50000-50000", b="N/A")
    cluster = parse_dump(text, "t", CATALOGUE)

    assert len(cluster.links) == 5
    assert not any({link.a, link.b} == {"GPU1", "GPU3"} for link in cluster.links)
    assert any(said.startswith(f"the tool finds no link between 1 pair of GPUs (GPU1-GPU3: {word})")
               for said in cluster.warnings)  # fmt: skip
    with pytest.raises(InputError, match="link type 'XGM', expected XGMI or PCIE"):
        parse_dump(TABLE.format(title="LINK TYPE", same="SELF", a="XGMI", b="XGM"), "t", CATALOGUE)


TREE = "SwitchName=leaf0 Nodes=n[0-1]\nSwitchName=leaf1 Nodes=n[2-3]\nSwitchName=top Switches=leaf[0-1]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"$ scontrol show topology\n{TREE}$ \n",
        f"[ops@login1 ~]$ scontrol show topology\n{TREE}",
        f"[root@login1 ~]# cat /etc/slurm/topology.conf\n{TREE}",
        f"That is what it says here\n\n```\n{TREE}```\n",
    ],
)
def test_the_command_above_a_tree_of_slurm_is_none_of_its_lines(text):
    assert len(parse_dump(text, "t", CATALOGUE).placements) == 4


def test_a_line_of_slurm_that_is_cut_off_is_still_refused():
    with pytest.raises(InputError, match="t:4: expected SwitchName"):
        parse_dump(f"{TREE}Switc", "t", CATALOGUE)


def test_a_list_that_says_that_it_goes_on_is_not_taken_for_all(tmp_path):
    of_aws = {"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["nn-1"]}], "NextToken": "abc"}
    labels = {"network.topology.nvidia.com/leaf": "l1"}
    of_kubernetes = {
        "kind": "List",
        "items": [{"kind": "Node", "metadata": {"name": "a", "labels": labels}}],
        "metadata": {"continue": "abc", "resourceVersion": ""},
    }
    said = []
    for data in (of_aws, of_kubernetes, of_aws | {"NextToken": None}):
        (tmp_path / "list.json").write_text(json.dumps(data))
        said.append(load_dump(tmp_path / "list.json", CATALOGUE).warnings)

    assert said == [
        ("the list goes on (NextToken is set): its other pages are not in this file",),
        ("the list goes on (continue is set): its other pages are not in this file",),
        (),
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[  12.345678] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n", "the log of a kernel"),
        ("May 02 10:00:00 n1 kernel: [  12.345678] mlx5_core 0000:9a:00.0: Link down\n", "the log of a kernel"),
        ("acceleratorConfig:\n  topology: 2x4\nacceleratorType: v5litepod-8\n", "Google Cloud says of a slice of TPUs"),
        ("count: 4\nkind: compute#reservationBlock\nname: b\n", "Google Cloud says of one resource"),
        ("/sys/bus/pci/devices/0000:00:06.0/vendor:0x10de\n", "files of /sys, a line each"),
        ("apiVersion: v1\nkind: Pod\n", "a Kubernetes object"),
    ],
)
def test_what_is_no_topology_is_refused_by_its_name(text, name):
    with pytest.raises(InputError, match=name):
        parse_dump(text, "t", CATALOGUE)


def test_lstopo_without_cores_has_devices_and_cpus_and_no_number_of_cores():
    card = (
        '<object type="PCIDev" gp_index="{n}" pci_busid="0000:0{n}:00.0" pci_type="0302 [10de:20b2] [10de:1463] a1" '
        'pci_link_speed="31.5"/>'
    )
    package = (
        '<object type="Package"><object type="NUMANode" os_index="{n}" cpuset="{cpus}" nodeset="{nodes}" '
        'local_memory="1000"/><object type="Bridge" gp_index="2{n}" bridge_type="0-1">' + card + "</object></object>"
    )
    packages = package.format(n=0, cpus="0x0000000f", nodes="0x1") + package.format(n=1, cpus="0x000000f0", nodes="0x2")
    text = f'<topology version="2.0"><object type="Machine" cpuset="0x000000ff">{packages}</object></topology>'
    cluster = parse_dump(text, "t", CATALOGUE)

    assert [(cpu.numa, cpu.cpu_affinity, cpu.cores) for cpu in cluster.of_kind("cpu")] == [
        (0, "0-3", None),
        (1, "4-7", None),
    ]
    assert (len(cluster.of_kind("gpu")), cluster.hosts) == (2, ())
    assert any(said.startswith("no core and no processing unit (PU)") for said in cluster.warnings)
