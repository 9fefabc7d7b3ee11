"""PyTorch's own tests of collectives pass on the backend "meshwright" wherever they pass on Gloo."""

import pytest

from tests.external import pytorch_suite
from tests.external.pytorch_suite import ALL_TO_ALL, FAILED, KNOWN, PASSED, main, run_all

QUICK = ["test_all_reduce_sum", "test_all_gather_coalesced_simple", "test_broadcast", "test_isend"]
pytestmark = pytest.mark.timeout(400)


def unexpected(outcomes):
    """Return the reasons of the tests that failed and are not among those known to."""
    return {n: o.reason for n, o in outcomes.items() if o.status == FAILED and n not in KNOWN}


def test_a_few_tests_of_the_suite_pass():
    outcomes = run_all(3, "meshwright", "gloo", QUICK)

    assert {name: outcome.status for name, outcome in outcomes.items()} == dict.fromkeys(QUICK, PASSED)


@pytest.mark.slow
def test_every_test_that_gloo_passes_passes_but_for_known_ones():
    outcomes = run_all(4, "meshwright", "gloo")

    assert unexpected(outcomes) == {}
    assert sum(outcome.status == PASSED for outcome in outcomes.values()) >= 89
    groups = [name for name, outcome in outcomes.items() if "small world size" in outcome.reason]
    assert len(groups) >= 10
    at_eight = run_all(8, "meshwright", "gloo", groups)
    assert unexpected(at_eight) == {}


@pytest.mark.slow
def test_all_to_all_passes_the_tests_kept_for_mpi():
    outcomes = run_all(4, "meshwright", "mpi", ALL_TO_ALL)

    assert unexpected(outcomes) == {}
    assert sum(outcome.status == PASSED for outcome in outcomes.values()) >= 5


def test_the_command_tells_what_became_of_named_tests(capsys):
    main(["meshwright:gloo", "3", "test_broadcast", "test_monitored_barrier_gloo_rank_0_timeout"])

    assert "{'passed': 2, 'skipped': 0, 'failed': 0}" in capsys.readouterr().out


def test_the_command_without_arguments_writes_the_page_and_fails_where_a_test_does(monkeypatch):
    monkeypatch.setattr(pytorch_suite, "write_document", list)
    main([])
    monkeypatch.setattr(pytorch_suite, "write_document", lambda: ["test_broadcast"])
    with pytest.raises(SystemExit, match="it is not known why: test_broadcast"):
        main([])
