"""Verdicts on tables of public threads, made anew from the figures in them, against what maintainers answered."""

import json
import pathlib

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.collectives.pricing.figures import bus_factor
from meshwright.hardware import load_catalogue

THREADS = json.loads((pathlib.Path(__file__).parent / "threads.json").read_text())
PROGRAMS = {"all_reduce": "all_reduce", "alltoall": "all_to_all", "all_gather": "all_gather", "sendrecv": "sendrecv"}
HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
CATALOGUE = load_catalogue()
LOG = "node000:5000:5100 [0] NCCL INFO "


def rendered(thread):
    """Return the table of a thread as nccl-tests print it."""
    if "text" in thread:
        return thread["text"]
    program, per_node = thread["program"], thread["per_node"]
    ranks = thread["nodes"] * per_node
    lines = [f"# Collective test starting: {program}_perf"]
    if "setting" in thread:
        lines.insert(0, f"$ mpirun -np {ranks} -x {thread['setting']} ./build/{program}_perf -b 64M -e 8G -f 2 -g 1")
    for rank in range(ranks):
        host, device = rank // per_node, rank % per_node
        lines.append(
            f"#  Rank {rank:2} Group  0 Pid {5000 + rank} on node{host:03} device {device} [0x1b] {thread['gpu']}"
        )
    shares = ranks if program in {"alltoall", "all_gather"} else 1
    redop = "sum" if shares == 1 else "none"
    lines.append(HEADER)
    for size, busbw in thread["busbw_GBps"]:
        whole = size // (4 * shares) * 4 * shares
        algbw = busbw / bus_factor(PROGRAMS[program], ranks)
        time = whole / algbw / 1e3
        figures = f"{time:.1f}" if time < 1e4 else f"{time:.0f}"
        figures += f"  {algbw:.2f}  {busbw:.2f}  0"
        lines.append(f"  {whole}  {whole // 4 // shares}  float  {redop}  -1  {figures}  {figures}")
    return "\n".join(lines) + "\n"


def verdict(thread, text=None):
    tables = parse_tables(text or rendered(thread), "t")
    return judge(CATALOGUE, tables, **thread.get("options", {}))[thread.get("table", 0)]


@pytest.mark.parametrize("thread", THREADS, ids=[thread["source"] for thread in THREADS])
def test_the_verdict_is_the_maintainers_answer(thread):
    found = verdict(thread)

    assert found.ok is thread["ok"], f"{thread['answer']}: {found.reason}"


def one(source):
    return next(thread for thread in THREADS if thread["source"] == source)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "sockets in place of RDMA"),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0", "no GPUDirect RDMA"),
        ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct", "no peer access"),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", None),
    ],
)
def test_the_log_between_the_rows_says_which_way_the_bytes_went(log, said):
    thread = one("NVIDIA/nccl-tests#106 slow")

    reason = verdict(thread, LOG + log + "\n" + rendered(thread)).reason

    assert ("NCCL's log shows" in reason) is (said is not None)
    assert said is None or said in reason


def test_the_log_says_how_many_nics_there_are():
    thread = one("NVIDIA/nccl#949 after") | {"options": {}}
    using = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"

    told, assumed = verdict(thread, LOG + using + rendered(thread)), verdict(thread)

    assert (told.ok, assumed.ok) == (True, None)
    assert "2 x InfiniBand HDR" in told.reason
    assert "how many are there" in assumed.reason


def test_where_sockets_are_used_it_is_not_asked_how_many_nics_there_are():
    thread = one("NVIDIA/nccl#949 after") | {"options": {}}
    sockets = "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0\n"

    logged = verdict(thread, LOG + sockets + rendered(thread))
    told = verdict(thread, "$ NCCL_IB_DISABLE=1 mpirun -np 16 all_reduce_perf\n" + rendered(thread))

    assert (logged.ok, told.ok) == (False, False)
    assert "sockets in place of RDMA" in logged.reason
    assert "NCCL_IB_DISABLE=1" in told.reason


def test_a_matrix_of_named_devices_needs_no_link():
    title = "Device: 0, NVIDIA H100 80GB HBM3, pciBusID: 18\nDevice: 1, NVIDIA H100 80GB HBM3, pciBusID: 2a\n"
    matrix = (
        "Unidirectional P2P={} Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1\n 0 2530 {}\n 1 {} 2529\n"
    )

    def judged(access, rate):
        (found,) = judge(CATALOGUE, parse_tables(title.replace("\\", "") + matrix.format(access, rate, rate), "t"))
        return found.ok

    assert (judged("Enabled", 378.1), judged("Enabled", 52.3)) == (True, False)
    assert judged("Disabled", 34.1) is None  # copies through the host: its links are not known


def test_cards_in_slots_are_judged_between_cpu_and_switch():
    thread = one("NVIDIA/nccl#766 gen4")

    slow = verdict(thread | {"busbw_GBps": [[2**30, 4.0]]})
    fast = verdict(thread | {"busbw_GBps": [[2**30, 70.0]], "per_node": 4})

    assert (slow.ok, fast.ok) == (False, None)
    assert "11.6 GB/s through the CPU" in slow.reason
    assert slow.expected_bytes_per_s == pytest.approx(11.625e9)
