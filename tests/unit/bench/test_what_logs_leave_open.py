"""Logs whose figures are real and whose obvious reading is wrong: what they say, and what they leave open."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

UNHEARD = """Connecting to host 10.8.0.2, port 5201
[  5] local 10.8.0.1 port 50000 connected to 10.8.0.2 port 5201
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-END   sec   640 KBytes  9.00 Gbits/sec    0             sender
[  5]   0.00-END   sec  0.00 Bytes  0.00 bits/sec                  receiver
"""
CONNECTIVITY = """P2P Connectivity Matrix
     D\\D     0     1     2
     0       1     1     0
     1       1     1     0
     2       0     0     1
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 900.00  24.00   7.00
     1  24.10 900.00   7.10
     2   7.00   7.10 900.00
"""
PING_PONG = """# Benchmarking PingPong
# #processes = 2
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         2.00         0.00
      4194304           10      ONCE       RATE
"""
NAMELESS = """#       size         count      type   redop    root     time   algbw   busbw #wrong
  4294967296      67108864     float    none      -1    23000  186.74  175.07      0
"""


def verdict_on(text, **options):
    tables = parse_tables(text, "t")
    return judge(load_catalogue(), tables, **options)[-1]


def as_json(seconds):
    sent, received = (
        {"seconds": seconds, "bytes": size, "bits_per_second": 8 * size / seconds} for size in (80_000, 0)
    )
    return json.dumps({"start": {}, "end": {"sum_sent": sent, "sum_received": received}})


@pytest.mark.parametrize("text", [UNHEARD.replace("END", "0.02"), as_json(0.02)], ids=["text", "JSON"])
def test_what_a_sender_put_into_its_socket_is_no_rate(text):
    with pytest.raises(InputError, match=r"^t: iperf3 measured nothing: the receiver counted 0 bytes, and what 0.02 s"):
        parse_tables(text, "t")


@pytest.mark.parametrize("text", [UNHEARD.replace("END", "8.00"), as_json(8.0)], ids=["text", "JSON"])
def test_an_interrupted_run_keeps_what_was_sent(text):
    (table,) = parse_tables(text, "t")

    assert table.rates[0].rate_bytes_per_s > 0
    assert table.notes == ("the receiver's figure is missing: this is what was sent",)


def test_pairs_of_two_rates_are_told_apart():
    rows = [
        " ".join([str(a), *("1300" if a == b else "518" if {a, b} <= {3, 4, 5} else "410" for b in range(6))])
        for a in range(6)
    ]
    title = "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)"

    reason = verdict_on("\n".join([title, r"D\D 0 1 2 3 4 5", *rows])).reason

    assert "; 518 GB/s among 3, 4, 5, 410 GB/s the other 24 pairs; --link" in reason


def test_a_matrix_of_connectivity_says_which_pairs_have_no_peer_access():
    (table,) = parse_tables(CONNECTIVITY, "t")

    assert table.notes == ("no peer access between 2 pairs (0-2, 1-2): their copies go through the host",)


def test_a_matrix_of_connectivity_that_a_second_head_cuts_off_says_nothing():
    head = next(line for line in CONNECTIVITY.splitlines() if line.strip().startswith("D\\D"))
    (table,) = parse_tables(CONNECTIVITY.replace(head, f"{head}\n{head}", 1), "t")

    assert table.notes == ()


def test_figures_that_fill_their_columns_are_parted():
    head = "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec]\n"
    (table,) = parse_tables(head + " 2 1000 450.00 37000.50 690.25 920.00 2460.901210.65\n", "t")

    assert table.rows[0].time_s == pytest.approx(690.25e-6)


@pytest.mark.parametrize("options", ["-N2 --ntasks-per-node=4", "-n8", "-N 2 --ntasks-per-node 4"])
def test_short_options_of_a_launcher_may_be_glued_to_their_number(options):
    text = (
        f"srun {options} ./osu_alltoall\n# OSU MPI All-to-All Personalized Exchange Latency Test v7.5\n# Size Avg Lat"
    )
    (table,) = parse_tables(f"{text}ency(us)\n1024 20.00\n", "t")

    assert (table.ranks, table.rows[0].bytes) == (8, 8 * 1024)


@pytest.mark.parametrize(
    ("size", "once", "link", "ok", "words"),
    [
        (4 * 2**20, 400.0, None, None, "2 us for 0 B; 4 MiB is too little to fill a link: measure to 8 MiB"),
        (4 * 2**20, 400.0, "100Gbps", True, "10.5 GB/s of the 10.6 GB/s"),
        (2**24, 1600.0, "100Gbps", True, "10.5 GB/s of the 10.6 GB/s"),
        (2**24, 8000.0, "100Gbps", False, "2.1 GB/s of the 10.6 GB/s that NIC of 100Gbps lets through: the bytes may"),
        (2**24, 800.0, "100Gbps", None, "more than it carries"),
    ],
)
def test_messages_show_latency_and_large_ones_the_link(size, once, link, ok, words):
    text = PING_PONG.replace("4194304", f"{size}").replace("ONCE", f"{once:.2f}").replace("RATE", f"{size / once:.2f}")
    found = verdict_on(text, link=link)

    assert (found.ok, words in found.reason) == (ok, True), found.reason


def test_a_table_of_no_name_is_held_against_what_each_candidate_reaches():
    reason = verdict_on(NAMELESS, link="200Gbps", nics=8).reason

    assert "as all_gather: 175 GB/s of the 170 GB/s" in reason
    assert "as all_to_all: 175 GB/s of the 19.1 GB/s" in reason


def test_every_dip_and_a_decline_are_named():
    busbws = {32: 300, 64: 120, 128: 330, 256: 180, 512: 340, 1024: 250, 2048: 240, 4096: 245}
    rows = "\n".join(
        f"{size << 20} {size << 18} float sum -1 {(size << 20) * 1.75 / busbw / 1e3:.1f} {busbw / 1.75:.2f} {busbw} 0"
        for size, busbw in busbws.items()
    )
    found = verdict_on("# size count type redop root time algbw busbw #wrong\n# nGpus 8 all_reduce_perf\n" + rows)

    assert found.ok is False
    assert "dips at 64 MiB" in found.reason
    assert "; lesser dips at 256 MiB; declines from 1 GiB on: at most 250 GB/s after 340 GB/s" in found.reason


def test_perftest_that_doubts_its_clock_is_said_to():
    text = "RDMA_Write BW Test\n#bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n"
    doubt = "Conflicting CPU frequency values detected: 3300.0 != 1600.0\nTest integrity may be harmed !\n"
    plain, doubtful = (parse_tables(f"{text}{words}65536 5000 937.6 937.5\n", "t")[0] for words in ("", doubt))

    assert plain.notes == ()
    assert doubtful.notes == ("perftest doubts the clock that it times with (CPU frequency): the figures may be off",)
