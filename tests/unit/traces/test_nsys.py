"""SQLite exports of Nsight Systems, made here with the tables and columns of its public schema."""

import sqlite3

import pytest

from meshwright.errors import InputError
from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

MS = 10**6  # nanoseconds
STEP = 10 * MS
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
  globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
"""
NAMES = {1: "ampere_bf16_gemm", 2: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 3: "cudaLaunchKernel", 4: "step 0"}


def export(path, processes=((77, 0, 6),), step="step {}", steps=3):
    """Write an export: each (pid, device, milliseconds of a gemm) computes and reduces in steps of 10 ms."""
    with sqlite3.connect(path) as base:
        base.executescript(SCHEMA)
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (1_790_000_000 * 10**9,))
        base.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 0, 'node0')")
        for pid, device, compute_ms in processes:
            owner, thread, link = pid << 24, (pid << 24) + 5, 1
            for number in range(steps):
                at = number * STEP
                text = step.format(number)
                base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL, 0)", (at, at + STEP, text, thread))
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, 1, 7, ?, ?, 4096, 1)",
                    (at, at + MS, device, link + 10_000, owner),
                )
                ends = at + MS + compute_ms * MS
                for name, stream, start, end in ((1, 7, at + MS, ends), (2, 20, ends, at + 9 * MS)):
                    base.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?)",
                        (start, end, device, stream, link, owner, name, name),
                    )
                    base.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 3)", (at, at + 9, thread, link)
                    )
                    link += 1
    base.close()
    return path


@pytest.mark.parametrize("step", ["step {}", "iteration_{}", "ProfilerStep#{}", "train_step"])
def test_the_steps_of_an_export_are_where_its_ranges_say(tmp_path, step):
    median = summarized(read_traces([export(tmp_path / "rank0.sqlite", step=step)])).median

    found = (median.step_s, median.compute_s, median.exposed_comm_s, median.data_s, median.idle_s)
    assert found == pytest.approx((10e-3, 6e-3, 2e-3, 1e-3, 1e-3))


def test_the_processes_of_one_export_are_ranks_and_the_slow_one_is_named(tmp_path):
    path = export(tmp_path / "all.sqlite", [(90, 1, 3), (80, 0, 3), (70, 2, 6)])
    summary = summarized(read_traces([path]))

    assert [own.compute_s for own in summary.ranks] == pytest.approx([3e-3, 3e-3, 6e-3])
    assert summary.culprit.rank == 2
    assert summary.culprit.costs_s_per_step == pytest.approx(3e-3)
    assert "in the order of their devices" in str(summary.notes)


def test_an_export_a_rank_is_joined_by_the_names_of_the_files(tmp_path):
    times = {10: 3, 9: 5, 2: 3}
    paths = [export(tmp_path / f"rank{rank}.sqlite", [(rank, 0, time_ms)]) for rank, time_ms in times.items()]
    summary = summarized(read_traces(paths))

    assert [own.rank for own in summary.ranks] == [2, 9, 10]
    assert summary.culprit.rank == 9


def test_a_database_without_kernels_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "other.sqlite") as base:
        base.execute("CREATE TABLE t (a)")
    base.close()

    with pytest.raises(InputError, match="no CUPTI_ACTIVITY_KIND_KERNEL in it"):
        read_traces([tmp_path / "other.sqlite"])


def test_a_damaged_database_is_refused_in_one_line(tmp_path):
    path = export(tmp_path / "rank0.sqlite")
    path.write_bytes(path.read_bytes()[:5000])

    with pytest.raises(InputError, match="not an SQLite export of nsys"):
        read_traces([path])


@pytest.mark.parametrize("value", [None, "text", b"bytes", 1e300])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("CUPTI_ACTIVITY_KIND_KERNEL", name) for name in ("start", "end", "deviceId", "streamId", "globalPid")),
        *(("CUPTI_ACTIVITY_KIND_MEMCPY", name) for name in ("start", "end", "bytes", "copyKind", "correlationId")),
        *(("CUPTI_ACTIVITY_KIND_RUNTIME", name) for name in ("start", "end", "globalTid", "nameId")),
        *(("NVTX_EVENTS", name) for name in ("start", "end", "eventType", "text", "textId")),
        *(("StringIds", name) for name in ("id", "value")),
    ],
)
def test_a_value_of_another_type_costs_its_row_alone(tmp_path, table, column, value):
    path = export(tmp_path / "rank0.sqlite")
    with sqlite3.connect(path) as base:  # SQLite lets it be, under whatever type the column was made with
        base.execute("PRAGMA writable_schema = ON")
        base.execute("UPDATE sqlite_master SET sql = replace(replace(sql, ' NOT NULL', ''), ' PRIMARY KEY', '')")
    base.close()
    with sqlite3.connect(path) as base:
        base.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM {table})", (value,))
    base.close()

    assert summarized(read_traces([path])).steps >= 1
