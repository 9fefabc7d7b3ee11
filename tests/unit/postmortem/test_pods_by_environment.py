"""Pods that print RANK and WORLD_SIZE of their own: the rank of one that is gone, unless RANK counts pods."""

import pytest

from .made import judge

EVICTED = "9m12s   Normal   Evict   pod/job-{pod}   Pod is evicted, because of preempt"
LOST = "torch.distributed.DistBackendError: NCCL error in: x.hpp:2, remote process exited or there was a network error"


def logs(spoken, *, numbers=(0, 1, 2, 3)):
    """What pods print of their environment, and then the ranks that lose a peer, each in a pod."""
    lines = [f"[pod/job-{pod}/main] env RANK={number} WORLD_SIZE=4" for pod, number in enumerate(numbers)]
    return [*lines, *(f"[pod/job-{pod}/main] [rank{rank}]: {LOST}" for pod, rank in spoken)]


def judged(tmp_path, spoken, **more):
    return judge(tmp_path, {"events.txt": [EVICTED.format(pod=2)], "pods.log": logs(spoken, **more)})


def test_a_pod_that_is_gone_is_the_rank_of_its_own_line(tmp_path):
    verdict = judged(tmp_path, [(1, 1), (0, 0), (3, 3)])

    assert (verdict.kind, verdict.blamed) == ("killed", (2,))


@pytest.mark.parametrize(
    ("spoken", "numbers"),
    [
        ([(0, 0), (1, 8)], (0, 1, 2, 3)),
        ([(0, 0)], (0, 1, 2, 3)),
        ([(1, 1), (0, 0)], (0, 1, 1, 3)),
        ([(1, 1), (0, 0)], (0, 2, 1, 3)),
    ],
    ids=["several ranks in each", "only rank 0 speaks", "two pods of one number", "a rank in another's pod"],
)
def test_a_number_that_may_count_pods_is_no_rank(spoken, numbers, tmp_path):
    assert not judged(tmp_path, spoken, numbers=numbers).blamed


TAKEN = "9m12s   Normal   Preempted   pod/{pod}   Preempted by pod 88b0-77 on node gke-a3-7"
YAML = [
    *("apiVersion: v1", "kind: Pod", "metadata:", "  name: tune-7c9d-x2k9v", "spec:", "  containers:", "  - env:"),
    *("    - name: WORLD_SIZE", '      value: "4"', "    - name: RANK", '      value: "2"', "    name: main"),
    *("    resources:", "      limits:", '        nvidia.com/gpu: "{gpus}"'),
]
PART = ["$ kubectl -n nlp get pod tune-7c9d-x2k9v -o yaml | grep -A1 -E 'name: (WORLD_SIZE|RANK)'", *YAML[7:11]]
SHOWN = ["$ kubectl -n nlp exec tune-7c9d-x2k9v -c main -- env | grep -E 'RANK|WORLD'", "RANK=2", "WORLD_SIZE=4"]


@pytest.mark.parametrize(
    ("described", "world", "ranks"),
    [
        ([line.format(gpus=1) for line in YAML], None, (2,)),
        ([line.format(gpus=8) for line in YAML], None, ()),
        (PART, 4, (2,)),
        (PART, None, ()),
        (PART, 32, ()),
        (SHOWN, 4, (2,)),
    ],
    ids=["one GPU", "eight GPUs", "a part", "a part alone", "a part of a larger job", "by exec"],
)
def test_a_pod_is_the_rank_that_its_description_says_where_that_counts_processes(described, world, ranks, tmp_path):
    said = [f"world_size={world}"] if world else []
    files = {"events.txt": [TAKEN.format(pod="tune-7c9d-x2k9v")], "pod.txt": described, "a.log": [f"[rank0]: {LOST}"]}
    verdict = judge(tmp_path, {**files, "job.log": said} if said else files)

    assert (verdict.kind, verdict.blamed) == ("killed", ranks)
