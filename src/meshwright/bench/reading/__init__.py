"""Files of measurements as people keep them: each format has a reader; the first that finds a table is right.

`read_tables` returns every table of a file; `load_tables` those of collectives by name, for fits.

- before any reader: `text` (unpacked, line numbers off), `prefixes` (launchers' marks off), `decimal_commas`
  (spreadsheets), `cut_rows` (a last row that is cut off); `json_objects` between other lines
- readers: of collectives `nccl_text`, `nccl_json`, `inspector`, `rccl_records`, `nccom`, `nvshmem`, `mscclpp`,
  `deepspeed`, `torch_tables`, `gloo_tables`, `hccl_tables`, `mpi_tools`, `imb`, `separated`; of rates `matrices`,
  `nvbandwidth_json`, `host_copies`, `nvshmem_pairs`, `mori`, `perftest`, `perftest_json`, `streams`, `iperf_json`,
  `iperf2`, `ucx`, `fabtests`, `netpipe`, `netperf`, `qperf`, `deepep`; `columns` of
  nccl-tests are common to several, `tables` is what all return
- what a table is of: `identify`, `listed_devices`, `nccl_log`; what is known and not read: `unread`
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...errors import InputError
from ...files import refuse_endless_numbers
from ...quantities import checked
from ..table import Row
from .columns import Parsed
from .cut_rows import without_cut_row
from .decimal_commas import with_decimal_points
from .deepep import read_deepep
from .deepspeed import read_deepspeed_tables
from .fabtests import read_fabtests
from .gloo_tables import read_gloo
from .hccl_tables import read_hccl_demo, read_hccl_test
from .host_copies import read_host_copies
from .identify import identify, named_in
from .imb import read_imb
from .inspector import read_inspector
from .iperf2 import read_iperf2
from .iperf_json import read_iperf_json
from .matrices import read_matrices
from .mori import read_mori
from .mpi_tools import read_osu, read_ucc
from .mscclpp import read_mscclpp
from .nccl_json import read_nccl_json
from .nccl_log import failed_run
from .nccl_text import read_nccl_text, table_row, without_rows
from .nccom import read_nccom
from .netperf import read_netperf
from .netpipe import read_netpipe
from .nvbandwidth_json import read_nvbandwidth_json
from .nvshmem import read_nvshmem
from .nvshmem_pairs import read_nvshmem_pairs
from .perftest import read_perftest
from .perftest_json import read_perftest_json
from .prefixes import texts_by_host
from .qperf import read_qperf
from .rccl_records import read_rccl_records
from .separated import is_csv, read_csv, read_markdown
from .streams import read_all_to_all, read_iperf, read_peers, read_transferbench
from .tables import MOST_ROWS, Rate, ReadTable
from .text import file_text, instances_in, without_bold, without_line_numbers, without_prefixes
from .torch_tables import read_ibm, read_param, read_payloads
from .ucx import read_ucx
from .unread import columns_in_words, dump_in_place, unread_benchmark

__all__ = ["Rate", "ReadTable", "load_tables", "parse_tables", "read_files", "read_tables"]

_JSON = re.compile(r"\s*\[?\s*\{")
# a table in prose: "1024: 20.1, 0.05, 0.09 | 2048: ..."
_INLINE = re.compile(r"\b(\d+): (\d+\.?\d*), (\d+\.?\d*), (\d+\.?\d*)")
Reads = Callable[[str, str], list[ReadTable] | None]  # from a text and where it is from to its tables


def _read_all_of_nvshmem(text: str, where: str) -> list[ReadTable]:
    return [*read_nvshmem(text, where), *read_nvshmem_pairs(text, where)]


def _read_all_of_perftest(text: str, where: str) -> list[ReadTable]:
    return [*read_perftest(text, where), *read_perftest_json(text, where)]


_OF_JSON: tuple[Reads, ...] = (
    read_inspector,
    read_rccl_records,
    read_nccl_json,
    read_nccom,
    read_nvbandwidth_json,
    read_iperf_json,
)
_READERS: tuple[Reads, ...] = (
    *_OF_JSON,
    _read_all_of_nvshmem,  # as nccom-test before nccl-tests, whose rows begin as theirs do
    read_mori,
    read_nccl_text,
    read_mscclpp,
    read_matrices,
    read_osu,
    read_imb,
    read_ucc,
    _read_all_of_perftest,
    read_transferbench,
    read_peers,
    read_all_to_all,
    read_host_copies,
    read_iperf,
    read_iperf2,
    read_ucx,
    read_fabtests,
    read_netpipe,
    read_netperf,
    read_qperf,
    read_deepspeed_tables,
    read_param,
    read_ibm,
    read_payloads,
    read_gloo,
    read_hccl_test,
    read_hccl_demo,
    read_markdown,
    read_deepep,
)

MOST_RATES = 1_000_000  # of a matrix of pairs
MOST_LINE = 2**15  # characters: a row of a matrix of 3,000 GPUs


def read_tables(path: str) -> list[ReadTable]:
    """Read all tables of a file; InputError, naming the line, where it contradicts itself or holds none."""
    return parse_tables(file_text(path), path)


def read_files(paths: Sequence[str]) -> list[ReadTable]:
    """Read all tables of files; of several each table's name begins with that of its file, and none is read twice."""
    found = {path: read_tables(path) for path in paths}
    if len(found) == 1:
        return next(iter(found.values()))
    short = [Path(path).name for path in found]
    names = short if len(set(short)) == len(short) else list(found)
    return [
        replace(table, name=f"{name}: {table.name}")
        for name, tables in zip(names, found.values(), strict=True)
        for table in tables
    ]


def parse_tables(text: str, where: str) -> list[ReadTable]:
    """Return all tables of a text; InputError too for a figure out of its bounds."""
    text = with_decimal_points(without_line_numbers(without_bold(text)))
    tables = _of_hosts(text, where) or _tables(text, where)
    if instances := instances_in(text):
        tables = [replace(table, instances=instances) if table.rates else table for table in tables]
    for table in tables:
        if len(table.rows) > MOST_ROWS or len(table.rates) > MOST_RATES:
            raise InputError(f"{where}: {table.name}: expected at most {MOST_ROWS:,} rows in a table")
        try:
            checked(table)
        except ValueError as error:
            raise InputError(f"{where}: {table.name}: {error}") from None
    return tables


def _of_hosts(text: str, where: str) -> list[ReadTable]:
    """Return the tables of each host that printed some, under its name, where the lines of several take turns."""
    tables: list[ReadTable] = []
    for host, part in texts_by_host(text).items():
        tables += [replace(table, name=f"{host}: {table.name}") for table in _tables(part, where)]
    return tables


def _tables(text: str, where: str) -> list[ReadTable]:
    whole, cut = without_cut_row(text, comma=is_csv(text))
    tables = _parsed(whole, where)
    if cut:
        tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, cut))
    return tables


def _parsed(text: str, where: str) -> list[ReadTable]:
    refuse_endless_numbers(text, where=where)
    if is_csv(text):
        return read_csv(text, where)
    if _JSON.match(text) and (found := _first(text, where, (*_OF_JSON, read_perftest_json))):
        return found  # JSON may be one line
    _refuse_endless_lines(text, where)
    found = _first(text, where) or _first(without_prefixes(text), where)  # the second for tools that never print a tag
    if found:
        return found
    inline = _inline(text, where)
    if inline is not None:
        return [inline]
    if words := failed_run(text):
        raise InputError(f"{where}: no table found: the run failed before its first row ({words})")
    if words := without_rows(text, where):
        raise InputError(f"{where}: no table found: {words}")
    if words := unread_benchmark(text) or dump_in_place(text):
        raise InputError(f"{where}: {words}")
    raise InputError(
        f"{where}: no table found{columns_in_words(text)}, expected the output of nccl-tests or another tool of "
        "docs/bench.md, or a CSV with size_bytes and ranks"
    )


def _refuse_endless_lines(text: str, where: str) -> None:
    """Raise InputError for a line longer than a row of any table: patterns are looked for at each of its characters."""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > MOST_LINE:
            raise InputError(f"{where}:{number}: {len(line):,} characters; expected lines of at most {MOST_LINE:,}")


def _first(text: str, where: str, readers: Sequence[Reads] = _READERS) -> list[ReadTable] | None:
    """Return what the first reader that finds a table has found."""
    for reader in readers:
        found = reader(text, where)
        if found and any(table.rows or table.rates or table.notes for table in found):
            return found
    return None


def load_tables(path: str) -> dict[str, list[Row]]:
    """Read the tables of collectives by name, smallest size first."""
    return {table.name: sorted(table.rows, key=lambda row: row.bytes) for table in read_tables(path) if table.rows}


def _inline(text: str, where: str) -> ReadTable | None:
    rows = [
        Parsed(line=0, lead="", bytes=int(size), count=int(size) // 4, type="float", redop="sum", root=None,
               time_s=float(time) * 1e-6, algbw=algbw, busbw=busbw, wrong=None, in_place_checked=None)
        for size, time, algbw, busbw in _INLINE.findall(text) if float(time) > 0
    ]  # fmt: skip
    if not rows:
        return None
    known = identify(rows, named_in(text), None, None, where)
    return ReadTable(
        name="table", tool="prose", collective=known.collective, ranks=known.ranks, ranks_range=known.ranks_range,
        candidates=known.candidates, rows=tuple(table_row(row, known, "nccl") for row in rows if row.bytes),
    )  # fmt: skip
