"""Text of AWS Neuron: codes of its runtime, collectives that connect, the lock of its compiler's cache."""

import pytest

from .made import answer, judge, told

RANKS = range(4)
PROCESSES = [f"rank {rank} pid {700 + rank} NEURON_RT_VISIBLE_CORES={rank}" for rank in RANKS]
IN_COLLECTIVE = "missing collectives status on Neuron Device 0 NC 1, model a.neff - suspected hang in collectives 2"
UNCORRECTED = "encountered uncorrectable memory error on Neuron Device 1, execution results may be invalid."
COMPUTES = "[ND 1][NC 0] execution timeout (30000 ms) on model a.neff, waiting for execution completion notification"
CODE = "Failure: {} in nrt_execute()"


def runtime(rank, text, second=4):
    """A line of the runtime of one rank's process."""
    return f"2025-Nov-20 10:20:{second:02d}.002882  {700 + rank}:{900 + rank}  ERROR  TDRV:process_errors   {text}"


def others(but, text=IN_COLLECTIVE):
    return [runtime(rank, text) for rank in RANKS if rank not in but]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"(FATAL-RT-UNDEFINED-STATE) {UNCORRECTED}", "device"),
        ("[MLA 1][NC 0] DMA TX engine 3 is in an abort state", "device"),
        (CODE.format("NRT_EXEC_HW_ERR_NC_UE"), "device"),
        ("nrt_execute on nc 0 returned status=1203", "device"),
        (CODE.format("NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE"), "device"),
        (CODE.format("NRT_EXEC_COMPLETED_WITH_NUM_ERR"), "exception"),
        (CODE.format("NRT_FAIL_HOST_MEM_ALLOC"), "host_memory"),
        (CODE.format("NRT_RESOURCE"), "device_memory"),
    ],
)
def test_a_code_of_its_own_is_of_the_rank_of_its_process_and_those_in_collectives_wait(text, kind, tmp_path):
    verdict = judge(tmp_path, [*PROCESSES, *others({2}), runtime(2, text, second=5)])

    assert told(verdict, answer(kind, 2)) == answer(kind, 2)


def test_what_python_raises_of_a_code_is_of_the_rank_whose_device_failed(tmp_path):
    log = [
        f"[rank{rank}]: RuntimeError: nrt_execute failed with status={1202 if rank == 3 else 1200}" for rank in RANKS
    ]

    verdict = judge(tmp_path, log)

    assert told(verdict, answer("device", 3)) == answer("device", 3)


@pytest.mark.parametrize("own", [[], [runtime(1, COMPUTES)]])
def test_the_one_rank_that_does_not_wait_in_a_collective_is_who_the_others_wait_for(own, tmp_path):
    verdict = judge(tmp_path, ["torchrun --nproc_per_node=4 train.py", *PROCESSES, *others({1}), *own])

    assert told(verdict, answer("absent", 1)) == answer("absent", 1)


@pytest.mark.parametrize("text", [IN_COLLECTIVE, COMPUTES, CODE.format("NRT_EXEC_HW_ERR_COLLECTIVES")])
def test_where_all_ranks_wait_nobody_is_named(text, tmp_path):
    verdict = judge(tmp_path, ["torchrun --nproc_per_node=4 train.py", *PROCESSES, *others((), text)])

    assert (verdict.kind, verdict.blamed) == ("stuck", ())


def test_an_error_that_was_corrected_is_no_fault(tmp_path):
    corrected = runtime(2, "Correctable memory error on Neuron Device 1")

    verdict = judge(tmp_path, [*PROCESSES, corrected])

    assert (verdict.kind, verdict.blamed) == ("none", ())


def test_the_drivers_word_of_a_device_is_of_the_one_rank_of_its_host(tmp_path):
    said = "[9001.2] NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR instance-id=i-05 hostname=trn-1 nd-id=3 nc-id=0 action=STOP"
    ranks = [f"rank={rank} host=trn-{rank} pid={700 + rank}" for rank in RANKS]

    verdict = judge(tmp_path, {"train.log": [*ranks, *others({1})], "dmesg.txt": [said]})

    assert told(verdict, answer("device", 1)) == answer("device", 1)


def connecting(number, pid=700):
    return f"2025-Nov-20 10:20:43.0532 {pid}:{900 + number} [{number}] bootstrap.cc:89 CCOM WARN Timeout waiting for RX"


def shown(rank, number):
    return f"2025-Nov-20 10:29:01.0128 {700 + rank}:905 ERROR ENC:init_comm  [nec_dev {number}, gid {rank}] failed"


LOCKED = (
    "2025-11-20 10:24:31.000821:  702  [INFO]: Another process must be compiling /c/M.pb, been waiting for: 5.0 min"
)
CACHED = "2025-11-20 10:25:31.000821:  702  INFO ||NCC_WRAPPER||: Using a cached neff at /c/M.neff."
JOB = ["torchrun --nproc_per_node=4 train.py", *(connecting(number) for number in (0, 1, 3)), shown(3, 3)]


@pytest.mark.parametrize(
    ("more", "kind"),
    [([], "absent"), ([shown(2, 2), LOCKED], "host"), ([shown(2, 2), LOCKED, CACHED], "absent")],
)
def test_who_does_not_connect_may_wait_for_the_lock_of_a_compiler(more, kind, tmp_path):
    verdict = judge(tmp_path, [*JOB, *more])

    assert told(verdict, answer(kind, 2)) == answer(kind, 2)


def test_numbers_of_devices_on_another_host_than_the_first_are_no_ranks(tmp_path):
    verdict = judge(tmp_path, [*(connecting(number) for number in (0, 1, 3)), "WORLD_SIZE=4"])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("absent", (), True)


def test_waits_to_connect_that_end_with_steps_are_no_fault(tmp_path):
    verdict = judge(tmp_path, [*JOB[:-1], *(f"step {step} loss 2.0" for step in range(20))])

    assert (verdict.kind, verdict.blamed) == ("none", ())


ENDS = "E1113 10:20:45.0 690 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6)"
FIRST_ENDED = [
    f"{ENDS} local_rank: 0 (pid: 700) of binary: /usr/bin/python",
    *("Root Cause (first observed failure):", "[0]:", "  rank      : 0 (local_rank: 0)", "  exitcode  : -6 (pid: 700)"),
]
FAILS = "[ND 3][NC 1] Uncorrectable memory error is detected in NC SRAM, metadata: 0x3"


def on_core(rank, text):
    """A line of the runtime of the process whose core is the rank-th of a host with two cores a device."""
    return runtime(rank, text.format(device=rank // 2, core=rank % 2))


HANGS = "missing collectives status on Neuron Device {device} NC {core}, model b.neff - suspected hang in collectives"


def test_a_process_is_the_rank_of_its_core_where_a_launcher_starts_one_for_each_core_of_a_host(tmp_path):
    command = "torchrun --nproc_per_node=32 tune.py"
    lines = [command, on_core(7, FAILS), *(on_core(rank, HANGS) for rank in (0, 1, 30)), *FIRST_ENDED]

    assert told(judge(tmp_path, lines), answer("device", 7)) == answer("device", 7)


@pytest.mark.parametrize(
    "lines",
    [
        ["torchrun --nproc_per_node=32 tune.py", on_core(7, FAILS), on_core(1, HANGS), *FIRST_ENDED],
        [on_core(7, FAILS), *(on_core(rank, HANGS) for rank in (0, 1, 30)), *FIRST_ENDED],
    ],
    ids=["how many cores a device has", "how many processes there are"],
)
def test_who_ended_first_is_not_blamed_for_the_device_of_another_process_whose_rank_is_not_told(lines, tmp_path):
    verdict = judge(tmp_path, lines)

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("device", (), True)


def loading(place, *, pid=None, cores=1):
    """What the runtime prints as the process of a place loads a model, on the second host of two with four each."""
    call = f"API:IN: (start_nc=0, nc_count={cores}, global_device_id={place}, global_device_count=8)"
    return (
        f"2025-Nov-20 10:02:04.002882 {pid or 500 + place}:{pid or 500 + place} INFO  NRT:nrt_load_collectives  {call}"
    )


ABORTS = (
    "2025-Nov-20 10:20:05.01 506:906 ERROR  TDRV:log_dma_aborts   [MLA 1][NC 0] DMA TX engine 3 is in an abort state"
)


@pytest.mark.parametrize(
    ("loads", "ranks"),
    [
        ([loading(place) for place in range(4, 8)], (6,)),
        ([*(loading(place) for place in range(4, 8)), loading(7, pid=506)], ()),
        ([loading(place, cores=2) for place in range(4, 8)], ()),
    ],
    ids=["one place each", "two places of one process", "several cores each"],
)
def test_a_process_is_the_rank_of_the_place_for_which_it_loads_a_model(loads, ranks, tmp_path):
    verdict = judge(tmp_path, [*loads, ABORTS])

    assert (verdict.kind, verdict.blamed) == ("device", ranks)


def test_a_process_in_the_log_of_a_numbered_host_is_of_its_place_not_of_that_number(tmp_path):
    logs = {f"worker{n}.log": [loading(place) for place in range(4 * n, 4 * n + 4)] for n in (0, 1)}
    logs["worker1.log"].append(ABORTS)
    verdict = judge(tmp_path, logs)

    assert (verdict.kind, verdict.blamed) == ("device", (6,))
