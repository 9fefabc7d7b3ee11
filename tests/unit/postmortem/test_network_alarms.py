"""Network devices whose own counters, queues and tables show trouble beside no job's log."""

import json

import pytest

from .made import judge

CAPTION = {
    "this host pauses its switch": (
        [
            "$ ethtool -S eth4",
            "NIC statistics:",
            "     rx_packets: 1000",
            "     outbound_pci_stalled_wr: 77",
            "     rx_prio5_packets: 4000000",
            "     rx_prio5_pause: 12",
            "     tx_prio5_packets: 3000000",
            "     tx_prio5_pause: 90000",
        ],
        ("eth4 sends the pauses itself (90,000 sent on priority 5, 12 received", "PCIe"),
    ),
    "the switch pauses this host": (
        ["NIC statistics:", "     tx_prio3_packets: 2000000", "     rx_prio3_pause: 60000", "     tx_prio3_pause: 4"],
        ("is paused by the switch (60,000 received on priority 3",),
    ),
    "a port with errors of its cable": (
        ["NIC statistics:", "     rx_packets: 10", "     rx_crc_errors_phy: 8123"],
        ("rx_crc_errors_phy 8,123 (cable, transceiver or port)",),
    ),
    "an interface whose ring overran": (
        [
            "2: ib0f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT",
            "    RX:  bytes packets errors dropped  missed   mcast",
            "     900000000 1000000      0      70    5000       3",
            "3: ib0f1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 4200 qdisc mq state UP mode DEFAULT",
            "    RX:  bytes packets errors dropped  missed   mcast",
            "     900000000 1000000      0      70       0       3",
        ],
        ("ib0f0: 5,000 packets missed, 0.5 %", "ib0f1: MTU 4200 where ib0f0 has 9000"),
    ),
    "a port of RDMA that sends again what was lost": (
        [
            "link bnxt_re0/1 rx_write_requests 50000 packet_seq_err 2 local_ack_timeout_err 0 np_cnp_sent 90",
            "link bnxt_re1/1 rx_write_requests 50000 packet_seq_err 9000 local_ack_timeout_err 400 np_cnp_sent 0",
        ],
        ("bnxt_re1 loses packets: packet_seq_err 9,000, local_ack_timeout_err 400; it alone has no ECN marks",),
    ),
    "a queue that was left to delay": (
        [
            "qdisc fq_codel 0: dev eth2 parent :1 limit 10240p flows 1024 target 5ms interval 100ms",
            "qdisc netem 8001: dev eth3 root refcnt 9 limit 1000 delay 30ms loss 2%",
        ],
        ("eth3 is slowed down on purpose: netem delay 30ms loss 2%", "tc qdisc del dev eth3 root"),
    ),
    "a node of another version in its domain": (
        [
            "Nodes:",
            *(
                f"Node #{at}   - 10.1.1.{at}       - READY                - Version: {'560.1' if at == 1 else '570.2'}"
                for at in range(3)
            ),
            " Nodes From\\To  0   1   2",
            "       0        C   !V! C",
            "       1        !V! C   !V!",
            "       2        C   !V! C",
            "Domain State: DEGRADED",
        ],
        ("IMEX domain DEGRADED: node 1 (10.1.1.1, version 560.1 of 570.2): another version",),
    ),
    "a port whose counters are full": (
        [
            *("# Port counters: Lid 4 port 7 (CapMask: 0x5A00)", "SymbolErrorCounter:..............65535"),
            *("LinkErrorRecoveryCounter:........255", "PortXmitWait:....................3"),
            *("# Port counters: Lid 4 port 8 (CapMask: 0x5A00)", "SymbolErrorCounter:..............0"),
            *("LinkErrorRecoveryCounter:........0", "PortXmitWait:....................7"),
            *("# Port counters: Lid 4 port 9 (CapMask: 0x5A00)", "SymbolErrorCounter:..............0"),
            *("LinkErrorRecoveryCounter:........0", "PortXmitWait:....................4294967295"),
        ],
        (
            "LID 4 port 7: SymbolErrorCounter at least 65,535 (full), LinkErrorRecovery at least 255 (full)",
            "LID 4 port 9: PortXmitWait at least 4,294,967,295 (full) ticks",
        ),
    ),
}
SOUND = {
    "counters of sound interfaces": [
        "NIC statistics:",
        *("     rx_prio3_packets: 9000000", "     tx_prio3_pause: 150", "     rx_corrected_bits_phy: 99999"),
    ],
    "drops of protocols that nobody wants": [
        "2: eno1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT",
        "    RX:  bytes packets errors dropped  missed   mcast",
        "     900000000 1000000      0   41000       0       3",
    ],
    "congestion control at work": [
        "link mlx5_0/1 rx_write_requests 50000 out_of_sequence 7 packet_seq_err 2 np_cnp_sent 900000",
    ],
    "queues as a kernel makes them": ["qdisc mq 0: dev eth0 root", "qdisc netem 1: dev eth1 root limit 1000"],
    "forwarding errors of a switch": [
        *("# Port counters: Lid 4 port 7 (CapMask: 0x5A00)", "SymbolErrorCounter:..............0"),
        *("PortRcvSwitchRelayErrors:........7000", "PortXmitWait:....................12"),
    ],
}


@pytest.mark.parametrize(("lines", "said"), CAPTION.values(), ids=CAPTION)
def test_a_device_that_shows_trouble_by_itself_is_named_and_no_rank_is(tmp_path, lines, said):
    verdict = judge(tmp_path, {"taken.txt": lines})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("network", (), True)
    assert all(words in verdict.because for words in said), verdict.because


@pytest.mark.parametrize("lines", SOUND.values(), ids=SOUND)
def test_counters_of_a_sound_device_show_no_fault(tmp_path, lines):
    assert judge(tmp_path, {"taken.txt": lines}).kind == "none"


def gids(device, *addresses):
    """The table of one device: two GIDs of its own, and two of each address."""
    own = [f"{device}  1  {at}  fe80:0000:0000:0000:0000:0000:0000:0001     v{at + 1}  net{device}" for at in (0, 1)]
    told = [
        f"{device}  1  {2 + at}  0000:0000:0000:0000:0000:ffff:0a00:0001  {address}  v{at + 1}  net{device}"
        for address in addresses
        for at in (0, 1)
    ]
    return [*own, *told]


@pytest.mark.parametrize(
    ("setting", "blamed"),
    [
        ("export NCCL_IB_HCA=mlx5_0,mlx5_2", True),
        ("NCCL INFO NCCL_IB_HCA set by environment to =mlx5_0:1", False),
        ("export NCCL_IB_HCA=^mlx5_2", False),
        ("export NCCL_IB_GID_INDEX=3", True),
    ],
)
def test_a_port_without_the_gid_that_nccl_asks_for_is_named_where_nccl_uses_it(tmp_path, setting, blamed):
    table = [*gids("mlx5_0", "10.0.0.1"), *gids("mlx5_2")]

    verdict = judge(tmp_path, {"gids.txt": table, "job.sh": [setting]})

    assert ("mlx5_2 (netmlx5_2) has GIDs 0, 1 alone and has no IPv4 address" in verdict.because) == blamed


def test_a_port_that_is_down_and_that_nccl_is_told_to_leave_is_not_the_cause(tmp_path):
    networks = [f"mlx5_{at} port 1 ==> ens{at}np0 ({'Down' if at == 3 else 'Up'})" for at in range(4)]

    assert judge(tmp_path, {"networks.txt": networks}).kind == "none"


def records(times_us):
    """Records of one communicator's calls: the time of each rank in each call."""
    return [
        json.dumps(
            {
                "header": {"id": "0x9", "rank": rank, "n_ranks": len(call)},
                "coll_perf": {"coll": "AllReduce", "coll_sn": number, "coll_exec_time_us": time_us},
            }
        )
        for number, call in enumerate(times_us)
        for rank, time_us in enumerate(call)
    ]


def test_the_rank_with_the_shortest_calls_is_the_one_that_the_others_wait_for(tmp_path):
    late = [[900, 905, 903, 899], *[[8000, 900, 8010, 7990]] * 4]

    verdict = judge(tmp_path, {"calls.log": records(late)})

    assert (verdict.kind, verdict.blamed) == ("slow", (1,))
    assert judge(tmp_path, {"calls.log": records([[900, 905, 903, 899]] * 5)}).kind == "none"
