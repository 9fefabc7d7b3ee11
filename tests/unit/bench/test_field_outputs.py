"""Outputs as logs of the field hold them: groups at once, early ends, further columns, collectors' prefixes."""

import msgspec
import pytest

from benchmarks.published_sweeps import collective_tables
from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import ReadTable, parse_tables, read_tables
from meshwright.bench.table import Row
from meshwright.cli import run_command
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
GATHER = "  1073741824  134217728  float  none  -1  11424  93.99  46.99  0  11424  93.99  46.99  0\n"
OSU = "# OSU MPI-CUDA Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n1048576  23012.41\n4194304  24310.77\n"


def device(rank, group, host, number):
    return f"#  Rank {rank:2} Group {group:2} Pid 9 on {host} device {number} [0x10] NVIDIA H100 80GB HBM3\n"


def test_groups_across_nodes_are_held_against_the_nics_and_not_against_nvlink():
    devices = "".join(device(8 * h + d, d, host, d) for h, host in enumerate("ab") for d in range(8))
    command = "mpirun -np 16 -x NCCL_TESTS_SPLIT_MASK=0x7 all_gather_perf -b 1G -e 1G\n"

    (table,) = parse_tables(command + devices + HEADER + GATHER, "t")
    assert (table.ranks, table.nodes, table.ranks_per_node) == (2, 2, 1)
    (found,) = judge(CATALOGUE, [table], link="ndr-400", nics=8)
    assert found.ok is True
    assert found.expected_bytes_per_s == pytest.approx(48e9)


def test_the_processes_of_a_split_run_are_not_the_ranks_of_a_table():
    row = "  1073741824  268435456  float  none  0  11424  93.99  93.99  0  11424  93.99  93.99  0\n"
    for value, ranks in (("0x7", None), ('"MOD 8"', None), ("0x0", 16)):
        command = f"mpirun -np 16 -x NCCL_TESTS_SPLIT_MASK={value} broadcast_perf -b 1G\n"

        (table,) = parse_tables(command + HEADER + row, "t")
        assert table.ranks == ranks


def swept(collective, ranks, *points):
    """A table of sizes in MiB and bus bandwidths in GB/s."""
    factor = 2 * (ranks - 1) / ranks if collective == "all_reduce" else (ranks - 1) / ranks
    rows = tuple(
        Row(
            collective=collective,
            backend="nccl",
            ranks=ranks,
            bytes=size * 2**20,
            time_s=size * 2**20 * factor / busbw / 1e9,
        )
        for size, busbw in points
    )
    hosts = tuple(f"n{rank // 8}" for rank in range(ranks))
    return ReadTable(name="t", tool="nccl-tests", collective=collective, ranks=ranks, rows=rows, hosts=hosts)


@pytest.mark.parametrize(
    ("table", "ok"),
    [
        # 16 nodes: the sizes of nccl issue 1469 that were right
        (swept("all_reduce", 128, (32, 60), (64, 105)), None),
        (swept("all_reduce", 128, (32, 60), (64, 105), (128, 210)), None),
        (swept("all_reduce", 128, (64, 105), (128, 210), (256, 280)), None),
        (swept("all_reduce", 128, (64, 20), (128, 28), (256, 30)), False),  # less than any start explains
        (swept("all_reduce", 128, (256, 80), (1024, 100), (8192, 105)), False),
        # a ring of 512 takes 511 steps one after the other
        (swept("all_gather", 512, (128, 24), (256, 45), (512, 79)), None),
        (swept("all_gather", 512, (1024, 50), (8192, 90), (16384, 95)), False),
    ],
)
def test_a_sweep_that_ends_before_the_links_are_full_is_not_called_bad(table, ok):
    (found,) = judge(CATALOGUE, [table], link="ndr-400", nics=8)

    assert found.ok is ok
    assert ("too little to fill the links" in found.reason) is (ok is None)


SOUND = {  # published sweeps of systems that nothing is known to be wrong with
    "h100x8_dgxc": "dgx-h100",
    "p5_1n": "aws-p5",
    "p4de_2n": "aws-p4d",
    "oci_b4_2n": "dgx-a100-40g",
    "cw_h100_8n": "dgx-h100",
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_system_is_not_called_bad_wherever_its_sweep_ends(name):
    table = next(found for found in read_tables(str(collective_tables())) if found.name == name)
    rows = sorted(table.rows, key=lambda row: row.bytes)

    for end in range(1, len(rows) + 1):
        (found,) = judge(CATALOGUE, [msgspec.structs.replace(table, rows=tuple(rows[:end]))], node=SOUND[name])
        assert found.ok is not False, (rows[end - 1].bytes, found.reason)


def test_sixteen_dgx_2_reach_what_their_pcie_lets_through():
    table = next(found for found in read_tables(str(collective_tables())) if found.name == "dgx2_256")

    (found,) = judge(CATALOGUE, [table], node="dgx-2")
    assert (found.ok, found.expected_bytes_per_s) == (True, pytest.approx(80e9))


@pytest.mark.parametrize(
    ("time", "algbw", "busbw", "ok"),
    [(46530, 184.61, 368.50, True), (240500, 35.72, 71.30, False)],
)
def test_a_number_of_ranks_that_stays_open_leaves_a_verdict_that_does_not_need_it(time, algbw, busbw, ok):
    row = f"  8589934592  2147483648  float  sum  -1  {time}  {algbw}  {busbw}  0  {time}  {algbw}  {busbw}  0\n"
    (table,) = parse_tables(HEADER + row, "t")

    assert table.ranks is None
    (found,) = judge(CATALOGUE, [table], node="dgx-h100")
    assert found.ok is ok
    assert found.reason.startswith("with ")
    assert judge(CATALOGUE, [table])[0].ok is None


@pytest.mark.parametrize("end", range(1, 5))
def test_two_racks_are_not_called_bad_wherever_their_sweep_ends(end):
    points = ((512, 493.94), (1024, 596.1), (2048, 680.3), (4096, 743.09))  # coreweave/nccl-tests pull request 43
    table = swept("all_reduce", 144, *points[:end])
    hosts = tuple(f"n{rank // 4}" for rank in range(144))

    (found,) = judge(CATALOGUE, [msgspec.structs.replace(table, hosts=hosts)], node="gb200-nvl72")
    assert found.ok is not False


@pytest.mark.parametrize(
    ("ranks", "busbw", "ok"),
    [
        (12, 234.4, None),  # three trays of other racks by trees (nccl issue 1801)
        (12, 196.7, None),  # by rings
        (72, 186.0, None),  # a rack, or 18 trays of others: no file says
        (144, 190.0, False),  # two racks: half of the trays share one
        (12, 90.0, False),  # less than the NICs of a tray too
    ],
)
def test_trays_that_run_as_if_they_shared_no_nvlink_are_said_to(ranks, busbw, ok):
    table = swept("all_reduce", ranks, (4096, 0.98 * busbw), (16384, busbw))
    hosts = tuple(f"n{rank // 4}" for rank in range(ranks))

    (found,) = judge(CATALOGUE, [msgspec.structs.replace(table, hosts=hosts)], node="gb200-nvl72")
    assert found.ok is ok
    assert ("share no NVLink" in found.reason) is (busbw > 100)


@pytest.mark.parametrize(
    ("node", "other"), [("dgx-a100-80g", True), ("dgx-h100", False), ("dgx-h200", False)]
)  # an H200 has the links of an H100
def test_a_node_type_with_other_links_than_the_gpus_of_the_table_is_no_yardstick(node, other):
    devices = "".join(device(8 * h + d, 0, host, d) for h, host in enumerate("ab") for d in range(8))
    command = "mpirun -np 16 all_gather_perf -b 1G -e 1G\n"
    row = "  1073741824  134217728  float  none  -1  5184  207.1  194.2  0  5184  207.1  194.2  0\n"
    (table,) = parse_tables(command + devices + HEADER + row, "t")

    (found,) = judge(CATALOGUE, [table], node=node)

    assert ("with other links" in found.reason) is other
    if other:
        assert found.ok is None
        assert "NVIDIA H100 80GB HBM3" in found.reason


def test_a_table_of_no_size_above_0_is_not_judged(tmp_path, capsys):
    path = tmp_path / "t.txt"
    devices = "".join(device(n, 0, "a", n) for n in range(8))
    nothing = "  0  0  float  none  -1  3.18  0.00  0.00  0  3.17  0.00  0.00  0\n"
    full = "  1073741824  33554432  float  none  -1  2700.0  397.68  347.97  0  2700.0  397.68  347.97  0\n"
    start = f"# Collective test starting: all_gather_perf\n{devices}{HEADER}"
    path.write_text(f"{start}{nothing}{nothing}{start}{full}")

    assert run_command(["bench", "--from", str(path), "--node", "dgx-h100"]) == 0
    assert "all its sizes are 0" in capsys.readouterr().out


def test_the_time_of_a_collective_beside_computation_is_its_own():
    text = (
        "$ mpirun -n 16 osu_iallgather\n"
        "# OSU MPI Non-blocking Allgather Latency Test v5.3.2\n"
        "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
        "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n"
        "65536                1305.55            841.38            814.28             42.99\n"
        "# OSU MPI Allgather Latency Test v5.3.2\n# Size       Avg Latency(us)\n65536  700.5\n"
    )

    first, second = parse_tables(text, "t")
    assert (first.collective, first.rows[0].bytes, first.rows[0].time_s) == (
        "all_gather",
        2**20,
        pytest.approx(814.28e-6),
    )
    assert second.rows[0].time_s == pytest.approx(700.5e-6)


def test_a_neighbourhood_is_no_group():
    for kind in ("", "Non-blocking "):
        text = (
            f"$ mpirun -n 16 osu\n# OSU MPI {kind}Neighborhood Allgather Latency Test v7.3\n# Size  Avg Latency(us)\n"
        )

        (table,) = parse_tables(text + "65536  58.3\n", "t")
        assert (table.collective, table.rows[0].bytes) == (None, 65536)


def test_a_size_that_fails_its_validation_is_bad():
    head = (
        "srun -n 8 osu_allreduce -c\n# OSU MPI-CUDA Allreduce Latency Test v7.3\n# Size  Avg Latency(us)  Validation\n"
    )
    for check, ok in (("Pass", None), ("Fail", False)):
        (table,) = parse_tables(f"{head}1048576  412.1  Pass\n4194304  1310.3  {check}\n", "t")

        assert (table.ranks, len(table.rows)) == (8, 2)
        assert judge(CATALOGUE, [table])[0].ok is ok


def test_perftest_counts_mebibytes_whatever_it_calls_them():
    for unit in ("MB", "MiB"):
        head = f" #bytes  #iterations  BW peak[{unit}/sec]  BW average[{unit}/sec]  MsgRate[Mpps]\n"

        (table,) = parse_tables(f"{head} 65536  9  23012.0  23000.0  0.36\n", "t")
        assert table.rates[0].rate_bytes_per_s == 23000 * 2**20


def test_the_non_blocking_benchmarks_of_imb_have_the_time_of_the_collective_alone():
    text = (
        "# Benchmarking Iallreduce\n# #processes = 8\n"
        "       #bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]\n"
        "      4194304           10      9100.00      4700.00      4650.00         5.00\n"
    )

    (table,) = parse_tables(text, "t")
    assert (table.collective, table.ranks, table.rows[0].time_s) == ("all_reduce", 8, pytest.approx(4700e-6))


def iperf(*lines):
    return "Connecting to host b, port 5201\n" + "".join(f"{line}\n" for line in lines)


def test_iperf_tells_who_sends():
    connected = "[  5] local 10.0.0.1 port 4 connected to 10.0.0.2 port 5201"
    received = "[  5]{0}   0.00-10.04  sec  10.9 GBytes  {1} Gbits/sec                  receiver"
    (there,) = parse_tables(iperf(connected, received.format("", 8)), "t")
    (back,) = parse_tables(iperf("Reverse mode, remote host b is sending", connected, received.format("", 8)), "t")
    lossy = "[  5]   0.00-10.04  sec  1.05 GBytes   800 Mbits/sec  0.012 ms  86330/863300 (10%)  receiver"
    (datagrams,) = parse_tables(iperf(connected, lossy), "t")
    both = parse_tables(iperf(connected, received.format("[TX-C]", 8), received.format("[RX-C]", 4)), "t")

    assert datagrams.rates[0].rate_bytes_per_s == pytest.approx(1e8)
    assert [(r.src, r.dst) for t in (there, back) for r in t.rates] == [
        ("10.0.0.1", "10.0.0.2"),
        ("10.0.0.2", "10.0.0.1"),
    ]
    assert [(t.rates[0].src, t.rates[0].rate_bytes_per_s) for t in both] == [("10.0.0.1", 1e9), ("10.0.0.2", 5e8)]


def test_a_command_that_goes_on_over_several_lines_tells_the_ranks():
    command = "mpirun --allow-run-as-root \\\n    -np 2 -H a,b \\\n    ./broadcast_perf \\\n    -b 1G \\\n    -g 8\n"
    row = "  1073741824  268435456  float  none  0  11424  93.99  93.99  0  11424  93.99  93.99  0\n"

    (table,) = parse_tables(command + HEADER + row, "t")
    assert (table.collective, table.ranks) == ("broadcast", 16)


@pytest.mark.parametrize(
    "prefix",
    [
        "2025-03-11T08:14:01.123456789Z stdout F ",
        "[2025-03-11T08:14:01.123Z] ",
        "2025/03/11 08:14:01 ",
        "Mar 11 08:14:01 ",
        "Mar 11 08:14:01 node7 bench.sh[4711]: ",
        "I0311 08:14:01.123456 4711 runner.cc:88] ",
        "08:14:01 ",
        "[prterun-head-1-41233@1,0]<stdout>: ",
    ],
)
def test_what_collectors_put_before_a_line_is_taken_off_for_every_tool(prefix):
    (table,) = parse_tables("".join(f"{prefix}{line}\n" for line in OSU.splitlines()), "t")

    assert [rate.bytes for rate in table.rates] == [2**20, 2**22]


def test_two_ranks_that_a_network_joins_have_a_host_each():
    rows = "  1073741824  268435456  float  sum  -1  21700  49.48  49.48  0  21700  49.48  49.48  0\n"
    text = f"$ mpirun --hostfile hosts -np 2 ./all_reduce_perf -b 1G -e 1G -g 1\n{HEADER}{rows}"
    tables = parse_tables(text, "t")

    (found,) = judge(CATALOGUE, tables, link="ndr-400", nics=4)  # nccl-tests issue 232: one GPU has one NIC's rate
    assert (found.ok, found.expected_bytes_per_s) == (True, pytest.approx(48e9))


def test_a_bandwidth_of_a_pair_that_falls_with_the_size_is_named():
    sizes = ((65536, 7404.09), (262144, 9511.51), (1048576, 5196.33), (2097152, 4323.20), (4194304, 4036.15))
    text = "# OSU MPI-CUDA Bandwidth Test v5.7\n# Size      Bandwidth (MB/s)\n"
    text += "".join(f"{size:<20} {rate}\n" for size, rate in sizes)  # openucx/ucx issue 6327

    (found,) = judge(CATALOGUE, parse_tables(text, "t"))
    assert found.ok is False
    assert "collapses from 2 MiB on" in found.reason


def test_benchmarks_of_imb_are_told_apart_by_their_names_alone():
    head = "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec] Mbytes/sec\n~~~~~~~~~\n"
    text = (
        f"Sendrecv\N{FULLWIDTH COLON}\n{head}524288 80 46.49 59.52 54.79 17616.61\n"
        "1048576 40 164.35 258.68 217.49 8107.16 \N{BLACK STAR} drops from here\n\n"
        f"Exchange:\n{head}524288 80 149.78 169.20 157.50 12394.29\n"
    )  # as in intel/mpi-benchmarks issue 37

    one, other = parse_tables(text, "t")
    assert (one.name, one.collective, [row.bytes for row in one.rows]) == ("Sendrecv", "sendrecv", [524288, 1048576])
    assert (other.name, len(other.rows)) == ("Exchange", 1)


REDUCED = "8589934592 2147483648 float sum -1 {0} {1} {2} {3} {0} {1} {2} {3}\n"
OF_TWO_MI300X = "".join(
    device(rank, 0, f"box{rank // 8}", rank % 8).replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X")
    for rank in range(16)
)


@pytest.mark.parametrize(
    ("command", "wrong", "said"), [("validation: 0", "N/A", 1), ("", "N/A", 1), ("validation: 1", "0", 0)]
)
def test_results_that_nobody_checked_are_said_to_be_unknown(command, wrong, said):
    row = REDUCED.format("49000", "175.31", "328.70", wrong)
    (table,) = parse_tables(f"# all_reduce_perf\n# nThread 1 {command} graph: 0\n{OF_TWO_MI300X}{HEADER}{row}", "t")

    assert len([note for note in table.notes if note.startswith("results were not checked")]) == said


def test_more_than_is_usual_is_not_said_to_be_more_than_the_nics_carry():
    row = REDUCED.format("47150", "182.18", "341.59", "0")  # of the 400 GB/s of eight NICs of 400 Gb/s
    (found,) = judge(load_catalogue(), parse_tables(f"# all_reduce_perf\n{OF_TWO_MI300X}{HEADER}{row}", "t"))

    assert found.ok
    assert "above that figure, which is usual for these links and not the most that they carry" in found.reason
    assert "above the NICs' rate" not in found.reason


def test_a_rate_between_those_of_a_ring_and_of_the_switches_is_not_said_to_be_above_the_larger():
    devices = "".join(device(rank, 0, f"box{rank // 8}", rank % 8) for rank in range(32))
    row = REDUCED.format("41600", "206.49", "400.07", "0")
    (found,) = judge(load_catalogue(), parse_tables(f"# all_reduce_perf\n{devices}{HEADER}{row}", "t"))

    assert (found.ok, "400 GB/s of the 480 GB/s" in found.reason) == (True, True)
    assert "above the 370 GB/s of a ring" in found.reason
    assert "above that figure" not in found.reason
