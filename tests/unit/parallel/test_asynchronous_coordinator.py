"""The coordinator by itself: who may start, with requests that a test makes in an order of its own."""

from meshwright.parallel.asynchronous.coordinator import Coordinator, RunTerms
from meshwright.parallel.asynchronous.members import Members
from meshwright.parallel.asynchronous.messages import Contribute, Join, LeaseRequest

WORKERS = 4


class NoWeights:
    """Servers that take everything and hold nothing."""

    fragments = 1

    def apply(self, fragment, keys, weights, *, rate, max_norm=0.0):
        return 0.0


class Played:
    """A run whose workers do what the test says."""

    def __init__(self, staleness):
        self.rows = []
        terms = RunTerms(
            workers=WORKERS, steps=20, tokens_per_share=1, shares_per_lease=1, together=False, staleness=staleness,
            validate_every=100, checkpoint_every=0, silence_s=60.0, patience_s=60.0,
        )  # fmt: skip
        self.coordinator = Coordinator(
            terms, NoWeights(), first_step=0, rate=lambda step: 0.1, write=self.rows.append,
            save=lambda step: None, changed=lambda change: None,
        )  # fmt: skip
        self.members = [self.coordinator.answer(Join(rank, 1, "here")).member for rank in range(WORKERS)]
        self.leases = {}

    def begin(self, *ranks):
        for rank in ranks:
            self.leases[rank] = self.coordinator.answer(LeaseRequest(self.members[rank]))

    def end(self, *ranks):
        for rank in ranks:
            lease = self.leases.pop(rank)
            self.coordinator.answer(
                Contribute(self.members[rank], lease.position, lease.first, [1.0], tokens=1, norm=1.0, seconds=1.0)
            )


def test_nobody_starts_while_a_gradient_under_way_could_become_more_than_s_steps_of_updates_old():
    run = Played(staleness=1)
    run.begin(0, 1, 2, 3)
    run.end(0, 1, 2)
    run.begin(0)  # share 4, the first of step 1, with three updates in its weights: slow from here on
    run.begin(1, 2)
    run.end(3, 1, 2)
    run.begin(1, 2, 3)
    run.end(1, 2, 3)
    run.begin(1)
    run.end(1)

    assert run.coordinator._must_wait()  # one share more, and seven updates would have become eight, two steps
    run.end(0)
    assert not run.coordinator._must_wait()
    run.begin(1)
    run.end(1)  # the last of the row that share 4 counts in
    assert max(row["staleness_max"] for row in run.rows) == 1


class LetGoOnceSeen(Members):
    """Members of whom one is let go, by another thread, as soon as somebody has seen that it is in."""

    def __contains__(self, number):
        return self.leave(number) is not None


def test_a_heartbeat_of_a_worker_that_is_let_go_at_that_instant_is_no_error():
    run = Played(staleness=1)
    run.coordinator.members.__class__ = LetGoOnceSeen

    run.coordinator.beat(run.members[0])

    assert run.coordinator.problem is None
