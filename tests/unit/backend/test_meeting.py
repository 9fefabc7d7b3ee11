"""Ranks meet in a store that may hold what an earlier try left there, and refuse together."""

import json
import random
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from meshwright.backend.group.create import store_of_members
from meshwright.backend.group.meeting import meet_ranks
from meshwright.errors import InputError
from tests.unit.backend.meetings import new_store, on_ranks


def count(said):
    return str(len(said))


def test_all_hear_what_all_say_and_answer():
    store = new_store()

    def come(rank):
        meeting = meet_ranks(store, rank, 3, lambda: f"I am {rank}", lambda said: f"{rank} heard {len(said)}")
        return meeting.said, meeting.answers, meeting.gather("more", str(rank * 10))

    expected = [f"I am {r}" for r in range(3)], [f"{r} heard 3" for r in range(3)], ["0", "10", "20"]
    assert on_ranks(3, come) == [expected] * 3


@pytest.mark.parametrize("kind", [dist.HashStore, dist.FileStore])
def test_ranks_that_do_not_come_are_named(tmp_path, kind):
    store = kind() if kind is dist.HashStore else dist.FileStore(str(tmp_path / "store"), 4)
    store.set_timeout(timedelta(seconds=0.2))

    def come(rank):
        with pytest.raises(dist.DistStoreError, match=r"ranks 2, 3 of 4 did not join this group within 0\.2 s"):
            meet_ranks(store, rank, 4, str, count)
        return "refused"

    assert on_ranks(2, come) == ["refused"] * 2


@pytest.mark.parametrize("left", ["members", "all", "mixed"])
def test_what_an_earlier_try_left_misleads_nobody(left):
    store = new_store()
    store.set("member/1", json.dumps({"word": "old", "said": "the dead", "refusal": ""}))
    if left != "members":
        store.set("heard/0", json.dumps(["0" * 32, "old"]))
        store.set("heard/1", json.dumps(["0" * 32, "old"]))
    if left == "mixed":
        store.set("member/0", json.dumps({"word": "older", "said": "", "refusal": "no"}))

    def come(rank):
        time.sleep(0.05 * rank)  # rank 0 reads what the dead one said
        meeting = meet_ranks(store, rank, 2, lambda: f"alive {rank}", count)
        return meeting.said, meeting.gather("x", "y")

    assert on_ranks(2, come) == [(["alive 0", "alive 1"], ["y", "y"])] * 2


def test_ranks_may_meet_again_and_again_however_late_each_is():
    store, turns = new_store(), 30

    def come(rank):
        rng = random.Random(rank)
        heard = []
        for turn in range(turns):
            time.sleep(rng.choice([0, 0, 0.003]))
            meeting = meet_ranks(store, rank, 3, lambda turn=turn: f"{rank} in turn {turn}", count)
            meeting.gather("met", "")
            heard.append(meeting.said)
        return heard

    expected = [[f"{rank} in turn {turn}" for rank in range(3)] for turn in range(turns)]
    assert on_ranks(3, come) == [expected] * 3


def test_no_key_is_left_once_a_try_has_succeeded():
    store = new_store()

    def come(rank):
        meeting = meet_ranks(store, rank, 2, str, count)
        meeting.gather("a", "b")
        return meeting

    meetings = on_ranks(2, come)
    for meeting in meetings:
        meeting.store.forget()
    assert store.num_keys() == 0


def test_what_one_rank_refuses_all_refuse_at_once():
    store = new_store(timeout_s=60)

    def come(rank):
        def say():
            if rank == 1:
                raise InputError("MESHWRIGHT_SLOT_BYTES=5: expected a multiple of 4096 bytes")
            return ""

        return meet_ranks(store, rank, 3, say, count)

    start = time.monotonic()
    for error in on_ranks(3, come):
        assert isinstance(error, InputError)
        assert str(error).startswith("rank 1 of the group: MESHWRIGHT_SLOT_BYTES=5")
    assert time.monotonic() - start < 5


def test_a_rank_that_stays_away_is_named():
    store = new_store(timeout_s=0.2)
    store.set("member/1", json.dumps({"word": "old", "said": "", "refusal": ""}))
    store.set("heard/1", json.dumps(["0" * 32, ""]))

    with pytest.raises(TimeoutError, match=r"ranks 1 of the group did not come within 0.2 s"):
        meet_ranks(store, 0, 2, str, count)


def test_groups_of_other_members_meet_apart_though_torch_calls_them_by_one_name():
    store = new_store()

    def come(rank):
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        own = store_of_members(SimpleNamespace(store=store, global_ranks_in_group=pair))
        meeting = meet_ranks(own, rank % 2, 2, lambda: f"I am {rank}", count)
        return meeting.said, meeting.gather("more", str(rank))

    pairs = [(["I am 0", "I am 1"], ["0", "1"]), (["I am 2", "I am 3"], ["2", "3"])]
    assert on_ranks(4, come) == [pairs[0]] * 2 + [pairs[1]] * 2
