"""Columns that newer nccl-tests print beside time and bandwidth: bits that differ, single iterations, a timestamp."""

import json

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
SIZES = {2**30: 3900.0, 2**31: 7800.0, 2**32: 15600.0}


def run(*, bits=None, single=False, timestamp=False):
    more = ("  #bitdiff" if bits is not None else "") + ("  i_min  i_max  i_p99  i_cv%" if single else "")
    units = "  (us)  (us)  (us)  (%)" if single else ""
    one, below = f"  time  algbw  busbw  #wrong{more}", f"  (us)  (GB/s)  (GB/s){units}"
    lines = ["# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) validation: 1", "# all_reduce_perf"]
    lines += [f"#  Rank {n:2d} Group  0 Pid 7 on h device {n} [0000:0{n}:00] NVIDIA H100 80GB HBM3" for n in range(8)]
    lines.append(f"# size  count  type  redop  root{one}{one}" + ("  timestamp" if timestamp else ""))
    lines.append(f"# (B)  (elements){below}{below}")
    for size, time_us in SIZES.items():
        rate = size / time_us / 1e3
        cells = f"  {time_us:.1f}  {rate:.2f}  {rate * 1.75:.2f}  0" + (f"  {bits}" if bits is not None else "")
        cells += f"  {time_us * 0.9:.1f}  {time_us * 5:.1f}  {time_us * 1.1:.1f}  1.2" if single else ""
        lines.append(
            f"{size}  {size // 4}  float  sum  -1{cells}{cells}" + ("  2026-02-03 04:05:06" if timestamp else "")
        )
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 480"]) + "\n"


@pytest.mark.parametrize("timestamp", [False, True])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("bits", [None, 0])
def test_no_further_column_is_taken_for_wrong_results(bits, single, timestamp):
    (table,) = parse_tables(run(bits=bits, single=single, timestamp=timestamp), "t")

    assert [row.wrong for row in table.rows] == [0, 0, 0]
    assert judge(CATALOGUE, [table])[0].ok is True


@pytest.mark.parametrize("timestamp", [False, True])
def test_results_that_change_from_call_to_call_are_bad_though_none_is_out_of_bounds(timestamp):
    (found,) = judge(CATALOGUE, parse_tables(run(bits=44, single=True, timestamp=timestamp), "t"))

    assert found.ok is False
    assert found.reason.startswith("the same call gives other results when repeated (44 bits differ at most)")


def test_the_json_says_the_same_of_repeated_calls():
    device = {"rank": 0, "group": 0, "pid": 1, "hostname": "h", "device": 0, "device_info": "NVIDIA H100 80GB HBM3"}
    results = [
        {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "-1",
            "out_of_place": {
                "time": time_us, "alg_bw": size / time_us / 1e3, "bus_bw": 1.75 * size / time_us / 1e3, "nwrong": 0.0,
                "bitwise": {"repeats": 3, "different_elements": 2, "different_bits": 5},
            },
            "experiment_name": "all_reduce_perf",
        }
        for size, time_us in SIZES.items()
    ]  # fmt: skip
    config = {"nthreads": 1, "ngpus": 8, "devices": [device]}
    text = json.dumps({"args": ["all_reduce_perf"], "config": config, "results": results})
    (found,) = judge(CATALOGUE, parse_tables(text, "t"))

    assert (found.ok, "5 bits differ" in found.reason) == (False, True)
