"""Copies between two GPUs with and without peer access, and a stream of a host to itself."""

import json

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.hardware import load_catalogue


def test_peer_access_that_slows_copies_names_the_rate_without_it():
    text = "".join(
        f"Unidirectional P2P={state} Bandwidth {more}Matrix (GB/s)\n   D\\D     0      1\n     0 900.00  {rate}\n"
        f"     1  {rate} 900.00\n"
        for state, more, rate in (("Disabled", "", "21.50"), ("Enabled", "(P2P Writes) ", "8.10"))
    )
    _, enabled = judge(load_catalogue(), parse_tables(text, "t"))
    assert enabled.ok is False
    assert "21.5 GB/s without it is what counts (NCCL_P2P_DISABLE=1)" in enabled.reason


def test_a_stream_of_a_host_to_itself_at_a_rate_that_it_was_told_says_so():
    run = {
        "start": {
            "connected": [{"local_host": "127.0.0.1", "remote_host": "127.0.0.1"}],
            "version": "iperf 3.17",
            "test_start": {"protocol": "TCP", "num_streams": 1, "target_bitrate": 80_000_000},
        },
        "end": {"sum_received": {"seconds": 10.0, "bytes": 100_000_000, "bits_per_second": 80_000_000.0}},
    }
    (found,) = judge(load_catalogue(), parse_tables(json.dumps(run), "t"), link="100Gbps")
    assert found.ok is None
    assert "no pair to judge; it was told to send 0.01 GB/s (-b), and did" in found.reason
