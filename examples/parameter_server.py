"""The bottleneck of a parameter server, seen: its time grows with the ranks, the ring's does not.

    python examples/parameter_server.py [RANKS ...]

Each rank is a node of an emulated cluster behind a NIC of its own (root or user namespaces are needed). You see the
time of one all-reduce in both ways for 2, 4 and 6 ranks, beside the bound of the links: 2N(P-1) over the server's NIC,
2N(P-1)/P over each NIC of the ring.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZE_BYTES = 2**20
NIC_BYTES_PER_S = 25e6  # 200 Mb/s, slow enough that the links and not the cores of this machine decide
WAYS = ("parameter_server", "ring")


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [2, 4, 6]
    print(f"all-reduce of {SIZE_BYTES >> 20} MiB, each rank behind {NIC_BYTES_PER_S * 8e-6:.0f} Mb/s")
    times = {ranks: emulated(ranks) for ranks in counts}
    for way in WAYS:
        print(f"{way:<17}" + "".join(f"{ranks:>3} ranks {times[ranks][way] * 1e3:6.0f} ms   " for ranks in counts))
    bounds = {"server": lambda p: 2 * (p - 1), "ring": lambda p: 2 * (p - 1) / p}
    for way, factor in bounds.items():
        shown = "".join(f"{p:>3} ranks {factor(p) * SIZE_BYTES / NIC_BYTES_PER_S * 1e3:6.0f} ms   " for p in counts)
        print(f"{'bound, ' + way:<17}{shown}")


def emulated(ranks: int) -> dict[str, float]:
    words = ["emulate", "--nodes", str(ranks), "--nic", f"{NIC_BYTES_PER_S * 8e-6:.0f}Mbps", "--", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", *words, __file__, "--rank"], capture_output=True, text=True, check=False
    )
    reports = [line.partition("REPORT ")[2] for line in done.stdout.splitlines() if "REPORT " in line]
    if done.returncode or not reports:
        raise SystemExit(f"{done.stdout}\n{done.stderr}")
    return json.loads(reports[0])


def rank_main() -> None:
    """Time both ways on one rank; rank 0 reports the median of the slowest."""
    import torch
    import torch.distributed as dist

    from meshwright.backend.wire.executor import Executor
    from meshwright.backend.wire.transport_tcp import TcpTransport
    from meshwright.collectives.catalogue import build_schedule

    torch.set_num_threads(1)
    rank, ranks, master = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
    store = dist.TCPStore(master, int(os.environ["MASTER_PORT"]), ranks, is_master=rank == 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))
        address = probe.getsockname()[0]
    executor = Executor(TcpTransport(store, rank, ranks, address=address, timeout_s=60))
    barrier, agree = (
        build_schedule("barrier", "dissemination", ranks),
        build_schedule("all_reduce", "recursive_doubling", ranks),
    )
    data, found = torch.rand(SIZE_BYTES // 4), {}
    for way in WAYS:
        schedule, times = build_schedule("all_reduce", way, ranks), []
        for _ in range(4):
            executor.barrier(barrier)
            begun = time.perf_counter()
            executor.all_reduce(data, schedule, "avg")
            slowest = torch.tensor([time.perf_counter() - begun])
            executor.all_reduce(slowest, agree, "max")
            times.append(float(slowest))
        found[way] = statistics.median(times[1:])
    if rank == 0:
        print("REPORT " + json.dumps(found), flush=True)
    executor.barrier(barrier)
    executor.transport.close()


if __name__ == "__main__":
    rank_main() if "--rank" in sys.argv else main()
