"""Copies between a GPU and its host: bandwidthTest, Comm|Scope, nvbandwidth against the GPU's own link."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
SECTION = """ {way} Bandwidth, {count} Device(s)
 {memory} Memory Transfers
   Transfer Size (Bytes)\tBandwidth({unit}/s)
   16777216\t\t\t{rate}

"""


def bandwidth_test(*sections, device="NVIDIA H100 PCIe"):
    head = f"[CUDA Bandwidth Test] - Starting...\nRunning on...\n\n Device 0: {device}\n Quick Mode\n\n"
    return head + "".join(sections) + "Result = PASS\n"


def section(way, rate, *, count=1, memory="PINNED", unit="GB"):
    return SECTION.format(way=way, rate=rate, count=count, memory=memory, unit=unit)


def verdict(text, index=0):
    return judge(CATALOGUE, parse_tables(text, "t"))[index]


def test_each_direction_of_bandwidth_test_is_a_table_with_its_size_and_rate():
    there, back = parse_tables(
        bandwidth_test(section("Host to Device", 53.5), section("Device to Host", 52.9)), "t"
    )  # fmt: skip

    assert (there.name, back.name) == ("Host to Device, pinned memory", "Device to Host, pinned memory")
    assert [(rate.bytes, rate.rate_bytes_per_s) for rate in there.rates] == [(16777216, pytest.approx(53.5e9))]


def test_old_versions_say_megabytes():
    (table,) = parse_tables(bandwidth_test(section("Host to Device", 6120.4, unit="MB")), "t")

    assert table.rates[0].rate_bytes_per_s == pytest.approx(6120.4 * 2**20)
    assert any("MiB/s" in note for note in table.notes)


def test_lines_for_scripts_say_the_same():
    text = (
        "bandwidthTest-H2D-Pinned, Bandwidth = 24.3 GB/s, Time = 0.00132 s, Size = 32000000 bytes, NumDevsUsed = 1\n"
        "bandwidthTest-D2D, Bandwidth = 1250.1 GB/s, Time = 0.00002 s, Size = 32000000 bytes, NumDevsUsed = 1\n"
    )
    host, local = parse_tables(text, "t")

    assert (host.name, host.rates[0].rate_bytes_per_s) == ("Host to Device, pinned memory", pytest.approx(24.3e9))
    assert "own memory" in local.unjudged


@pytest.mark.parametrize(
    ("device", "rate", "ok"),
    [
        ("NVIDIA H100 PCIe", 53.5, True),
        ("NVIDIA H100 PCIe", 26.1, False),
        ("NVIDIA A100-SXM4-80GB", 24.8, True),
        ("NVIDIA A100-SXM4-80GB", 11.9, False),
    ],
)
def test_a_copy_is_held_against_the_link_of_its_gpu_to_the_host(device, rate, ok):
    found = verdict(bandwidth_test(section("Host to Device", rate), device=device))

    assert found.ok is ok
    assert ok or "fewer lanes or a lower speed" in found.reason


def test_what_a_gpu_copies_within_itself_is_no_link():
    found = verdict(bandwidth_test(section("Device to Device", 1780.2)))

    assert found.ok is None
    assert "within its own memory" in found.reason


def test_the_sum_of_several_devices_is_held_against_no_single_link():
    assert verdict(bandwidth_test(section("Host to Device", 98.4, count=4))).ok is None


def test_pageable_memory_says_nothing_against_the_link():
    found = verdict(bandwidth_test(section("Host to Device", 9.7, memory="PAGEABLE")))

    assert found.ok is None
    assert "pageable memory" in found.reason


def test_an_unknown_gpu_is_judged_by_nothing():
    assert verdict(bandwidth_test(section("Host to Device", 9.7), device="Some Board")).ok is None


COUNTED = "Comm_hipMemcpy_HostToGPU/1/3/log2(N):{}/manual_time  {} us  {} us  90 bytes={} bytes_per_second={}/s {}\n"


def test_binary_prefixes_of_comm_scope_are_read_as_such():
    row = COUNTED.format(27, "5000.0", "5011", "134.218M", "25Gi", "cuda_id=3 numa_id=1")
    (table,) = parse_tables(row, "t")

    (rate,) = table.rates
    assert rate.rate_bytes_per_s == pytest.approx(25 * 2**30)
    assert (rate.bytes, rate.what) == (2**27, "cuda 3, numa 1")
    assert table.notes == ()


@pytest.mark.parametrize("size", ["134.218M", "128M", "128Mi"])
def test_old_versions_leave_the_i_out_and_scale_by_1024_all_the_same(size):
    (table,) = parse_tables(COUNTED.format(27, "5000.0", "5011", size, "25G", ""), "t")

    assert table.rates[0].rate_bytes_per_s == pytest.approx(25 * 2**30)
    assert (table.rates[0].bytes, table.notes) == (2**27, ())


def test_other_rows_of_googles_library_are_refused_by_name():
    text = (
        "Benchmark           Time             CPU   Iterations UserCounters...\n"
        "BM_Copy/4096      112 ns          112 ns      6254312 bytes_per_second=34.0583Gi/s\n"
    )

    with pytest.raises(InputError, match="Google's benchmark library, of which Comm"):
        parse_tables(text, "t")


def test_a_section_of_bandwidth_test_without_its_head_is_read():
    (table,) = parse_tables(section("Device to Host", 25.1), "t")

    assert (table.name, table.devices) == ("Device to Host, pinned memory", ())


def test_a_rate_that_is_not_bytes_over_time_is_said():
    (table,) = parse_tables(COUNTED.format(27, "5000.0", "5011", "134.218M", "12.5Gi", ""), "t")

    assert table.notes == (
        "Comm_hipMemcpy_HostToGPU/1/3/log2(N):27/manual_time: its rate is not its bytes over its time",
    )


MATRIX = """Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)
Device 1: NVIDIA H100 80GB HBM3 (00000000:43:00)

Running {}.
memcpy CE CPU(row) {} GPU(column) bandwidth (GB/s)
           0         1
 0     {}     {}
"""


@pytest.mark.parametrize(("rate", "ok"), [(55.2, True), (26.4, False)])
def test_all_gpus_of_a_host_below_their_link_are_no_sound_pair(rate, ok):
    assert verdict(MATRIX.format("host_to_device_memcpy_ce", "->", rate, rate)).ok is ok


@pytest.mark.parametrize(
    ("name", "way"), [("host_to_device_bidirectional_memcpy_ce", "<->"), ("host_to_all_memcpy_ce", "->")]
)
def test_copies_beside_others_are_held_against_no_link_that_one_has_alone(name, way):
    assert verdict(MATRIX.format(name, way, 27.0, 27.1)).ok is None
