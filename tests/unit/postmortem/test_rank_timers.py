"""Times of each rank in the words of people's own scripts: who works longer while the others wait for it is slow."""

import pytest

from .made import judge


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def sections(work, waits, *, more=()):
    """A report with a section for each timer."""
    lines = ["=== Straggler Report at Step 40 ===", "Section Timings (ms):", ""]
    for name, values in (("fwd_bwd", work), ("grad_allreduce", waits), *more):
        lines += [f"  {name}:", f"    Min: {min(values)}ms, Max: {max(values)}ms, Slowdown: 2.1x"]
        lines += [f"    Rank {rank}: {value}ms" for rank, value in enumerate(values)]
    return [f"[default0]:{line}" for line in [*lines, "step 40 loss 2.1"]]


def lines(work, waits, *, step=7, form="[timers] step={step} rank={rank} fwd={work}s comm_wait={wait}s adam=1.20s"):
    """A line for each rank."""
    return [form.format(step=step, rank=r, work=w, wait=v) for r, (w, v) in enumerate(zip(work, waits, strict=True))]


def table(work, waits):
    """A row for each rank."""
    rows = [f"{rank}     {own}   {waited}" for rank, (own, waited) in enumerate(zip(work, waits, strict=True))]
    return ["step 40 timing (ms)", "rank  compute   grad_sync", *rows, "step 41 loss 2.1"]


LATE = [[900.5, 901.2, 1802.5, 899.4, 903.3], [910.3, 911.5, 12.1, 913.5, 908.4]]
EVEN = [[900.5, 901.2, 902.5, 899.4, 903.3], [12.3, 11.5, 12.1, 13.5, 18.4]]
SPOKEN = "[rank{rank}] iter {step} | data: 12 ms | compute: {work} ms | allreduce: {wait} ms"
BARRED = "[rank{rank}] step {step} | data 0.010s | bwd(compute) {work}s | grad_sync wait {wait}s | total 3.720s"
BARE = (
    "[rank {rank}] step  {step} | loss 2.10 | fwd-bwd {work} | all_reduce (incl. wait) {wait} | data 1.4 | step 913.7"
)
SLOW = {
    "sections": sections(*LATE),
    "sections that come again": [*sections(*EVEN), *sections(*LATE), *sections(*LATE)],
    "lines": [*lines(*EVEN), *lines(*LATE, step=8), *lines(*LATE, step=9)],
    "lines behind a label": [*lines(*LATE, step=8, form=SPOKEN), *lines(*LATE, step=9, form=SPOKEN)],
    "lines of cells between bars": [*lines(*LATE, step=8, form=BARRED), *lines(*LATE, step=9, form=BARRED)],
    "lines of cells without units": [*lines(*LATE, step=8, form=BARE), *lines(*LATE, step=9, form=BARE)],
    "a table": table(*LATE),
}


@pytest.mark.parametrize("job", SLOW.values(), ids=SLOW)
def test_who_works_longer_while_the_others_wait_is_slow(job, tmp_path):
    assert named(judge(tmp_path, job)) == ("slow", (2,), False)


def test_all_ranks_of_a_host_are_slow_together(tmp_path):
    work, waits = [4.1, 4.2, 4.3, 4.1, 30.5, 31.3, 31.1, 30.8], [26.6, 26.5, 26.7, 26.8, 0.5, 0.6, 0.4, 0.5]

    verdict = judge(tmp_path, [*lines(work, waits, step=8), *lines(work, waits, step=9)])

    assert named(verdict) == ("slow", (4, 5, 6, 7), False)


NOBODY = {
    "equal work": [*lines(*EVEN, step=8), *lines(*EVEN, step=9)],
    "equal work between bars": [*lines(*EVEN, step=8, form=BARRED), *lines(*EVEN, step=9, form=BARRED)],
    "longer work for which nobody waits": lines(LATE[0], EVEN[1]),
    "who was slow and is no more": [*lines(*LATE, step=8), *lines(*EVEN, step=9)],
    "another one each time": [*lines(*LATE, step=8), *lines(LATE[0][::-1], [9.0, *LATE[1][:1] * 4], step=9)],
    "stages of a pipeline": sections(*LATE, more=[("forward-recv", [9.0] * 5)]),
    "work that differs between all": table([100.0, 200.0, 300.0, 400.0, 800.0], [700.0, 600.0, 500.0, 400.0, 0.0]),
    "most of them": lines([1.0, 9.0, 9.1, 9.2, 9.0], [8.1, 0.1, 0.1, 0.1, 0.1]),
    "half of them, by turns": lines([1.0, 9.0, 1.1, 9.2], [8.1, 0.1, 8.1, 0.1]),
    "losses, which are no timers": [f"rank={rank} loss={2.0 + 9 * (rank == 2)} acc=0.5" for rank in range(4)],
}


@pytest.mark.parametrize("job", NOBODY.values(), ids=NOBODY)
def test_nobody_is_slow_by(job, tmp_path):
    assert judge(tmp_path, job).blamed == ()


def logs(*reports, form):
    """A log for each rank with its lines of each report."""
    files: dict[str, list[str]] = {}
    for step, (work, waits) in enumerate(reports):
        for rank, line in enumerate(lines(work, waits, step=step, form=form)):
            files.setdefault(f"timers/rank{rank:02}.log", []).append(line)
    return files


STAGED = "[rank {rank}] step {step} | fwd-bwd {work} | pipe-recv 1.2 | grad sync {wait} | data 1.4"
FORMS = {"labelled": SPOKEN, "in seconds": BARRED, "without units": BARE}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_times_of_ranks_that_have_a_log_each_are_held_against_each_other(form, tmp_path):
    assert named(judge(tmp_path, logs(*[EVEN] * 5, *[LATE] * 4, form=form))) == ("slow", (2,), False)


@pytest.mark.parametrize(
    "files",
    [
        logs(*[EVEN] * 9, form=BARE),
        logs(*[LATE] * 4, *[EVEN] * 4, form=BARE),
        logs(*[LATE] * 2, form=BARE),
        logs(*[LATE] * 9, form=STAGED),
        {name: own for name, own in logs(*[LATE] * 9, form=BARE).items() if "02" in name or "03" in name},
    ],
    ids=["alike", "over", "too few", "stages", "two ranks"],
)
def test_times_in_logs_of_one_rank_each_that_show_nobody_name_nobody(files, tmp_path):
    assert judge(tmp_path, files).blamed == ()


def pairs(heading, slow=None):
    rows = [f"  rank {r:2}  {100 + r}.5 / {300 - r}.5" for r in range(6) if r != slow]
    return [heading, *rows, *([f"  rank {slow:2}  390.0 /   9.0"] if slow is not None else [])]


PAIRED = "mean of 50 steps, forward and backward ms (before all-reduce) / wait in all-reduce ms"


def test_a_pair_of_times_for_each_rank_tells_who_works_long_and_waits_little(tmp_path):
    verdict = judge(tmp_path, pairs(PAIRED, slow=4))

    assert (verdict.kind, verdict.blamed) == ("slow", (4,))


@pytest.mark.parametrize("lines", [pairs(PAIRED), pairs("loss / accuracy", 4), pairs("wait ms / all-reduce ms", 4)])
def test_pairs_of_which_no_rank_stands_out_or_whose_names_are_no_times_name_nobody(tmp_path, lines):
    assert judge(tmp_path, lines).blamed == ()


SPACED = {
    "with two spaces": "    rank {rank}: fwd+bwd {work:.2f}s  wait_allreduce {waits:.2f}s  optim 0.05s",
    "in French": "[rang {rank}] étape {step}: chargement 4 ms, calcul avant {work} ms, attente all_reduce {waits} ms",
}


@pytest.mark.parametrize("form", SPACED)
def test_timers_whose_times_follow_their_names_without_a_sign_are_read(form, tmp_path):
    lines = [
        SPACED[form].format(rank=rank, step=step, work=900 if rank == 2 else 400, waits=9 if rank == 2 else 510)
        for step in (20, 40, 60)
        for rank in range(4)
    ]
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed) == ("slow", (2,))


RANKS_OF_PODS = (3, 2, 0, 1)
SET = {
    "in one line": ["[agent] exported RANK={rank} LOCAL_RANK={local} WORLD_SIZE=4"],
    "a variable a line": ["RANK={rank}", "WORLD_SIZE=4", "LOCAL_RANK={local}"],
}


def of_pods(variables, *, local=0, step=1):
    """The log of each pod: its variables, and the times of its steps."""
    logs = {}
    for pod, rank in enumerate(RANKS_OF_PODS):
        work, wait = ("2.95", "0.20") if rank == 2 else ("1.00", "2.15")
        steps = [f"step {s} data=0.01s fwd_bwd={work}s allreduce_wait={wait}s total=3.3s" for s in range(40, 60)]
        logs[f"fit-worker-{pod}.log"] = [*(v.format(rank=rank * step, local=local) for v in variables), *steps]
    return logs


@pytest.mark.parametrize("variables", SET.values(), ids=SET)
def test_a_pod_s_log_is_of_the_rank_in_its_environment_whatever_its_number(variables, tmp_path):
    assert named(judge(tmp_path, of_pods(variables))) == ("slow", (2,), False)


def test_logs_of_first_ranks_of_hosts_are_not_those_of_one_rank(tmp_path):
    hosts = of_pods(["RANK={rank} LOCAL_RANK=0 WORLD_SIZE=32"], step=8)

    assert judge(tmp_path, hosts).blamed == ()
