"""Numbers of the command line as people write them: percent signs, units of days, commas between thousands."""

import json

import click
import pytest

from meshwright.cli import run_command
from meshwright.cli.amounts import DAYS, PART, SECONDS, SHARE, CollectiveName, Whole
from meshwright.errors import InputError
from meshwright.units import parse_days, parse_share

SMALL = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--seq-len", "4096", "--global-batch", "64"]


@pytest.mark.parametrize(
    ("text", "share"), [("0.4", 0.4), ("40%", 0.4), ("40 %", 0.4), (".5", 0.5), ("43,5 %", 0.435), ("0,4", 0.4)]
)
def test_a_share_has_a_percent_sign_or_none(text, share):
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["forty", "40 percent", "%", ""])
def test_what_is_no_share_is_refused_with_one(text):
    with pytest.raises(InputError, match=r"a share such as 0\.4 or 40%"):
        parse_share(text)


@pytest.mark.parametrize(("text", "days"), [("60", 60), ("60d", 60), ("60 days", 60), ("8 weeks", 56), ("36h", 1.5)])
def test_days_have_a_unit_or_none(text, days):
    assert parse_days(text) == pytest.approx(days)


def test_months_are_no_unit_of_days():
    with pytest.raises(InputError, match="unknown unit 'months'; expected days such as 60, 60d, 8 weeks or 36h"):
        parse_days("2 months")


@pytest.mark.parametrize(("text", "number"), [("1,024", 1024), ("16,777,216", 16777216), ("512", 512)])
def test_a_whole_number_may_have_commas_between_thousands(text, number):
    assert Whole(min=1).convert(text, None, None) == number


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2k", "'2k' is no whole number, such as 2048 or 2000"),
        ("4M", "'4M' is no whole number, such as 4194304 or 4000000"),
        ("1,02", "'1,02' is not a valid integer range"),
        ("0", "0 is not in the range x>=1"),
    ],
)
def test_a_slip_in_a_whole_number_is_answered_with_what_it_may_mean(text, told):
    with pytest.raises(click.BadParameter, match=told):
        Whole(min=1).convert(text, None, None)


def test_amounts_are_held_to_their_bounds():
    assert (SHARE.convert("40%", None, None), PART.convert("100%", None, None)) == (0.4, 1.0)
    assert (DAYS.convert("2w", None, None), SECONDS.convert("500 ms", None, None)) == (14.0, 0.5)
    with pytest.raises(click.BadParameter, match="not in the range"):
        PART.convert("140%", None, None)
    with pytest.raises(click.BadParameter, match="not in the range"):
        SECONDS.convert("0", None, None)


@pytest.mark.parametrize(("flag", "text", "same"), [("--mfu", "40%", "0.4"), ("--gpus", "1,024", "1024")])
def test_a_command_reads_both_forms_alike(capsys, flag, text, same):
    found = []
    for value in (text, same):
        words = [*SMALL, "--mfu", "0.5", "--json", flag, value]
        assert run_command(words) == 0
        found.append(json.loads(capsys.readouterr().out))

    assert found[0] == found[1]


@pytest.mark.parametrize(("seq_len", "told"), [("32768", True), ("128", False)])
def test_an_arithmetic_of_weights_says_what_scores_of_attention_add(capsys, seq_len, told):
    assert run_command([*SMALL, "--seq-len", seq_len, "--mfu", "40%"]) == 0
    assert ("with attention's scores" in " ".join(capsys.readouterr().out.split())) == told


@pytest.mark.parametrize(
    "name", ["all_reduce", "allreduce", "AllReduce", "all-reduce", "all_reduce_perf", "ncclAllReduce"]
)
def test_a_collective_goes_by_the_names_that_other_programs_have_for_it(name):
    assert CollectiveName(("all_reduce", "reduce")).convert(name, None, None) == "all_reduce"


@pytest.mark.parametrize("name", ["allreduced", "all", "perf", ""])
def test_a_name_that_no_program_has_for_a_collective_is_refused(name):
    with pytest.raises(click.BadParameter):
        CollectiveName(("all_reduce", "reduce")).convert(name, None, None)
