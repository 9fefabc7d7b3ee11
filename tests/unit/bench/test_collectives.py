import numpy as np
import pytest

from meshwright.bench.collectives import SMALL_BYTES, Cost, blocking_fits, fit_collective, fit_names, fit_sizes

SIZES = [64, 4096, 65536, 2**20, 2**22]


def test_an_exact_line_is_found():
    found = fit_collective("all_reduce", "gloo", 2, SIZES, [1e-4 + 2e-9 * size for size in SIZES], 0.5)

    assert (found.alpha_s, found.beta_s_per_byte) == (pytest.approx(1e-4), pytest.approx(2e-9))
    assert found.residual < 1e-9
    assert (found.min_bytes, found.max_bytes, found.busy_share) == (64, 2**22, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_no_fit_is_beaten_by_a_neighbour_and_none_is_negative(seed):
    rng = np.random.default_rng(seed)
    sizes = np.array(SIZES)
    times = rng.uniform(1e-5, 1e-3, len(SIZES))
    found = fit_collective("all_reduce", "gloo", 2, SIZES, list(times), 0.0)

    def loss(alpha, beta):
        return (((alpha + beta * sizes) / times - 1) ** 2).sum()

    best = loss(found.alpha_s, found.beta_s_per_byte)
    assert found.alpha_s >= 0
    assert found.beta_s_per_byte >= 0
    for alpha in (0.9, 1.0, 1.1):
        for beta in (0.9, 1.0, 1.1):
            assert best <= loss(found.alpha_s * alpha, found.beta_s_per_byte * beta) + 1e-9


def test_small_and_large_messages_are_fitted_apart():
    times = [1e-4 if size < SMALL_BYTES else 5e-4 + size * 1e-9 for size in SIZES]
    small, large = fit_sizes("all_reduce", "gloo", 2, SIZES, times, [0.5] * len(SIZES))

    assert (small.max_bytes, large.min_bytes) == (SMALL_BYTES, SMALL_BYTES)
    assert large.residual < 1e-6


def cost(added_s, worked_s, in_a_row_s, in_a_row_worked_s):
    return Cost(added_s, worked_s, in_a_row_s, in_a_row_worked_s, computed_s=10.0)


@pytest.mark.parametrize(
    ("taken", "blocked_s", "hides"),
    [
        (cost(5.0, 5.0, 4.0, 4.0), 5.0, 0.0),  # all of it is work, and more so after computation
        (cost(15.0, 1.0, 20.0, 1.0), 20.0, 0.5),  # half of the computation before went on while the link was busy
        (cost(2.0, 1.0, 8.0, 1.0), 8.0, 0.75),  # of a call shorter than that, three quarters
        (cost(0.0, 0.0, 8.0, 1.0), 8.0, 1.0),
        (cost(0.0, 0.0, 30.0, 1.0), 30.0, 1.0),  # never more than there is, which no reader of the figure takes
    ],
)
def test_a_call_hides_what_it_takes_less_beside_computation(taken, blocked_s, hides):
    assert (taken.blocked_s, taken.hides) == (blocked_s, hides)


@pytest.mark.parametrize(("in_a_row_s", "worked_s", "link_s"), [(5.0, 3.0, 4.0), (5.0, 0.0, 5.0), (5.0, 5.0, 1e-6)])
def test_messages_in_a_row_occupy_their_link_beside_the_processors(in_a_row_s, worked_s, link_s):
    assert cost(9.0, 9.0, in_a_row_s, worked_s).on_link_s == pytest.approx(link_s)


def test_messages_have_a_fit_of_their_work_and_one_of_their_time_on_the_link_exact_at_the_sizes_measured():
    work_s = [1e-3, 3e-3, 2e-3, 9e-3, 10e-3]
    costs = [cost(1.0, s, 5 * s, 4 * s) for s in work_s]

    fits = blocking_fits("send_recv", "gloo", 2, SIZES, costs)

    of_work, on_link = ([fit for fit in fits if fit.collective == name] for name in fit_names("send_recv"))
    assert len(of_work) + len(on_link) == len(fits)
    for size, expected_s in zip(SIZES, work_s, strict=True):
        assert [fit.time_s(size) for fit in of_work] == pytest.approx([expected_s] * len(of_work))
        assert [fit.time_s(size) for fit in on_link] == pytest.approx([3 * expected_s] * len(on_link))


def test_a_collective_that_is_waited_for_has_fits_of_how_long_and_of_what_it_hides():
    costs = [cost(1e-3, 1e-3, 2e-3, 1e-3)] * len(SIZES)

    fits = blocking_fits("all_gather", "gloo", 2, SIZES, costs)

    assert {(fit.collective,) for fit in fits} == {fit_names("all_gather")}
    assert [fit.time_s(SMALL_BYTES) for fit in fits] == pytest.approx([2e-3] * 2)
    assert [fit.hides for fit in fits] == [0.5] * 2
