import numpy as np
import pytest

from meshwright.bench.collectives import SMALL_BYTES, fit, fit_sizes

SIZES = [64, 4096, 65536, 2**20, 2**22]


def test_an_exact_line_is_found():
    found = fit("all_reduce", "gloo", 2, SIZES, [1e-4 + 2e-9 * size for size in SIZES], 0.5)

    assert (found.alpha_s, found.beta_s_per_byte) == (pytest.approx(1e-4), pytest.approx(2e-9))
    assert found.residual < 1e-9
    assert (found.min_bytes, found.max_bytes, found.busy_share) == (64, 2**22, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_no_fit_is_beaten_by_a_neighbour_and_none_is_negative(seed):
    rng = np.random.default_rng(seed)
    sizes = np.array(SIZES)
    times = rng.uniform(1e-5, 1e-3, len(SIZES))
    found = fit("all_reduce", "gloo", 2, SIZES, list(times), 0.0)

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
