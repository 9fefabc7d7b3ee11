import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import units
from meshwright.errors import InputError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("512", 512), ("25MiB", 25 * 2**20), ("25 MiB", 25 * 2**20), ("1GB", 10**9), ("64K", 65536), ("1kB", 1000)],
)
def test_sizes_are_read_in_decimal_and_binary_units(text, size_bytes):
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        *(("400Gbps", 50e9), ("400 Gb/s", 50e9), ("50GB/s", 50e9), ("1Gbit/s", 125e6)),
        *(("25GbE", 3.125e9), ("100gbe", 12.5e9), ("400Gbit", 50e9)),
    ],
)
def test_rates_in_bits_and_in_bytes_differ_by_eight(text, bytes_per_s):
    assert units.parse_rate(text) == bytes_per_s


@pytest.mark.parametrize(("text", "time_s"), [("1.5us", 1.5e-6), ("20 ms", 0.02), ("3", 3.0)])
def test_times_are_seconds(text, time_s):
    assert units.parse_time(text) == pytest.approx(time_s)


@pytest.mark.parametrize(("text", "time_s"), [("5us", 5e-6), ("300 ns", 3e-7), ("0", 0.0), ("1s", 1.0)])
def test_latencies_are_times_with_a_unit(text, time_s):
    assert units.parse_latency(text) == pytest.approx(time_s)


@pytest.mark.parametrize("text", ["5", "0.5", "10 ", "5e-6"])
def test_a_latency_without_its_unit_is_refused(text):
    with pytest.raises(InputError, match="with its unit, such as 5us"):
        units.parse_latency(text)


@pytest.mark.parametrize(("text", "count"), [("2B", 2 * 10**9), ("13T", 13 * 10**12), ("350M", 350 * 10**6)])
def test_counts_have_decimal_prefixes(text, count):
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["", "fast", "12 parsecs", "-3Gbps", "0Gbps", "1e999999x"])
def test_what_is_no_rate_is_named(text):
    with pytest.raises(InputError, match=r"expected|must be"):
        units.parse_rate(text)


@given(st.integers(min_value=1, max_value=2**60))
def test_printed_sizes_parse_back_within_the_printed_digits(size_bytes):
    assert units.parse_bytes(units.format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.006, abs=0.5)


@pytest.mark.parametrize(
    ("time_s", "text"), [(0.9999e-3, "1 ms"), (0.99951, "1 s"), (0.9994e-3, "999 us"), (1.0, "1 s")]
)
def test_a_time_that_rounds_to_a_thousand_of_a_unit_is_one_of_the_next(time_s, text):
    assert units.format_time(time_s) == text


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "a"), (["a", "b"], "a; b"), (["a", "b", "c", "d"], "a; b and 2 more"), ([], "")]
)
def test_names_beyond_the_first_are_counted(names, text):
    assert units.first_few(names, 2, "; ") == text


def test_numbers_that_follow_one_another_stand_together():
    assert units.consecutive([5, 0, 2, 1]) == [[0, 1, 2], [5]]
    assert units.shortened([3, 4, 5, 6, 9, 10]) == "3-6, 9, 10"
