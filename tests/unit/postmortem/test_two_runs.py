"""Logs before and after a change: steps that take longer since, which is no rank's fault."""

import pytest

from .made import judge, timed_out

HEAD = "torch {} | 8 x H100 | world_size: {}"
SLOWER = "WARNING: apex is missing, falling back to torch.optim.AdamW"


def run(
    seconds, *, torch="2.7", world=8, batch=64, more=(), form="step {n} | loss 2.1 | batch_size: {b} | total {s} s"
):
    lines = [form.format(n=10 * n, b=batch, s=round(seconds + 0.01 * (n % 3), 3)) for n in range(1, 16)]
    return [HEAD.format(torch, world), *more, *lines]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


PAIRS = {
    "old and new": ("old_env.log", "new_env.log"),
    "before and after": ("train-before.log", "train-after.log"),
    "folders": ("baseline/job.log", "upgraded/job.log"),
    "times of steps": ("prev.txt", "now.txt"),
}


@pytest.mark.parametrize("names", PAIRS.values(), ids=PAIRS)
def test_steps_that_are_longer_since_a_change_are_slow_and_nobody_is_known(names, tmp_path):
    verdict = judge(tmp_path, {names[0]: run(2.0), names[1]: run(2.8, torch="2.9", more=[SLOWER])})

    assert named(verdict) == ("slow", (), True)
    assert "1.40 times" in verdict.because
    assert "falling back to torch.optim.AdamW" in verdict.because


def test_a_table_that_shows_the_ranks_alike_says_that_it_is_none_of_them(tmp_path):
    table = ["rank,fwd,comm,opt", *(f"{rank},1.1{rank},0.5{rank},0.0{1 + rank}" for rank in range(4))]

    verdict = judge(tmp_path, {"old.log": run(2.0), "new.log": run(2.8), "ranks.csv": table})

    assert named(verdict) == ("slow", (), False)


def test_logs_of_each_rank_before_and_after_do_so_too(tmp_path):
    logs = {f"{when}/rank{rank}.log": run(s) for rank in range(3) for when, s in (("old", 2.0), ("new", 2.8))}

    assert named(judge(tmp_path, logs)) == ("slow", (), False)


OTHERS = {
    "no longer": {"old.log": run(2.0), "new.log": run(2.1)},
    "shorter": {"old.log": run(2.8), "new.log": run(2.0)},
    "names that do not tell": {"a.log": run(2.0), "b.log": run(2.8)},
    "other names": {"old_llama.log": run(2.0), "new_mixtral.log": run(2.8)},
    "twice the batch": {"old.log": run(2.0), "new.log": run(2.8, batch=128)},
    "half of the ranks": {"old.log": run(2.0), "new.log": run(2.8, world=4)},
    "another unit": {"old.log": run(2.0), "new.log": run(2800.0)},
    "another form": {"old.log": run(2.0), "new.log": run(2.8, form="step {n} loss 2.1 batch_size: {b} step_time={s}")},
    "steps of all lengths": {"old.log": run(2.0), "new.log": [*run(2.8)[:6], *run(9.0)[6:9], *run(2.8)[9:]]},
    "one rank alone": {
        **{f"{when}/rank{rank}.log": run(2.0) for rank in (0, 1, 2) for when in ("old", "new")},
        "new/rank1.log": run(2.8),
    },
    "a log without its partner": {"old.log": run(2.0), "new.log": run(2.8), "old_b.log": run(2.0)},
    "a job that ended well": {"old.log": run(2.0), "new.log": [*run(2.8), "training is done", "exit code: 0"]},
}


@pytest.mark.parametrize("logs", OTHERS.values(), ids=OTHERS)
def test_other_logs_are_no_slowdown(logs, tmp_path):
    assert judge(tmp_path, logs).kind == "none"


def test_what_the_program_did_without_before_is_not_why(tmp_path):
    verdict = judge(tmp_path, {"old.log": run(2.0, more=[SLOWER]), "new.log": run(2.8, more=[SLOWER])})

    assert verdict.kind == "slow"
    assert "falling back" not in verdict.because


def test_a_hang_says_more(tmp_path):
    hung = [*run(2.8), *(timed_out(rank, 9) for rank in (0, 1, 3))]

    assert judge(tmp_path, {"old.log": run(2.0), "new.log": hung}).kind == "absent"
