import math

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from benchmarks.published_sweeps import A100, SWEEPS, collective_tables, rows_of, sweeps, told
from meshwright.bench.fit import clean_sweep, fit_curve, fit_sweep, left_out_errors
from meshwright.bench.reading import load_tables
from meshwright.cluster.curve import LinksCurve, MemoryCurve
from meshwright.errors import InputError


def test_the_a100_table_is_followed_within_15_percent_at_every_size_by_five_constants():
    fit = fit_sweep(rows_of(A100))

    constants = [value for value in to_builtins(fit.curve).values() if isinstance(value, float)]
    assert len(constants) == 5
    assert clean_sweep(rows_of(A100)).outliers == ()
    assert max(abs(fit.curve.time_s(size) / us * 1e6 - 1) for size, us in A100.items()) < 0.15
    assert fit.residual > 0.15  # a straight line does not


@pytest.mark.parametrize("name", SWEEPS)
def test_published_sweeps_are_followed_within_15_percent_but_for_named_glitches(name):
    rows = load_tables(str(collective_tables()))[name]
    sweep = clean_sweep(rows)

    fit = fit_sweep(rows)
    assert len(rows) >= 10
    assert fit.curve_residual < 0.15
    assert len(sweep.outliers) <= 2
    assert told(name)["named_glitches"] == len(sweep.outliers)
    assert told(name)["curve_error_percent"] == pytest.approx(100 * fit.curve_residual, abs=0.3)
    assert told(name)["line_error_percent"] == pytest.approx(100 * fit.residual, abs=0.3)
    for glitch in sweep.outliers:  # each took a third longer than some larger message
        assert any(row.bytes > glitch.bytes and row.time_s < glitch.time_s / 1.35 for row in rows)


def test_no_other_published_sweep_has_ten_sizes():
    tables = load_tables(str(collective_tables()))
    long = {name for name, rows in tables.items() if len({row.bytes for row in rows}) >= 10}

    assert long == set(SWEEPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if at % 3 else name for at, name in enumerate(sorted(sweeps()))]
)
def test_each_size_of_a_published_sweep_is_predicted_within_20_percent_from_the_others(name):
    rows = sweeps()[name]

    errors = left_out_errors(rows)

    assert max(map(abs, errors.values())) < 0.20
    assert told(name)["left_out_error_percent"] == pytest.approx(100 * max(map(abs, errors.values())), abs=0.3)


def sweep_of(times_s):
    kind = {"collective": "all_reduce", "backend": "meshwright", "ranks": 2}
    first = replace(rows_of(A100)[0], **kind)
    return [replace(first, bytes=size, time_s=time_s) for size, time_s in times_s.items()]


def test_between_the_sizes_of_a_sweep_that_no_curve_follows_times_are_interpolated():
    jumps = {2**k: 8.0 ** (k // 4) * 1e-6 for k in range(12, 24)}  # a step up at every fourth size
    fit = fit_sweep([*sweep_of(jumps), *sweep_of({2**15: jumps[2**15]})])

    assert fit.curve_residual > 0.08
    assert [fit.time_s(size) for size in jumps] == pytest.approx(list(jumps.values()))
    assert fit.time_s(3 * 2**13) == pytest.approx(jumps[2**14] * 1.5 ** math.log2(jumps[2**15] / jumps[2**14]))
    assert fit.time_s(2**30) == fit.curve.time_s(2**30)  # beyond what was measured


def test_a_sweep_that_a_curve_follows_keeps_no_points():
    truth = LinksCurve(small_s=40e-6, small_power=0.1, middle_s=50e-6, middle_power=0.6, bandwidth_bytes_per_s=1e11)

    assert fit_sweep(sweep_of({2**k: truth.time_s(2**k) for k in range(10, 30)})).points == ()


def test_a_curve_is_recovered_from_its_own_points():
    truth = LinksCurve(small_s=40e-6, small_power=0.1, middle_s=50e-6, middle_power=0.6, bandwidth_bytes_per_s=1e11)
    sizes = [2**k for k in range(10, 34)]

    found = fit_curve(sizes, [truth.time_s(size) for size in sizes])

    for size in sizes:
        assert found.time_s(size) == pytest.approx(truth.time_s(size), rel=0.05)
    assert found.bandwidth_bytes_per_s == pytest.approx(1e11, rel=0.05)


def test_a_fall_out_of_the_caches_is_followed_too():
    truth = MemoryCurve(start_s=12e-6, small_s=60e-6, small_power=0.9, bandwidth_bytes_per_s=6e9, knee_bytes=6e6)
    sizes = [2**k for k in range(10, 26)]

    found = fit_curve(sizes, [truth.time_s(size) for size in sizes])

    assert found.knee_bytes == pytest.approx(6e6, rel=0.2)
    for size in sizes:
        assert found.time_s(size) == pytest.approx(truth.time_s(size), rel=0.03)


def test_alpha_and_beta_of_a_straight_line_lie_in_their_bands():
    fit = fit_sweep(rows_of({2**k: 50 + 2**k / 1e4 for k in range(10, 28)}))

    assert fit.alpha_s == pytest.approx(50e-6, rel=1e-3)
    assert fit.beta_s_per_byte == pytest.approx(1e-10, rel=1e-3)
    assert fit.alpha_band_s[0] <= fit.alpha_s * 1.001
    assert fit.beta_band_s_per_byte[1] >= fit.beta_s_per_byte * 0.999
    assert fit.crossover_bytes == pytest.approx(500_000, rel=0.01)


def test_noise_widens_the_bands():
    import random

    rng = random.Random(1)
    noisy = rows_of({2**k: (50 + 2**k / 1e4) * rng.uniform(0.8, 1.2) for k in range(10, 28)})
    low, high = fit_sweep(noisy).beta_band_s_per_byte

    assert low < 1e-10 < high
    assert high / low > 1.03


def test_a_short_sweep_gets_a_line_and_no_curve():
    fit = fit_sweep(rows_of({1024: 10, 2048: 20, 4096: 40}))

    assert fit.curve is None
    assert fit.time_s(3072) == pytest.approx(30e-6, rel=0.01)


def test_a_glitch_is_left_out_and_named():
    sweep = clean_sweep(rows_of({8: 13, 16: 13, 32: 68, 64: 14, 128: 15}))

    assert [row.bytes for row in sweep.outliers] == [32]
    assert sweep.sizes_bytes == (8, 16, 64, 128)


@pytest.mark.parametrize("times", [{1024: 10.0}, {}])
def test_too_few_sizes_are_refused(times):
    with pytest.raises(InputError):
        fit_sweep(rows_of(times))


def test_rows_of_two_kinds_are_not_fitted_together():
    with pytest.raises(InputError, match="2 kinds"):
        fit_sweep(rows_of({1024: 10, 2048: 20}) + rows_of({4096: 30}, ranks=4))
