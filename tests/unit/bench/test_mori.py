"""Tables of MORI's benchmarks: units of sizes and rates, what several PEs add, what was skipped."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

OPTIONS = "# {name} scope={scope} grid={grid} block=256 warpSize=64 iters=10 warmup=5\n"
HEAD = "size(B)        scope        Bandwidth (GB)\n"


def test_sizes_with_a_prefix_are_in_steps_of_1024_and_rates_in_gigabytes():
    text = (
        "# p2p_get_bw unidirection transport=lsa scope=block grid=32 block=256 warpSize=64 units=32 iters=9 warmup=5\n"
        "size       msg        scope       Bandwidth GB/s        Mpps\n"
        "  8 B        0 B      block              skip\n"
        " 64 KB       2 KB     block             9.500 GB/s       4.639\n"
        "  2 MB      64 KB     block            44.250 GB/s       0.675\n"
    )
    (table,) = parse_tables(text, "t")

    assert (table.name, table.tool) == ("p2p_get_bw unidirection lsa block", "MORI")
    assert [(rate.bytes, rate.rate_bytes_per_s) for rate in table.rates] == [(2**16, 9.5e9), (2**21, 44.25e9)]


@pytest.mark.parametrize(
    ("name", "scope", "grid", "words"),
    [
        ("shmem_put_bw_uni", "block", 32, ""),
        ("shmem_put_bw_uni", "thread", 32, "single threads"),
        ("shmem_get_bw_uni", "block", 2, "2 thread blocks"),
        ("shmem_ring_put_bw", "block", 32, "the sum of the puts of 6 PEs"),
    ],
)
def test_a_rate_that_need_not_be_a_links_is_not_judged(name, scope, grid, words):
    ring = "# npes=6 ring -> (pe+1)%np ; aggregate BW = sum PE puts / max PE time\n" if "ring" in name else ""
    text = ring + OPTIONS.format(name=name, scope=scope, grid=grid) + HEAD + f"4194304  {scope}  48.500000\n"
    (table,) = parse_tables(text, "t")
    (verdict,) = judge(load_catalogue(), [table])

    assert table.rates[0].rate_bytes_per_s == 48.5e9
    assert words in table.unjudged
    assert bool(words) is bool(table.unjudged)
    assert verdict.ok is None


def test_both_directions_are_added_and_times_are_of_messages():
    both = OPTIONS.format(name="shmem_put_bw_bidi", scope="block", grid=32) + HEAD + "1048576  block  95.250000\n"
    times = (
        OPTIONS.format(name="shmem_put_latency_uni", scope="warp", grid=1)
        + "size       scope         Latency us\n  8 B      warp            1.250 us\n"
        "  2 KB     warp            2.500 us\n"
    )
    of_both, of_times = parse_tables(both + times, "t")

    assert of_both.both_ways
    assert [(row.bytes, row.time_s) for row in of_times.rows] == [
        (8, pytest.approx(1.25e-6)),
        (2048, pytest.approx(2.5e-6)),
    ]
    assert of_times.unjudged


def test_a_row_without_its_figure_is_refused():
    with pytest.raises(InputError, match="t:3: expected a size, a scope and a figure"):
        parse_tables(
            OPTIONS.format(name="shmem_put_bw_uni", scope="block", grid=8) + HEAD + "1048576  block  4x\n1 b 2", "t"
        )
