"""Jobs whose steps last longer to the end of the log: slow, and nobody is named."""

import pytest

from .made import judge

FORMS = {
    "Megatron": " iteration {n:8d}/ 90000 | elapsed time per iteration (ms): {ms:.1f} | global batch size:   64 |",
    "NeMo": "Training epoch 0, iteration {n}/999 | global_step: {n} | train_step_timing in s: {s:.3f}",
    "tokens": "step {n} | loss 2.1 | {tokens:,.0f} tok/s",
    "bar": "Epoch 1:  3%|3  | {n}/10000 [01:00<9:00:00,  {s:.2f}s/it, loss=1.2]",
    "rate": "step={n} loss=1.9 {rate:.2f}it/s",
    "key": "iter: {n}  loss: 0.4  step_time={s:.3f}",
    "dt": "step {n:05d} | loss 3.1 | dt: {ms:.2f}ms",
}
RISEN = [1.0, 1.02, 0.99, 1.01, 1.03, 0.98, 2.6, 2.7, 2.65, 2.6, 2.71]


def lines(form, seconds):
    return [
        form.format(n=10 * (number + 1), s=s, ms=1000 * s, rate=1 / s, tokens=90_000 / s)
        for number, s in enumerate(seconds)
    ]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_steps_that_stay_longer_are_slow_and_nobody_is_named(form, tmp_path):
    verdict = judge(tmp_path, {"job.log": lines(form, RISEN)})

    assert named(verdict) == ("slow", (), True)
    assert "2.6 times longer" in verdict.because or "2.7 times longer" in verdict.because


HEALTHY = {
    "even": [1.0] * 12,
    "first step compiles": [30.0, 1.0, 1.0, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0],
    "a checkpoint": [1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 1.0, 1.0, 1.0],
    "the last few alone": [1.0] * 9 + [2.6] * 3,
    "up and down": [1.0, 2.6, 1.0, 2.6, 1.0, 2.6, 1.0, 2.6, 2.6, 2.6, 2.6],
    "a little": [1.0] * 6 + [1.3] * 6,
    "few before": [1.0, 1.0, 2.6, 2.6, 2.6, 2.6, 2.6],
}


@pytest.mark.parametrize("seconds", HEALTHY.values(), ids=HEALTHY)
def test_other_courses_are_no_slowdown(seconds, tmp_path):
    assert judge(tmp_path, {"job.log": lines(FORMS["key"], seconds)}).kind == "none"


def test_steps_that_do_more_are_no_slowdown(tmp_path):
    risen = lines(FORMS["Megatron"], RISEN)
    grown = [line.replace("size:   64", "size:   128") if place > 5 else line for place, line in enumerate(risen)]

    assert judge(tmp_path, {"job.log": grown}).kind == "none"


def test_a_slow_job_that_came_to_its_end_is_none(tmp_path):
    ended = [*lines(FORMS["key"], RISEN), "training is done", "exit code: 0"]

    assert judge(tmp_path, {"job.log": ended}).kind == "none"


def test_a_log_with_a_clock_alone_shows_it_by_the_time_between_steps(tmp_path):
    at_s = [0, 20, 40, 61, 80, 100, 160, 222, 281, 340, 401]
    log = [f"2026-11-20 09:{s // 60:02d}:{s % 60:02d} step {n} loss 2.0" for n, s in enumerate(at_s, 1)]

    assert named(judge(tmp_path, {"job.log": log})) == ("slow", (), True)
    evaluated = [line.replace("step", "eval step") if number > 6 else line for number, line in enumerate(log)]
    assert judge(tmp_path, {"job.log": evaluated}).kind == "none"
    rarer = [line.replace(f"step {n}", f"step {n + 2 * max(0, n - 6)}") for n, line in enumerate(log, 1)]
    assert judge(tmp_path, {"job.log": rarer}).kind == "none"
