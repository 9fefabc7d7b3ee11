"""Links of one replica's host that fail, by its kernel and by NCCL's events there, and lines that place its ranks."""

import pytest

from .made import judge

UNPLUGGED = "[90119.120331] mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, Cable unplugged"
DOWN = "[90119.121871] mlx5_core 0000:1a:00.0 ens2np0: Link down"
OFFLINE = "[90119.660120] bond0: now running without any active interface!"
KERNEL = [UNPLUGGED, DOWN, OFFLINE]
ERROR = "got exception in all reduce: NCCL error: remote process exited or there was a network error"
OTHERS = [f"ERROR:manager:[repl_0:6a/{n} - step 22] {ERROR}" for n in range(2)]
EVENTS = [
    f"sled9:91{n}:140{n} [{n}] transport/net_ib.cc:1919 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
    for n in range(2)
]
PLACES = {
    "in brackets": "[job] host sled9 global ranks 2-3 (replica repl_1, group ranks 0-1)",
    "in a row": "host sled9 global ranks 2-3 group ranks 0-1",
    "of a replica": "host=sled9 replica_id=repl_1 global_ranks=[2, 3]",
}


def named(folder, place, kernel, own, others=OTHERS):
    verdict = judge(folder, {"sled9_dmesg.txt": kernel, "first.log": others, "second_sled9.log": [place, *own]})
    return verdict.kind, verdict.blamed


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(
    ("kernel", "own"), [(KERNEL, EVENTS), (KERNEL, []), ([], EVENTS)], ids=["both", "kernel", "events"]
)
def test_the_host_whose_only_link_went_down_is_all_its_ranks(place, kernel, own, tmp_path):
    assert named(tmp_path, place, kernel, own) == ("network", (2, 3))


@pytest.mark.parametrize(
    "place", ["host sled9 group ranks 0-1", "host sled9 ranks 0-1 (group ranks 0-1)", "global ranks of all: see above"]
)
def test_places_in_a_group_are_no_ranks_of_the_job(place, tmp_path):
    assert named(tmp_path, place, KERNEL, EVENTS)[1] == ()


def test_a_port_that_has_had_no_cable_says_nothing_without_a_clock(tmp_path):
    assert named(tmp_path, PLACES["in brackets"], [UNPLUGGED, DOWN], [])[1] == ()


def test_a_bond_that_came_up_again_is_no_broken_end(tmp_path):
    kernel = [*KERNEL, "[90420.700000] bond0: active interface up!"]

    assert named(tmp_path, PLACES["in brackets"], kernel, [])[1] == ()


def test_links_of_both_hosts_that_went_down_are_no_ones(tmp_path):
    others = [*OTHERS, EVENTS[0].replace("sled9", "sled8")]

    assert named(tmp_path, PLACES["in brackets"], KERNEL, EVENTS, others)[1] == ()
