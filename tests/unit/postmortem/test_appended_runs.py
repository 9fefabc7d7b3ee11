"""Several runs in one log, to which a script appends: the last one is judged."""

import pytest

from .made import answer, judge, out_of_memory, raised, summary, timed_out, told

LAUNCHERS = {
    "torchrun of today": "W1120 {}.100000 411 torch/distributed/run.py:792] Setting OMP_NUM_THREADS to be 1",
    "older torchrun": "WARNING:torch.distributed.run:\n{} INFO fit: rank 0 begins".replace("{}", "2026-11-20 {}"),
    "DeepSpeed": "[2026-11-20 {},100] [INFO] [runner.py:571:main] cmd = python -u -m deepspeed.launcher.launch",
    "Accelerate": "The following values were not passed to `accelerate launch` and had defaults used instead:\n"
    "2026-11-20 {} INFO fit: rank 0 begins",
}
RESTARTS = (
    "W1120 10:12:00.1 411 torch/distributed/elastic/agent/server/api.py:900] 1/3 attempts left; will restart worker"
    " group"
)
FORMER = [out_of_memory(1), *summary(1, 1)]  # at 10:20:58
WAITS = [timed_out(rank, 9).replace("E1120 10:20:00.100000000", "E") for rank in (0, 1, 3)]  # of a torch without clocks


@pytest.mark.parametrize("begins", LAUNCHERS.values(), ids=LAUNCHERS)
def test_what_a_former_run_met_is_not_the_fault_of_the_last(begins, tmp_path):
    log = [
        begins.format("10:01:00"),
        RESTARTS,
        *FORMER,
        "",
        begins.format("11:30:00"),
        *raised(3, "KeyError: 'tokens'"),
    ]

    assert told(judge(tmp_path, log), answer("exception", 3)) == answer("exception", 3)


def test_the_last_run_is_judged_where_another_host_tells_of_it(tmp_path):
    begins = LAUNCHERS["torchrun of today"]
    former = [out_of_memory(2), *summary(2, 1)]
    first = [begins.format("10:01:00"), *former, begins.format("11:30:00"), "[rank0]: step 1 loss 2.0"]

    verdict = judge(tmp_path, {"node-a.log": first, "node-b.log": ["WORLD_SIZE=4", *WAITS]})

    assert told(verdict, answer("absent", 2, 9)) == answer("absent", 2, 9)


SHELL = "(train) ana@gpu-box:~/work$ {}"
TAKEN = [
    "Traceback (most recent call last):",
    '  File "/opt/env/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
]


@pytest.mark.parametrize("command", ["bash run.sh 29577", "CUDA_VISIBLE_DEVICES=0,1 torchrun train.py", "./go.sh"])
def test_the_last_command_of_a_terminal_is_judged(command, tmp_path):
    log = [*TAKEN, SHELL.format(command), "step 1 loss 2.0", *summary(3, -9)]

    assert told(judge(tmp_path, log), answer("killed", 3)) == answer("killed", 3)


@pytest.mark.parametrize("second", ["bo@gpu-other:~$ torchrun train.py", SHELL.format("nvidia-smi")])
def test_another_hosts_terminal_and_a_look_at_the_gpus_begin_no_run(second, tmp_path):
    log = [SHELL.format("torchrun train.py"), out_of_memory(1), *summary(1, 1), second, timed_out(0, 9)]

    verdict = judge(tmp_path, log)

    assert (verdict.kind, verdict.blamed) == ("device_memory", (1,))


@pytest.mark.parametrize(
    "next_",
    [
        [LAUNCHERS["torchrun of today"].format("10:01:00"), "[rank3]: step 1 loss 2.0"],
        ["WARNING:torch.distributed.run:", *(f"fit {n}%" for n in range(20)), timed_out(0, 9).replace(" 10:", " 11:")],
        [LAUNCHERS["torchrun of today"].format("11:30:00"), "[rank3]: step 1 loss 2.0"],
        ["W1120 11:30:00.1 411 torch/distributed/elastic/agent/server/api.py:719] closing", "[rank3]: step 1 loss 2.0"],
    ],
    ids=[
        "another host's log behind it",
        "another host's without clocks",
        "a run that shows no trouble",
        "the same launcher",
    ],
)
def test_a_run_is_judged_where_none_follows_that_shows_trouble(next_, tmp_path):
    log = [LAUNCHERS["torchrun of today"].format("10:01:00"), *FORMER, *next_]

    verdict = judge(tmp_path, log)

    assert (verdict.kind, verdict.blamed) == ("device_memory", (1,))
