"""Flight records of random jobs with a planted fault: the culprit is named, an innocent rank never."""

import pytest

from testkit.hanging_jobs import FAULTS, planted

from .made import judge

SEEDS = range(64)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_innocent_rank_is_blamed_for_a_planted_hang(seed, tmp_path):
    job = planted(seed)

    verdict = judge(tmp_path, job.files)

    assert set(verdict.blamed) <= {job.culprit}, verdict.because
    assert verdict.unknown or verdict.kind == job.fault, verdict.because
    assert verdict.unknown or verdict.rank == job.culprit, verdict.because


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_where_all_records_are_there(fault, tmp_path):
    jobs = [job for seed in SEEDS if (job := planted(seed)).fault == fault and job.lost is None]

    verdicts = [judge(tmp_path / str(number), job.files) for number, job in enumerate(jobs)]

    assert len(jobs) > 4
    told = [not verdict.unknown for verdict in verdicts]
    assert sum(told) >= 0.7 * len(told)  # where a pair disagrees and nobody else makes the same calls, nobody can tell
