"""Ranks that stand apart where all wait: one left a call out that the others made, or fell out of its rounds."""

from collections import Counter

import pytest

from .made import entry, groups, judge, records

EIGHT = groups(g1=range(4), g2=range(4, 8)) | {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))}}
WAYS = {"s": "send", "r": "recv"}


def made(rank, calls, small="ep"):
    """A rank's record of calls, the last one open: e in its smaller group, w in the group of all."""
    counts = Counter()
    entries = []
    for number, call in enumerate(calls):
        counts[call] += 1
        own = str(1 + rank // 4)
        group = ("0", "default_pg") if call == "w" else (own, small)
        operation = "all_reduce" if call == "w" else "all_to_all"
        state = "started" if number == len(calls) - 1 else "completed"
        entries.append(
            entry(number, counts[call], operation, 8, 8, state, group=group, pg_id=0 if call == "w" else int(own))
        )
    return entries


USUAL = {rank: "eeeweee" if rank < 4 else "eeeweeew" for rank in range(8)}


@pytest.mark.parametrize(
    ("calls", "blamed"),
    [
        ({3: "eeeweew"}, (3,)),
        ({2: "eeeweew", 3: "eeeweew"}, (2, 3)),
        ({3: "eeeweew", 0: None}, (3,)),
    ],
    ids=["one rank", "two ranks", "the record of another one is not there"],
)
def test_who_left_a_call_of_its_group_out_and_came_to_that_of_all_too_early_is_absent(calls, blamed, tmp_path):
    jobs = {rank: made(rank, own) for rank, own in {**USUAL, **calls}.items() if own}
    verdict = judge(tmp_path, records(jobs, EIGHT))

    assert (verdict.kind, verdict.blamed, verdict.seq) == ("absent", blamed, 6), verdict.because
    assert "came there after theirs" in verdict.because


@pytest.mark.parametrize(
    ("calls", "small"),
    [
        ({3: "eeeweew"}, "undefined"),
        (dict.fromkeys((1, 2, 3, 5, 6, 7), "eeeweew") | {4: "eeeweee"}, "ep"),
    ],
    ids=["groups that may be of other programs", "as many left it out as did not"],
)
def test_in_a_circle_in_which_no_rank_stands_apart_nobody_is_named(calls, small, tmp_path):
    jobs = {rank: made(rank, own, small) for rank, own in {**USUAL, **calls}.items()}
    verdict = judge(tmp_path, records(jobs, EIGHT))

    assert (verdict.kind, verdict.blamed) == ("circle", ())


def transfers(rank, calls, ranks):
    """A rank's record of sends and receives, such as `s1 r3`, the last one open where it ends in a star."""
    entries = []
    for number, call in enumerate(calls.split()):
        way, peer = WAYS[call[0]], int(call.strip("sr*"))
        state = "started" if call.endswith("*") else "completed"
        name = f"{way} {rank}{'->' if way == 'send' else '<-'}{peer}"
        entries.append(entry(number, 0, name, 4, 4, state, group=("5", "pipe"), pg_id=5, p2p=number + 1))
    return entries, groups(g5=range(ranks))


def judged(folder, calls):
    found = {rank: transfers(rank, own, len(calls)) for rank, own in calls.items()}
    config = found[0][1]
    return judge(folder, records({rank: entries for rank, (entries, _) in found.items()}, config))


RING = {0: "s1 r3 " * 4 + "s1 r3*", 1: "r0 s2 " * 5 + "r0*", 2: "r1 s3 " * 4 + "r1 s0*", 3: "r2 s0 " * 4 + "r2*"}
CHAIN = {0: "s1 " * 5, 1: "r0 s2 " * 5, 2: "r1 s3 " * 4 + "r1 s0*", 3: "r2 s4 " * 4 + "r2*", 4: "r3 " * 4 + "r3*"}


@pytest.mark.parametrize("calls", [RING, CHAIN], ids=["a ring", "a chain whose first rank waits for nobody"])
def test_who_sends_to_another_rank_than_in_all_its_rounds_keeps_the_others_waiting(calls, tmp_path):
    verdict = judged(tmp_path, calls)

    assert (verdict.kind, verdict.blamed) == ("desync", (2,)), verdict.because
    assert "stands in send to 0" in verdict.because
    assert "called send to 3" in verdict.because


@pytest.mark.parametrize(
    "calls",
    [
        {**RING, 2: "r1 s3 r1 s0*"},
        {**RING, 3: "r2 s0 " * 4 + "r1*"},
        {0: "s1 r1 " * 4 + "r1*", 1: "r0 s0 " * 4 + "r0*"},
    ],
    ids=["too few rounds", "two ranks that differ", "a pair, either of which may be wrong"],
)
def test_rounds_that_do_not_set_one_rank_apart_name_nobody(calls, tmp_path):
    verdict = judged(tmp_path, calls)

    assert (verdict.kind, verdict.blamed) == ("circle", ()), verdict.because
