"""Jobs whose steps are mostly waits for data: on all ranks alike, which is no rank's fault, or by one log alone."""

import pytest

from .made import judge, out_of_memory, timed_out

FORMS = {
    "torchvision": "Epoch: [1]  [{n:4d}/900]  eta: 1:02:03  loss: 4.2 (4.4)  time: {t:.4f} (2.0)  data: {d:.4f} (1)",
    "imagenet": "Epoch: [0][{n}/5005]\tTime  {t:.3f} (  2.1)\tData  {d:.3f} (  1.5)\tLoss 6.9e+00 (7.0e+00)",
    "timm": "Train: 0 [{n:4d}/1251 (  4%)]  Loss: 6.9 (6.9)  Time: {t:.3f}s,  99.6/s  LR: 1.0e-06  Data: {d:.3f} (1.4)",
    "OpenMMLab": "Epoch(train) [1][{n}/7330] lr: 2e-4 time: {t:.4f} data_time: {d:.4f} memory: 9 loss: 2.2",
    "milliseconds": "step {n} | loss 2.1 | step_time {t_ms:.0f} ms | data {d_ms:.0f} ms | fwd {f_ms:.0f} ms",
    "seconds of a step": "iter {n} loss 3.1 step 2.2s loader_wait={d:.2f}s",
}


def steps(form, share, *, count=12, step=2.2):
    """Lines of steps of which the wait for data is this share, or these."""
    shares = share if isinstance(share, list) else [share] * count
    return [
        form.format(n=10 * n, t=step, d=one * step, t_ms=1e3 * step, d_ms=1e3 * one * step, f_ms=1e3 * (1 - one) * step)
        for n, one in enumerate(shares, 1)
    ]


def table(waits, work=0.6, *, head="rank,fwd_bwd_s,allreduce_s,data_s"):
    rows = [f"{rank},{work},0.05,{wait}" for rank, wait in enumerate(waits)]
    return [head, *rows]


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_steps_that_are_mostly_waits_for_data_are_that_and_of_one_log_nobody_is_known(form, tmp_path):
    verdict = judge(tmp_path, {"console.txt": steps(form, 0.8)})

    assert named(verdict) == ("data", (), True)
    assert "80%" in verdict.because


TABLES = {
    "beside waits": table([1.9, 2.0, 1.95, 2.1]),
    "with the whole step": table([1.9, 2.0, 1.95, 2.1], 2.6, head="rank,step_time,sync,data_time"),
    "in columns": [line.replace(",", "  ") for line in table([1.9, 2.0, 1.95, 2.1])],
}


@pytest.mark.parametrize("lines", TABLES.values(), ids=TABLES)
def test_waits_of_all_ranks_alike_are_nobodys_fault(lines, tmp_path):
    assert named(judge(tmp_path, {"means.csv": lines})) == ("data", (), False)


def test_logs_of_all_ranks_that_wait_alike_are_nobodys_fault(tmp_path):
    logs = {f"rank{rank}.log": steps(FORMS["timm"], 0.7 + 0.01 * rank) for rank in range(4)}

    assert named(judge(tmp_path, logs)) == ("data", (), False)


OTHERS = {
    "a small part of the step": steps(FORMS["timm"], 0.2),
    "the first steps, until the cache is warm": steps(FORMS["timm"], [0.9] * 6 + [0.1] * 8),
    "now and then": steps(FORMS["timm"], [0.9, 0.1] * 8),
    "a few lines": steps(FORMS["timm"], 0.9, count=3),
    "a loader that works beside the step": [
        f"step {n} step_time 1.0 data 0.9 fwd 0.4 bwd 0.5 loss 2.0" for n in range(12)
    ],
    "numbers of steps": [f"step {n} data 1.9 loss 2.0" for n in range(2, 20)],
    "a small part on all ranks": table([0.1, 0.11, 0.1, 0.12]),
    "half of the ranks": table([1.9, 2.0, 0.1, 0.1]),
    "a share of the load": [f"step {n} time 1.0 load 0.97 loss 2.0" for n in range(12)],
    "traffic of data parallelism": [f"step {n} time 1.0 data_parallel 0.97 loss 2.0" for n in range(12)],
    "a job that came to its end": [*steps(FORMS["timm"], 0.8), "training is done", "exit code: 0"],
}


@pytest.mark.parametrize("lines", OTHERS.values(), ids=OTHERS)
def test_other_steps_show_no_fault(lines, tmp_path):
    assert judge(tmp_path, {"job.log": lines}).kind == "none"


def test_one_log_that_waits_beside_others_that_do_not_is_not_taken_for_all(tmp_path):
    logs = {f"rank{rank}.log": steps(FORMS["timm"], 0.8 if rank == 2 else 0.1) for rank in range(4)}

    assert judge(tmp_path, logs).kind == "none"


@pytest.mark.parametrize("fault", [[timed_out(rank, 9) for rank in (0, 1, 3)], [out_of_memory(2)]])
def test_a_fault_says_more_than_slow_data(fault, tmp_path):
    assert judge(tmp_path, [*steps(FORMS["timm"], 0.8), *fault]).kind != "data"


def longest(*steps):
    """The ranks that wait longest for data, in a table a step: the ranks that do, and for how many seconds."""
    lines = []
    for number, (ranks, wait) in enumerate(steps):
        own = [f"{rank} {wait + rank / 900:.3f} {12 - rank / 900:.3f}" for rank in ranks]
        others = [f"{rank} 0.03{rank % 10} {12 + wait:.3f}" for rank in (3, 20, 41, 77, 90) if rank not in ranks]
        lines += [f"step {200 + number}: the slowest ranks", "rank   data_time   step_time", *own, *others, ""]
    return lines


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (longest(((64, 65), 300), ((64, 65), 90), ((64, 65), 41)), ("data", (64, 65), False)),
        (longest(((64, 65), 300)), ("data", (64, 65), False)),
        (longest(((64, 65), 300), ((8, 9), 90), ((30,), 41)), ("data", (), True)),
        (longest(((64, 65), 0.2), ((64, 65), 0.3)), ("none", (), True)),
    ],
    ids=["the same each time", "one table", "others each time", "too short to matter"],
)
def test_tables_of_the_ranks_that_wait_longest_for_data_name_who_is_in_each(lines, expected, tmp_path):
    assert named(judge(tmp_path, {"report.txt": lines})) == expected


def test_a_rank_whose_work_is_longer_for_its_data_waits_for_data(tmp_path):
    rows = ["rank fwd_s data_s allreduce_s", "0 0.6 0.1 1.9", "1 0.6 0.1 1.9", "2 0.6 2.0 0.1", "3 0.6 0.1 1.9"]

    assert named(judge(tmp_path, {"means.txt": rows})) == ("data", (2,), False)
