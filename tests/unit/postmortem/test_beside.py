"""The benchmark that puts `doctor --logs` beside torch's fr_trace: how answers are read and judged; one run of both."""

import pytest

from benchmarks import hangs

MISSING = "Not all ranks joining collective, sequence number: 5\nmissing ranks: {2, 3}\nworld size: 4\n"
TYPES = "error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'all_reduce'\n"
SIZES = "error msg: Culprit rank 3; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[333]]'\n"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (MISSING, hangs.Answer("absent", (2, 3))),
        (TYPES, hangs.Answer("desync", (1,))),
        (SIZES, hangs.Answer("sizes", (3,))),
        ("tabulate is not installed. Proceeding without it.\n", hangs.Answer()),
    ],
)
def test_an_answer_of_fr_trace_is_read_from_what_it_prints(said, wanted):
    assert hangs._answer(said) == wanted


def test_an_answer_is_right_that_names_the_fault_and_nobody_else():
    assert hangs.is_right(hangs.Answer("absent", (2,)), hangs.Answer("absent", (2,)))
    assert hangs.is_right(hangs.Answer(), hangs.Answer("none"))
    assert not hangs.is_right(hangs.Answer("absent", (1, 2)), hangs.Answer("absent", (2,)))
    assert not hangs.is_right(hangs.Answer("sizes", (2,)), hangs.Answer("absent", (2,)))
    assert not hangs.is_right(hangs.Answer(error="refused"), hangs.Answer("none"))


@pytest.mark.slow
def test_both_judge_the_stored_records_and_only_ours_runs_no_code_of_a_pickle():
    rows = {row["set"]: row for row in hangs.run(["--seeds", "4"]).rows}

    assert all(row["ours right"] is True for name, row in rows.items() if "random" not in name and "pickle" not in name)
    assert rows["late"]["fr_trace right"] is True
    assert "innocent" not in rows["4 random jobs"]["ours"]
    assert rows["a pickle with code"]["ours"] == "refused, nothing ran"
