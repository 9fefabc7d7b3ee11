"""Calls that differ, told by one watchdog of each kind: stacks show how many ranks make which."""

from .made import judge, timed_out

BACKWARD = ["_engine_run_backward (torch/autograd/graph.py:744)", "backward (torch/_tensor.py:525)", "main (fit.py:31)"]
SCORES = ["all_gather (torch/distributed/distributed_c10d.py:48)", "wrapper (torch/distributed/c10d_logger.py:72)"]
WAITS = [timed_out(0, 61, "ALLGATHER", 8, 32), timed_out(2, 61, "ALLREDUCE", 4096)]


def dump(rank, frames):
    """The dump of one rank."""
    head = [f"Process 90{rank}: python fit.py", f'Thread 90{rank} (active): "MainThread"']
    return [*head, *(f"    {frame}" for frame in (*frames, "<module> (fit.py:99)"))]


def test_the_rank_whose_call_no_stack_shares_took_another_way(tmp_path):
    stacks = {f"stack-rank{r}.txt": dump(r, BACKWARD if r else [*SCORES, "score (fit.py:77)"]) for r in range(4)}
    verdict = judge(tmp_path, {**stacks, "job.log": WAITS})

    assert (verdict.kind, verdict.rank, verdict.seq, verdict.unknown) == ("desync", 0, 61, False), str(verdict)
    assert "ranks 1, 3" in verdict.because


def test_ranks_whose_stacks_name_the_call_of_the_few_count_with_them(tmp_path):
    stacks = {f"stack-rank{r}.txt": dump(r, [*SCORES, f"score (fit.py:{70 + r})"]) for r in (1, 3)}
    verdict = judge(tmp_path, {**stacks, "job.log": WAITS})

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("desync", 2, False), str(verdict)


def test_halves_and_stacks_in_other_lines_leave_calls_that_differ_without_a_name(tmp_path):
    for folder, ranks in (("halves", {1: [*SCORES, "score (fit.py:77)"], 3: BACKWARD}), ("none", {})):
        ranks = {0: [*SCORES, "score (fit.py:77)"], 2: BACKWARD, **ranks}
        stacks = {f"stack-rank{rank}.txt": dump(rank, frames) for rank, frames in ranks.items()}
        verdict = judge(tmp_path / folder, {**stacks, "job.log": WAITS})

        assert (verdict.kind, verdict.blamed, verdict.unknown) == ("desync", (), True), str(verdict)
