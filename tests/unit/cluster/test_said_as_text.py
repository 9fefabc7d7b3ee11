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


def test_types_of_instances_are_named_with_where_to_look_them_up():
    text = instances("").replace('"NetworkNodes"', '"InstanceType": "p5.48xlarge", "NetworkNodes"')

    assert parse_dump(text, "d", CATALOGUE).warnings == (
        "by their types the nodes are p5.48xlarge (2): `meshwright topo --catalogue p5.48xlarge` has what one holds",
    )


def test_gpus_that_labels_count_are_said_and_turns_on_one_gpu_add_none():
    text = (
        "NAME  STATUS  ROLES   AGE  VERSION  GPU.COUNT  GPU.PRODUCT      GPU.CLIQUE\n"
        "a0    Ready   worker  1d   v1.31    4          NVIDIA-GB200     aa.1\n"
        "a1    Ready   worker  1d   v1.31    4          NVIDIA-GB200     aa.1\n"
        "b0    Ready   worker  1d   v1.31    2          NVIDIA-L4-SHARED <none>\n"
        "c0    Ready   master  1d   v1.31    <none>     <none>           <none>\n"
    )

    told = [words for words in parse_dump(text, "d", CATALOGUE).warnings if "labels alone" in words]

    assert len(told) == 1
    assert "4 x NVIDIA-GB200 on 2 nodes, 2 x NVIDIA-L4-SHARED on 1 node; -SHARED" in told[0]


def test_how_many_switches_stand_above_the_leaves_is_said_where_a_place_names_one():
    leaf = 'Switch 36 "S-1" # "leaf0"\n[1] "H-1"[1](a1) # "node01 mlx5_0"\n'
    leaf += "".join(f'[{at + 2}] "S-{at + 5}"[1] # "spine{at}"\n' for at in range(3))

    assert "there are 3 switches on level 2" in parse_dump(leaf, "d", CATALOGUE).warnings[-1]
