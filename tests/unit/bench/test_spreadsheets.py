"""Tables out of spreadsheets with decimal commas, and of NetPIPE, whose Mbps are of 2**20 bits or of 10**6."""

import pytest

from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError

GERMAN = """"all_reduce_perf -b 4M -e 1G -f 16 -g 4";;;;;
Größe (B);Anzahl;Typ;Zeit (us);algbw (GB/s);busbw (GB/s)
4.194.304;1.048.576;float;62,3;67,32;100,99
67.108.864;16.777.216;float;455,0;147,49;221,24
1.073.741.824;268.435.456;float;6.710,9;160,00;240,00
Mittel;;;;;187,41
"""
FRENCH = """Taille (B);Temps (us);algbw (GB/s)
4194304;1062,3;3,95
67108864;9455,0;7,10
"""
SWEEP = """NPtcp
  0:         1 bytes   900 times -->      {rate} Mbps in       {time} usec
  1:     65536 bytes   900 times -->  10000.00 Mbps in      50.00 usec
"""


def test_a_table_with_decimal_commas_and_points_between_thousands_is_read_as_it_is_meant():
    (table,) = parse_tables(GERMAN, "t")

    assert (table.collective, table.ranks) == ("all_reduce", 4)
    assert [(row.bytes, round(row.time_s * 1e6, 1)) for row in table.rows] == [
        (4194304, 62.3),
        (67108864, 455.0),
        (1073741824, 6710.9),
    ]


def test_heads_in_other_languages_and_figures_without_points_are_read_too():
    (table,) = parse_tables(FRENCH, "t")

    assert [(row.bytes, round(row.time_s * 1e6, 1)) for row in table.rows] == [(4194304, 1062.3), (67108864, 9455.0)]


def test_a_decimal_comma_that_contradicts_the_bandwidth_beside_it_is_refused():
    with pytest.raises(InputError, match="t:3: algbw 67.32 GB/s x time is not the size 4194304 B"):
        parse_tables(GERMAN.replace("62,3;", "623;"), "t")


def test_figures_with_points_between_semicolons_are_left_as_they_are():
    with pytest.raises(InputError, match="no table found"):
        parse_tables(GERMAN.replace("62,3", "62.3"), "t")


@pytest.mark.parametrize("rate", ["8.00", "7.63"], ids=["10**6", "2**20"])
def test_the_time_of_netpipe_counts_whatever_its_mbps_are(rate):
    (table,) = parse_tables(SWEEP.format(rate=rate, time="1.00"), "t")

    assert [(row.bytes, row.time_s) for row in table.rows] == [(1, 1e-6), (65536, pytest.approx(50e-6))]


def test_a_row_of_netpipe_that_contradicts_itself_is_refused():
    with pytest.raises(InputError, match="t:2: 80.00 Mbps x 1.00 usec is not the size 1 B"):
        parse_tables(SWEEP.format(rate="80.00", time="1.00"), "t")
    with pytest.raises(InputError, match="t:2: expected a size and a time above 0"):
        parse_tables(SWEEP.format(rate="0.00", time="0.00"), "t")
