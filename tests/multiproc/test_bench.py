import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from meshwright.bench.reading import read_tables
from meshwright.bench.sweep import COLLECTIVES, make_call
from meshwright.cli import run_command
from meshwright.cluster.graph import Cluster
from meshwright.files import read_struct

BACKENDS = ["gloo", "meshwright"]


def has(backend: str) -> bool:
    import meshwright  # noqa: F401  # registers its backend

    return backend in dist.Backend.backend_list


def needs(backend: str) -> None:
    if not has(backend):
        pytest.skip(f"the backend {backend} is not in this tree")


def wrong_elements(rank: int, world_size: int, store: Any, backend: str, sizes: tuple[int, ...]) -> dict[str, int]:
    """Run every collective once at each size; return how many elements were wrong."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    wrong = {}
    for name in COLLECTIVES:
        for size in sizes:
            call = make_call(name, size, torch.float32, torch.device("cpu"))
            call.fill()
            call.run()
            wrong[f"{name} {size}"] = call.wrong()
    return wrong


def wrong_sums(rank: int, world_size: int, store: Any, dtype: torch.dtype) -> dict[str, int]:
    """Run every collective that sums, over Gloo; return how many elements were wrong."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    wrong = {}
    for name in ("all_reduce", "reduce", "reduce_scatter"):
        call = make_call(name, 4096, dtype, torch.device("cpu"))
        call.fill()
        call.run()
        wrong[name] = call.wrong()
    return wrong


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_right_sums_in_a_type_of_few_bits_are_not_counted_as_wrong(rank_pool, dtype):
    assert rank_pool(4).run(wrong_sums, dtype) == [{"all_reduce": 0, "reduce": 0, "reduce_scatter": 0}] * 4


def spoiled(rank: int, world_size: int, store: Any, name: str) -> int:
    """Run a collective, then change one element of its output on every rank; return what the check counts."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    call = make_call(name, 4096, torch.float32, torch.device("cpu"))
    call.fill()
    call.run()
    closure = [cell.cell_contents for cell in call.wrong.__closure__]
    output = next(c for c in closure if isinstance(c, torch.Tensor) and c.data_ptr() in _written(call))
    output[0] += 1
    return call.wrong()


def _written(call: Any) -> set[int]:
    """Return the addresses of the tensors that the call fills anew."""
    return {c.cell_contents.data_ptr() for c in call.fill.__closure__ if isinstance(c.cell_contents, torch.Tensor)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_gives_what_the_check_expects(rank_pool, backend, ranks):
    needs(backend)
    for wrong in rank_pool(ranks).run(wrong_elements, backend, (4, 1000, 65536)):
        assert set(wrong.values()) == {0}, wrong


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_one_wrong_element_is_counted(rank_pool, name):
    assert rank_pool(2).run(spoiled, name) == [1, 1]


def test_the_command_prints_one_json_object_a_size(capsys):
    assert run_command(["bench", "all_reduce", "--min", "1K", "--max", "4K", "--time", "0.02", "--json"]) == 0
    out = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [(item["bytes"], item["ranks"], item["wrong"]) for item in out] == [(1024, 2, 0), (2048, 2, 0), (4096, 2, 0)]
    assert all(item["busbw_GBps"] == pytest.approx(item["algbw_GBps"]) for item in out)
    assert all(item["time_us_p10"] <= item["time_us"] <= item["time_us_p90"] for item in out)


def test_fits_are_saved_into_a_cluster_that_the_planner_reads(tmp_path, capsys):
    path, plot, page = tmp_path / "cluster.json", tmp_path / "plot.svg", tmp_path / "page.html"
    arguments = ["all_reduce", "broadcast", "--min", "1K", "--max", "64K", "--factor", "4", "--time", "0.02"]

    assert run_command(["bench", *arguments, "--save", str(path), "--plot", str(plot), "--html", str(page)]) == 0
    text = capsys.readouterr().out
    cluster = read_struct(path, Cluster)

    assert {(fit.collective, fit.backend, fit.ranks) for fit in cluster.measured.collectives} == {
        ("all_reduce", "gloo", 2),
        ("broadcast", "gloo", 2),
    }
    assert cluster.hosts
    assert "verdict" in text
    drawn = plot.read_text()
    assert drawn.count("<circle") + drawn.count("l8,8m0,-8l-8,8") == 8  # a cross where a size is left out of the fit
    assert json.loads(page.with_suffix(".json").read_text())["kind"] == "bench"
    assert "Bus bandwidth over size" in page.read_text()
    (tmp_path / "out.txt").write_text(text)
    found = read_tables(str(tmp_path / "out.txt"))
    assert [(table.collective, table.ranks, len(table.rows)) for table in found] == [
        ("all_reduce", 2, 4),
        ("broadcast", 2, 4),
    ]


def test_pairs_are_saved_as_alpha_and_beta_of_a_message(tmp_path, capsys):
    path = tmp_path / "cluster.json"

    assert run_command(["bench", "p2p", "--max", "64K", "--save", str(path), "--json"]) == 0
    latencies = [json.loads(line)["latency_s"] for line in capsys.readouterr().out.splitlines()]
    (fit,) = read_struct(path, Cluster).measured.collectives

    assert (fit.collective, fit.ranks) == ("send", 2)
    assert min(latencies) <= fit.alpha_s <= max(latencies)
    assert fit.beta_band_s_per_byte[0] <= fit.beta_s_per_byte <= fit.beta_band_s_per_byte[1]


def test_a_second_bench_adds_to_the_file(tmp_path):
    path = tmp_path / "cluster.json"
    for name in ("all_reduce", "all_gather"):
        assert (
            run_command(
                ["bench", name, "--min", "1K", "--max", "1M", "--factor", "32", "--time", "0.02", "--save", str(path)]
            )
            == 0
        )

    assert len(read_struct(path, Cluster).measured.collectives) == 2


@pytest.mark.parametrize("what", ["p2p", "latency", "memory"])
def test_the_other_measurements_print_objects_and_a_verdict(what, capsys):
    assert run_command(["bench", what, "--max", "64K", "--json"]) == 0
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]

    assert "verdict" in captured.err
    if what == "p2p":
        assert {(item["a"], item["b"]) for item in found} == {(0, 1), (1, 0)}
        assert all(item["latency_s"] > 0 for item in found)
    else:
        assert found


@pytest.mark.parametrize(
    "arguments",
    [
        ["all_redcue"],
        ["--backend", "nvshmem"],
        ["--backend", "nccl", "--ranks", "4096"],
        ["--ranks", "0"],
        ["--min", "1M", "--max", "1K"],
        ["p2p", "--ranks", "1"],
        ["p2p", "all_reduce"],
        ["memory", "--save", "cluster.json"],
        ["--min", "1K", "--max", "1K", "--time", "0.02", "--save", "cluster.json"],
        ["--from", "/no/such/table"],
        ["--node", "dgx-h10", "--from", "/no/such/table"],
    ],
)
def test_bad_arguments_leave_with_two_and_one_line(arguments, capsys):
    assert run_command(["bench", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_it_runs_under_torchrun(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m"]
    command += ["meshwright", "--", "bench", "--min", "1K", "--max", "4K", "--time", "0.02", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=dict(os.environ), check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(item["bytes"], item["ranks"]) for item in found] == [(1024, 2), (2048, 2), (4096, 2)]


@pytest.mark.slow
def test_a_bench_that_is_ended_by_sigterm_leaves_nothing_behind():
    words = [sys.executable, "-m", "meshwright", "bench", "--ranks", "2", "--min", "32M", "--max", "512M"]
    words += ["--time", "20"]  # large ones, whose repeats take many seconds on the fastest machine
    with (
        tempfile.TemporaryDirectory() as folder,  # tmp_path may be too long for a socket in it
        subprocess.Popen(words, env=os.environ | {"TMPDIR": folder}, stderr=subprocess.PIPE) as bench,
    ):
        while not os.listdir(folder):  # the ranks' listener is there
            assert bench.poll() is None
            time.sleep(0.05)
        time.sleep(3)
        bench.terminate()

        assert bench.wait(timeout=200) == 143
        assert bench.stderr.read() == b""
        assert os.listdir(folder) == []
