"""Tables in the forms that strangers paste: titles in prose, commands above, both directions, settings of NCCL."""

import gzip
import json
import pathlib

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.judgement.settings import explained, nics_named, settings_in
from meshwright.bench.reading import parse_tables, read_tables
from meshwright.bench.table import print_rows
from meshwright.cli import run_command
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

TABLES = pathlib.Path(__file__).parent / "tables"
HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
ROW = "  1073741824  268435456  float  sum  -1  22000  48.81  91.51  0  22000  48.81  91.51  0\n"
DEVICE = "#  Rank {0:2} Group  0 Pid 2000 on {1} device  {2} [0x23] NVIDIA H100 80GB HBM3\n"
OSU = "# OSU MPI All-to-All Personalized Exchange Latency Test v7.3\n# Size       Avg Latency(us)\n1024    {0}\n"
PERFTEST = (
    "                    RDMA_Write{0} BW Test\n"
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      5000             195.2               195.1              0.3\n"
)
MATRIX = "   D\\D     0      1      2\n 0 900.10  25.10  12.20\n 1  25.10 900.10  25.10\n 2  12.20  25.10 900.10\n"


def verdict(text, **options):
    (found,) = judge(load_catalogue(), parse_tables(text, "t"), **options)
    return found


def test_the_command_nearest_above_a_table_says_its_ranks():
    text = (
        "$ mpirun -np 4 osu_alltoall\n"
        + OSU.format(5.0)
        + "$ srun -N 2 --ntasks-per-node=4 osu_alltoall\n"
        + OSU.format(9.0)
    )

    assert [(table.ranks, table.rows[0].bytes) for table in parse_tables(text, "t")] == [(4, 4096), (8, 8192)]


def test_a_leading_column_of_nodes_says_which_table_is_of_one_node():
    tables = parse_tables((TABLES / "leading_node_count_column.txt").read_text(), "t")

    assert [(table.nodes, table.ranks_per_node) for table in tables] == [(nodes, 8) for nodes in (1, 2, 3, 4)]
    verdicts = judge(load_catalogue(), tables, link="efa-v1", nics=4)
    assert [verdict.ok for verdict in verdicts] == [None, True, False, False]
    assert "the path is not known" in verdicts[0].reason  # one node has nothing on the network


def test_a_title_of_a_matrix_may_end_a_sentence_or_be_quoted():
    title = "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n"

    for before in ("this is what I get. ", "> ", "[1,0]<stdout>: "):
        (table,) = parse_tables(before + title + MATRIX, "t")
        assert (table.name, len(table.rates), table.both_ways) == (title.strip(), 9, True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PERFTEST.format(""), 24e9),
        (PERFTEST.format(" Bidirectional"), 48e9),
        ("# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.3\n# Size  Bandwidth (MB/s)\n4194304 46000.0\n", 48e9),
        ("# OSU MPI Bandwidth Test v5.6.2\n# Size  Bandwidth (MB/s)\n4194304 1785.15\n", 24e9),
    ],
)
def test_a_rate_of_both_directions_is_held_against_both(text, expected):
    assert verdict(text, link="hdr-200").expected_bytes_per_s == pytest.approx(expected, rel=0.02)


def test_nvbandwidth_adds_both_directions_only_in_its_totals():
    run_of = "Running device_to_device_bidirectional_memcpy_read_ce.\n"
    rows = "           0         1\n 0       N/A    376.00\n 1    376.00       N/A\n"
    titles = [f"memcpy CE GPU(row) <-> GPU(column) {kind}bandwidth (GB/s)\n" for kind in ("Read1 ", "Total ")]
    first, total = judge(
        load_catalogue(), parse_tables(run_of + titles[0] + rows + "\n" + titles[1] + rows, "t"), link="nvlink-4"
    )

    assert total.expected_bytes_per_s == 2 * first.expected_bytes_per_s


def test_transferbench_is_read_by_test_and_iperf_by_what_the_receiver_saw():
    copies = (
        "Test 3:\n Executor: GPU 00 │ 63.4 GB/s │ 1.0 ms │ 67108864 bytes │ 63.443 GB/s (sum)\n"
        " Transfer 0       │ 63.443 GB/s │ 1.058 ms │ 67108864 bytes │ G0 -> G0:004 -> G1\n"
    )
    streams = (
        "Connecting to host 10.0.0.2, port 5201\n[  5] local 10.0.0.1 port 5 connected to 10.0.0.2 port 5201\n"
        "[  5]   0.00-10.00  sec  27.3 GBytes  23.5 Gbits/sec    0             sender\n"
        "[  5]   0.00-10.04  sec  27.3 GBytes  16.0 Gbits/sec                  receiver\n"
    )
    (test,) = parse_tables(copies, "t")
    (pair,) = parse_tables(streams, "t")

    assert (test.name, test.rates[0].src, test.rates[0].dst, test.rates[0].rate_bytes_per_s) == (
        "test 3",
        "G0",
        "G1",
        63.443e9,
    )
    assert (pair.rates[0].src, pair.rates[0].dst, pair.rates[0].rate_bytes_per_s) == ("10.0.0.1", "10.0.0.2", 2e9)


def test_ucc_without_its_heading_is_of_an_unknown_collective():
    rows = (
        "  Count  Size   Time, us    Bandwidth, GB/s\n    avg min max avg max min\n"
        " 131072 524288 2561.9 2513.1 2619.7 12.8 13.1 12.6\n"
    )
    named, unnamed = parse_tables(
        "Collective:   Alltoall\nInplace:  0\n\n" + rows.replace("12.8 13.1", "1.43 1.5") + rows, "t"
    )

    assert (named.collective, unnamed.collective, unnamed.rows[0].bytes) == ("all_to_all", None, 524288)


def test_a_bandwidth_that_nobody_knows_is_not_printed_as_zero():
    (table,) = parse_tables(
        " #bytes | Latency (us) | Bandwidth (Gb/s)\n -- | -- | --\n 4194304 | 376.12 | 95.42\n", "t"
    )

    assert (table.collective, table.candidates) == (None, ())
    assert print_rows(table.rows).split()[-4:-2] == ["N/A", "N/A"]


def test_two_ranks_far_apart_do_not_show_how_many_a_host_has():
    devices = DEVICE.format(0, "a", 0) + DEVICE.format(8, "b", 0)
    (sparse,) = parse_tables(devices + HEADER + ROW, "t")
    (border,) = parse_tables("".join(DEVICE.format(r, "a", r % 8) for r in (0, 7, 8)) + HEADER + ROW, "t")

    assert (sparse.ranks, sparse.nodes) == (16, None)
    assert (border.ranks, border.nodes) == (16, 2)


def test_more_than_the_links_carry_is_no_praise():
    found = verdict("".join(DEVICE.format(r, f"n{r}", 0) for r in range(16)) + HEADER + ROW)

    assert found.ok is None
    assert "ran over others" in found.reason


def test_the_command_names_nics_and_what_keeps_the_bytes_off_their_way():
    settings = settings_in("mpirun -x NCCL_IB_HCA==mlx5_0,mlx5_1:1 -x NCCL_P2P_DISABLE=1 -x NCCL_ALGO=Ring ./x")
    devices = "".join(DEVICE.format(r, "ab"[r // 8], r % 8) for r in range(16))
    command = "mpirun -np 16 -x NCCL_IB_HCA=mlx5_0,mlx5_1,mlx5_2,mlx5_3 -x NCCL_NET_GDR_LEVEL=0 all_reduce_perf\n"
    found = verdict(command + devices + HEADER + ROW)

    assert (nics_named(tuple(settings.items())), nics_named((("NCCL_IB_HCA", "mlx5"),))) == (2, None)
    assert explained(tuple(settings.items())) == (
        "the command sets NCCL_P2P_DISABLE=1 (no peer access between GPUs), NCCL_ALGO=Ring"
    )
    assert (found.ok, found.expected_bytes_per_s) == (False, pytest.approx(4 * 48e9, rel=0.01))
    assert "NCCL_NET_GDR_LEVEL=0 (no GPUDirect RDMA)" in found.reason


def test_a_matrix_is_printed_as_one(tmp_path, capsys):
    path = tmp_path / "p2p.txt"
    path.write_text("Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n" + MATRIX)

    assert run_command(["bench", "--from", str(path)]) == 1  # a pair is at half of the others
    assert "       2     12.20     25.10    900.10" in capsys.readouterr().out


def test_two_hosts_that_each_have_a_rank_0_know_nothing_of_each_other():
    devices = "".join(DEVICE.format(rank, host, rank) for host in "ab" for rank in (0, 1))
    tables = parse_tables(devices + HEADER + HEADER + ROW.replace("91.51", "48.81") * 2, "t")

    assert [table.alone for table in tables] == [2]
    assert "built without MPI=1" in judge(load_catalogue(), tables)[0].reason


def test_a_card_in_a_pcie_slot_is_not_held_against_nvlink():
    devices = "".join(DEVICE.format(rank, "a", rank).replace("H100 80GB HBM3", "A100-PCIE-40GB") for rank in (0, 1))
    found = verdict(devices + HEADER + ROW.replace("91.51", "48.81"))

    assert (found.ok, found.expected_bytes_per_s) == (None, None)


def test_rows_after_a_footer_keep_the_header_above_it():
    odd = "#  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res\n"  # of 2017, in ms
    row = "  1073741824  268435456  float  sum  22.000  48.81  91.51  0e+00  22.000  48.81  91.51  0e+00\n"
    tables = parse_tables(odd + row + "# Out of bounds values : 0 OK\n" + row, "t")

    assert [table.rows[0].time_s for table in tables] == [0.022, 0.022]


def test_an_instance_type_in_the_text_says_what_it_ran_on():
    row = ROW.replace("22000", "51000").replace("48.81", "21.05").replace("91.51", "39.48")
    told = verdict("here is one with p4d.24xlarge:\n$ mpirun -np 16 all_reduce_perf\n" + HEADER + row)
    two = verdict("p4d.24xlarge and p5.48xlarge\n$ mpirun -np 16 all_reduce_perf\n" + HEADER + row)

    assert (told.ok, told.expected_bytes_per_s) == (True, pytest.approx(42.5e9, rel=0.01))
    assert "assumed aws-p4d" in told.reason
    assert two.ok is None


FORMS = {
    "Windows": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "packed": lambda text: gzip.compress(text.encode()),
    "a byte-order mark": lambda text: text.encode("utf-8-sig"),
    "docker": lambda text: "\n".join(json.dumps({"log": f"{line}\n"}) for line in text.split("\n")).encode(),
    "kubectl": lambda text: "\n".join(f"[pod/job-0/main] {line}" for line in text.split("\n")).encode(),
    "srun": lambda text: "\n".join(f"0: {line}" for line in text.split("\n")).encode(),
    "a quotation": lambda text: "\n".join(f"> {line}" for line in text.split("\n")).encode(),
    "colours": lambda text: "\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n")).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_table_in_another_form_says_the_same(form, tmp_path):
    for name in ("h100_nvls_480", "osu_allreduce", "ib_write_bw", "ucc_perftest", "nccl_tests_json"):
        text = (TABLES / f"{name}.txt").read_text()
        (tmp_path / name).write_bytes(FORMS[form](text))

        (found,), (wanted,) = read_tables(str(tmp_path / name)), parse_tables(text, "t")
        assert (found.collective, found.ranks, found.rows, found.rates) == (
            wanted.collective,
            wanted.ranks,
            wanted.rows,
            wanted.rates,
        )


@pytest.mark.parametrize(("cut", "said"), [(-20, "cut off"), (5, "cut off")])
def test_a_packed_table_that_is_cut_off_is_refused(cut, said, tmp_path):
    packed = gzip.compress((TABLES / "h100_nvls_480.txt").read_bytes())
    (tmp_path / "t.gz").write_bytes(packed[:cut])

    with pytest.raises(InputError, match=said):
        read_tables(str(tmp_path / "t.gz"))


A2A = (
    "# Collective test starting: alltoall_perf\n{devices}{header}  4294967296  67108864  float  none  -1  "
    "{time}  {alg:.2f}  {bus:.2f}  0  {time}  {alg:.2f}  {bus:.2f}  0\n"
)


@pytest.mark.parametrize(("busbw", "ok"), [(19.83, True), (12.0, False)])
def test_of_two_nodes_half_of_an_all_to_all_crosses_the_network(busbw, ok):
    # nccl issues 1138 and, for the formula, nccl-tests 130: N/(N-1) of a rank's share of the NICs over N nodes
    devices = "".join(DEVICE.format(8 * node + gpu, f"host{node}", gpu) for node in range(2) for gpu in range(8))
    algbw = busbw * 16 / 15
    text = A2A.format(devices=devices, header=HEADER, time=round(4294967296 / algbw / 1e3), alg=algbw, bus=busbw)

    found = verdict(text, link="hdr-200", nics=4)

    assert (found.ok, found.expected_bytes_per_s) == (ok, pytest.approx(20.25e9, rel=0.01))


@pytest.mark.parametrize("mark", ["> ", "node01: ", "[1,0]<stdout>: ", "[1,0]<stdout>: > "])
def test_a_table_of_markdown_may_be_quoted_or_behind_a_prefix(mark):
    table = "| Size (B) | Time (us) | busbw (GB/s) |\n|---|---|---|\n| 1073741824 | 22000 | 91.5 |"

    (found,) = parse_tables("\n".join(mark + line for line in table.splitlines()), "t")

    assert [(row.bytes, row.time_s) for row in found.rows] == [(1 << 30, 0.022)]


@pytest.mark.parametrize("before", ["", "    ", "> "])
def test_json_may_stand_in_a_fence_between_prose(before):
    inner = "\n".join(before + line for line in (TABLES / "nccl_tests_json.txt").read_text().splitlines())
    alone = read_tables(str(TABLES / "nccl_tests_json.txt"))

    assert parse_tables(f"What I get:\n\n```json\n{inner}\n```\nIs it right?\n", "t") == alone


@pytest.mark.parametrize("hosts", [("n1", "n1"), ("n1", "n1", "n2", "n2")])
def test_a_host_with_more_ranks_than_its_type_has_gpus_is_of_no_known_type(hosts):
    devices = "".join(DEVICE.format(rank, host, rank % 2) for rank, host in enumerate(hosts))
    found = verdict(devices.replace("H100 80GB HBM3", "GH200 480GB") + HEADER + ROW)

    assert (found.ok, found.expected_bytes_per_s) == (None, None)
    assert "--node, or --link and --nics, say over which links it ran" in found.reason


def test_a_rate_is_a_link():
    text = (TABLES / "new_no_ranks_listed.txt").read_text()

    found = verdict(text, link="200Gbps", nics=4)

    assert (found.ok, found.expected_bytes_per_s) == (True, pytest.approx(85e9))
    with pytest.raises(InputError, match="--link hd-200: expected a link or NIC .*did you mean hdr-200.*, or a rate"):
        verdict(text, link="hd-200", nics=4)


def test_slow_pairs_that_every_device_has_alike_are_how_the_machine_is_built():
    title = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1      2      3\n"
    socket = " 0 900 25.1 9.1 9.1\n 1 25.1 900 9.1 9.1\n 2 9.1 9.1 900 25.1\n 3 9.1 9.1 25.1 900\n"
    bridged = " 0 900 25.1 25.1 9.1\n 1 25.1 900 9.1 25.1\n 2 25.1 9.1 900 25.1\n 3 9.1 25.1 25.1 900\n"

    assert verdict(title + socket).ok is None
    assert verdict(title + bridged).ok is None  # each has one far peer
    sick = verdict(title + bridged.replace("3 9.1 25.1 25.1", "3 9.1 25.1 9.1"))
    assert sick.ok is False
    assert "5 pairs are slow" in sick.reason


def test_a_cpu_and_a_gpu_of_one_number_are_a_pair():
    text = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n     0      1\n 0  25.1  24.9\n"
    (table,) = parse_tables(text, "t")

    assert [(rate.src, rate.dst) for rate in table.rates] == [("CPU0", "GPU0"), ("CPU0", "GPU1")]


def test_the_peer_matrix_of_transferbench_is_read_each_way_and_both_together():
    text = (
        "Bidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)\n"
        "     SRC\\DST    CPU 00    GPU 00    GPU 01\n"
        "  CPU 00  ->       N/A     21.50     21.40\n  CPU 00 <-        N/A     21.60     21.50\n"
        "  CPU 00 <->       N/A     43.10     42.90\n  CPU 00 min   1.0 1.0 1.0\n"
        "  GPU 00  ->     21.50       N/A     48.00\n  GPU 00 <->     43.10       N/A     96.00\n"
    )
    each, both = parse_tables(text, "t")

    assert [(r.src, r.dst, r.rate_bytes_per_s) for r in both.rates][-1] == ("GPU00", "GPU01", 96e9)
    assert (len(each.rates), each.both_ways, both.both_ways) == (4, False, True)


DEVICES = "#  Rank {0:2} Group  0 Pid 2000 on {1} device  {2} [0x23] {3}\n"


def of_ranks(gpu, nodes, per_node, busbw):
    """Return the table of an all-reduce of 4 GiB, every rank listed."""
    ranks = nodes * per_node
    devices = "".join(DEVICES.format(r, f"host{r // per_node}", r % per_node, gpu) for r in range(ranks))
    algbw = busbw * ranks / (2 * (ranks - 1))
    figures = f"{4294967296 / algbw / 1e3:.0f}  {algbw:.2f}  {busbw:.2f}  0"
    head = "# Collective test starting: all_reduce_perf\n"
    return f"{head}{devices}{HEADER}  4294967296  1073741824  float  sum  -1  {figures}  {figures}\n"


@pytest.mark.parametrize(
    ("gpu", "nodes", "per_node", "busbw", "options", "ok"),
    [
        ("NVIDIA A100-SXM4-80GB", 2, 8, 93.25, {"link": "hdr-200", "nics": 4}, True),  # nccl-tests issue 152
        ("NVIDIA H100 80GB HBM3", 4, 8, 365.84, {}, True),  # nccl-tests issue 309
        ("NVIDIA H100 80GB HBM3", 1, 8, 476.0, {}, True),  # nccl-tests issue 290
        ("NVIDIA GB300", 18, 4, 937.0, {}, True),  # a rack of Azure's
        ("AMD Instinct MI300X", 1, 8, 310.0, {}, True),  # AMD accepts 304
        ("AMD Instinct MI300X", 1, 8, 200.0, {}, False),
        ("NVIDIA A100-SXM4-80GB", 4, 4, 45.0, {"link": "hdr-200", "nics": 8}, False),  # nccl issue 1168
    ],
)
def test_the_verdict_is_that_of_the_thread(gpu, nodes, per_node, busbw, options, ok):
    found = verdict(of_ranks(gpu, nodes, per_node, busbw), **options)

    assert found.ok is ok, found.reason
    if per_node == 4 and nodes == 4:
        assert "about what 2 of 4 NICs carry" in found.reason  # half of the node's GPUs use half of its NICs
