"""Times of ranks that a dashboard exported as CSV: who works longer while the others wait for it."""

import pytest

from .made import judge

WORK, WAITS = [1206, 1198, 2104, 1203], [911, 917, 24, 909]
RANKS = range(4)


def rows(work, waits, *, steps=(50, 60)):
    """A row for each rank and step, the rank in the middle."""
    head = "time,host,rank,step,fwd_bwd_ms,exposed_comm_ms,grad_norm,step_ms"
    return [
        head,
        *(
            f"2026-11-20 07:{step}:00,n{rank // 2},{rank},{step},{work[rank]},{waits[rank]},1.2{rank},2140"
            for step in steps
            for rank in RANKS
        ),
    ]


def long(work, waits):
    """A row for each timer, with quotes."""
    pairs = [(rank, name, values[rank]) for rank in RANKS for name, values in (("compute", work), ("allreduce", waits))]
    head = '"Time","rank","metric","Value"'
    return [head, *(f'"2026-11-20 07:{at}:00","rank {r}","{n}","{v}"' for at in (10, 20) for r, n, v in pairs)]


def wide(work, waits):
    """A column for each timer of each rank, as Prometheus names them."""
    columns = [f'{name}{{rank=""{rank}""}}' for name in ("fwd_ms", "nccl_wait_ms") for rank in RANKS]
    values = ",".join(map(str, [*work, *waits]))
    return ["Time," + ",".join(f'"{column}"' for column in columns), f"07:10,{values}", f"07:20,{values}"]


def own_clocks(work, waits):
    """Rows of ranks that each have times of their own."""
    head = "timestamp,rank,forward_s,backward_s,sync_s"
    return [
        head,
        *(
            f"17000{rank}{at}.5,{rank},{work[rank] / 3000:.3f},{work[rank] / 1500:.3f},{waits[rank] / 1000:.3f}"
            for rank in RANKS
            for at in (1, 2, 3)
        ),
    ]


FORMS = (rows, long, wide, own_clocks)


@pytest.mark.parametrize("form", FORMS)
def test_who_works_longer_in_an_exported_table_while_the_others_wait_is_slow(form, tmp_path):
    verdict = judge(tmp_path, {"panel.csv": form(WORK, WAITS), "job.log": ["step 50 loss 2.1", "step 60 loss 2.0"]})

    assert (verdict.kind, verdict.blamed) == ("slow", (2,))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("work", "waits"),
    [([1206, 1198, 1204, 1203], [911, 917, 905, 909]), (WORK, [911, 917, 912, 909]), (WORK, [24, 31, 917, 28])],
    ids=["alike", "nobody waits for it", "it waits itself"],
)
def test_an_exported_table_in_which_nobody_waits_for_the_longest_work_names_nobody(form, work, waits, tmp_path):
    verdict = judge(tmp_path, {"panel.csv": form(work, waits), "job.log": ["step 50 loss 2.1", "step 60 loss 2.0"]})

    assert (verdict.kind, verdict.blamed) == ("none", ())


def steps_of_one(rank, work, backward):
    """Rows of a rank's own file, which has no column of ranks."""
    own = f"{work[rank]},{backward[rank]},6.1,{work[rank] + backward[rank] + 9}"
    return ["step,input_wait,forward,backward,optimizer,step_total", *(f"{n},2.9,{own}" for n in range(30, 38))]


@pytest.mark.parametrize(
    ("work", "backward", "kind", "blamed"),
    [
        ([80, 81, 320, 79], [410, 408, 170, 411], "slow", (2,)),
        ([80, 81, 320, 79], [170, 171, 170, 172], "none", ()),
        ([80, 81, 79, 80], [410, 408, 411, 170], "none", ()),
    ],
    ids=["others wait in it", "nobody waits", "a short one"],
)
@pytest.mark.parametrize("form", ["a file each", "a table"])
def test_without_a_timer_of_waits_the_others_wait_in_the_backward_pass(form, work, backward, kind, blamed, tmp_path):
    files = {f"steps_rank{rank}.csv": steps_of_one(rank, work, backward) for rank in RANKS}
    if form == "a table":
        rows = [f"{r} | {work[r]} | {backward[r]} | 6.1 | {work[r] + backward[r] + 9}" for r in RANKS]
        files = {"summary.txt": ["rank | forward | backward | optimizer | step", *rows]}
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == (kind, blamed)
