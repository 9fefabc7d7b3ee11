"""Databases of rocprofv3, made here with the tables and columns of its public schema."""

import sqlite3

import pytest

from meshwright.errors import InputError
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

MS = 10**6  # nanoseconds
STEP = 20 * MS
OWN = "_00001b7e_2c4d_7f10_8a55_90ab12cd34ef"
SCHEMA = """
CREATE TABLE `rocpd_string{0}` (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE `rocpd_info_node{0}` (id INTEGER PRIMARY KEY, hostname TEXT);
CREATE TABLE `rocpd_info_agent{0}` (id INTEGER PRIMARY KEY, pid INTEGER, type TEXT, absolute_index INTEGER);
CREATE TABLE `rocpd_info_kernel_symbol{0}` (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT);
CREATE TABLE `rocpd_event{0}` (id INTEGER PRIMARY KEY, category_id INTEGER, stack_id INTEGER, extdata JSONB);
CREATE TABLE `rocpd_region{0}` (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start BIGINT, end BIGINT,
  name_id INTEGER, event_id INTEGER);
CREATE TABLE `rocpd_kernel_dispatch{0}` (id INTEGER PRIMARY KEY, pid INTEGER, agent_id INTEGER, kernel_id INTEGER,
  queue_id INTEGER, stream_id INTEGER, start BIGINT, end BIGINT, event_id INTEGER);
CREATE TABLE `rocpd_memory_copy{0}` (id INTEGER PRIMARY KEY, pid INTEGER, start BIGINT, end BIGINT, name_id INTEGER,
  src_agent_id INTEGER, dst_agent_id INTEGER, size INTEGER, event_id INTEGER);
CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM `rocpd_kernel_dispatch{0}`;
CREATE VIEW rocpd_string AS SELECT * FROM `rocpd_string{0}`;
"""
STRINGS = {1: "HIP_RUNTIME_API", 2: "MARKER_CORE_API", 3: "hipLaunchKernel", 4: "roctxRangePushA", 5: "MEMORY_COPY"}
GEMM, RCCL = 1, 2


def database(path, *, ranges=True, own=OWN, kernels=True):
    """Write one process with one GPU: steps of 20 ms are 2 ms of a copy, 10 of a gemm, 6 of RCCL, half beside it."""
    with sqlite3.connect(path) as base:
        base.executescript(SCHEMA.format(own))
        base.executemany(f"INSERT INTO `rocpd_string{own}` VALUES (?, '', ?)", STRINGS.items())
        base.execute(f"INSERT INTO `rocpd_info_node{own}` VALUES (1, 'birch')")
        base.executemany(f"INSERT INTO `rocpd_info_agent{own}` VALUES (?, 1, ?, ?)", [(4, "CPU", 0), (9, "GPU", 1)])
        symbols = [(GEMM, "Cijk_Ailk.kd", "Cijk_Ailk"), (RCCL, "ncclDevKernel_Generic_4.kd", "")]
        base.executemany(f"INSERT INTO `rocpd_info_kernel_symbol{own}` VALUES (?, ?, ?)", symbols)
        for number in range(3):
            at, event = number * STEP, 10 * number
            if ranges:
                told = f'{{"message": "step {number}"}}'
                base.execute(f"INSERT INTO `rocpd_event{own}` VALUES (?, 2, ?, ?)", (event + 1, event + 1, told))
                region = (at, at + STEP, 4, event + 1)
                base.execute(f"INSERT INTO `rocpd_region{own}` VALUES (NULL, 1, 3, ?, ?, ?, ?)", region)
            base.execute(f"INSERT INTO `rocpd_event{own}` VALUES (?, 1, ?, '{{}}')", (event + 2, event + 2))
            base.execute(f"INSERT INTO `rocpd_region{own}` VALUES (NULL, 1, 3, ?, ?, 3, ?)", (at, at + 9, event + 2))
            base.execute(
                f"INSERT INTO `rocpd_memory_copy{own}` VALUES (NULL, 1, ?, ?, 5, 4, 9, 4096, NULL)", (at, at + 2 * MS)
            )
            for kernel, start, end in ((GEMM, 2, 12), (RCCL, 9, 15)) if kernels else ():
                base.execute(
                    f"INSERT INTO `rocpd_kernel_dispatch{own}` VALUES (NULL, 1, 9, ?, 1, ?, ?, ?, ?)",
                    (kernel, kernel, at + start * MS, at + end * MS, event + 2),
                )
    base.close()
    return path


def test_the_steps_of_a_database_are_its_rocm_ranges(tmp_path):
    [[trace]] = read_traces([database(tmp_path / "812_results.db")])
    median = summarized([[trace]]).median

    assert trace.host_name == "birch"
    found = (median.step_s, median.compute_s, median.exposed_comm_s, median.hidden_comm_s, median.copied_s)
    assert found == pytest.approx((20e-3, 10e-3, 3e-3, 3e-3, 2e-3))


def test_a_database_without_ranges_is_one_whole(tmp_path):
    summary = summarized(read_traces([database(tmp_path / "812_results.db", ranges=False)]))

    assert not summary.marked
    assert (summary.median.step_s, summary.median.compute_s) == pytest.approx((55e-3, 30e-3))


def test_a_folder_of_databases_has_a_rank_in_each(tmp_path):
    for pid in (812, 813):
        database(tmp_path / f"{pid}_results.db")

    assert [cycles[0].rank for cycles in read_traces([tmp_path])] == [0, 1]


def test_the_processes_of_one_database_are_ranks(tmp_path):
    path = database(tmp_path / "all_results.db")
    with sqlite3.connect(path) as base:
        base.execute("DROP VIEW rocpd_kernel_dispatch")
        base.execute("DROP VIEW rocpd_string")
    base.close()
    database(path, own=OWN.replace("1b7e", "1b7f"))

    assert len(read_traces([path])) == 2


def test_a_database_of_rocprof_without_kernels_says_how_to_record_them(tmp_path):
    with pytest.raises(InputError, match=r"rocprofv3 without kernels; record it again with --kernel-trace"):
        read_traces([database(tmp_path / "812_results.db", kernels=False)])


def test_a_database_of_another_program_is_told_to_be_one(tmp_path):
    path = tmp_path / "runs.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE runs (id INTEGER)")
    base.close()

    with pytest.raises(
        InputError, match=r"no CUPTI_ACTIVITY_KIND_KERNEL in it; expected an export of nsys .* or .*rocprofv3"
    ):
        read_traces([path])
