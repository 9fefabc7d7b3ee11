"""Every kind of page and picture that Meshwright draws, made from files alone: nothing is trained or measured."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from meshwright import cli
from meshwright.bench.fit import fit_sweep
from meshwright.bench.plot import plot_svg
from meshwright.bench.table import Row
from meshwright.cluster.builders import node_group
from meshwright.cluster.drawing.svg import cluster_svg
from meshwright.cluster.expand import expanded
from meshwright.cluster.graph import Cluster, Device, Link
from meshwright.hardware import load_catalogue
from meshwright.report.page import write_page
from meshwright.report.pages.bench import bench_page
from meshwright.report.pages.run import report
from testkit.runs import fake_run

UNIT = Path(__file__).parents[1] / "unit"
PLAN = ("plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "256", "--global-batch", "2048")
SMALL = ("plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "64")
VIEWS_OF_ALL = {  # width of the window, and whether the system is dark
    "light": (1280, False),
    "dark": (1280, True),
    "phone": (390, False),
    "phone-dark": (390, True),
}


def pages(folder: Path) -> Iterator[Path]:
    """Write the pages of a run, of two runs, of a plan, a bench, a trace and a hang."""
    first, second = fake_run(folder / "run", ranks=8, steps=400), fake_run(folder / "second", ranks=8, seed=1)
    for run in (first, second):
        report(run)
    yield first.report
    yield command(folder / "two.html", "report", str(first.path), str(second.path), "--output")
    yield command(folder / "plan.html", *PLAN, "--layout", "tp=8,pp=4,sp=1,mbs=1", "--html")
    yield command(folder / "trace.html", "report", str(UNIT / "traces" / "data" / "t07_culprit"), "--output")
    logs = UNIT / "postmortem" / "cases" / "logs" / "xid"
    yield command(folder / "hang.html", "doctor", "--logs", str(logs), "--html", code=1)
    rows = [row(2**power) for power in range(10, 28)]
    page = bench_page([("all_reduce", rows, fit_sweep(rows))], ["all_reduce: a verdict"])
    write_page(folder / "bench.html", page)
    yield folder / "bench.html"


def drawings(folder: Path) -> Iterator[Path]:
    """Write the SVG files of topologies, schedules, a step's operators, and a bench."""
    for name, text in machines().items():
        (folder / f"topo-{name}.svg").write_text(text)
        yield folder / f"topo-{name}.svg"
    for name, ranks in (("ring", "4"), ("tree", "16"), ("one_shot", "8")):
        yield command(folder / f"schedule-{name}.svg", "collectives", "draw", name, "--ranks", ranks, "--svg")
    yield command(folder / "graph.svg", *SMALL, "--layout", "tp=2,pp=4,sp=1,mbs=1", "--graph")
    rows = [row(2**power) for power in range(10, 28)]
    (folder / "bench.svg").write_text(plot_svg([("all_reduce", rows, fit_sweep(rows))]))
    yield folder / "bench.svg"


def command(path: Path, *words: str, code: int = 0) -> Path:
    """Run a command that writes `path`, the value of its last option, and return the path; it exits with `code`."""
    assert cli.run_command([*words, str(path)]) == code
    return path


def row(size: int) -> Row:
    """Return one size of a sweep with a spread, one of them a glitch."""
    time_s = (50e-6 + size / 8e9) * (9 if size == 2**14 else 1)
    return Row(
        collective="all_reduce", backend="meshwright", ranks=4, bytes=size, time_s=time_s, low_s=0.8 * time_s,
        high_s=1.5 * time_s, wrong=0,
    )  # fmt: skip


def machines() -> dict[str, str]:
    """Return drawings of one node: of a few types of the catalogue, and of one with a GPU that has lost two links."""
    catalogue = load_catalogue()
    found = {}
    for name in ("dgx-h100", "dgx-a100-80g", "aws-p4d"):
        found[name] = cluster_svg(expanded(Cluster(name=name, groups=(node_group(catalogue, name),))))
    gpus = tuple(Device(id=f"GPU{i}", kind="gpu", node="host", numa=i // 4) for i in range(8))
    links = tuple(
        Link(a=f"GPU{a}", b=f"GPU{b}", kind="NV16" if 3 in (a, b) else "NV18", bandwidth_bytes_per_s=None)
        for a, b in itertools.combinations(range(8), 2)
    )
    return found | {"two-links-down": cluster_svg(Cluster(name="two links down", devices=gpus, links=links))}
