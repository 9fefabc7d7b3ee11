import threading

import torch.distributed as dist

from meshwright.backend.hearsay import Hearsay


class OutOfReach:
    """A store beyond a cable that is out: no request comes back."""

    def __init__(self):
        self.end = threading.Event()

    def check(self, keys):
        self.end.wait()

    set = get = check


def asked_at_once(waits):
    """Let ranks look for the culprit at the same time, each waiting for another; return what each finds."""
    store, found = dist.HashStore(), {}

    def ask(rank, suspect):
        found[rank] = Hearsay(store, rank).culprit(suspect, "is late", lost=False)

    threads = [threading.Thread(target=ask, args=pair) for pair in waits.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_the_one_at_the_end_of_those_who_wait_is_to_blame():
    assert asked_at_once({0: 3, 1: 0, 2: 1}) == dict.fromkeys((0, 1, 2), (3, "is late"))


def test_a_word_that_somebody_left_counts_more_than_ones_own_view():
    store = dist.HashStore()
    Hearsay(store, 0).tell(2, "died")
    Hearsay(store, 3).tell(0, "left")

    assert Hearsay(store, 1).culprit(0, "is late", lost=False) == (2, "died")
    assert Hearsay(store, 1).culprit(0, "left", lost=True) == (2, "died")


def test_ranks_that_wait_in_a_circle_blame_whom_they_wait_for():
    assert asked_at_once({0: 1, 1: 0}) == {0: (1, "is late"), 1: (0, "is late")}


def test_a_store_that_does_not_answer_keeps_nobody_from_naming():
    store = OutOfReach()

    hearsay = Hearsay(store, 0)
    hearsay.tell(1, "is late")

    assert hearsay.culprit(2, "is late", lost=False) == (2, "is late")
    store.end.set()
