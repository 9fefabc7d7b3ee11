"""The hosts of a group, and their order."""

import mmap
import os

import pytest

from meshwright.backend.group.options import GroupOptions
from meshwright.backend.hosts import network
from meshwright.backend.hosts.engine import HostsEngine
from meshwright.backend.hosts.placement import GroupMember, hosts_of, switches_above
from meshwright.backend.local.memory import PAGE, SegmentLayout
from meshwright.backend.local.segment import Segment
from meshwright.backend.wire.transport import TransportError


def members(*hosts):
    """Return one rank a host, each host a name with the switches above it: "core.leaf1/a"."""
    parts = [host.rpartition("/") for host in hosts]
    return [
        GroupMember(rank, rank, name, name, 1, (0,), tuple(filter(None, above.split("."))))
        for rank, (above, _, name) in enumerate(parts)
    ]


@pytest.mark.parametrize(
    ("hosts", "order"),
    [
        (("a", "b", "c"), [0, 1, 2]),
        (("l0/a", "l1/b", "l0/c", "l1/d"), [0, 2, 1, 3]),
        (("s0.l0/a", "s1.l2/b", "s0.l1/c", "s1.l2/d", "s0.l0/e"), [0, 4, 2, 1, 3]),
        (("l0/a", "b", "l0/c"), [0, 2, 1]),  # of b nobody says where it hangs
    ],
)
def test_hosts_under_one_switch_are_neighbours_at_every_level(hosts, order):
    assert [rank for ranks in hosts_of(members(*hosts)) for rank in ranks] == order


def test_ranks_of_one_host_stay_together_in_their_order():
    scattered = members("l0/a", "l1/b", "l0/a", "l1/b")

    assert hosts_of(scattered) == [(0, 2), (1, 3)]


def slurm(address, pattern):
    return {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}


@pytest.mark.parametrize(
    ("variables", "switches"),
    [
        ({}, ()),
        (slurm("core.leaf3.n7", "switch.switch.node"), ("core", "leaf3")),
        (slurm("n7", "node"), ()),
        (slurm("n7.example.org", "node"), ()),
        ({"MESHWRIGHT_SWITCHES": "s0.l1"} | slurm("a.b", "switch.node"), ("s0", "l1")),
    ],
)
def test_a_host_knows_the_switches_above_it_as_told_or_as_slurm_says(variables, switches):
    assert switches_above(variables) == switches


def test_a_group_that_cannot_connect_to_another_host_leaves_no_descriptor_open(monkeypatch):
    def unreachable(*_, **__):
        raise TransportError("rank 0 cannot reach rank 2")

    monkeypatch.setattr(network, "TcpTransport", unreachable)
    memory, life = SegmentLayout(2, PAGE), os.pidfd_open(os.getpid())
    segment = Segment(memory, mmap.mmap(-1, memory.total_bytes), {1: life})
    ranks = members("near", "near", "far")

    with pytest.raises(TransportError, match="cannot reach rank 2"):
        HostsEngine(None, segment, ranks, ranks[0], 5.0, address="127.0.0.1", options=GroupOptions())

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(life)
