"""The ports of a host's network adapters, by ibstat: their rates, and which of them carry nothing."""

import pytest

from meshwright.cluster.dumps.detect import parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
CARD = """CA '{name}'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.40.1000
\tPort 1:
\t\tState: {state}
\t\tPhysical state: {physical}
\t\tRate: {rate}
\t\tBase lid: 7
\t\tLink layer: {layer}
"""
MATRIX = """        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity
GPU0     X      NV12    PIX     SYS     0-15            0
GPU1    NV12     X      SYS     PIX     16-31           1

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""


def cards(*ports):
    return "".join(
        CARD.format(name=f"mlx5_{i}", state=state, physical=physical, rate=rate, layer=layer)
        for i, (state, physical, rate, layer) in enumerate(ports)
    )


UP = ("Active", "LinkUp", 400, "InfiniBand")


def said(text):
    return [w for w in parse_dump(text, "p", CATALOGUE).warnings if "as well" not in w and not w.startswith("active: ")]


def test_adapters_have_the_rate_of_their_active_ports():
    second = "\tPort 2:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 56\n"
    cluster = parse_dump(cards(UP, ("Down", "Polling", 10, "InfiniBand")) + second, "p", CATALOGUE)

    assert [(d.id, d.kind, d.network_bandwidth_bytes_per_s) for d in cluster.devices] == [
        ("mlx5_0", "nic", 50e9),
        ("mlx5_1", "nic", 7e9),
    ]
    assert said(cards(UP)) == []


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (("Down", "Polling", 10, "InfiniBand"), "mlx5_1 carries nothing (Down and Polling)"),
        (("Down", "Disabled", 40, "Ethernet"), "mlx5_1 carries nothing (Down and Disabled)"),
        (("Down", "LinkUp", 100, "Ethernet"), "mlx5_1 carries nothing (Down and LinkUp)"),
        (
            ("Initializing", "LinkUp", 400, "InfiniBand"),
            "mlx5_1 carries nothing (Initializing and LinkUp): the link is up, no subnet manager made the port active",
        ),
    ],
)
def test_a_port_that_carries_nothing_is_named_with_its_states(port, words):
    assert said(cards(UP, port)) == [words]


def test_an_adapter_slower_than_most_of_its_kind_is_named_and_another_kind_is_not():
    slow = ("Active", "LinkUp", 100, "InfiniBand")
    other = cards(slow).replace("mlx5_0", "mlx5_9").replace("MT4129", "MT4125")

    assert said(cards(UP, UP, slow) + other) == ["mlx5_2 runs at 100 Gb/s, 2 others of its kind (MT4129) at 400"]
    assert said(cards(UP, slow)) == []


def test_a_link_that_is_up_counts_among_its_kind_before_its_port_is_active():
    slow, waiting = ("Active", "LinkUp", 100, "InfiniBand"), ("Initializing", "LinkUp", 400, "InfiniBand")
    fallen = ("Down", "Polling", 10, "InfiniBand")

    assert "mlx5_1 runs at 100 Gb/s, 2 others of its kind (MT4129) at 400" in said(cards(UP, slow, waiting))
    assert not any("others of its kind" in words for words in said(cards(UP, fallen, fallen)))


def test_an_adapter_on_which_ibstat_fails_is_named():
    text = cards(UP) + "ibpanic: [77] main: stat of IB device 'mlx5_4' failed: No such file or directory\n"

    assert said(text) == ["mlx5_4: ibstat failed on it: No such file or directory"]


def test_adapters_of_several_hosts_are_told_apart_by_what_stands_before_the_lines():
    text = "".join(f"rack{n}: {line}\n" for n in (1, 2) for line in cards(UP, UP).splitlines())

    assert [d.id for d in parse_dump(text, "p", CATALOGUE).devices] == [
        f"rack{n}/mlx5_{i}" for n in (1, 2) for i in (0, 1)
    ]


def test_lines_that_lost_their_indentation_are_no_names_of_hosts():
    text = "\n".join(line.strip() for line in cards(UP, UP, UP).splitlines())

    assert [d.network_bandwidth_bytes_per_s for d in parse_dump(text, "p", CATALOGUE).devices] == [50e9] * 3


def test_ports_below_a_matrix_give_its_nics_their_rates():
    cluster = parse_dump(MATRIX + cards(UP, ("Down", "Polling", 10, "InfiniBand")), "p", CATALOGUE)
    nics = cluster.of_kind("nic")

    assert [(nic.id, nic.network_bandwidth_bytes_per_s) for nic in nics] == [("NIC0", 50e9), ("NIC1", None)]
    assert "mlx5_1 carries nothing (Down and Polling)" in cluster.warnings
    assert len(parse_dump(MATRIX.split("NIC Legend")[0] + cards(UP), "p", CATALOGUE).of_kind("nic")) == 2


def test_ibstat_without_the_state_of_a_port_is_refused_by_its_name():
    with pytest.raises(InputError, match="p: this is ibstat without the state of a port"):
        parse_dump("CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n", "p", CATALOGUE)


STATUS = """Infiniband device '{name}' port {port} status:
\tdefault gid:\t fe80:0000:0000:0000:0000:0000:0000:0001
\tbase lid:\t 0x6c
\tsm lid:\t\t 0x4
\tstate:\t\t {state}
\tphys state:\t {physical}
\trate:\t\t {rate}
\tlink_layer:\t InfiniBand

"""


def test_the_ports_of_ibstatus_are_those_of_ibstat():
    up = {"state": "4: ACTIVE", "physical": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    down = {"state": "1: DOWN", "physical": "3: Disabled", "rate": "10 Gb/sec (4X SDR)"}
    text = (
        STATUS.format(name="mlx5_0", port=1, **up)
        + STATUS.format(name="mlx5_3", port=1, **up)
        + STATUS.format(name="mlx5_3", port=2, **down)
        + STATUS.format(name="mlx5_4", port=1, **(up | {"state": "2: INIT"}))
    )
    cluster = parse_dump(text, "t", CATALOGUE)

    assert [(nic.id, nic.network_bandwidth_bytes_per_s) for nic in cluster.devices] == [
        ("mlx5_0", 50e9),
        ("mlx5_3", 50e9),
        ("mlx5_4", None),
    ]
    assert "port 2 of mlx5_3 carries nothing (Down and Disabled)" in cluster.warnings
    assert any(said.startswith("mlx5_4 carries nothing (Init and LinkUp): the link is up") for said in cluster.warnings)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("400 Gb/sec (4X NDR)", []),
        ("200 Gb/sec (2X NDR)", ["mlx5_1 runs at 200 Gb/s (2X NDR), 3 others at 400 (4X NDR)"]),
    ],
)
def test_a_port_of_ibstatus_that_is_slower_than_most_is_named_with_its_lanes(rate, said):
    rates = ["400 Gb/sec (4X NDR)", rate, "400 Gb/sec (4X NDR)", "400 Gb/sec (4X NDR)"]
    up = {"state": "4: ACTIVE", "physical": "5: LinkUp", "port": 1}
    text = "".join(STATUS.format(name=f"mlx5_{n}", rate=rate, **up) for n, rate in enumerate(rates))

    assert [words for words in parse_dump(text, "t", CATALOGUE).warnings if "runs at" in words] == said


RDMA_LINKS = """$ rdma link
link mlx5_6/1 subnet_prefix fe80:0000:0000:0000 lid 41 sm_lid 2 lmc 0 state ACTIVE physical_state LINK_UP
link mlx5_7/1 subnet_prefix fe80:0000:0000:0000 lid 42 sm_lid 2 lmc 0 state INIT physical_state LINK_UP
link mlx5_8/1 state DOWN physical_state DISABLED netdev ens8np0
link rocep9s0/1 state ACTIVE physical_state LINK_UP netdev ens9
"""


def test_rdma_link_says_which_ports_carry_nothing_and_no_rates():
    cluster = parse_dump(RDMA_LINKS, "t", CATALOGUE)

    assert [(nic.id, nic.network_bandwidth_bytes_per_s) for nic in cluster.devices] == [
        ("mlx5_6", None),
        ("mlx5_7", None),
        ("mlx5_8", None),
        ("rocep9s0", None),
    ]
    assert said(RDMA_LINKS) == [
        "mlx5_7 carries nothing (Init and LinkUp): the link is up, no subnet manager made the port active",
        "mlx5_8 carries nothing (Down and Disabled)",
    ]
    assert "this says which ports are up, and no rates: give the output of ibstat as well" in cluster.warnings


def test_ibstatus_below_a_matrix_gives_its_nics_their_rates():
    text = STATUS.format(name="mlx5_0", port=1, state="4: ACTIVE", physical="5: LinkUp", rate="200 Gb/sec (2X NDR)")
    cluster = parse_dump(f"{MATRIX}\n{text}", "t", CATALOGUE)

    assert {nic.model: nic.network_bandwidth_bytes_per_s for nic in cluster.of_kind("nic")} == {
        "mlx5_0": 25e9,
        "mlx5_1": None,
    }


PORTS_OF_HWLOC = """<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x1" nodeset="0x1">
<object type="NUMANode" os_index="0" cpuset="0x1" nodeset="0x1" local_memory="1000"/>
<object type="Core" os_index="0" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x1"/></object>
<object type="PCIDev" pci_busid="0000:3b:00.0" pci_type="0207 [15b3:1019] [15b3:0001] 00" pci_link_speed="15.75">
<object type="OSDev" name="mlx5_0" osdev_type="3"><info name="Port1State" value="4"/></object></object>
<object type="PCIDev" pci_busid="0000:3b:00.1" pci_type="0207 [15b3:1019] [15b3:0001] 00" pci_link_speed="15.75">
<object type="OSDev" name="mlx5_1" osdev_type="3"><info name="Port1State" value="1"/></object></object>
</object></topology>
"""


def test_a_nic_of_which_lstopo_saw_no_active_port_carries_nothing():
    cluster = parse_dump(PORTS_OF_HWLOC, "t", CATALOGUE)

    assert [(nic.id, nic.card) for nic in cluster.of_kind("nic")] == [
        ("mlx5_0", "0000:3b:00"),
        ("mlx5_1", "0000:3b:00"),
    ]
    assert [word for word in cluster.warnings if "carries nothing" in word] == [
        "mlx5_1 carries nothing: no port of it was active when lstopo looked"
    ]


ADAPTER = """CA '{name}'
\tCA type: MT4129
\tNode GUID: 0x5c25730300e1a0{node}
\tSystem image GUID: 0x5c25730300e1a0{image}
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 200
\t\tLink layer: Ethernet
"""


def test_a_port_that_its_card_shows_on_two_pcie_links_counts_once():
    text = "".join(
        ADAPTER.format(name=name, node=node, image="10")
        for name, node in (("rocep1s0f0", "10"), ("roceP2p1s0f0", "14"))
    )
    cluster = parse_dump(text, "ports.txt", CATALOGUE)
    assert [nic.network_bandwidth_bytes_per_s for nic in cluster.of_kind("nic")] == [12.5e9, 12.5e9]
    said = "\n".join(cluster.warnings)
    assert "rocep1s0f0, roceP2p1s0f0: one port, of 200 Gb/s together" in said
    assert "400 Gb/s" not in said


def test_two_ports_of_a_card_in_one_slot_are_two_of_which_the_slot_may_carry_less():
    text = "".join(
        ADAPTER.format(name=name, node=node, image="10") for name, node in (("rocep1s0f0", "10"), ("rocep1s0f1", "11"))
    )
    cluster = parse_dump(text, "ports.txt", CATALOGUE)
    assert [nic.network_bandwidth_bytes_per_s for nic in cluster.of_kind("nic")] == [25e9, 25e9]
    said = "\n".join(cluster.warnings)
    assert "2 Ethernet ports 400 Gb/s" in said
    assert "rocep1s0f0, rocep1s0f1 are functions of one card" in said
    assert "may carry less than their sum" in said


def test_functions_of_one_card_whose_names_say_no_place_stay_open_and_those_of_two_cards_are_not_joined():
    of_one = ADAPTER.format(name="mlx5_0", node="10", image="10") + ADAPTER.format(name="mlx5_1", node="11", image="10")
    assert any("mlx5_0, mlx5_1 are functions of one card" in w for w in parse_dump(of_one, "p", CATALOGUE).warnings)
    of_two = of_one.replace("GUID: 0x5c25730300e1a010\n\tPort", "GUID: 0x5c25730300e1a020\n\tPort", 1)
    assert not any("one card" in w for w in parse_dump(of_two, "p", CATALOGUE).warnings)
    unknown = of_one.replace("0x5c25730300e1a010\n\tPort", "0x0000000000000000\n\tPort")
    assert not any("one card" in w for w in parse_dump(unknown, "p", CATALOGUE).warnings)


def test_ibv_devinfo_says_which_adapters_are_one_card():
    text = "".join(
        f"hca_id: mlx5_{n}\n  node_guid:  94:6d:ae:03:00:0a:10:1{n}\n  sys_image_guid:  946d:ae03:000a:1010\n"
        "  port:   1\n    state:  PORT_ACTIVE (4)\n    link_layer:  InfiniBand\n    active_width:  4X (2)\n"
        "    active_speed:  50.0 Gbps (64)\n"
        for n in (0, 1)
    )
    assert any("mlx5_0, mlx5_1 are functions of one card" in w for w in parse_dump(text, "p", CATALOGUE).warnings)
