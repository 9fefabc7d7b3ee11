"""Parameter server and local SGD against synchronous training in one process, in float64."""

import time

import pytest
import torch

from tests.multiproc.asynchronous.harness import STEPS, WORKERS, Run, model, summed_loss, synchronous_losses


def adamw(module):
    return torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.1)


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1)


def averaging(module):
    return torch.optim.SGD(module.parameters(), lr=1.0)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(("optimizer", "max_norm"), [(sgd, 0.0), (adamw, 0.5)])
def test_staleness_zero_is_synchronous_training(optimizer, max_norm, servers):
    with Run(optimizer, servers=servers, max_grad_norm=max_norm) as run:
        for rank in range(WORKERS):
            run.start(rank)
        run.finish()

    assert run.losses() == pytest.approx(synchronous_losses(optimizer, max_norm=max_norm), rel=1e-10, abs=0)
    assert [row["staleness_max"] for row in run.rows] == [0] * STEPS
    assert all(row["ranks"] == [0, 1, 2, 3] for row in run.rows)


def test_local_sgd_with_one_plain_step_is_synchronous_training():
    with Run(averaging, rate=1.0, gradients=False) as run:
        for rank in range(WORKERS):
            run.start(rank)
        run.finish()

    assert run.losses() == pytest.approx(synchronous_losses(sgd), rel=1e-10, abs=0)


@pytest.mark.parametrize("staleness", [1, 4, None])
def test_a_slow_worker_is_left_behind_by_as_many_steps_as_allowed_and_no_more(staleness):
    with Run(sgd, together=False, staleness=staleness, steps=30) as run:
        slept = []

        def oversleep(share):
            """Wait until the others have gone as far ahead as they may, without a bound until they are far ahead."""
            if len(slept) < 2:
                slept.append(share)
                target, end = len(run.rows) + 10, time.monotonic() + 60
                while time.monotonic() < end:
                    if len(run.rows) >= target if staleness is None else run.only_one_works():
                        return
                    time.sleep(0.005)

        run.start(3, before_share=oversleep)
        for rank in range(3):
            run.start(rank)
        run.finish(timeout_s=200)

    stalest = max(row["staleness_max"] for row in run.rows)
    assert stalest == staleness if staleness else stalest > 4
    assert run.losses()[-1] < run.losses()[0]


def test_without_slow_workers_no_bound_is_ever_passed():
    with Run(sgd, together=False, staleness=2) as run:
        for rank in range(WORKERS):
            run.start(rank)
        run.finish()

    assert max(row["staleness_max"] for row in run.rows) <= 2
    assert max(row["delay_mean"] for row in run.rows) > 0


@pytest.mark.parametrize("wire", ["full", "bf16", "int8"])
@pytest.mark.parametrize("stream", [False, True])
def test_workers_end_with_the_weights_of_the_servers(wire, stream):
    """In parts, on the wire in few bits, while steps go on: nothing is lost between workers and servers."""
    with Run(
        averaging, servers=2, fragments=2, wire=wire, published=True, rate=1.0, gradients=False, shares_per_lease=3
    ) as run:
        for rank in range(WORKERS):
            run.start(rank, stream=stream)
        run.finish()

    assert len(run.rows) == STEPS
    assert sum(run.losses()[-5:]) / 5 < 0.5 * run.losses()[0]
    assert run.rows[-1]["validation_loss"] == pytest.approx(final_loss(run), rel=1e-12 if wire == "full" else 0.02)


def final_loss(run):
    """Return the held-out loss of the weights that the run has saved."""
    module, (_, state) = model(), run.saved[-1]
    module.load_state_dict({name: state[name] for name, _ in module.named_parameters()})
    return sum(summed_loss(module, 10_000 + i).item() for i in range(8))


def test_a_slow_worker_gets_shorter_leases():
    with Run(averaging, rate=1.0, gradients=False, shares_per_lease=6, adapt=True, steps=60) as run:
        for rank in range(3):
            run.start(rank, before_share=lambda share: time.sleep(0.004))
        slow = []
        run.start(3, before_share=lambda share: (slow.append(share), time.sleep(0.02)))
        run.finish()

    assert len(slow) < 45  # an even split would give it 60; it cannot be left with none
