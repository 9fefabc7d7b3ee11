"""Emulated links against what was asked: a plain TCP transfer and Gloo's all-reduce, 10 Mb/s to 5 Gb/s.

`python -m benchmarks emulate_rates [RATE ...]`; needs root or user namespaces. The peer is the asked rate itself.
"""

import sys
import time
from pathlib import Path

from benchmarks.result import Result
from meshwright.cluster.emulation import Emulation, EmulationSpec
from meshwright.errors import MeshwrightError
from meshwright.units import format_network_rate, parse_rate

RATES = ("10Mbps", "100Mbps", "1Gbps", "2.5Gbps", "5Gbps")
SECONDS = 2.0  # of payload at the asked rate in one transfer
_TESTS = Path(__file__).parents[1] / "tests"
_TCP, _GLOO = _TESTS / "tcp_rate.py", _TESTS / "multiproc" / "programs" / "gloo_rate.py"


def run(arguments: list[str]) -> Result:
    """Measure each rate, then a fat-tree with oversubscription 2."""
    rows = []
    for text in arguments or RATES:
        rate = parse_rate(text)
        began = time.monotonic()
        with Emulation(EmulationSpec(nodes=2, nic_bytes_per_s=rate)) as cluster:
            ready_s = time.monotonic() - began
            (tcp,) = _transfers(cluster, [(0, 1)], rate * SECONDS)
            gloo = cluster.start_ranks([sys.executable, str(_GLOO), str(int(rate * SECONDS / 4))])
            gloo.wait(timeout_s=120)
            rows.append(_row("star, 2 nodes", rate, ready_s, tcp, float(gloo.stdout(0))))
    rate = parse_rate("400Mbps")
    wanted = EmulationSpec(nodes=4, nic_bytes_per_s=rate, topology="fat-tree", oversubscription=2)
    began = time.monotonic()
    with Emulation(wanted) as cluster:
        ready_s = time.monotonic() - began
        crossing = _transfers(cluster, [(0, 2), (1, 3)], rate * SECONDS / 2)
        local = _transfers(cluster, [(0, 1), (2, 3)], rate * SECONDS)
        rows.append(_row("fat-tree 2:1, two crossing", rate / 2, ready_s, sum(crossing) / 2, None))
        rows.append(_row("fat-tree 2:1, two inside leaves", rate, ready_s, sum(local) / 2, None))
    notes = [
        "share = measured payload over the asked rate of the link, headers included (MTU 9000: 0.992 at best)",
        "Gloo: bus bandwidth of all_reduce as nccl-tests define it; all nodes share the cores of this machine",
    ]
    return Result("Emulated links: measured over asked", rows, notes)


def _row(what: str, rate: float, ready_s: float, tcp: float, gloo: float | None) -> dict[str, object]:
    gloo_share = "" if gloo is None else f"{gloo / rate:.3f}"
    asked = format_network_rate(rate)
    return {"cluster": what, "asked": asked, "ready s": ready_s, "TCP share": tcp / rate, "Gloo share": gloo_share}


def _transfers(cluster: Emulation, pairs: list[tuple[int, int]], size_bytes: float) -> list[float]:
    """Return the rates of plain TCP transfers that run at the same time."""
    arriving = []
    for index, (sender, receiver) in enumerate(pairs):
        port = str(5001 + index)
        arriving.append(cluster.start_on(receiver, [sys.executable, str(_TCP), "receive", port]))
        target = [cluster.address(receiver), port, str(int(size_bytes))]
        cluster.start_on(sender, [sys.executable, str(_TCP), "send", *target])
    for job in arriving:
        if job.wait(timeout_s=120) != (0,):
            raise MeshwrightError(f"the transfer failed: {job.stderr(0)}")
    return [float(job.stdout(0)) for job in arriving]
