import threading
import time

import torch.distributed as dist

from meshwright.backend.hearsay import Hearsay


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


def asked_at_once(waits, later=None):
    """Let ranks look for the culprit at once, each waiting for another; `later`: one a second after the others."""
    store, found = dist.HashStore(), {}

    def ask(rank, suspect):
        time.sleep(1.0 if rank == later else 0.0)
        found[rank] = Hearsay(store, rank).culprit(suspect, "is late", lost=False)

    threads = [threading.Thread(target=ask, args=pair) for pair in waits.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_the_one_at_the_end_of_those_who_wait_is_to_blame():
    assert asked_at_once({0: 3, 1: 0, 2: 1}) == dict.fromkeys((0, 1, 2), (3, "is late"))


def test_a_rank_whose_patience_ends_later_is_not_to_blame_for_that():
    assert asked_at_once({0: 2, 1: 0}, later=0) == dict.fromkeys((0, 1), (2, "is late"))


def test_a_word_that_somebody_left_counts_more_than_ones_own_view():
    store = dist.HashStore()
    Hearsay(store, 0).tell(2, "died")
    Hearsay(store, 3).tell(0, "left")

    assert Hearsay(store, 1).culprit(0, "is late", lost=False) == (2, "died")
    assert Hearsay(store, 1).culprit(0, "left", lost=True) == (2, "died")


def test_a_store_on_a_busy_host_is_waited_for():
    store = Busy(dist.HashStore(), delay_s=0.4)
    Hearsay(store, 0).tell(2, "died")

    assert Hearsay(store, 1).culprit(0, "left", lost=True) == (2, "died")


def test_ranks_that_wait_in_a_circle_blame_whom_they_wait_for():
    assert asked_at_once({0: 1, 1: 0}) == {0: (1, "is late"), 1: (0, "is late")}


def test_a_store_that_does_not_answer_keeps_nobody_from_naming():
    store = OutOfReach()

    hearsay = Hearsay(store, 0)
    hearsay.tell(1, "is late")

    assert hearsay.culprit(2, "is late", lost=False) == (2, "is late")
    store.end.set()
