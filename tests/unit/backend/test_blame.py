import threading
import time

import pytest
import torch.distributed as dist

from meshwright.backend.faults.blame import Requests, StoreBlameBoard
from meshwright.backend.faults.blame_board import WORD_S, BlamePropagator, Word
from meshwright.backend.faults.failures import DISAGREE, FaultyRank
from meshwright.backend.hosts.placement import GroupMember


class OutOfReach:
    """A store beyond a cable that is out: no request comes back."""

    def __init__(self):
        self.end = threading.Event()

    def check(self, keys):
        self.end.wait()

    set = get = check


class Busy:
    """A store whose host is busy: every request takes as long as `delay_s`."""

    def __init__(self, store, delay_s):
        self.store = store
        self.delay_s = delay_s

    def __getattr__(self, name):
        time.sleep(self.delay_s)
        return getattr(self.store, name)


def board(store, rank, propagator=None):
    """Return what is left word of in a group, as `rank` reads it; `propagator` joins it with other groups."""
    member = GroupMember(rank=rank, world_rank=rank, host="a", identity="a", pid=1000 + rank, cores=(0,))
    return StoreBlameBoard(store, member, propagator or BlamePropagator(), Requests())


def blame(rank, what_happened="is late"):
    return FaultyRank(rank, "a", 1000 + rank, what_happened)


def asked_at_once(waits, later=None):
    """Let ranks look for the culprit at once, each waiting for another; `later`: one a second after the others."""
    store, found = dist.HashStore(), {}

    def ask(rank, suspect):
        time.sleep(1.0 if rank == later else 0.0)
        found[rank] = board(store, rank).culprit(suspect, blame(suspect), lost=False)

    threads = [threading.Thread(target=ask, args=pair) for pair in waits.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_the_one_at_the_end_of_a_chain_of_waits_is_to_blame():
    assert asked_at_once({0: 3, 1: 0, 2: 1}) == dict.fromkeys((0, 1, 2), blame(3))


def test_a_rank_whose_patience_ends_later_is_not_to_blame_for_that():
    assert asked_at_once({0: 2, 1: 0}, later=0) == dict.fromkeys((0, 1), blame(2))


def test_a_word_that_somebody_left_counts_more_than_ones_own_view():
    store = dist.HashStore()
    board(store, 0).tell(blame(2, "died"))
    board(store, 3).tell(blame(0, "left"))

    assert board(store, 1).culprit(0, blame(0), lost=False) == blame(2, "died")
    assert board(store, 1).culprit(0, blame(0, "left"), lost=True) == blame(2, "died")


@pytest.mark.parametrize("lost", [True, False])
def test_a_rank_that_gave_up_in_another_group_is_not_to_blame(lost):
    mine, other, propagator = dist.HashStore(), dist.HashStore(), BlamePropagator()
    boards = [board(store, 0, propagator) for store in (mine, other)]
    propagator.say(blame(7, "died"), final=True)
    propagator.say(blame(0, "aborted the group"), final=True)

    for store in (mine, other):
        assert board(store, 1).culprit(0, blame(0, "left"), lost=lost) == blame(7, "died")
    assert len(boards) == 2  # a board that nobody has any more is not written on


def test_a_store_on_a_busy_host_is_waited_for():
    store = Busy(dist.HashStore(), delay_s=0.4)
    board(store, 0).tell(blame(2, "died"))

    assert board(store, 1).culprit(0, blame(0, "left"), lost=True) == blame(2, "died")


def test_ranks_that_wait_in_a_circle_blame_whom_they_wait_for():
    assert asked_at_once({0: 1, 1: 0}) == {0: blame(1), 1: blame(0)}


def test_a_circle_in_which_one_calls_something_else_is_told_of_by_the_rank_that_finds_it():
    store = dist.HashStore()
    board(store, 2).leave_word(Word(blame(3), final=False))  # it has heard whom rank 0 waits for
    differs = blame(3, f"{DISAGREE}rank 0 in gather with root 0; rank 3 in gather with root 1")
    finds = threading.Timer(0.1, board(store, 0).tell, (differs,))
    finds.start()

    assert board(store, 3).culprit(2, blame(2), lost=False) == differs
    finds.join()


def test_a_store_that_does_not_answer_keeps_nobody_from_naming():
    store = OutOfReach()

    hearsay = board(store, 0)
    hearsay.tell(blame(1))

    assert hearsay.culprit(2, blame(2), lost=False) == blame(2)
    store.end.set()


@pytest.mark.alone
def test_a_rank_of_little_patience_looks_no_longer_than_its_limit_whether_the_other_waits_itself():
    started = time.monotonic()
    assert board(dist.HashStore(), 0).culprit(1, blame(1), lost=False, limit_s=0.2) == blame(1)

    assert 0.2 <= time.monotonic() - started < WORD_S / 2


def test_a_rank_that_calls_something_else_is_told_from_one_that_is_late():
    store = dist.HashStore()
    board(store, 1).leave_calls({4: "barrier"})
    board(store, 1).leave_word(Word(blame(0), final=False))

    found = board(store, 0).culprit(1, blame(1), lost=False, differs=lambda calls: calls[4])

    assert found == blame(1, "the ranks disagree: barrier")
