"""docs/bench.md's table of what is read names the tools that the readers name, and each has a table among the tests."""

import re
from pathlib import Path

from meshwright.bench.reading import parse_tables, read_tables

PAGE = Path(__file__).parents[3] / "docs" / "bench.md"
TABLES = Path(__file__).parent / "tables"


def documented() -> set[str]:
    part = PAGE.read_text().split("<!-- readers -->")[1].split("<!-- end of readers -->")[0]
    return {match[1] for match in re.finditer(r"^\| ([\w -]+?) \|", part, re.M)} - {"tool"}


def test_what_the_page_says_is_read_is_what_is_read():
    refused = "cpu_time_table"
    files = [path for path in TABLES.glob("*.txt") if path.stem != refused]
    read = {table.tool for path in files for table in read_tables(str(path))}
    read |= {table.tool for table in parse_tables("bytes,ranks,time_us\n1024,2,5\n", "t.csv")}
    read |= {table.tool for table in parse_tables("33554432: 424.0, 79.14, 138.49", "notes")}

    assert read == documented()
