"""The JSON that tools write for programs, as it stands in their files."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

NVBANDWIDTH = """{
 "nvbandwidth" : {
  "Device list" : [ "0: NVIDIA A100-SXM4-80GB (00000000:27:00)", "1: NVIDIA A100-SXM4-80GB (00000000:2a:00)" ],
  "testcases" : [
   {
    "name" : "device_to_device_memcpy_write_ce",
    "status" : "Passed",
    "bandwidth_description" : "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
    "bandwidth_matrix" : [ [ "N/A", "270.25" ], [ "271.75", "N/A" ] ],
    "sum" : 542.0
   }
  ]
 }
}
"""
IPERF3 = """{
 "start": {
  "connected": [{"local_host": "192.0.2.8", "remote_host": "192.0.2.9"}],
  "test_start": {"protocol": "TCP", "reverse": 0}
 },
 "intervals": [],
 "end": {
  "sum_sent": {"seconds": 10.0, "bytes": 12600000000, "bits_per_second": 10080000000.0},
  "sum_received": {"seconds": 10.0, "bytes": 12500000000, "bits_per_second": 10000000000.0}
 }
}
"""


def test_a_file_of_nvbandwidth_has_a_rate_for_each_pair():
    (table,) = parse_tables(NVBANDWIDTH, "n.json")

    assert [(rate.src, rate.dst, rate.rate_bytes_per_s) for rate in table.rates] == [
        ("0", "1", 270.25e9),
        ("1", "0", 271.75e9),
    ]


def test_a_file_of_iperf3_has_what_its_receiver_saw():
    (table,) = parse_tables(IPERF3, "i.json")

    assert [(rate.src, rate.dst, rate.rate_bytes_per_s) for rate in table.rates] == [("192.0.2.8", "192.0.2.9", 1.25e9)]


INSPECTED = """{"header": {"id": "0x11", "rank": 0, "n_ranks": 4, "nnodes": 1},
 "metadata": {"inspector_output_format_version": "v4.0", "hostname": "anna", "pid": 7},
 "coll_perf": {"coll": "AllGather", "coll_sn": 5, "coll_msg_size_bytes": 1000000, "coll_exec_time_us": 100,
  "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 40.0, "coll_busbw_gbs": 30.0}}
"""


def inspected(**told):
    record = json.loads(INSPECTED)
    for part in (record["header"], record["coll_perf"]):
        part.update({key: value for key, value in told.items() if key in part})
    return json.dumps(record)


def test_a_gather_of_nccl_s_inspector_counts_the_buffer_of_all_ranks_by_the_share_of_one():
    (table,) = parse_tables(INSPECTED, "log")
    (verdict,) = judge(load_catalogue(), [table])

    assert (table.collective, table.ranks, table.rows[0].bytes) == ("all_gather", 4, 4_000_000)
    assert table.rows[0].busbw_bytes_per_s == pytest.approx(30e9)
    assert (verdict.ok, "waits for its last rank" in verdict.reason) == (None, True)


def test_of_the_ranks_of_an_inspected_call_the_last_to_come_counts_and_of_calls_the_median():
    calls = [(5, 0, 100, 40.0), (5, 1, 400, 10.0), (6, 0, 200, 20.0), (7, 0, 400, 10.0)]
    lines = [
        inspected(coll_sn=number, rank=rank, coll_exec_time_us=time, coll_algobw_gbs=rate)
        for number, rank, time, rate in calls
    ]
    (table,) = parse_tables("\n".join(lines), "log")

    (row,) = table.rows
    assert (row.time_s, row.fastest_s) == pytest.approx((200e-6, 100e-6))


@pytest.mark.parametrize(("slow_us", "is_said"), [(2_000, True), (120, False)])
def test_an_inspected_call_that_took_far_longer_than_its_like_is_named(slow_us, is_said):
    times = {5: 100, 6: 110, 7: slow_us, 8: 105}
    lines = [inspected(coll_sn=n, coll_exec_time_us=us, coll_algobw_gbs=4e3 / us) for n, us in times.items()]
    (table,) = parse_tables("\n".join(lines), "log")

    said = [note for note in table.notes if "times the median" in note]
    assert [
        note.endswith("up to 2000 us (coll_sn 7): waited for a late rank, other work or lost packets") for note in said
    ] == ([True] * is_said)


def test_inspected_collectives_and_communicators_are_tables_of_their_own_and_what_is_cut_off_is_said():
    reduced = inspected(coll="AllReduce", coll_algobw_gbs=10.0)
    tables = parse_tables("\n".join((inspected(), inspected(id="0x22"), reduced, inspected()[:-40])), "log")

    assert [(table.collective, table.name) for table in tables] == [
        ("all_gather", "all_gather of 4, communicator 0x11"),
        ("all_gather", "all_gather of 4, communicator 0x22"),
        ("all_reduce", "all_reduce of 4"),
    ]
    assert tables[0].notes[-1] == "1 records whose JSON is cut off or damaged: left out"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"coll_algobw_gbs": 10.0}, "x time is not the 4000000 B of all_gather of 4 ranks"),
        ({"coll_msg_size_bytes": "much"}, "expected rank, n_ranks"),
        ({"coll": "SendRecvMany"}, "counts no bandwidth of"),
    ],
)
def test_an_inspected_record_that_contradicts_itself_is_refused(told, said):
    with pytest.raises(InputError, match=said):
        parse_tables(inspected(**told), "log")
