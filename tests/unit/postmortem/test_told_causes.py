"""Causes beside the error that ends a rank: in the line below it, in another file, behind a service's own words."""

import pytest

from .made import judge, timed_out

DDP = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error"
DDP += " indicates that your module has parameters that were not used in producing loss."
NAMED = "Parameters which did not receive grad for rank {}: head.extra.weight, head.extra.bias"
NUMBERED = "Parameter indices which did not receive grad for rank {}: 17 18 19 20 21"


def unused(*below, rank=0):
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/w/fit.py", line 8, in step',
        f"[rank{rank}]:     out = model(batch)",
        f"[rank{rank}]: {DDP}",
        *(f"[rank{rank}]: {line.format(rank)}" for line in below),
    ]


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ((NAMED, NUMBERED), ": head.extra.weight, head.extra.bias"),
        ((NUMBERED,), ": number 17, number 18, number 19, number 20 and 1 more"),
        ((), "took no part in the loss"),
    ],
    ids=["by name", "by number", "not at all"],
)
def test_parameters_without_a_gradient_are_told_with_what_helps(below, told, tmp_path):
    verdict = judge(tmp_path, [line for rank in (0, 1) for line in unused(*below, rank=rank)])

    assert (verdict.kind, verdict.blamed) == ("exception", ())
    assert told in verdict.because
    assert "find_unused_parameters=True" in verdict.next[1]


def test_a_loss_scale_at_its_minimum_is_a_matter_of_fp16(tmp_path):
    text = "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
    verdict = judge(tmp_path, [f"[rank{rank}]: {text}" for rank in (0, 1)])

    assert "bf16" in verdict.next[0]


LOG = "ERROR 03-04 10:11:12 [core.py:590] "
ENGINE = [
    LOG + "EngineCore failed to start.",
    LOG + "Traceback (most recent call last):",
    LOG + '  File "/e/vllm/v1/engine/core.py", line 581, in run_engine_core',
    LOG + "    engine_core = EngineCoreProc(*args, **kwargs)",
    LOG + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
]
LAST = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize("label", ["", "(WorkerDict pid=771, ip=10.2.0.4) ", "(EngineCore_DP0 pid=771) "])
def test_an_error_that_vllm_logs_line_by_line_is_the_cause_of_what_refers_to_it(label, tmp_path):
    verdict = judge(tmp_path, [*(label + line for line in ENGINE), LAST])

    assert verdict.kind == "exception"
    assert verdict.because.startswith("ValueError: No available memory for the cache blocks")
    assert "gpu_memory_utilization" in verdict.next[0]


def test_an_evicted_pod_says_what_its_node_lacked(tmp_path):
    pod = [
        "Name:             fit-worker-1",
        "Status:           Failed",
        "Reason:           Evicted",
        "Message:          The node was low on resource: ephemeral-storage. Threshold quantity: 9, available: 8Ki.",
        "Containers:",
        "  worker:",
        "    State:          Terminated",
        "      Reason:       Error",
        "      Exit Code:    137",
    ]
    verdict = judge(tmp_path, pod)

    assert verdict.kind == "killed"
    assert "node low on ephemeral-storage" in verdict.because
    assert "kubectl describe node" in verdict.next[0]


NOTICE = '-> 200 {"action":"terminate","time":"2026-02-03T04:05:06Z"}'


@pytest.mark.parametrize(
    ("line", "host"),
    [
        (f"2026-02-03T04:03:06Z watch[ip-10-9-8-7] GET /latest/meta-data/spot/instance-action {NOTICE}", "ip-10-9-8-7"),
        (f"watcher(node=gpu-14): GET /latest/meta-data/spot/instance-action {NOTICE}", "gpu-14"),
        (f"GET /latest/meta-data/spot/instance-action {NOTICE}", ""),
        (f"watch[4711]: GET /latest/meta-data/spot/instance-action {NOTICE}", ""),
    ],
)
def test_a_clouds_notice_names_the_machine_that_its_watcher_names(line, host, tmp_path):
    because = judge(tmp_path, [line]).because

    assert because == "the cloud took the machine back (preemption)" + (f": {host}" if host else "")


def test_models_that_differ_on_half_of_the_ranks_are_told_with_these(tmp_path):
    text = "params[3] in this process with sizes [640, 64] appears not to match sizes of the same param in process 0."
    log = ["WORLD_SIZE=4", *(f"[rank{rank}]: RuntimeError: [{rank}]: {text}" for rank in (2, 3))]
    verdict = judge(tmp_path, log)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("sizes", (), True)
    assert verdict.because.endswith("on ranks 2, 3, not on rank 0")
    assert "git rev-parse HEAD" in verdict.missing[0]


def ports(rates):
    lines = []
    for number, rate in enumerate(rates):
        lines += [f"CA 'mlx5_{number}'", "\tPort 1:", "\t\tState: Active", f"\t\tRate: {rate}"]
    return lines


SLOWED = [f"iter: {step} step_time={1.0 if step < 6 else 2.5}" for step in range(12)]


def test_the_one_port_that_is_slower_than_all_of_its_host_is_told_beside_slower_steps(tmp_path):
    verdict = judge(tmp_path, {"train.log": SLOWED, "elm-4-ibstat.txt": ports([400, 400, 100, 400])})

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("slow", (), True)
    assert "port mlx5_2 of elm-4-ibstat.txt runs at 100 Gb/s, the others there at 400" in verdict.because
    assert "mlxlink -d mlx5_2" in verdict.missing[0]


@pytest.mark.parametrize("rates", [[400, 400, 400], [400, 100], [400, 200, 100, 400], [100, 100, 400, 400]])
def test_ports_of_one_rate_or_of_several_networks_tell_of_no_slow_one(rates, tmp_path):
    verdict = judge(tmp_path, {"train.log": SLOWED, "elm-4-ibstat.txt": ports(rates)})

    assert verdict.kind == "slow"
    assert "port" not in verdict.because


def attempt(number, first, wait=None):
    steps = [f"[rank0]: step: {step} loss: 2.5" for step in range(first, first + 30)]
    start = (
        f"I0102 torch/distributed/elastic/agent/server/api.py:525] Rendezvous complete. Result: restart_count={number}"
    )
    ended = (
        "W0102 torch/distributed/elastic/agent/server/api.py:908] Worker group FAILED. 2/3 attempts left; will restart"
    )
    return [start, *steps, *([wait, f"{ended} worker group"] if wait else [])]


def test_time_outs_that_a_job_outlived_are_told_beside_its_good_end(tmp_path):
    log = [*attempt(0, 1, timed_out(3, 28)), *attempt(1, 20, timed_out(5, 29)), *attempt(2, 40), "Training completed"]
    verdict = judge(tmp_path, log)

    assert (verdict.kind, verdict.blamed) == ("none", ())
    assert "(rank 3 in all_reduce #28, rank 5 in all_reduce #29)" in verdict.because
    assert len(verdict.evidence) == 3


def test_a_fault_of_nobody_is_told_with_the_host_before_its_line(tmp_path):
    log = [f"[pod{host}] step {step} loss 2.5" for step in range(4) for host in range(3)]
    log += ["[pod1] jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to allocate 2.5G. That was not possible."]
    log += ["[pod0] Terminating process because the JAX distributed service detected fatal errors."]

    assert "from pod1" in judge(tmp_path, log).missing[0]


def test_logs_of_ranks_that_did_not_come_to_a_barrier_are_missing_where_others_have_theirs(tmp_path):
    told = "[E ProcessGroupGloo.cpp:144] [Rank 0]: Rank 2 failed to pass monitoredBarrier in 600000 ms"
    files = {f"rank{rank}.log": [f"[rank{rank}]: step 3 loss 2.5"] for rank in (0, 1, 3)}
    verdict = judge(tmp_path, {**files, "rank0.log": ["[rank0]: step 3 loss 2.5", f"[rank0]: {told}"]})

    assert (verdict.kind, verdict.blamed) == ("absent", (2,))
    assert verdict.missing == ("the log of rank 2",)
