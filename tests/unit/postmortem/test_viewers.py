"""Logs as viewers and services show or export them: what these put around each line is no part of what it says."""

import json

import pytest

from .made import judge, summary

SPAWNED = [
    "epoch 2 done, 410 steps",
    "Traceback (most recent call last):",
    '  File "go.py", line 31, in <module>',
    "    mp.spawn(fit, nprocs=4)",
    "torch.multiprocessing.spawn.ProcessRaisedException: ",
    "",
    "-- Process 2 terminated with the following error:",
    "Traceback (most recent call last):",
    '  File "go.py", line 20, in fit',
    "    weights = table[fold]",
    "KeyError: 'fold-7'",
]
ENDED = ["step 3 loss 1.9", *summary(2, 1, told="<NA>")]


def clock(at, day="2026-11-20T"):
    return f"{day}10:{20 + at // 60:02}:{at % 60:02}"


LINES = {
    "as it is": lambda at, line: line,
    "a notebook's seconds and number": lambda at, line: f"{90 + at / 2:.1f}s\t{11 + at}\t{line}",
    "a notebook's seconds alone": lambda at, line: f"{90 + at / 2:.1f}s {line}",
    "a cloud's severity, clock and machine": lambda at, line: f"ERROR\t{clock(at)} +0000\tworkerpool0-0\t{line}",
    "a stream of a cloud's log": lambda at, line: f"{clock(at)}.120000+00:00 fit-8/algo-1-1795170001 {line}",
    "a clock in brackets": lambda at, line: f"[{clock(at)}.120Z] {line}",
    "a clock and a dash": lambda at, line: f"{clock(at)}.120Z - {line}",
    "a clock without a date": lambda at, line: f"{clock(at, '')}.120 {line}",
    "journalctl with a date": lambda at, line: f"{clock(at)}+0100 m3 torchrun[88]: {line}",
    "labels of a stream": lambda at, line: f'{clock(at)}Z {{container="fit", pod="job-0"}} {line}',
    "a table of a dashboard": lambda at, line: f"{1795170001000 + at}\t{clock(at)}.120Z\t{line}",
    "a pod and a container": lambda at, line: f"job-worker-0-k2x9d fit {line}",
    "a service": lambda at, line: f"fit  | {line}",
    "a driver's logger": lambda at, line: f"26/11/20 10:{20 + at // 60:02}:{at % 60:02} INFO PythonRunner: {line}",
    "a step of a pipeline": lambda at, line: f"{clock(at)}.120000Z 01{'OE'[at % 2]} {line}",
    "a launcher of clouds": lambda at, line: f"(worker1, rank=1, pid=88, ip=10.0.0.7) {line}",
    "numbers of less": lambda at, line: f"{at + 1:7} {line}",
}
JSON = {
    "a notebook's file": {"stream_name": "stderr", "time": 9.5, "data": "{}\n"},
    "a cloud's text": {"insertId": "a1", "textPayload": "{}", "timestamp": "2026-11-20T10:20:00.1Z"},
    "a cloud's structure": {"insertId": "a1", "jsonPayload": {"message": "{}", "levelname": "ERROR"}},
    "events of a cloud": {"timestamp": 1795170001000, "message": "{}", "ingestionTime": 1795170001900},
    "a journal": {"__REALTIME_TIMESTAMP": "17", "MESSAGE": "{}", "_HOSTNAME": "m3", "_PID": "88"},
    "a store of logs": {"labels": {"pod": "job-0"}, "line": "{}", "timestamp": "2026-11-20T10:20:00.1Z"},
    "docker": {"log": "{}\n", "stream": "stderr", "time": "2026-11-20T10:20:00.1Z"},
}


def filled(record, line):
    """A record with a line in place of its braces."""
    return {
        key: filled(value, line)
        if isinstance(value, dict)
        else value.format(line)
        if value in ("{}", "{}\n")
        else value
        for key, value in record.items()
    }


def quoted(line):
    return '"' + line.replace('"', '""') + '"'


def exported(record, lines):
    return [filled(record, line) for line in lines]


FILES = {
    **{
        name: lambda lines, form=form: [form(at, line) for at, line in enumerate(lines)] for name, form in LINES.items()
    },
    **{
        f"{name}, a record a line": lambda lines, record=record: map(json.dumps, exported(record, lines))
        for name, record in JSON.items()
    },
    "a list of records": lambda lines: (
        ("[" if at == 0 else ",") + json.dumps(record)
        for at, record in enumerate(exported(JSON["a notebook's file"], lines))
    ),
    "records on several lines": lambda lines: [json.dumps(exported(JSON["a cloud's text"], lines), indent=2)],
    "a list of events": lambda lines: [json.dumps({"events": exported(JSON["events of a cloud"], lines)}, indent=1)],
    "a table": lambda lines: ["@timestamp,@message", *(f"{clock(at)},{quoted(x)}" for at, x in enumerate(lines))],
    "the outputs of a notebook": lambda lines: [
        json.dumps(
            {
                "cells": [
                    {"outputs": [{"name": "stderr", "text": [f"{x}\n" for x in lines]}], "source": ["raise Exception"]}
                ],
                "nbformat": 4,
            },
            indent=1,
        )
    ],
}


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("lines", [SPAWNED, ENDED], ids=["an error of a spawned process", "a launcher's summary"])
def test_what_a_viewer_puts_around_each_line_does_not_hide_whose_error_it_is(lines, form, tmp_path):
    verdict = judge(tmp_path, {"log.txt": list(FILES[form](lines))})

    assert (verdict.kind, verdict.blamed) == ("exception", (2,))


def test_the_rank_and_the_pod_of_a_record_are_those_of_its_line(tmp_path):
    told = {"level": "ERROR", "timestamp": "2026-11-20T10:20:00Z"}
    records = [{**told, "rank": 5, "message": line} for line in SPAWNED[-4:]]

    assert judge(tmp_path, list(map(json.dumps, records))).blamed == (5,)


OWN = {
    "srun's label": "2: {}",
    "torch's label": "[rank2]: {}",
    "torch's label behind a clock": "2026-11-20 10:20:00.120 INFO [rank2]: {}",
    "mpirun's": "[1,2]<stderr>:{}",
}


@pytest.mark.parametrize("label", OWN.values(), ids=OWN)
def test_a_label_that_stands_before_every_line_still_says_whose_it_is(label, tmp_path):
    lines = [label.format(line) for line in ("step 1", "step 2", *SPAWNED[-4:])]

    assert judge(tmp_path, lines).blamed == (2,)


def test_of_two_errors_the_clocks_in_front_tell_the_first(tmp_path):
    def error(rank, begun, text):
        head = f"-- Process {rank} terminated with the following error:"
        return [f"{clock(begun + at)} UTC {line}" for at, line in enumerate(["step 1", head, *SPAWNED[-4:-1], text])]

    files = {"a.log": error(3, 90, "ValueError: bad shard"), "b.log": error(1, 20, SPAWNED[-1])}

    assert judge(tmp_path, files).blamed == (1,)


def error_file(error, at):
    """What torchelastic writes where a process under `record` raised."""
    trace = f'Traceback (most recent call last):\n  File "train.py", line 5, in main\n    step()\n{error}\n'
    return [json.dumps({"message": {"message": error, "extraInfo": {"py_callstack": trace, "timestamp": str(at)}}})]


def test_the_error_files_of_torchelastic_say_who_raised(tmp_path):
    broken = (
        "torch.distributed.DistBackendError: NCCL error in: a.cpp:9, remote process exited or there was a network error"
    )
    files = {
        "attempt_0/0/error.json": error_file(broken, 1795169400),
        "attempt_0/2/error.json": error_file("ValueError: bad shard 17", 1795169405),
    }
    verdict = judge(tmp_path, files)

    assert (verdict.kind, verdict.blamed, verdict.because) == ("exception", (2,), "ValueError: bad shard 17")


def test_an_error_file_without_a_traceback_has_the_message(tmp_path):
    told = {"message": {"message": "ValueError: bad shard 17", "extraInfo": {"timestamp": "1795169405"}}}

    assert judge(tmp_path, {"attempt_0/2/error.json": [json.dumps(told)]}).blamed == (2,)
