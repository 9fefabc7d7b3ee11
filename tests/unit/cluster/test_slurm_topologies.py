"""Topologies of SLURM's topology.yaml: which of several places the nodes."""

from pathlib import Path

import pytest

from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()

TREE_ENTRY = """- topology: fabric
  cluster_default: {tree}
  tree:
    switches:
      - switch: leaf0
        nodes: n[0-3]
"""
BLOCK_ENTRY = """- topology: racks
  cluster_default: {block}
  block:
    block_sizes: [2]
    blocks:
      - block: rack0
        nodes: n[0-1]
      - block: rack1
        nodes: n[2-3]
"""


def load(folder: Path, text: str) -> Cluster:
    (folder / "topology.yaml").write_text(text)
    return load_dump(folder / "topology.yaml", CATALOGUE)


@pytest.mark.parametrize("yes", ["true", "True", "yes", "on"])
def test_blocks_that_are_slurm_s_default_are_taken_and_not_the_tree_beside_them(tmp_path, yes):
    text = TREE_ENTRY.format(tree="false") + BLOCK_ENTRY.format(block=yes)

    cluster = load(tmp_path, text)

    assert {(p.node, p.switches, p.block) for p in cluster.placements} == {
        (f"n{i}", (f"rack{i // 2}",), f"rack{i // 2}") for i in range(4)
    }
    assert any("fabric left out" in warning for warning in cluster.warnings)


def test_a_tree_that_is_slurm_s_default_keeps_the_blocks_beside_it(tmp_path):
    text = BLOCK_ENTRY.format(block="false") + TREE_ENTRY.format(tree="true")

    placements = load(tmp_path, text).placements

    assert {(p.switches, p.block) for p in placements} == {(("leaf0",), "rack0"), (("leaf0",), "rack1")}


def test_a_flat_default_of_slurm_leaves_the_first_topology_that_places_nodes(tmp_path):
    flat = "- topology: plain\n  cluster_default: true\n  flat: true\n"

    placements = load(tmp_path, flat + BLOCK_ENTRY.format(block="false")).placements

    assert {p.block for p in placements} == {"rack0", "rack1"}


def test_switches_in_a_range_of_letters_are_those_from_the_first_to_the_last(tmp_path):
    text = "".join(f"SwitchName=row{row} Nodes=n{i}\n" for i, row in enumerate("BCD"))
    (tmp_path / "t.conf").write_text(f"{text}SwitchName=hall Switches=row[B-D]\n")

    placements = load_dump(tmp_path / "t.conf", CATALOGUE).placements

    assert [place.switches for place in placements] == [("rowB", "hall"), ("rowC", "hall"), ("rowD", "hall")]


@pytest.mark.parametrize("letters", ["D-B", "b-D", "AA-AC"])
def test_letters_that_do_not_rise_one_by_one_are_no_range(letters, tmp_path):
    (tmp_path / "t.conf").write_text(f"SwitchName=a Nodes=n0\nSwitchName=hall Switches=row[{letters}]\n")

    with pytest.raises(InputError, match=f"'{letters}': expected a range"):
        load_dump(tmp_path / "t.conf", CATALOGUE)


def test_blocks_of_other_nodes_are_another_part_of_the_cluster_and_are_left_out(tmp_path):
    text = TREE_ENTRY.format(tree="true") + BLOCK_ENTRY.format(block="false").replace("n[", "rack-n[")

    cluster = load(tmp_path, text)

    assert {p.node for p in cluster.placements} == {f"n{i}" for i in range(4)}
    assert {p.block for p in cluster.placements} == {""}
    assert cluster.warnings == ("racks left out (a block of 4 nodes): fabric is the default topology",)


def test_blocks_beside_a_tree_place_none_of_the_nodes_that_the_tree_lacks(tmp_path):
    text = TREE_ENTRY.format(tree="true") + BLOCK_ENTRY.format(block="false").replace("n[2-3]", "n[2-7]")

    assert {p.node: p.block for p in load(tmp_path, text).placements} == {
        "n0": "rack0",
        "n1": "rack0",
        "n2": "rack1",
        "n3": "rack1",
    }


def test_nodes_of_blocks_alone_beside_switches_are_said_to_hang_nowhere(tmp_path):
    (tmp_path / "t.conf").write_text("SwitchName=s0 Nodes=a[0-1]\nBlockName=b0 Nodes=c[0-2]\n")

    warnings = load_dump(tmp_path / "t.conf", CATALOGUE).warnings

    assert "3 nodes of blocks below no switch: how they reach the others is not said" in warnings
