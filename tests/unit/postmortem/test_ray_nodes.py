"""Ray's workers: of a host that ran low on memory, of a node that was taken."""

import pytest

from .made import answer, judge, told

HOSTS = {rank: f"10.9.1.{20 + rank // 2}" for rank in range(4)}


def listed(*, at_driver=False):
    """Ray Train's list of its workers, printed by an actor on another host or by the driver's own."""
    speaker = "(TrainTrainable pid=901, ip=10.9.1.2)" if at_driver else "(TorchTrainer pid=901)"
    return [
        f"{speaker} - (node_id=5e{rank // 2}b7, ip={HOSTS[rank]}, pid={3100 + 7 * rank}) world_rank={rank},"
        f" local_rank={rank % 2}, node_rank={rank // 2}"
        for rank in range(4)
    ]


def lost(rank):
    """A worker of Ray that lost a peer."""
    return (
        f"(RayTrainWorker pid={3100 + 7 * rank}, ip={HOSTS[rank]}) [rank{rank}]: torch.distributed.DistBackendError:"
        " NCCL error in: ProcessGroupNCCL.cpp:2395, remote process exited or there was a network error"
    )


def pressed(*, ended="", users=()):
    """The raylet's word that it killed a worker, with its table of who has most memory."""
    return [
        "[2026-11-20 10:19:29,772 W 77 77] (raylet) node_manager.cc:3018: 1 Workers (tasks / actors) killed due to"
        f" memory pressure (OOM). Memory on the node (IP: 10.9.1.21, ID: 5e1b7) was 245.1GB / 256.0GB.{ended}",
        f"Top {len(users)} memory users:",
        "PID\tMEM(GB)\tCOMMAND",
        *(f"{pid}\t{gb}\t{command}" for pid, gb, command in users),
    ]


WORKERS = ((3114, 30.2, "ray::RayTrainWorker"), (3121, 131.7, "ray::RayTrainWorker"))
ALIKE = ((3114, 120.2, "ray::RayTrainWorker"), (3121, 124.7, "ray::RayTrainWorker"))
STRANGER = ((88, 200.5, "java -Xmx220g"), (3121, 20.7, "ray::RayTrainWorker"))


@pytest.mark.parametrize(
    ("raylet", "right"),
    [
        (pressed(ended=" Ray killed this worker (ID: 4e8). PID 3114."), answer("host_memory", 2)),
        (pressed(users=WORKERS), answer("host_memory", 3)),
        (pressed(users=ALIKE), answer("host_memory", unknown=True)),
        (pressed(users=STRANGER), answer("host_memory", unknown=True)),
    ],
    ids=["its process", "far above the others", "all alike", "not one of Ray's"],
)
def test_the_worker_that_ray_killed_for_memory_is_the_one_it_names_or_the_one_far_above_the_others(
    tmp_path, raylet, right
):
    verdict = judge(tmp_path, {"driver.log": [*listed(), lost(0), lost(1)], "raylet.out": raylet})

    assert told(verdict, right) == right


def test_a_worker_that_rays_list_names_last_is_not_the_one_that_was_killed(tmp_path):
    raylet = f"(raylet, ip=10.9.1.21) {pressed()[0].partition(' Memory on')[0]}"
    error = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
    named = "Memory on the node (IP: 10.9.1.21) where the task (name=f, pid=3114, memory used=97.3GB) was running"

    between = [f"(raylet, ip=10.9.1.21) Refer to the documentation, page {page}" for page in range(8)]
    verdict = judge(tmp_path, [*listed(), raylet, *between, lost(0), error, named])

    assert (verdict.kind, verdict.blamed) == ("host_memory", (2,))


DIED = [
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "\tclass_name: RayTrainWorker",
    "\tpid: 3114",
    "\tip: 10.9.1.21",
    "The actor died because its node has died. Node Id: 5e1b7",
    "\tthe actor's node was preempted: Spot instance interruption notice",
]


def test_the_ranks_of_a_node_that_was_preempted_are_found_by_rays_own_list(tmp_path):
    verdict = judge(tmp_path, {"driver.log": [*listed(at_driver=True), lost(0), lost(1), *DIED]})

    assert (verdict.kind, verdict.blamed, "preempted" in verdict.because) == ("killed", (2, 3), True)


def test_a_node_that_is_dead_to_ray_but_whose_ranks_complain_blames_none_of_them(tmp_path):
    verdict = judge(tmp_path, {"driver.log": [*listed(at_driver=True), lost(2), lost(0), *DIED]})

    assert not verdict.blamed


def owned(why, *, of="10.9.1.2"):
    """Ray's error of an actor that ended with the process that had started it, or by its word."""
    owner = f" Owner Id: 01 Owner Ip address: {of} Owner worker exit type: SYSTEM_ERROR Worker exit detail: {why}"
    told_ = "it was killed by `ray.kill`." if "ray.kill" in why else f"its owner has died.{owner}"
    return [*DIED[:4], f"The actor is dead because {told_}"]


@pytest.mark.parametrize("why", ["Owner's node has crashed.", "Owner's worker process has crashed.", "ray.kill"])
def test_an_actor_that_ended_with_its_owner_is_no_rank_to_blame(tmp_path, why):
    verdict = judge(tmp_path, {"driver.log": [*listed(at_driver=True), *owned(why)]})

    assert (verdict.kind, verdict.blamed) == ("killed", ())


def test_the_ranks_of_a_node_that_crashed_with_the_owner_of_an_actor_are_found(tmp_path):
    lines = [*listed(at_driver=True), lost(0), lost(1), *owned("Owner's node has crashed.", of="10.9.1.21")]

    assert judge(tmp_path, {"driver.log": lines}).blamed == (2, 3)
