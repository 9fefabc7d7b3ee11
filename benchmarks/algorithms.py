"""All-reduce algorithms in a cluster in a box: measured times beside the priced ones.

Each rank is a node of its own behind a NIC of `--nic` (default 250Mbps: so slow that the links, not the cores which
emulate them, bound all but small messages); messages go over TCP. The network of the price is measured in the same
run, never with an all-reduce: latency (ping-pong of two ranks), what messages and ranks at once cost the machine that
emulates them, and what a call does beside them (other collectives of four bytes), rate (large messages from each rank
to the next), what passes a NIC unshaped after a pause, the rate of a reduction, and the time of a copy of four bytes.
Everything is measured in turns, pass after pass, so that a slow moment of the machine meets all ways and the network
alike; what counts is the median over passes.
"""

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result import Result

WAYS = ("parameter_server", "naive", "staggered", "partitioned", "ring", "halving_doubling", "tree", "hierarchical")
SIZES = tuple(2**exponent for exponent in (10, 14, 18, 20, 22, 24, 26))
PASSES = 5
TURNS = 3  # in a pass, of sizes of which many calls are timed together: ranks fall into step in one way or another
SMALL_BYTES = 2**18  # up to here a size is measured in every pass, above while its seconds last
CHECKED_BYTES = 2**22  # up to here a call whose result is checked comes first: after small messages windows are small
BUFFER_BYTES = 2**16  # of each connection, either end; with megabytes ranks run ahead of the rounds that are priced
PAUSE_S = 0.01  # after which a shaped link lets a burst pass again
BURST_BYTES = 2**16  # about what then passes: calls that send more wait for it, as their price supposes
IN_A_ROW = 20  # small calls timed together: clocks and barriers are rough
PATIENCE_S = 60.0  # a rank that hears nothing for so long says from whom
EMPTY = (  # calls without payload that tell what handling costs: no all-reduce, but they end where all have taken part
    *((("all_gather", name),) for name in ("ring", "direct", "doubling")),
    *((("reduce_scatter", name),) for name in ("ring", "direct", "halving")),
    *((("gather", name), ("scatter", name)) for name in ("linear", "binomial")),
)
CLEARLY = 1.15  # two priced or measured times that differ by more are ordered


def run(arguments: list[str]) -> Result:
    """Run every way at every size and rank count; return measured and priced times."""
    options = _options(arguments)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for ranks in options.ranks:
        report = emulated("benchmarks.algorithms", ranks, options.nic, [options.sizes, options.seconds])
        rows += _rows(ranks, report)
        network = {key: float(f"{value:.3g}") for key, value in report["network"].items()}
        notes.append(f"{ranks} ranks, measured beside them: {network}")
    notes += _judged(rows)
    if options.plot:
        from benchmarks.plots import log_log_svg

        Path(options.plot).write_text(_plotted(rows, max(options.ranks), log_log_svg))
        notes.append(f"plot: {options.plot}")
    return Result(f"all-reduce over TCP, every rank a node with a NIC of {options.nic}", rows, notes)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks algorithms", description=__doc__)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4, 8])
    parser.add_argument("--nic", default="250Mbps")
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on each way and size, at least one call")
    parser.add_argument("--plot", help="file for the picture (SVG)")
    return parser.parse_args(arguments)


def emulated(module: str, nodes: int, nic: str | None, arguments: list[Any], *, ranks_per_node: int = 1) -> Any:
    """Run `work` of a benchmark on every rank of an emulated cluster; return what rank 0 reports."""
    words = [sys.executable, "-m", "meshwright", "emulate", "--nodes", str(nodes), *(["--nic", nic] if nic else [])]
    words += ["--ranks-per-node", str(ranks_per_node), "--"]
    words += [sys.executable, "-m", module, json.dumps(arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    reports = [line.partition("REPORT ")[2] for line in done.stdout.splitlines() if "REPORT " in line]
    if done.returncode or not reports:
        raise SystemExit(f"the emulated ranks failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(reports[0])


def _rows(ranks: int, report: dict[str, Any]) -> list[dict[str, Any]]:
    import msgspec

    from meshwright.collectives.catalogue import build_schedule
    from meshwright.collectives.pricing.network import uniform
    from meshwright.collectives.pricing.price import PricedSchedule

    told = dict(report["network"])
    call_s = told.pop("call_s")
    network = uniform(ranks, **told)
    rows = []
    for name in WAYS:
        sizes = sorted(int(size) for size in report["times_s"][name])
        schedule = build_schedule("all_reduce", name, ranks)
        for size in sizes:
            times = calls_in_a_row(size)  # one begins where a rank has ended the one before: priced as it is measured
            repeated = msgspec.structs.replace(schedule, rounds=schedule.rounds * times)
            priced_s = call_s + PricedSchedule(repeated, network).times_s([size])[0] / times
            measured_s = report["times_s"][name][str(size)]
            rows.append(
                {
                    "ranks": ranks, "bytes": size, "algorithm": name, "measured_ms": measured_s * 1e3,
                    "priced_ms": float(priced_s) * 1e3, "error_percent": 100 * (float(priced_s) / measured_s - 1),
                }
            )  # fmt: skip
    return rows


def _judged(rows: list[dict[str, Any]]) -> list[str]:
    """Return how good the prices are: errors, and pairs of ways in the right order."""
    errors = sorted(abs(row["error_percent"]) for row in rows)
    within = sum(error < 20 for error in errors) / len(errors)
    right, wrong = 0, []
    for row in rows:
        for other in rows:
            same = (row["ranks"], row["bytes"]) == (other["ranks"], other["bytes"])
            if same and other["measured_ms"] > CLEARLY * row["measured_ms"]:
                if other["priced_ms"] > row["priced_ms"]:
                    right += 1
                else:
                    wrong.append(f"{row['algorithm']} before {other['algorithm']} ({row['ranks']} x {row['bytes']} B)")
    return [
        f"error of the price: median {statistics.median(errors):.0f} %, worst {errors[-1]:.0f} %, "
        f"{100 * within:.0f} % of the rows under 20 %",
        f"pairs that differ by over {100 * (CLEARLY - 1):.0f} %: {right} ordered right, {len(wrong)} wrong"
        + (f": {'; '.join(wrong[:6])}" if wrong else ""),
    ]


def _plotted(rows: list[dict[str, Any]], ranks: int, draw: Any) -> str:
    lines = {}
    for name in WAYS:
        mine = [row for row in rows if row["ranks"] == ranks and row["algorithm"] == name]
        lines[name] = [(row["bytes"], row["measured_ms"], row["priced_ms"]) for row in mine]
    svg: str = draw(f"all-reduce on {ranks} ranks: measured (dots) and priced (lines)", "bytes", "ms", lines)
    return svg


def work(sizes: list[int], seconds: float) -> None:
    """Measure on one rank of the emulated cluster; rank 0 prints the report."""
    executor = joined(BUFFER_BYTES)
    bench = Bench(executor)
    networks: list[dict[str, float]] = []
    smalls: list[list[float]] = []
    samples: dict[tuple[str, int], list[float]] = {(name, size): [] for size in sorted(sizes) for name in WAYS}
    for number in range(PASSES):
        networks.append(bench.network())
        first = number * len(WAYS) // PASSES  # another way in each pass: it meets ranks that have paused
        turns = [size for size in sorted(sizes) for _ in range(TURNS if calls_in_a_row(size) > 1 else 1)]
        for size in turns:
            if calls_in_a_row(size) > 1 or not smalls:
                smalls.append(bench.small())
            for name in WAYS[first:] + WAYS[:first]:
                found = samples[name, size]
                if not found or size <= SMALL_BYTES or sum(found) < seconds:
                    found.append(bench.all_reduce(name, size, seconds / PASSES))
    if executor.rank == 0:
        network = {key: statistics.median(each[key] for each in networks) for key in networks[0]}
        network |= bench.handling(*map(statistics.median, zip(*smalls, strict=True)))
        times = {name: {size: statistics.median(samples[name, size]) for size in sizes} for name in WAYS}
        print("REPORT " + json.dumps({"network": network, "times_s": times}), flush=True)
    bench.barrier()
    executor.transport.close()


def joined(buffer_bytes: int | None = None) -> Any:
    """Return the executor of this rank of an emulated cluster, over TCP, when all ranks are there.

    Rank 0 keeps the store until every rank has found its peers in it. `buffer_bytes` is what the kernel may hold of
    each connection, at either end; None leaves it to the kernel.
    """
    import torch
    import torch.distributed as dist

    from meshwright.backend.wire.executor import Executor
    from meshwright.backend.wire.transport_tcp import TcpTransport

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master = os.environ["MASTER_ADDR"]
    store = dist.TCPStore(
        master, int(os.environ["MASTER_PORT"]), ranks, is_master=rank == 0, timeout=timedelta(seconds=PATIENCE_S)
    )
    executor = Executor(TcpTransport(store, rank, ranks, address=_own_address(master), timeout_s=PATIENCE_S))
    for connection in executor.transport.connections.values() if buffer_bytes else ():
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
    Bench(executor).barrier()  # until then a slow rank asks rank 0's store for others
    return executor


def _own_address(master: str) -> str:
    """Return the address of this node on the network that reaches the master; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))
        address: str = probe.getsockname()[0]
        return address


def calls_in_a_row(size_bytes: int) -> int:
    """Return how many calls of one size are timed together."""
    return IN_A_ROW if size_bytes <= 2**14 else 1


def _handling(latency_s: float, calls: list[tuple[list[Any], float]]) -> dict[str, float]:
    """Return what a call, and further messages and ranks of a round, cost beside latency: by relative least squares.

    `calls` are schedules without payload and their seconds. None of the costs is negative.
    """
    names = ("call_s", "crowding_s", "turn_s", "message_s")
    further = np.array([np.sum([_counts(schedule) for schedule in each], axis=0) for each, _ in calls], dtype=float)
    taken = np.array([seconds for _, seconds in calls])
    spent = latency_s * np.array([sum(len(schedule.rounds) for schedule in each) for each, _ in calls])
    weighted, wanted, best = further / taken[:, None], 1 - spent / taken, np.zeros(len(names))
    for count in range(1, len(names) + 1):  # of all choices of costs that are not 0, the best one without a negative
        for chosen in itertools.combinations(range(len(names)), count):
            costs = np.zeros(len(names))
            costs[list(chosen)] = np.linalg.lstsq(weighted[:, chosen], wanted, rcond=None)[0]
            off = [float(np.square(weighted @ each - wanted).sum()) for each in (costs, best)]
            if (costs >= 0).all() and off[0] < off[1]:
                best = costs
    return dict(zip(names, map(float, best), strict=True))


def _counts(schedule: Any) -> tuple[int, int, int, int]:
    """Return how often each cost of `_handling` occurs in a call: as `price` counts them, round by round."""
    crowding = turns = further = 0
    for transfers in schedule.rounds:
        out, into = Counter(t.src for t in transfers), Counter(t.dst for t in transfers)
        crowding += len(transfers) - 1
        turns += len(out.keys() | into.keys()) - 2
        further += max(out.most_common(1)[0][1], into.most_common(1)[0][1]) - 1
    return 1, crowding, turns, further


class Bench:
    """Timed operations of one rank; every rank calls the same ones."""

    def __init__(self, executor: Any) -> None:
        from meshwright.collectives.catalogue import build_schedule

        self._executor = executor
        self._rank, self._ranks = executor.rank, executor.ranks
        self._build = build_schedule
        self._barrier = build_schedule("barrier", "dissemination", self._ranks)
        self._agree = build_schedule("all_reduce", "recursive_doubling", self._ranks)
        self._warm = False
        self._schedules: dict[Any, Any] = {}

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self._executor.barrier(self._barrier)

    def slowest(self, value: float) -> float:
        """Return the largest value of all ranks."""
        import torch

        tensor = torch.tensor([value], dtype=torch.float64)
        self._executor.all_reduce(tensor, self._agree, "max")
        return float(tensor)

    def timed(self, operation: Any, seconds: float, batch: int = 1, pause_s: float = 0.0) -> float:
        """Return the median seconds of an operation, of its slowest rank.

        It is called `batch` times in a row, so that leaving the barrier at different times does not count much, and
        that as often as fits in `seconds`, 3 to 15 times (once, if it takes longer than `seconds`), each after a pause.
        """
        samples: list[float] = []
        while len(samples) < 15 and (not samples or sum(samples) * batch < seconds):
            time.sleep(pause_s)
            self.barrier()
            begun = time.perf_counter()
            for _ in range(batch):
                operation()
            samples.append(self.slowest(time.perf_counter() - begun) / batch)
        return statistics.median(samples)

    def network(self) -> dict[str, float]:
        """Measure the network with large messages that are no all-reduce, and a rank's memory."""
        large, medium = 2**20, 2**16
        if not self._warm:
            self.timed(lambda: self._shift(16 * large), 3.0)  # until the connections have found their rate
            self._warm = True
        rate = large / self.timed(lambda: self._shift(large), 2.0, batch=10)
        one_s, small_s = (self._ping_pong(size, 1, PAUSE_S) for size in (medium, 4))
        return {
            "bandwidth_bytes_per_s": rate,
            "burst_s": max(0.0, medium / rate + small_s - one_s),  # what a message after a pause gains
            "reduce_bytes_per_s": self._reduce_rate(),
            "copy_s": self._copy(),
        }

    def small(self) -> list[float]:
        """Return the seconds of a message of four bytes, and of the calls of EMPTY."""
        return [self._ping_pong(4, IN_A_ROW), *(self._empty(ways) for ways in EMPTY)]

    def handling(self, latency_s: float, *taken_s: float) -> dict[str, float]:
        """Return what `small` says of messages, ranks and calls."""
        schedules = [[self._build(collective, name, self._ranks) for collective, name in ways] for ways in EMPTY]
        return {"latency_s": latency_s, **_handling(latency_s, list(zip(schedules, taken_s, strict=True)))}

    def _empty(self, ways: Iterable[tuple[str, str]]) -> float:
        """Return the seconds of collectives in a row with four bytes a rank."""
        import torch

        built = [self._schedules.setdefault(way, self._build(*way, self._ranks)) for way in ways]
        part, whole, run = torch.zeros(1), torch.zeros(self._ranks), self._executor
        root = whole if self._rank == 0 else None
        calls = {
            "all_gather": lambda schedule: run.all_gather(whole, part, schedule),
            "reduce_scatter": lambda schedule: run.reduce_scatter(part, whole, schedule, "sum"),
            "gather": lambda schedule: run.gather(root, part, schedule),
            "scatter": lambda schedule: run.scatter(part, root, schedule),
        }

        def call() -> None:
            for schedule in built:
                calls[schedule.collective](schedule)

        return self.timed(call, 0.5, IN_A_ROW)

    def _ping_pong(self, size: int, times: int, pause_s: float = 0.0) -> float:
        """Return the seconds of a message from rank 0 to rank 1 or back, so often there and back in one call."""
        import msgspec
        import torch

        there, back = (self._build("send", "direct", self._ranks, root=a, target=b) for a, b in ((0, 1), (1, 0)))
        rounds, data = (there.rounds + back.rounds) * times, torch.zeros(size // 4)
        schedule = self._schedules.setdefault((there.name, times), msgspec.structs.replace(there, rounds=rounds))
        return self.timed(lambda: self._executor.send(data, schedule), 0.5, pause_s=pause_s) / len(rounds)

    def _shift(self, size: int) -> None:
        """Send to the next rank and receive from the one before, all ranks at once."""
        import torch

        from meshwright.backend.wire.transport import Incoming, Outgoing

        data = torch.zeros(size // 4)
        there, back = (self._rank + 1) % self._ranks, (self._rank - 1) % self._ranks
        self._executor.transport.exchange([Outgoing(there, data)], [Incoming(back, torch.empty_like(data))])

    def _reduce_rate(self) -> float:
        """Return the bytes per second of a sum of two vectors, with all ranks at it."""
        import torch

        a, b = torch.zeros(2**20), torch.zeros(2**20)
        return 4 * 2**20 / self.timed(lambda: a.add_(b), 0.2, batch=5)

    def _copy(self) -> float:
        """Return the seconds that a copy of four bytes inside a rank's memory adds to a call."""
        import msgspec
        import torch

        copy, data, many = self._build("copy", "local", self._ranks, root=self._rank), torch.zeros(2), 50
        schedule = self._schedules.setdefault("copy", msgspec.structs.replace(copy, rounds=copy.rounds * many))
        return self.timed(lambda: self._executor.copy(data, schedule), 0.1) / many

    def all_reduce(self, name: str, size: int, seconds: float) -> float:
        """Return the median seconds of an all-reduce, after a check of its result where that is quick."""
        import torch

        schedule = self._schedules.setdefault(name, self._build("all_reduce", name, self._ranks))
        data = torch.full((size // 4,), float(self._rank + 1))
        if size <= CHECKED_BYTES:
            self._executor.all_reduce(data, schedule)
            if not bool((data == self._ranks * (self._ranks + 1) / 2).all()):
                raise SystemExit(f"{name}: wrong result")
        times = calls_in_a_row(size)
        pause_s = PAUSE_S if times * size > BURST_BYTES else 0.0
        return self.timed(lambda: self._executor.all_reduce(data, schedule), seconds, times, pause_s)


if __name__ == "__main__":
    work(*json.loads(sys.argv[1]))
