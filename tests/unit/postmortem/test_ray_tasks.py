"""Errors of Ray's tasks in the log of the driver: the process and the host above them lead to the rank."""

import pytest

from .made import judge, timed_out

NEAR, FAR = "10.9.0.1", "10.9.0.2"
HOSTS = {0: "", 1: "", 2: f", ip={FAR}", 3: f", ip={FAR}"}
PIDS = {0: 801, 1: 802, 2: 801, 3: 903}
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB"
LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"


def worker(rank, text="[rank{0}]:[W1120 10:00:00.1 ProcessGroupNCCL.cpp:4715] using GPU 0 to perform barrier"):
    """What a worker prints behind Ray's label: its process, and its host unless that is the driver's."""
    return f"(Actor pid={PIDS[rank]}{HOSTS[rank]}) {text.format(rank)}"


def failed(pid, ip, *errors, chain=False, colour=False):
    """The error of a driver, whose own task waited for that of a worker."""
    name = "\x1b[36mray::Actor.update()\x1b[39m" if colour else "ray::Actor.update()"
    frames = ['  File "actor.py", line 40, in update', "    loss.backward()"]
    again = ["", "The above exception was the direct cause of the following exception:", ""] if chain else []
    return [
        "Traceback (most recent call last):",
        '  File "main.py", line 9, in <module>',
        "    ray.get(job.run.remote())",
        f"ray.exceptions.RayTaskError(Error): ray::Job.run() (pid=700, ip={NEAR}, actor_id=0a)",
        '  File "job.py", line 3, in run',
        f"ray.exceptions.RayTaskError(Error): {name} (pid={pid}, ip={ip}, actor_id=0b, repr=<a.b object at 0x7>)",
        *frames,
        *(line for error in errors[:-1] for line in (error, *again, f"ray::Actor.update() (pid={pid}, ip={ip})")),
        *frames,
        errors[-1],
        "(Job pid=700) done",
    ]


def named(verdict):
    return verdict.kind, verdict.blamed


BEGAN = [worker(rank) for rank in PIDS]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize(("pid", "ip", "rank"), [(801, NEAR, 0), (801, FAR, 2), (802, NEAR, 1), (903, FAR, 3)])
def test_an_error_of_a_task_is_of_the_rank_of_its_process_on_its_host(pid, ip, rank, colour, tmp_path):
    verdict = judge(tmp_path, [*BEGAN, *failed(pid, ip, MEMORY, colour=colour)])

    assert named(verdict) == ("device_memory", (rank,))


@pytest.mark.parametrize("error", ["ValueError: tokens is empty", "KeyError: 'reward'", "MemoryError"])
def test_any_error_of_a_task_is_of_its_rank(error, tmp_path):
    verdict = judge(tmp_path, [*BEGAN, *failed(903, FAR, "KeyError: 'x'", error, chain=True)])

    assert verdict.blamed == (3,)


def test_a_list_in_another_file_tells_the_rank_of_a_task(tmp_path):
    listed = [f"- (node_id=a1, ip={FAR}, pid={40 + rank}) world_rank={rank}, local_rank={rank}" for rank in range(4)]
    verdict = judge(tmp_path, {"driver.log": failed(43, FAR, MEMORY), "train.log": listed})

    assert named(verdict) == ("device_memory", (3,))


@pytest.mark.parametrize(
    ("pid", "ip"),
    [(903, "10.9.0.3"), (802, FAR), (999, FAR)],
    ids=["a process of that number on another host", "one of the driver's host", "an unknown process"],
)
def test_an_error_of_a_process_that_is_not_known_names_nobody(pid, ip, tmp_path):
    verdict = judge(tmp_path, [*BEGAN, *failed(pid, ip, MEMORY)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device_memory", (), True)


def test_a_task_that_lost_another_is_not_to_blame(tmp_path):
    assert judge(tmp_path, [*BEGAN, *failed(903, FAR, LOST)]).blamed == ()


def test_an_error_of_the_driver_behind_that_of_a_task_is_not_the_tasks(tmp_path):
    lines = [*BEGAN, *failed(903, FAR, LOST), *failed(903, FAR, LOST)[:3], "ValueError: no such experiment"]

    assert judge(tmp_path, lines).blamed == ()


DIED = [
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "\tclass_name: Actor",
    "\tpid: 904",
    f"\tip: {FAR}",
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker unexpectedly exits",
]


def test_a_worker_that_died_before_others_timed_out_is_told_whichever_rank_it_was(tmp_path):
    waits = worker(2, timed_out(2, 40, place=1)) + " [repeated 3x across cluster]"

    verdict = judge(tmp_path, [*DIED, waits])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("killed", (), True)
    assert f"process 904 on {FAR}" in verdict.because
    assert (verdict.seq, verdict.waiting) == (40, (2,))


def test_a_worker_that_died_after_the_time_outs_may_have_given_up_like_them(tmp_path):
    waits = worker(2, timed_out(2, 40, place=1)) + " [repeated 3x across cluster]"

    assert judge(tmp_path, [waits, *DIED]).kind == "absent"
