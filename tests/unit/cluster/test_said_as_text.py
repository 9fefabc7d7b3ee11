"""Values that commands print for nothing, and counts that they call by another name than ours."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def instances(block):
    """Two instances of AWS below one leaf, each of the same Capacity Block."""
    return json.dumps(
        {
            "Instances": [
                {"InstanceId": f"i-{at}", "NetworkNodes": ["nn-top", "nn-leaf"], "CapacityBlockId": block}
                for at in range(2)
            ]
        }
    )


@pytest.mark.parametrize("nothing", ["null", "None", "<none>", "N/A", "", None])
def test_a_block_whose_name_says_that_there_is_none_is_no_block(nothing):
    cluster = parse_dump(instances(nothing), "d", CATALOGUE)

    assert {place.block for place in cluster.placements} == {""}


def test_a_block_with_a_name_of_its_own_is_kept():
    assert {place.block for place in parse_dump(instances("cb-17"), "d", CATALOGUE).placements} == {"cb-17"}


def nodes(distances):
    """The output of numactl -H of four nodes with two hardware threads each."""
    cpus = "".join(f"node {at} cpus: {at} {at + 4}\nnode {at} size: 100 MB\n" for at in range(4))
    rows = "".join(f"  {at}:  {'  '.join(map(str, row))}\n" for at, row in enumerate(distances))
    return f"{cpus}node distances:\nnode   0   1   2   3\n{rows}"


PAIRED = [[10, 12, 32, 32], [12, 10, 32, 32], [32, 32, 10, 12], [32, 32, 12, 10]]
EQUAL = [[10 if a == b else 21 for b in range(4)] for a in range(4)]
RING = [[10, 12, 32, 12], [12, 10, 12, 32], [32, 12, 10, 12], [12, 32, 12, 10]]


def test_numactl_counts_hardware_threads_and_no_cores(tmp_path, capsys):
    (tmp_path / "numa.txt").write_text(nodes(PAIRED))

    assert run_command(["topo", "--from", str(tmp_path / "numa.txt")]) == 0

    said = capsys.readouterr().out
    assert "8 hardware threads on 4 NUMA nodes" in said
    assert "2 hardware threads" in said
    assert "core on" not in said
    assert "lscpu" in said


@pytest.mark.parametrize(("distances", "groups"), [(PAIRED, "0-1, 2-3 (32 across)"), (EQUAL, ""), (RING, "")])
def test_nodes_that_are_nearer_to_one_another_are_said_to_be_a_group(distances, groups):
    told = [w for w in parse_dump(nodes(distances), "d", CATALOGUE).warnings if "by their distances" in w]

    assert bool(told) == bool(groups)
    assert not groups or groups in told[0]


UNREAD = {
    "show_gids": "DEV     PORT    INDEX   GID    IPv4   VER  DEV\n---     ----    -----   ---\n",
    "nvidia-imex-ctl": "Nodes:\nNode #0   - 10.0.0.1       - READY                - Version: 570.1\n",
    "nvidia-smi mig": "+-----+\n| GPU instances:     |\n|   0  MIG 1g.10gb   19   7   0:1 |\n",
    "rdma statistic": "link mlx5_0/1 rx_write_requests 0 out_of_sequence 3 packet_seq_err 0 np_cnp_sent 0\n",
    "ethtool -S": "NIC statistics:\n     rx_packets: 7\n",
    "ip -s link": "2: eno1: <UP,LOWER_UP> mtu 1500 qdisc mq state UP\n    RX:  bytes packets\n  1 2\n",
    "perfquery": "# Port counters: Lid 3 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n",
    "tc qdisc": "qdisc mq 0: dev eth0 root\n",
    "nvidia-smi dmon": "# gpu   pwr  gtemp    sm\n# Idx     W      C     %\n    0   685     64   100\n",
}


@pytest.mark.parametrize(("tool", "text"), UNREAD.items(), ids=UNREAD)
def test_what_is_not_read_is_refused_by_the_name_of_its_tool_in_both_rooms(tmp_path, capsys, tool, text):
    with pytest.raises(InputError, match=f"this is {tool}"):
        parse_dump(text, "d", CATALOGUE)
    (tmp_path / "out.txt").write_text(text)

    assert run_command(["bench", "--from", str(tmp_path / "out.txt")]) == 2
    assert f"this is {tool}" in capsys.readouterr().err
