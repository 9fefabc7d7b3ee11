"""Tables of the Intel MPI Benchmarks and of oneCCL, as they print them and as mails wrap them."""

import pytest

from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError

ONECCL = """#------------------------------------------------------------
# Benchmarking: {title}
# #processes: 8
#------------------------------------------------------------

        #bytes  #repetitions   t_min[usec]   t_max[usec]   t_avg[usec]    stddev[%]
       2097152            50        700.00        720.00        710.00         1.10
"""
COLUMNS = "#Benchmarking  #procs  #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"


@pytest.mark.parametrize(
    ("title", "collective", "dtype", "width", "redop"),
    [
        ("allreduce ; dtype: float64 ; reduction: max", "all_reduce", "float64", 8, "max"),
        ("reduce_scatter ; dtype: bfloat16 ; reduction: sum", "reduce_scatter", "bfloat16", 2, "sum"),
        ("allgather ", "all_gather", "float", 4, "none"),
    ],
)
def test_what_stands_behind_the_name_of_a_benchmark_of_oneccl_is_no_part_of_it(title, collective, dtype, width, redop):
    (table,) = parse_tables(ONECCL.format(title=title), "t")
    (row,) = table.rows

    assert (table.name, table.collective, table.ranks) == (title.split(";")[0].strip(), collective, 8)
    assert (row.dtype, row.element_bytes, row.redop, row.time_s) == (dtype, width, redop, pytest.approx(720e-6))


OPTIONS = """options:
  processes:      8
  collectives:    {title}
  datatypes:      {types}
  reductions:     sum
"""


@pytest.mark.parametrize(
    ("title", "types", "dtype", "redop"),
    [
        ("allgather", "bfloat16 ", "bfloat16", "none"),
        ("allreduce", "float16", "float16", "sum"),
        ("allreduce", "float64 int32", "float", "sum"),
    ],
)
def test_the_options_above_a_table_of_oneccl_name_the_type_of_its_elements(title, types, dtype, redop):
    text = OPTIONS.format(title=title, types=types) + ONECCL.format(title=f"{title} ")
    ((row,),) = (table.rows for table in parse_tables(text, "t"))

    assert (row.dtype, row.redop) == (dtype, redop)


def test_rows_that_a_mail_wraps_are_whole_again():
    text = "".join(
        f"> {line}\n> \n"
        for line in (
            "# Benchmarking Bcast",
            "#Benchmarking  #procs  #bytes #repetitions  t_min[usec]",
            "t_max[usec]  t_avg[usec]",
            "Bcast  24  0  1000  0.03",
            "0.05  0.04",
            "Bcast  24  8192  1000  40.25",
            "44.50  42.00",
            "Bcast  24  16384  1000  60.25",
            "66.50  62.00",
        )
    )
    (table,) = parse_tables(text, "t")

    assert (table.collective, table.ranks) == ("broadcast", 24)
    assert [(row.bytes, row.time_s) for row in table.rows] == [
        (8192, pytest.approx(44.5e-6)),
        (16384, pytest.approx(66.5e-6)),
    ]


def test_rows_that_name_another_benchmark_or_other_processes_are_a_table_of_their_own():
    rows = (
        "Allreduce 4 64 1000 2.00 3.00 2.50\nAllreduce 8 64 1000 4.00 5.00 4.50\n"
        "Reduce 8 64 1000 1.00 2.00 1.50\nReduce 8 128 1000 1.10 2.10 1.60\n"
    )
    tables = parse_tables(COLUMNS + rows, "t")

    assert [(table.collective, table.ranks, len(table.rows)) for table in tables] == [
        ("all_reduce", 4, 1),
        ("all_reduce", 8, 1),
        ("reduce", 8, 2),
    ]


def test_half_a_row_that_nothing_completes_is_no_row():
    with pytest.raises(InputError, match="no table found"):
        parse_tables(f"{COLUMNS}Allreduce 4 64 1000\n2.00\nand so on\n", "t")
