"""Reasons that a file tells beside the error that ended a rank: a full disk, an assertion, a value, a version."""

import pytest

from .made import answer, judge, raised, timed_out, told

OTHERS = [timed_out(rank, 31) for rank in (0, 1, 3)]
WHOLE = answer("exception")


def nccl(host, version, *, broken=""):
    pid = 700 + int(host[-1])
    lines = [
        f"{host}:{pid}:{pid} [0] NCCL INFO Bootstrap: Using eth0:10.4.0.{host[-1]}<0>",
        f"NCCL version {version}+cuda12.6",
    ]
    why = f"{host}:{pid}:811 [0] bootstrap.cc:96 NCCL WARN Message truncated : received {broken} bytes instead of 192"
    return [*lines, why] if broken else lines


def test_unlike_versions_of_nccl_are_told_where_its_first_messages_do_not_fit(tmp_path):
    files = {"rank0.log": nccl("elm1", "2.19.3", broken="1024"), "rank1.log": nccl("elm2", "2.27.5")}
    verdict = judge(tmp_path, files)

    assert told(verdict, WHOLE) == WHOLE
    assert "unlike versions of NCCL (2.19.3 on rank 0, 2.27.5 on rank 1)" in verdict.because
    assert "torch.cuda.nccl.version()" in verdict.next[0]


def test_the_one_rank_of_another_version_is_named(tmp_path):
    files = {f"rank{rank}.log": nccl(f"elm{rank}", "2.27.5") for rank in (0, 1)}
    files["rank2.log"] = nccl("elm2", "2.19.3", broken="1024")
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))
    assert "rank 2 has NCCL 2.19.3, the others 2.27.5" in verdict.because


def test_first_messages_that_do_not_fit_are_no_sizes_of_the_job_where_versions_are_not_told(tmp_path):
    verdict = judge(tmp_path, {"rank0.log": nccl("elm1", "2.27.5", broken="1024")})

    assert told(verdict, WHOLE) == WHOLE
    assert "another version of NCCL: 1024 bytes came where 192 were expected" in verdict.because


def test_of_several_errors_of_a_rank_the_full_disk_is_told(tmp_path):
    errors = [
        raised(2, "RuntimeError: [enforce fail at inline_container.cc:668] . unexpected pos 4194304 vs 4194198 of the"),
        raised(2, "OSError: [Errno 28] No space left on device: '/mnt/s/step9/2.pt'"),
    ]
    verdict = judge(tmp_path, [*(line for error in errors for line in error), *OTHERS])

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))
    assert "No space left on device" in verdict.because
    assert "df -h" in verdict.next[0]


def test_a_file_that_could_not_be_written_whole_is_looked_for_on_its_disk(tmp_path):
    error = raised(2, "RuntimeError: [enforce fail at inline_container.cc:668] . unexpected pos 4194304 vs 4194198")

    assert "df -h" in judge(tmp_path, [*error, *OTHERS]).next[0]


ASSERTED = "/pytorch/aten/src/ATen/native/cuda/{}.cu:{}: {}: block: [3,0,0], thread: [{},0,0] Assertion `{}` failed."


@pytest.mark.parametrize("prefix", ["", "[rank2]: "])
def test_the_assertion_of_a_kernel_is_told_with_the_error_that_it_ends_in(tmp_path, prefix):
    held = [
        prefix
        + ASSERTED.format("ScatterGatherKernel", 144, "operator()", thread, "idx_dim >= 0 && idx_dim < index_size")
        for thread in range(3)
    ]
    verdict = judge(
        tmp_path, [*held, *raised(2, "torch.AcceleratorError: CUDA error: device-side assert triggered"), *OTHERS]
    )

    assert verdict.blamed == (2,)
    assert verdict.because.endswith(
        "assertion `idx_dim >= 0 && idx_dim < index_size` failed (ScatterGatherKernel.cu:144)"
    )
    assert "an index is out of range" in verdict.next[0]


def test_the_assertion_of_another_rank_is_not_told(tmp_path):
    held = "[rank1]: " + ASSERTED.format("Loss", 30, "nll_loss", 4, "t >= 0 && t < n_classes")
    verdict = judge(tmp_path, [held, *raised(2, "RuntimeError: CUDA error: device-side assert triggered"), *OTHERS])

    assert "n_classes" not in verdict.because


STOPS = {
    "Lightning": "Monitored metric val_loss = inf is not finite. Previous best value was 1. Signaling Trainer to stop.",
    "torchvision's references": "Loss is nan, stopping training",
    "a person's": "ERROR loss=NaN at step 812, aborting",
    "another's": "Stopping: loss is inf",
}


@pytest.mark.parametrize("line", STOPS.values(), ids=STOPS)
def test_a_training_that_stops_for_a_value_that_is_not_finite_says_so(tmp_path, line):
    verdict = judge(tmp_path, ["epoch 1 step 810 loss 2.3", "epoch 1 step 811 loss 9.9", line])

    assert told(verdict, WHOLE) == WHOLE
    assert verdict.because.startswith("the training stopped itself, as a value was not finite: ")


@pytest.mark.parametrize(
    "line",
    [
        "number of nan iterations:   0 | stopping at iteration 500",
        "loss=nan, skipping the step, loss scale 16384",
        "info: loss 0.4, stopping criterion 1e-3",
        "information on loss: exit early is off",
    ],
)
def test_values_for_which_nobody_stops_are_no_reason(tmp_path, line):
    verdict = judge(tmp_path, ["epoch 1 step 810 loss 2.3", line])

    assert "not finite" not in verdict.because


def test_a_training_that_went_on_did_not_stop_itself(tmp_path):
    steps = [f"epoch 1 step {step} loss 2.{step}" for step in range(820, 840)]

    assert "not finite" not in judge(tmp_path, ["Loss is nan, stopping training", *steps]).because


FELL_BACK = (
    "[W1120 09:00:01.5 ProcessGroupGloo.cpp:757] Warning: Unable to resolve hostname to a (local) address. Using the"
    " loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME."
)
REFUSED = "[rank{0}]: RuntimeError: Gloo connectFullMesh failed with [/pytorch/gloo/transport/tcp/pair.cc:144] no error"


def test_gloo_on_the_loopback_address_reaches_no_other_host(tmp_path):
    verdict = judge(tmp_path, {f"node{n}.log": [FELL_BACK, REFUSED.format(n)] for n in (0, 1)})
    wanted = answer("network")

    assert told(verdict, wanted) == wanted
    assert "loopback address" in verdict.because
    assert "GLOO_SOCKET_IFNAME" in verdict.next[0]


def test_gloo_on_the_loopback_address_of_one_host_is_no_fault(tmp_path):
    steps = [f"step {step} loss 2.{step}" for step in range(10, 40)]

    assert judge(tmp_path, [FELL_BACK, *steps, "Training completed."]).kind == "none"


LOST = "[911.5] Lustre: work-OST000b-osc-ff11: Connection to work-OST000b (at 10.7.0.9@o2ib) was lost; in progress"
HUNG = "[1290.4] INFO: task python:5102 blocked for more than 122 seconds."
BACK = "[960.8] Lustre: work-OST000b-osc-ff11: Connection restored to work-OST000b (at 10.7.0.9@o2ib)"


def test_a_process_that_stands_in_its_kernel_is_told_with_the_file_system_that_was_lost(tmp_path):
    verdict = judge(tmp_path, {"dmesg.txt": [LOST, HUNG]})

    assert verdict.kind == "host"
    assert "stood in one kernel call for 122 s, after Lustre: work-OST000b" in verdict.because
    assert "whether the file system answers" in verdict.next[0]


def test_a_file_system_that_came_back_is_no_reason(tmp_path):
    assert "Lustre" not in judge(tmp_path, {"dmesg.txt": [LOST, BACK, HUNG]}).because
    assert judge(tmp_path, {"dmesg.txt": [LOST, BACK]}).kind == "none"
