"""Words of a rank on what it does while the others wait: it collects garbage, writes, starts, times its parts."""

import pytest

from .made import WORLD, failed_at, judge, timed_out

OF_TASKS = "/job:jax_worker/replica:0/task:"
BUSY = 'W0708 14:4{at}:00.1 77 store.cc:9] Retrying write of "ckpt/9/part{at}" attempt {at}: UNAVAILABLE: HTTP 503'


def named(verdict):
    return verdict.kind, verdict.blamed, verdict.unknown


def fault_dump(*frames, above=()):
    """What faulthandler prints of a process with a helper."""
    return [
        "Timeout (0:05:00)!",
        "Thread 0x00007f0a00000001 (most recent call first):",
        '  File "/usr/lib/python3.12/threading.py", line 359 in wait',
        '  File "/usr/lib/python3.12/threading.py", line 1075 in _bootstrap_inner',
        "",
        "Thread 0x00007f0a00000002 (most recent call first):",
        *above,
        *(f'  File "/srv/{file}", line {line} in {function}' for file, line, function in frames),
        '  File "/srv/fit.py", line 20 in <module>',
    ]


def waiting(rank):
    waits = fault_dump(("lib/python3.12/site-packages/torch/cuda/__init__.py", 985, "synchronize"))
    return [*waits, timed_out(rank, 71), failed_at(rank, WORLD, 71, 71, 70)]


def test_a_rank_that_collects_garbage_keeps_the_others_waiting_on_its_host(tmp_path):
    own = fault_dump(("cache.py", 41, "_evict"), above=["  Garbage-collecting"])
    verdict = judge(tmp_path, {"rank1.err": own, **{f"rank{rank}.err": waiting(rank) for rank in (0, 2, 3)}})
    assert named(verdict) == ("host", (1,), False)
    assert "garbage collector" in verdict.because


def test_a_destructor_that_waits_for_others_while_garbage_is_collected_is_in_its_call(tmp_path):
    barrier = ("lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 4551, "barrier")
    own = fault_dump(barrier, above=["  Garbage-collecting"])
    verdict = judge(tmp_path, {f"rank{rank}.err": fault_dump(barrier) if rank else own for rank in range(4)})
    assert verdict.blamed == ()


HEADINGS = {
    "that follows": "-- watchdog dump of global rank {rank} on node-3{host} follows --",
    "that is below": "=== stack of rank {rank} (node-3{host}) below ===",
}


@pytest.mark.parametrize("heading", HEADINGS.values(), ids=HEADINGS)
def test_the_number_of_a_host_in_the_name_of_a_log_is_no_rank_where_a_heading_says_it(heading, tmp_path):
    held = ("lib/python3.12/site-packages/torch/utils/file_baton.py", 51, "wait")
    barrier = ("lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 4551, "barrier")
    files = {
        f"node-3{host}.log": [
            line
            for rank in (2 * host, 2 * host + 1)
            for line in [heading.format(rank=rank, host=host), *fault_dump(held if host else barrier)]
        ]
        for host in (0, 1)
    }
    assert named(judge(tmp_path, files)) == ("host", (2, 3), False)


def retries(*last):
    begins = ["INFO:absl:[process=3] JAX distributed initialized: 4 processes", "INFO:absl:[process=3] step 9 done"]
    return [*begins, *(BUSY.format(at=at) for at in range(1, 6)), *last]


def missed(rank):
    return [
        f"INFO:absl:[process={rank}] JAX distributed initialized: 4 processes",
        "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: write_complete:9::0.",
        "# of tasks that reached the barrier: 3/4.",
        f"The first task at the barrier: {OF_TASKS}1. Some timed out task names:",
        f"{OF_TASKS}3",
    ]


WROTE = "INFO:absl:[process=3][thread=save] [step=9] Wrote {done}/64 local shards"


@pytest.mark.parametrize("last", [(), (WROTE.format(done=12),)], ids=["by itself", "with a count of what is written"])
def test_a_rank_that_begins_its_write_again_and_again_is_held_by_its_host(last, tmp_path):
    files = {f"worker-{rank}.log": missed(rank) for rank in range(3)}
    verdict = judge(tmp_path, {**files, "worker-3.log": retries(*last)})
    assert named(verdict) == ("host", (3,), False)


def test_a_write_that_came_through_after_its_retries_holds_nobody(tmp_path):
    files = {f"worker-{rank}.log": missed(rank) for rank in range(3)}
    verdict = judge(tmp_path, {**files, "worker-3.log": retries(WROTE.format(done=64))})
    assert named(verdict) == ("absent", (3,), False)


def lost(host, other, first):
    return [
        f"{host}:6{n}:7{n} [{n}] misc/socket.cc:57 NCCL WARN socketProgress: recv from {other}<430{n}0> failed:"
        " Connection timed out"
        for n in range(2)
    ] + [
        line
        for n in range(2)
        for line in (
            f"[rank{first + n}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system"
            " error (run with NCCL_DEBUG=INFO for details), NCCL version 2.22.3",
            f"[rank{first + n}]: Last error:",
            f"[rank{first + n}]: socketProgressOpt: Call to recv from {other}<430{n}0> failed : Connection timed out",
        )
    ]


def test_sockets_that_time_out_at_both_ends_are_the_link_between_two_hosts(tmp_path):
    verdict = judge(tmp_path, {"a1.log": lost("a1", "10.0.0.2", 0), "a2.log": lost("a2", "10.0.0.1", 2)})
    assert (verdict.kind, verdict.blamed) == ("network", ())


KILLED = "[Thu Sep 17 20:50:25 2026] Memory cgroup out of memory: Killed process {pid} (python) anon-rss:44000kB"
STARTS = {
    "a count of helpers": "20:00:0{rank} [n1] worker start pid=88{rank}1 rank={rank} local_rank={rank} workers=4",
    "its own word": "[n1] Trainer started pid=88{rank}1 rank={rank} local_rank={rank}",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_process_that_calls_itself_a_worker_when_it_starts_says_its_rank(start, tmp_path):
    log = [start.format(rank=rank) for rank in range(4)]
    verdict = judge(tmp_path, {"job.log": log, "n1.dmesg": [KILLED.format(pid=8821)]})
    assert named(verdict) == ("host_memory", (2,), False)


def test_a_loader_of_a_rank_is_not_the_rank(tmp_path):
    log = [f"dataloader worker start pid=88{rank}1 rank={rank} local_rank={rank} worker_id=0" for rank in range(4)]
    assert judge(tmp_path, {"job.log": log, "n1.dmesg": [KILLED.format(pid=8821)]}).blamed == ()


LAUNCHED = "torchrun --nnodes 2 --nproc_per_node 4 --node_rank {node} --master_addr a1 fit.py"


def timed(node, late=None, command=LAUNCHED):
    lines = [f"+ {command.format(node=node)}"]
    for step in range(8):
        for number in range(4):
            own, waits = (2100 + step, 150) if number == late else (830 + step, 1450)
            lines.append(
                f"2026-11-03 15:00:3{step} local_rank={number} step={step} data=4.2ms compute(fwd+bwd)={own}ms"
                f" sync_wait={waits}ms step=2310ms"
            )
    return lines


def test_a_number_on_a_host_is_counted_from_the_rank_that_its_launcher_gives_the_host(tmp_path):
    verdict = judge(tmp_path, {"a2.log": timed(0), "a1.log": timed(1, late=1)})
    assert named(verdict) == ("slow", (5,), False)


def test_a_number_on_a_host_is_no_rank_where_hosts_are_numbered_as_they_come(tmp_path):
    command = "torchrun --nnodes 2 --nproc_per_node 4 --node_rank {node} --rdzv_backend c10d fit.py"
    files = {"a2.log": timed(0, command=command), "a1.log": timed(1, late=1, command=command)}
    assert judge(tmp_path, files).blamed == ()


def two_hosts(name):
    """Logs of two hosts without prefixes, each of which prints the RANK of two processes."""
    return {
        name.format(host): [
            *(f"starting with RANK={2 * host + n} LOCAL_RANK={n} WORLD_SIZE=4" for n in range(2)),
            *(["RuntimeError: CUDA error: uncorrectable ECC error encountered"] if host else ["step 9 loss 2.1"]),
        ]
        for host in range(2)
    }


@pytest.mark.parametrize("name", ["worker-{}.log", "rank{}.log"])
def test_the_name_of_a_log_that_prints_two_ranks_tells_none_and_that_is_said(name, tmp_path):
    verdict = judge(tmp_path, two_hosts(name))
    assert (verdict.blamed, verdict.unknown) == ((), True)
    assert any(name.format(1) in what and "several RANKs" in what for what in verdict.missing)


def test_the_number_of_a_host_in_the_name_of_a_dump_is_none_of_its_ranks(tmp_path):
    held = ("lib/python3.12/site-packages/torch/utils/file_baton.py", 51, "wait")
    barrier = ("lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 4551, "barrier")
    files = {
        "ranks.txt": ["node-30: ranks 0-1", "node-34: ranks 2-3"],
        "node-30.txt": fault_dump(barrier),
        "node-34.txt": fault_dump(held),
    }
    assert not set(judge(tmp_path, files).blamed) & {30, 34}
