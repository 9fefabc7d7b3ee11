"""Megatron's tables of timers across ranks, and GPUs that nvidia-smi's tables show slowed down."""

import pytest

from .made import judge


def table(forward, backward, sync, *, more=()):
    """One table of four ranks, in milliseconds."""
    lines = [" [2026-03-01] iteration 70/ 900 | elapsed time per iteration (ms): 281.4 |", "times across ranks (ms):"]
    for name, values in (("forward-compute", forward), ("backward-compute", backward), ("all-grads-sync", sync), *more):
        lines += [f"  {name}:", *(f"     rank {rank:>2}: {ms:.2f}" for rank, ms in enumerate(values))]
    return lines


EVEN = table([90, 91, 90, 89], [170, 171, 172, 170], [9, 9, 9, 9])
SLOW = table([90, 91, 140, 89], [170, 171, 270, 170], [158, 157, 9, 160])


@pytest.mark.parametrize("tables", [[SLOW], [EVEN, SLOW, SLOW]])
def test_who_works_longer_while_the_others_wait_is_slow(tables, tmp_path):
    verdict = judge(tmp_path, [line for one in tables for line in one])

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("slow", 2, False)


HEALTHY = {
    "who was slow once and is no more": [SLOW, EVEN],
    "whose longer work nobody waits for": [table([90, 91, 140, 89], [170, 171, 270, 170], [9, 9, 9, 9])],
    "a small part that is three times longer": [
        table([90, 91, 98, 89], [170, 171, 172, 170], [9, 9, 9, 9], more=[("batch-generator", [4, 4, 12, 4])])
    ],
    "a stage of a pipeline": [table([90, 91, 140, 89], [170] * 4, [60, 60, 9, 60], more=[("forward-recv", [9] * 4)])],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nobody_is_slow_by(name, tmp_path):
    verdict = judge(tmp_path, [line for one in HEALTHY[name] for line in one])

    assert (verdict.kind, verdict.blamed) == ("none", ())


FETCHES = table([90, 91, 240, 89], [170, 171, 170, 170], [158, 157, 9, 160], more=[("batch-generator", [4, 4, 154, 4])])


@pytest.mark.parametrize("tables", [[FETCHES], [EVEN, FETCHES, FETCHES]], ids=["once", "since some step"])
def test_whose_longer_work_is_its_batch_generator_waits_for_its_data(tables, tmp_path):
    verdict = judge(tmp_path, [line for one in tables for line in one])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("data", (2,), False)
    assert "154.00" in verdict.evidence[0].text


def test_whose_batches_come_only_a_little_later_is_slow_by_itself(tmp_path):
    verdict = judge(
        tmp_path,
        table([90, 91, 240, 89], [170, 171, 270, 170], [258, 257, 9, 260], more=[("batch-generator", [4, 4, 64, 4])]),
    )

    assert (verdict.kind, verdict.blamed) == ("slow", (2,))
    assert verdict.because.count("the own work of rank 2") == 1


def test_of_a_group_whose_ranks_wait_for_each_other_none_is_named(tmp_path):
    slow = table([90] * 6 + [140, 141], [170] * 6 + [270, 271], [158] * 6 + [9, 9])

    verdict = judge(tmp_path, slow)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("slow", (), True)


def gpus(slow, *, reason="0x0000000000000048"):
    """Rows of nvidia-smi's CSV of four GPUs; a cap of power is usual."""
    rows = [
        f"{index}, 00000000:{index + 1}A:00.0, {88 if index == slow else 62}, {1095 if index == slow else 1755} MHz,"
        f" {reason if index == slow else '0x0000000000000004'}"
        for index in range(4)
    ]
    return ["index, pci.bus_id, temperature.gpu, clocks.current.sm [MHz], clocks_event_reasons.active", *rows]


def test_a_gpu_that_its_driver_slows_down_is_that_of_its_rank_on_one_host(tmp_path):
    verdict = judge(tmp_path, {"train.log": [f"[rank{rank}]: begins" for rank in range(4)], "smi.csv.txt": gpus(3)})

    assert (verdict.kind, verdict.rank) == ("slow", 3)


def test_a_gpu_at_its_cap_of_power_is_not_slow(tmp_path):
    lines = [f"[rank{rank}]: begins" for rank in range(4)]

    verdict = judge(tmp_path, {"train.log": lines, "smi.csv.txt": gpus(3, reason="0x0000000000000004")})

    assert verdict.kind == "none"


def test_a_slow_gpu_of_another_place_than_the_slow_rank_leaves_it_open(tmp_path):
    same = judge(tmp_path / "same", {"train.log": SLOW, "smi.csv.txt": gpus(2)})
    other = judge(tmp_path / "other", {"train.log": SLOW, "smi.csv.txt": gpus(1)})

    assert (same.rank, same.unknown) == (2, False)
    assert (other.kind, other.blamed, other.unknown) == ("slow", (), True)


def steps(rank, total, comm):
    """A rank's own lines of its last steps, in seconds."""
    return [f"[rank{rank}]: step {at} loss=2.10 total={total}s comm={comm}" for at in range(6)]


def test_who_works_longer_by_the_lines_of_all_ranks_is_slow(tmp_path):
    files = {f"rank{rank}.log": steps(rank, "1.90", "0.06" if rank == 1 else "0.91") for rank in range(4)}

    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.rank, verdict.waiting) == ("slow", 1, (0, 2, 3))


def test_a_rank_without_such_lines_may_be_the_slow_one(tmp_path):
    files = {f"rank{rank}.log": steps(rank, "1.90", "0.06" if rank == 1 else "0.91") for rank in range(4)}
    files["rank3.log"] = ["[rank3]: begins"]

    assert judge(tmp_path, files).blamed == ()


def two_hosts(**more):
    """Return the logs of two hosts with four ranks each, and what else was saved."""
    logs = {f"box{host}.log": [f"[rank{4 * host + own}]: begins" for own in range(4)] for host in range(2)}
    return logs | {name.replace("__", "."): lines for name, lines in more.items()}


@pytest.mark.parametrize(
    ("more", "blamed"),
    [
        ({"smi_box1__txt": gpus(2)}, (6,)),
        ({"smi-box1__txt": gpus(2)}, (6,)),
        ({"smi__txt": ["$ ssh box1 nvidia-smi --query-gpu=index --format=csv", *gpus(2)]}, (6,)),
        ({"smi__txt": ["$ ssh box1 nvidia-smi -l", *gpus(2), "$ ssh me@box0 nvidia-smi -l", *gpus(None)]}, (6,)),
        ({"smi__txt": gpus(2)}, ()),
        ({"smi-box1__txt": gpus(2)[:4]}, ()),
    ],
)
def test_a_slow_gpu_of_a_named_host_is_that_of_its_rank_there(more, blamed, tmp_path):
    verdict = judge(tmp_path, two_hosts(**more))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("slow", blamed, not blamed)


SLOWED = [
    line
    for n in range(4)
    for line in (
        f"GPU 00000000:{n + 1}A:00.0",
        "    Clocks Event Reasons",
        f"        HW Slowdown                       : {'Active' if n == 2 else 'Not Active'}",
        "    Clocks",
        f"        SM                                : {420 if n == 2 else 1900} MHz",
    )
]


@pytest.mark.parametrize("host", ["2024-01-02,10:00:00 |  n{} | INFO | {}", "10:00:00 | INFO | {1} [n{0}]"])
@pytest.mark.parametrize(
    "command", ["[n8]$ nvidia-smi -q", "me@n8:~$ nvidia-smi -q", "ssh n8 nvidia-smi -q -d CLOCK,PERFORMANCE"]
)
def test_the_number_of_a_gpu_on_its_host_leads_to_the_rank_whose_own_line_names_the_host(command, host, tmp_path):
    said = "Running in distributed mode. Device: cuda:{0}.Process (global: {1}, local {0}), total 8."
    ranks = [host.format(7 + rank // 4, said.format(rank % 4, rank)) for rank in range(8)]
    verdict = judge(tmp_path, {"out.log": ranks, "smi.txt": [command, *SLOWED]})

    assert (verdict.kind, verdict.blamed) == ("slow", (6,))


def forward(values, elapsed):
    """A table of the lowest level, which times no sync."""
    head = f" [2026-03-01] iteration 70/ 900 | elapsed time per iteration (ms): {elapsed} |"
    return [
        *(head, "times across ranks (ms):", "  forward-compute:"),
        *(f"     rank {n:>2}: {ms:.2f}" for n, ms in enumerate(values)),
    ]


USUAL, LATER = forward([100, 101, 99, 100], 310.0), forward([100, 300, 99, 101], 870.0)


def test_whose_work_alone_became_longer_while_whole_steps_did_is_slow_where_no_sync_is_timed(tmp_path):
    verdict = judge(tmp_path, [*USUAL, *USUAL, *LATER, *LATER])

    assert (verdict.kind, verdict.blamed) == ("slow", (1,))


UNTOLD = {
    "steps that last as before": [USUAL, USUAL, *2 * [forward([100, 300, 99, 101], 311.0)]],
    "longer from the start": [LATER, LATER, LATER],
    "longer on all but one, who keeps them waiting": [USUAL, USUAL, *2 * [forward([300, 100, 299, 301], 870.0)]],
    "longer once": [USUAL, USUAL, LATER, USUAL],
}


@pytest.mark.parametrize("name", UNTOLD)
def test_without_a_timed_sync_nobody_is_named_by(name, tmp_path):
    assert judge(tmp_path, [line for one in UNTOLD[name] for line in one]).blamed == ()
