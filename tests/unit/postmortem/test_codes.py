"""Exit codes of ranks that waited for others, and records that list groups by a process's own numbers."""

import json

import pytest

from .made import judge

WAITED = "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 3/4 clients joined."
SUMMARY = [
    *("Root Cause (first observed failure):", "[0]:", "  time      : 2025-03-11_18:33:20", "  host      : n3"),
    *("  rank      : 0 (local_rank: 0)", "  exitcode  : 1 (pid: 784)", "  traceback : unknown"),
]


@pytest.mark.parametrize("end", [["srun: error: n3: task 0: Exited with exit code 1"], SUMMARY])
@pytest.mark.parametrize("label", ["", "[rank0]: "])
def test_who_gives_up_with_a_code_after_it_waited_in_the_store_is_not_blamed(end, label, tmp_path):
    verdict = judge(tmp_path, [label + WAITED, *end])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)


def test_the_code_of_the_one_task_of_which_anything_is_known_does_not_blame_it(tmp_path):
    verdict = judge(tmp_path, ["loading the model", "srun: error: n3: task 0: Exited with exit code 1"])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("exception", (), True)


def test_who_counted_the_others_and_missed_one_is_not_blamed(tmp_path):
    lines = ["[rank0]: RuntimeError: only 3 of 4 workers registered after 600 s", "[rank1]: hello", "[rank2]: hello"]

    assert judge(tmp_path, lines).blamed == ()


def test_in_a_pasted_log_the_one_rank_that_does_not_say_that_it_comes_is_missing(tmp_path):
    lines = [
        "$ cat job.sh",
        "export WORLD_SIZE=4",
        "srun -l --ntasks=3 python a.py",
        "$ sbatch job.sh",
        "$ cat job.out",
    ]
    lines += [f"{rank}: init_process_group: rank {rank} of 4" for rank in (2, 0, 1)]

    verdict = judge(tmp_path, [*lines, f"0: {WAITED}", "srun: error: n3: task 0: Exited with exit code 1"])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (3,), False)


@pytest.mark.parametrize(("heard", "blamed"), [((0, 1, 2), (3,)), ((0, 1), ())])
def test_where_the_store_lacks_one_and_one_alone_prints_no_first_line_it_has_not_begun(heard, blamed, tmp_path):
    verdict = judge(tmp_path, [*(f"{rank}: [{rank}] starting" for rank in heard), f"0: {WAITED}"])

    assert (verdict.kind, verdict.blamed) == ("absent", blamed)


def record(rank, ended):
    """Return the record of a rank of 2 x 2, whose groups of tensor and data parallelism end at these numbers."""
    members = {"tp": [rank // 2 * 2, rank // 2 * 2 + 1], "dp": [rank % 2, rank % 2 + 2]}
    names = {"tp": str(1 + rank // 2), "dp": str(3 + rank % 2)}
    numbers = {"tp": 1, "dp": 2}  # of the process, not of the job
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    config |= {str(numbers[g]): {"name": names[g], "desc": g, "ranks": str(members[g])} for g in numbers}
    hangs = "dp" if rank in {0, 3} else "tp"
    entries = [
        {
            **{"record_id": seq, "pg_id": numbers[group], "process_group": [names[group], group]},
            **{"collective_seq_id": seq, "p2p_seq_id": 0, "is_p2p": False, "profiling_name": "nccl:all_reduce"},
            **{"input_sizes": [[8]], "output_sizes": [[8]], "input_dtypes": ["Float"], "output_dtypes": ["Float"]},
            **{"state": "completed" if seq <= ended[group] else "started", "retired": seq <= ended[group]},
            **{"frames": [], "time_created_ns": 1000 * seq},
        }
        for group in numbers
        for seq in range(ended[group] - 2, ended[group] + 1 + (group == hangs))
    ]
    counts = {
        str(numbers[group]): {
            "last_enqueued_collective": ended[group] + (group == hangs),
            "last_started_collective": ended[group] + (group == hangs),
            "last_completed_collective": ended[group],
        }
        for group in numbers
    }
    return json.dumps({"version": "2.4", "pg_config": config, "pg_status": counts, "entries": entries})


def test_groups_that_wait_for_each_other_are_a_circle_whatever_number_each_process_gives_them(tmp_path):
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_text(record(rank, {"tp": 56, "dp": 30}))

    verdict = judge(tmp_path, {})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("circle", (), False)
