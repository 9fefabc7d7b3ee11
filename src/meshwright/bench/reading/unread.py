"""Outputs of benchmarks that are known and not read: their name, and what is wanted in their place."""

import re

from ...cluster.dumps.detect import command_of
from ...cluster.dumps.unsupported import name_of_unread

_KNOWN = (
    (r"\bLatency\b.*\bMatrix \(us\)", "latencies of pairs of GPUs", "the matrices of bandwidth of the same tool"),
    (r"\bbusGrind\b|^Host/Device Bandwidth Matrix", "busGrind of the CUDA samples", "nvbandwidth"),
    (r"\[\S*simpleP2P\]", "simpleP2P of the CUDA samples, of one pair", "p2pBandwidthLatencyTest or nvbandwidth"),
    (r"\bRESULT TYPE\s*\|\s*DRIVER\b", "k8s-netperf", "the output of iperf3 or netperf itself"),
    (r"^sockperf: ", "sockperf, of small messages over sockets", "iperf3, netperf or the tool of the network itself"),
    (r"^Intel\(R\) Memory Latency Checker", "mlc, of memory and of no link between ranks", "nccl-tests or OSU"),
    (r"^STREAM version \$Revision", "STREAM, of memory and of no link between ranks", "nccl-tests or OSU"),
    (r"^fio-\d", "fio, of storage and of no link between ranks", "nccl-tests or OSU"),
    (
        r"^HPLinpack \d|^T/V\s+N\s+NB\s+P\s+Q\s",
        "HPL (Linpack), of computation and of no link between ranks",
        "nccl-tests or OSU; meshwright bench compute times products",
    ),
    (
        r"^Burning for \d+ seconds|proc'd: \d+ \([\d.]+ Gflop/s\)",
        "gpu-burn, of computation and of no link between ranks (its own GPU 0: OK or FAULTY stands at its end)",
        "nccl-tests or OSU; meshwright bench compute times products",
    ),
    (
        r"\bibping statistics ---",
        "ibping, of management packets that a process of the host answers: its times are no latency of RDMA",
        "ib_write_lat, ib_send_lat or osu_latency; perfquery counts what a port has lost",
    ),
    (
        r"^rtt min/avg/max|^\d+ packets transmitted, \d+ (?:packets )?received",
        "ping, whose times are those of the kernel and no latency of RDMA",
        "ib_write_lat, osu_latency, or iperf3 for what a link carries",
    ),
    (r"\"\w+-bw(?::\w+)?/\w+_busbw(?::\d+)?\":", "SuperBench's summary", "the output of nccl-tests itself"),
    (r"^\W*(?:\d+: )?:::MLLOG ", "MLPerf's log of a training and of no collective", "nccl-tests or OSU"),
    (r"^\# OSU \S+ .*Barrier", "OSU's barrier, which carries nothing", "osu_allreduce or another of sizes"),
    (
        r"^Successfully ran diagnostic for group|^\|-+ +(?:Metadata|Deployment|Integration) +-",
        "dcgmi diag",
        "nvbandwidth; meshwright doctor --logs names GPUs that fail its tests",
    ),
    (
        r"^Times are in (?:nano|micro|milli)?seconds \([a-z]*s\)\.",
        "torch.utils.benchmark, of computation and of no link between ranks",
        "nccl-tests or OSU; meshwright bench compute times products",
    ),
    (
        r"^Benchmark\s+Time\s+CPU\s+Iterations\b",
        "Google's benchmark library, of which Comm|Scope's copies alone are read",
        "the output of Comm|Scope, nvbandwidth or nccl-tests",
    ),
    (r"^write BW: [\d.]+ ?MB/s", "gdrcopy's copies by the CPU", "nvbandwidth for the GPU's own link to its host"),
)
_SIZES = {"size", "bytes"}
_WITH_UNIT = re.compile(r"[(\[][A-Za-zµμ/]{1,10}[)\]]$")


def unread_benchmark(text: str) -> str:
    """Return what a text is and what is wanted in its place, "" where it is nothing that is known."""
    for pattern, name, wanted in _KNOWN:
        if re.search(pattern, text, re.M):
            return f"this is of {name}, which is not read; expected {wanted}"
    return ""


def dump_in_place(text: str) -> str:
    """Return that a text is a dump, or of counters, and no measurement, by its command; "" where it is none."""
    if command := command_of(text):
        return f"this is of {command}: what is linked, not what was measured; meshwright topo --from reads it"
    if name := name_of_unread(text):
        return f"this is {name}: nothing that a transfer was timed for; expected nccl-tests, perftest or OSU"
    return ""


def columns_in_words(text: str) -> str:
    """Return the columns of a table that no reader knows, in words; "" where there is none.

    They stand between |, or are those of nccl-tests without the ones that tell how long a transfer took.
    """
    for line in text.splitlines():
        names = [word.strip(" |*`#,;").lower() for word in re.split(r"[\s|,;]+", line)]
        if _SIZES & {*names} and "busbw" in names and not {*names} & {"time", "algbw"}:
            return (
                " (its heading has busbw and neither time nor algbw: how long a transfer took follows from busbw only "
                "for a named collective of a known number of ranks)"
            )
        cells = [cell.strip(" \t*`") for cell in line.strip().strip("|").split("|")]
        if len(cells) > 2 and sum(bool(_WITH_UNIT.search(cell)) for cell in cells) > 1:
            shown = ", ".join(cell[:40] for cell in cells[:8])
            return f" (what the columns {shown} count is not said)"
    return ""
