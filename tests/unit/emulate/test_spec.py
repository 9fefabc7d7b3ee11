import itertools

import pytest

from meshwright.cluster.emulation import EmulationSpec, spec
from meshwright.errors import InputError

GIGABIT = 1.25e8


def uplinks(wanted):
    return {wire.name: wire.rate_bytes_per_s for wire in spec.wires(wanted) if wire.node is None}


def test_a_star_has_one_cable_a_node_and_one_switch():
    wanted = EmulationSpec(nodes=3, nic_bytes_per_s=GIGABIT)

    assert [wire.name for wire in spec.wires(wanted)] == ["node0", "node1", "node2"]
    assert spec.switches(wanted) == ("switch",)
    assert {wire.rate_bytes_per_s for wire in spec.wires(wanted)} == {GIGABIT}


def test_uplinks_carry_what_a_leafs_nodes_send_over_the_oversubscription():
    full = EmulationSpec(nodes=4, nic_bytes_per_s=GIGABIT, topology="fat-tree")
    half = EmulationSpec(nodes=4, nic_bytes_per_s=GIGABIT, topology="fat-tree", oversubscription=2)

    assert uplinks(full) == {"leaf0": 2 * GIGABIT, "leaf1": 2 * GIGABIT}
    assert uplinks(half) == {"leaf0": GIGABIT, "leaf1": GIGABIT}


def test_addresses_of_different_owners_differ():
    seen = [spec.address(pid, node) for pid in range(300, 900) for node in (0, 1)]

    assert len(set(seen)) == len(seen)


def test_ranks_get_the_variables_that_torchrun_sets():
    wanted = EmulationSpec(nodes=2, ranks_per_node=2)

    env = [spec.rank_environment(wanted, 7, rank) for rank in range(4)]

    assert [e["RANK"] for e in env] == ["0", "1", "2", "3"]
    assert [e["LOCAL_RANK"] for e in env] == ["0", "1", "0", "1"]
    assert [e["GROUP_RANK"] for e in env] == ["0", "0", "1", "1"]
    assert [e["MESHWRIGHT_HOST"] for e in env] == ["node0", "node0", "node1", "node1"]
    assert {(e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"], e["MASTER_ADDR"]) for e in env} == {("4", "2", "10.64.7.1")}


def test_the_cluster_of_a_spec_joins_every_node_to_every_other():
    wanted = EmulationSpec(nodes=5, nic_bytes_per_s=GIGABIT, topology="fat-tree", oversubscription=2)
    cluster = spec.cluster_of(wanted, cores=2, memory_bytes=1)
    near = {}
    for link in cluster.links:
        near.setdefault(link.a, set()).add(link.b)
        near.setdefault(link.b, set()).add(link.a)

    def reach(start):
        seen, todo = {start}, [start]
        while todo:
            for other in near.get(todo.pop(), set()) - seen:
                seen.add(other)
                todo.append(other)
        return seen

    nics = [device.id for device in cluster.of_kind("nic")]
    assert len(nics) == 5
    assert all(b in reach(a) for a, b in itertools.combinations(nics, 2))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": 2, "ranks_per_node": 0}, "ranks_per_node"),
        ({"nodes": 2, "nic_bytes_per_s": 1.0}, "nic_bytes_per_s"),
        ({"nodes": 2, "nic_bytes_per_s": 1e12}, "nic_bytes_per_s"),
        ({"nodes": 2, "oversubscription": 2.0}, "fat-tree"),
        ({"nodes": 2, "topology": "fat-tree", "oversubscription": 2.0}, "rate"),
        ({"nodes": 2, "mtu": 100}, "mtu"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(fields, named):
    with pytest.raises(InputError, match=named):
        EmulationSpec(**fields)
