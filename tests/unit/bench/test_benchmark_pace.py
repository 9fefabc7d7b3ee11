"""The benchmark of a machine's pace: what its rows say of samples."""

import pytest

from benchmarks.pace import row_of


def test_windows_compare_medians_of_ten_seconds_and_not_single_samples():
    steady = [(second, 1.0 if second % 5 else 3.0) for second in range(40)]
    assert row_of("sum", steady)["windows_percent"] == 0
    slower_later = [(second, 1.0 if second < 20 else 1.3) for second in range(40)]
    assert row_of("sum", slower_later)["windows_percent"] == pytest.approx(30)


def test_single_samples_show_in_the_spread():
    row = row_of("sum", [(0.1 * n, 1e-6 if n % 2 else 2e-6) for n in range(20)])
    assert row["p90_over_p10"] == pytest.approx(2)
    assert row["p10_us"] == pytest.approx(1)
