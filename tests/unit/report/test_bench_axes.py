"""The page of `bench`: its axes speak as its tables do."""

from meshwright.bench.fit import fit_sweep
from meshwright.bench.table import Row
from meshwright.report.document import Figure
from meshwright.report.pages.bench import bench_page


def figures(bytes_per_s: float) -> tuple[Figure, Figure]:
    """Return the figures of times and of rates from 1 KiB to 128 MiB, where a call takes 20 us and its bytes."""
    rows = [
        Row(collective="broadcast", backend="gloo", ranks=4, bytes=size, time_s=20e-6 + size / bytes_per_s)
        for size in (2**power for power in range(10, 28))
    ]
    page = bench_page([("broadcast", rows, fit_sweep(rows))], [])
    times, rates = (block for block in page.sections[0].blocks if isinstance(block, Figure))
    return times, rates


def test_ticks_of_time_change_their_unit_as_the_table_does() -> None:
    times, _ = figures(bytes_per_s=1e9)
    axis = times.layout["yaxis"]
    assert axis["ticktext"] == ["10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]
    assert min(times.traces[0]["y"]) >= axis["tickvals"][0]
    assert max(times.traces[0]["y"]) <= axis["tickvals"][-1]


def test_ticks_of_rates_and_of_sizes_are_printed_as_in_the_table() -> None:
    _, rates = figures(bytes_per_s=2.5e8)
    texts = ["0.01 GB/s", "0.02 GB/s", "0.05 GB/s", "0.1 GB/s", "0.2 GB/s", "0.5 GB/s", "1 GB/s", "2 GB/s", "5 GB/s"]
    assert rates.layout["yaxis"]["ticktext"] == texts
    assert rates.layout["xaxis"]["ticktext"][:2] == ["1 KiB", "4 KiB"]


def test_a_size_that_the_fit_leaves_out_looks_different_in_both_figures() -> None:
    rows = [
        Row(collective="broadcast", backend="gloo", ranks=4, bytes=size, time_s=slow * (20e-6 + size / 1e9))
        for size, slow in ((2**power, 9 if power == 14 else 1) for power in range(10, 28))
    ]
    page = bench_page([("broadcast", rows, fit_sweep(rows))], [])

    for figure in (block for block in page.sections[0].blocks if isinstance(block, Figure)):
        (crosses,) = (trace for trace in figure.traces if trace["name"] == "broadcast, left out of the fit")
        assert crosses["x"] == [2**14]
        assert crosses["marker"]["symbol"] == "x-thin-open"
        assert 2**14 not in figure.traces[0]["x"]
