"""All-to-all with a matrix of counts: proved, priced by what each rank sends, and written both ways."""

import itertools
import random

import pytest

from meshwright.cli import run_command
from meshwright.collectives.algorithms.uneven import read_counts, uneven_all_to_all
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.msccl.exporter import to_msccl_xml
from meshwright.collectives.pricing.network import uniform
from meshwright.collectives.pricing.price import price_schedule
from meshwright.collectives.proof.verify import ScheduleError, verify
from meshwright.collectives.schedules.schedule import Schedule
from meshwright.errors import InputError

CLUSTER = ("--cluster", "dgx-h100")
COUNTS = ((0, 3, 1), (2, 0, 5), (4, 4, 0))


@pytest.mark.parametrize("name", algorithm_names("all_to_all"))
def test_every_algorithm_brings_every_chunk_of_any_matrix_to_its_receiver(name):
    draw = random.Random(5)
    for ranks in (2, 3, 4, 6):
        counts = [[draw.choice([0, 0, 1, 7]) for _ in range(ranks)] for _ in range(ranks)]
        counts[0][1] = 3
        schedule = uneven_all_to_all(build_schedule("all_to_all", name, ranks), counts)

        verify(schedule)

        assert Schedule.parse(str(schedule)) == schedule
        assert schedule.counts == tuple(map(tuple, counts))
        crossed = sum(len(t.chunks) for r in schedule.rounds for t in r if not t.is_local)
        own = sum(counts[i][i] for i in range(ranks))
        assert crossed >= sum(itertools.chain(*counts)) - own


def test_the_time_is_that_of_the_rank_that_sends_or_receives_most():
    linear, pairwise = (
        price_schedule(
            uneven_all_to_all(build_schedule("all_to_all", name, 3), COUNTS), uniform(3, 0.0, 10e9), 80_000_000
        )
        for name in ("linear", "pairwise")
    )

    assert linear.time_s == pytest.approx(8e-3)  # rank 2 sends 8 chunks of 10 MB, all of its payload
    assert pairwise.time_s == pytest.approx(9e-3)  # rounds of 5 and 4 chunks


def test_equal_counts_are_the_even_all_to_all():
    even = build_schedule("all_to_all", "pairwise", 4)
    network = uniform(4, 1e-6, 10e9)

    wide = uneven_all_to_all(even, [[6] * 4] * 4)

    assert wide.rounds == even.rounds
    assert price_schedule(wide, network, 2**20).time_s == price_schedule(even, network, 2**20).time_s


def test_a_lost_chunk_of_an_uneven_all_to_all_is_found():
    schedule = uneven_all_to_all(build_schedule("all_to_all", "linear", 3), COUNTS)
    text = str(schedule).replace("c0-2:0>1", "c0-1:0>1")

    with pytest.raises(ScheduleError, match="rank 1 ends with nothing in slot 2"):
        verify(Schedule.parse(text))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "1 2\n3\n", "row 1 has 1 counts, there are 2 rows"),
        ("a.txt", "1 2\n3 x\n", "row 1: 'x': expected a count of 0 or more"),
        ("a.txt", "1 2\n3 -4\n", "row 1: '-4': expected a count"),
        ("a.txt", "0 0\n0 0\n", "all counts are 0"),
        ("a.json", '{"a": 1}', "expected a square matrix"),
        ("a.json", "[[1, 2], [3, 1.5]]", "row 1: '1.5': expected a count"),
        ("a.json", "[[true, 2], [3, 1]]", "row 0: 'True': expected a count"),
    ],
)
def test_what_is_no_matrix_of_counts_is_refused_in_one_line(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)

    with pytest.raises(InputError, match=said):
        read_counts(tmp_path / name)


def test_counts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="expected an even all_to_all, got all_reduce"):
        uneven_all_to_all(build_schedule("all_reduce", "ring", 3), COUNTS)
    with pytest.raises(InputError, match="counts: of 3 ranks, the schedule is for 4"):
        uneven_all_to_all(build_schedule("all_to_all", "linear", 4), COUNTS)
    with pytest.raises(InputError, match="expected 1048576 at most"):
        uneven_all_to_all(build_schedule("all_to_all", "linear", 2), [[0, 10**9], [10**9 + 1, 0]])
    with pytest.raises(InputError, match="MSCCL's all-to-all is an even one"):
        to_msccl_xml(uneven_all_to_all(build_schedule("all_to_all", "linear", 3), COUNTS))
    with pytest.raises(InputError, match="add up to 19 chunks"):
        Schedule.parse("all_to_all x ranks=2 chunks=19 counts=1,2/3,4\n")


@pytest.mark.parametrize("form", ["0,3,1\n2,0,5\n4,4,0\n", "# tokens\n0\t3\t1\n2\t0\t5\n4\t4\t0\n"])
def test_the_commands_take_the_matrix_of_a_file(tmp_path, form, capsys):
    path = tmp_path / "counts.csv"
    path.write_text(form)

    for words in (
        ["collectives", "verify", "pairwise", "--collective", "all_to_all"],
        ["collectives", "price", "--collective", "all_to_all", "--bytes", "80M", "--rate", "10GB/s", "--alpha", "1us"],
        [
            "simulate",
            "--collective",
            "all_to_all",
            "--algorithm",
            "pairwise",
            "--ranks",
            "3",
            "--bytes",
            "80M",
            *CLUSTER,
        ],
    ):
        assert run_command([*words, "--counts", str(path)]) == 0, words
    even = ["simulate", "--collective", "all_reduce", "--algorithm", "ring", "--ranks", "3", "--bytes", "1M", *CLUSTER]
    assert run_command([*even, "--counts", str(path)]) == 2
    assert "expected an even all_to_all" in capsys.readouterr().err
