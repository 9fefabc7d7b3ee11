"""Random jobs with a planted fault: shares, steps and culprit against what was planted."""

import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized

from .planted import BECAUSE, FAULTS, Job, drawn

PARTS = ("compute", "exposed_comm", "hidden_comm", "idle", "data")
LEAST_COST = 0.03  # of a step: less is hidden in the slack of a pipeline, and nobody need be named
FEW = range(len(FAULTS))
# pipelines on hosts whose clocks differ, ranks late in turn in few steps, tensor parallel peers of a late rank
TELLING = (12, 38, 50, 64, 124, 1022, 1048, 1065, 1083)
MANY = range(100, 124)


def checked(seed, folder):
    plan = drawn(seed)
    job = Job(plan)
    job.write(folder)
    summary, truth = summarized(read_traces([folder])), job.truth()
    for rank in summary.ranks:
        true = truth[rank.rank]
        assert rank.step_s * 1e6 == pytest.approx(true["step_us"], rel=0.05), plan
        told = {part: 100 * getattr(rank, f"{part}_s") / rank.step_s for part in PARTS}
        assert told == pytest.approx({part: true[part] for part in PARTS}, abs=2.0), plan
    culprit, cost_us = summary.culprit, job.cost_us() if plan.culprit is not None else 0.0
    hidden = cost_us < LEAST_COST * max(true["step_us"] for true in truth.values())
    named = None if culprit is None else culprit.rank
    assert named == plan.culprit or (hidden and named is None), plan
    if culprit is not None:
        assert BECAUSE[plan.fault] in culprit.because, plan
        assert culprit.costs_s_per_step * 1e6 == pytest.approx(cost_us, rel=0.25, abs=300.0), plan


@pytest.mark.parametrize("seed", [*FEW, *TELLING])
def test_a_planted_fault_is_found_and_nobody_else_is_blamed(seed, tmp_path):
    checked(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_many_planted_faults_are_found_and_nobody_else_is_blamed(seed, tmp_path):
    checked(seed, tmp_path)
