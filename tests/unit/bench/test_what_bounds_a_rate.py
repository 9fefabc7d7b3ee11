"""Bounds of a rate besides the link: one stream, a busy core, a target rate; and the partners of a slow device."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def verdict(text, link="100Gbps"):
    (found,) = judge(CATALOGUE, parse_tables(text, "t"), link=link)
    return found


def run_of_iperf3(gigabits, busy=20.0, version="iperf 3.12", **test):
    size = {"seconds": 10.0, "bytes": gigabits * 1e10 / 8, "bits_per_second": gigabits * 1e9}
    ends = {"socket": 5, "local_host": "10.1.0.1", "remote_host": "10.1.0.2"}
    return json.dumps(
        {
            "start": {
                "connected": [ends], "version": version, "connecting_to": {"host": "10.1.0.2"},
                "test_start": {"protocol": "TCP", "num_streams": 1, "reverse": 0} | test,
            },
            "end": {
                "sum_sent": size, "sum_received": size,
                "cpu_utilization_percent": {"host_total": busy, "remote_total": 12.0},
            },
        }
    )  # fmt: skip


LINES = """iperf 3.9
[  5] local 10.1.0.1 port 40000 connected to 10.1.0.2 port 5201
[  5]   0.00-10.00  sec  37.3 GBytes  32.0 Gbits/sec    0             sender
[  5]   0.00-10.00  sec  37.3 GBytes  32.0 Gbits/sec                  receiver
CPU Utilization: local/sender {} (0.9%u/20.1%s), remote/receiver {} (1.0%u/3.0%s)
"""


def test_a_slow_stream_whose_core_is_busy_says_nothing_of_the_link():
    for text in (run_of_iperf3(32, busy=97.5), LINES.format("97.5%", "40.0%"), LINES.format("40.0%", "97.5%")):
        found = verdict(text)

        assert (found.ok, "kept a core busy at one end (97.5 %)" in found.reason) == (None, True)


def test_a_slow_stream_with_an_idle_core_is_bad_and_that_it_is_one_is_said():
    for text in (run_of_iperf3(32), LINES.format("40.0%", "20.0%")):
        found = verdict(text)

        assert (found.ok, "it was one TCP stream" in found.reason) == (False, True)
    assert "one TCP stream" not in verdict(run_of_iperf3(32, num_streams=8)).reason
    assert verdict(run_of_iperf3(90, busy=99.0)).ok is True


@pytest.mark.parametrize(("version", "ok"), [("iperf 3.16", False), ("iperf 3.12", None)])
def test_several_streams_share_a_core_in_old_versions_alone(version, ok):
    assert verdict(run_of_iperf3(32, busy=250.0, version=version, num_streams=8)).ok is ok


def test_a_test_that_was_told_its_pace_says_nothing_of_the_link():
    paced = verdict(run_of_iperf3(20, target_bitrate=5_000_000_000, num_streams=4))
    short = verdict(run_of_iperf3(12, target_bitrate=5_000_000_000, num_streams=4))

    assert (paced.ok, "it was told to send 2.5 GB/s (-b), and did" in paced.reason) == (None, True)
    assert short.ok is False


def test_datagrams_that_all_arrived_say_nothing_of_the_link_and_lost_ones_do():
    udp = (
        "[  5] local 10.1.0.1 port 40000 connected to 10.1.0.2 port 5201\n"
        "[  5]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.012 ms  {}/906 (0%)  receiver\n"
    )

    assert (verdict(udp.format(0)).ok, "UDP sends as fast as it is told" in verdict(udp.format(0)).reason) == (
        None,
        True,
    )
    assert verdict(udp.format(400)).ok is False


MATRIX = """          Device: 0,  AMD EPYC 9654 96-Core Processor
          Device: 1,  AMD Instinct MI210,  GPU-aa,  01:0.0
          Device: 2,  AMD Instinct MI210,  GPU-bb,  02:0.0
          Device: 3,  AMD Instinct MI210,  GPU-cc,  03:0.0
          Device: 4,  AMD Instinct MI210,  GPU-dd,  04:0.0

          {}idirectional copy peak bandwidth GB/s
          D/D 0 1 2 3 4
          0  N/A 26.0 13.0 26.0 26.1
          1  {back} N/A 45.0 45.0 45.0
          2  {slow} 45.0 N/A 45.0 45.0
          3  {back} 45.0 45.0 N/A 45.0
          4  {back} 45.0 45.0 45.0 N/A
"""


def test_a_card_that_is_slow_to_the_host_alone_is_slow_with_the_processor_and_not_with_every_other():
    one_way = verdict(MATRIX.format("Un", back="28.0", slow="14.0"), link=None)

    assert one_way.ok is False
    assert one_way.reason.startswith("device 2 is slow with CPU0: 13 GB/s of 26 GB/s and 14 GB/s of 28 GB/s (as where")
    assert "LnkSta" in one_way.reason


def test_the_same_rate_both_ways_is_said_once():
    both = verdict(MATRIX.format("B", back="26.0", slow="13.0"), link=None)

    assert both.reason.count("GB/s of") == 1


def test_a_card_that_nvbandwidth_finds_slow_from_the_host_is_slow_with_the_processor():
    text = (
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "           0         1         2         3\n 0     55.20     55.10     27.40     55.30\n"
    )

    assert verdict(text, link=None).reason.startswith("device GPU2 is slow with CPU0: 27.4 GB/s of 55.2 GB/s")
