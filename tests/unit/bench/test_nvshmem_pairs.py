"""NVSHMEM's perftests between two PEs: whose bandwidth it is, both ways or one, and what need not fill a link."""

import pytest

from meshwright.bench.judgement.judge import judge
from meshwright.bench.reading import parse_tables
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

OPTIONS = (
    "iterations: 50, number of ctas: {ctas}, threads per cta: 256 stride: 1, threadgroup_scope: {scope}, dir: write\n"
)
PES = (
    "mype: 0 mype_node: 0 device name: NVIDIA GB200 bus id: 5 \n"
    "mype: 1 mype_node: {node} device name: NVIDIA GB200 bus id: 6 \n"
)
HEAD = "size(B)     scope     BW (GB/sec)     \n"


def run(test="shmem_put_bw_uni", rate=790.0, node=1, ctas=32, scope="all_scopes"):
    rows = f"8388608     None      {0.8 * rate:f}\n67108864    None      {rate:f}\n"
    return OPTIONS.format(ctas=ctas, scope=scope) + PES.format(node=node) + f"#{test}\n{HEAD}{rows}"


def verdict(text, **options):
    return judge(load_catalogue(), parse_tables(text, "t"), **options)[-1]


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        (run(), True),
        (run(rate=390.0), False),
        (run("shmem_put_bw_bidi", rate=1500.0), True),
        (run("shmem_put_bw_bidi", rate=790.0), False),
        (run("shmem_get_bw"), True),
    ],
)
def test_puts_between_gpus_of_one_host_are_held_against_their_nvlink(text, ok):
    assert verdict(text).ok is ok


def test_puts_between_hosts_are_held_against_the_nic_that_is_named():
    assert verdict(run(rate=48.0, node=0)).ok is None
    assert verdict(run(rate=48.0, node=0), link="ndr-400").ok is True


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (run(rate=40.0, ctas=1), "1 thread block need not fill"),
        (run(rate=40.0, scope="thread"), "single threads need not fill"),
        (run("shmem_p_bw", rate=9.0), "single elements"),
        (run("shmem_atomic_bw", rate=9.0), "single elements"),
    ],
)
def test_what_need_not_fill_a_link_is_not_called_slow(text, why):
    said = verdict(text)

    assert said.ok is None
    assert why in said.reason


def test_a_table_of_message_rates_is_no_bandwidth():
    (table,) = parse_tables(
        run() + "#shmem_put_bw_uni\nsize(B)     scope     msgrate (MMPS)  \n8388608     None      5.1\n", "t"
    )

    assert len(table.rates) == 2


def test_times_of_each_scope_are_a_table_of_messages():
    rows = "".join(f"{size}  {scope}  {us}\n" for scope, us in (("Thread", 2.5), ("Block", 1.9)) for size in (4, 8))
    tables = parse_tables(f"#shmem_put_latency\nsize(B)   scope   latency (us)\n{rows}", "t")

    assert [(table.name, len(table.rows), table.collective) for table in tables] == [
        ("shmem_put_latency Thread", 2, None),
        ("shmem_put_latency Block", 2, None),
    ]
    assert tables[1].rows[0].time_s == pytest.approx(1.9e-6)


def test_of_several_pairs_the_slow_one_is_named():
    parts = (("None", 290.0), ("PE0_to_PE3", 380.0), ("PE1_to_PE4", 378.0), ("PE2_to_PE5", 190.0))
    text = "".join(f"#shmem_put_bw_uni\n{HEAD}67108864  {scope}  {rate}\n" for scope, rate in parts)
    tables = parse_tables(text, "t")
    said = judge(load_catalogue(), tables)[-1]

    assert [len(table.rates) for table in tables] == [1, 3]
    assert said.ok is False
    assert "PE2 to PE5" in said.reason
    assert "every other" not in said.reason


@pytest.mark.parametrize(
    "line",
    [
        "&&&& PERF shmem_put_bw_uni___None___size__{size}___BW {rate:f} +GB/sec\n",
        "&&&& PERF_STATS shmem_put_bw_uni___None___size__{size}___BW +GB/sec mean={rate:f} stddev=NA min=1.0 max=900.0 "
        "repetitions=1\n",
    ],
)
def test_lines_for_programs_say_the_same_as_a_table(line):
    text = "shmem_put_bw_uni\n" + line.format(size=1024, rate=1.5) + line.format(size=2048, rate=2.75)
    (table,) = parse_tables(text, "t")

    assert [(rate.bytes, rate.rate_bytes_per_s) for rate in table.rates] == [(1024, 1.5e9), (2048, 2.75e9)]


def test_the_mean_is_read_of_a_row_with_statistics():
    head = "size(B)  scope  BW (GB/sec)  stddev (GB/sec)  min (GB/sec)  max (GB/sec)  repetitions\n"
    (table,) = parse_tables(f"#shmem_get_bw\n{head}1024  None  1.500000  0.1  1.4  1.6  5\n", "t")

    assert [rate.rate_bytes_per_s for rate in table.rates] == [1.5e9]


def test_a_row_without_a_figure_is_refused_by_its_line():
    with pytest.raises(InputError, match="t:3: expected a size, a scope and BW"):
        parse_tables(f"#shmem_put_bw\n{HEAD}1024  None  fast\n2048  None  2.0\n", "t")


def boxed(test, scope, head, rows):
    rule = "+------------------------+----------------------+\n"
    lines = [f"| {test:<22} | {scope:<20} |\n", f"| {'size (Bytes)':<22} | {head[0]:>10} {head[1]:<9} |\n"]
    lines += [f"| {size:<22} | {value:<20.6f} |\n" for size, value in rows]
    return rule + "".join(line + rule for line in lines) + "\n\n"


def test_a_table_in_a_box_is_read_as_the_plain_one():
    rows = [(65536, 11.25), (8388608, 23.75)]
    (table,) = parse_tables(boxed("shmem_put_bw", "None", ("BW", "GB/sec"), rows), "t")
    assert [(rate.bytes, rate.rate_bytes_per_s) for rate in table.rates] == [(65536, 11.25e9), (8388608, 23.75e9)]
    (verdict,) = judge(load_catalogue(), [table], link="hdr-200")
    assert verdict.ok is True


def test_times_in_a_box_are_those_of_messages_and_a_collectives_box_is_none_of_them():
    two = boxed("shmem_put_latency", "thread", ("latency", "us"), [(8, 2.5)]) + boxed(
        "shmem_get_latency", "warp", ("latency", "us"), [(8, 4.5)]
    )
    times = [[round(row.time_s * 1e6, 3) for row in table.rows] for table in parse_tables(two, "t")]
    assert times == [[2.5], [4.5]]
    with pytest.raises(InputError):
        parse_tables(boxed("alltoall_latency", "32-bit", ("latency", "us"), [(8, 2.5)]), "t")
