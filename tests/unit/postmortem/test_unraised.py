"""Errors that Python and libraries catch and print, as their objects end: no rank fails by them."""

import pytest

from .made import answer, judge, raised, timed_out, told

HEAD = "Traceback (most recent call last):"
NONE = answer("none", unknown=True)
STEPS = [f"step {n} loss 2.{n}" for n in range(8)]


def frame(file, function, code="work()"):
    return [f'  File "/opt/py/{file}", line 7, in {function}', f"    {code}"]


BUSY = "OSError: [Errno 16] Device or resource busy: '.nfs0a'"
TEMPORARY = [HEAD, *frame("multiprocessing/util.py", "_run_finalizers"), *frame("shutil.py", "rmtree"), BUSY]
CAUGHT = {
    "a temporary folder on NFS": TEMPORARY,
    "two processes whose lines are mixed": [line for line in TEMPORARY for _ in range(2)],
    "two processes, one a line ahead": [HEAD, *TEMPORARY[1:3], HEAD, BUSY, *TEMPORARY[1:3], BUSY],
    "a finaliser of weakref": [HEAD, *frame("weakref.py", "_exitfunc", "f()"), "FileNotFoundError: /tmp/a"],
    "a destructor without its heading": [HEAD, *frame("bars.py", "__del__"), "TypeError: 'NoneType' object"],
    "a function at exit": ["Error in atexit._run_exitfuncs:", HEAD, *frame("feed.py", "stop"), "ValueError: closed"],
    "a function at exit of a newer Python": [
        "Exception ignored in atexit callback <function stop at 0x7f2>:",
        HEAD,
        *frame("feed.py", "stop"),
        "ValueError: closed",
    ],
    "a destructor of a newer Python": [
        "Exception ignored while calling deallocator <function Bar.__del__ at 0x7f2>:",
        HEAD,
        *frame("bars.py", "__del__"),
        "TypeError: 'NoneType' object",
    ],
    "Weights & Biases as it ends": [
        HEAD,
        *frame("wandb/sdk/wandb_run.py", "_atexit_cleanup"),
        "OSError: [Errno 9] Bad",
    ],
    "a handler of the log": [
        "--- Logging error ---",
        HEAD,
        *frame("logging/__init__.py", "emit"),
        "TypeError: not all arguments converted during string formatting",
        "Call stack:",
        *frame("job.py", "<module>"),
        "Message: 'done'",
    ],
    "a destructor below a bar": [
        " 90%|####     | 9/10 [00:09<00:01]Exception ignored in: <function Bar.__del__ at 0x7f2>",
        HEAD,
        *frame("bars.py", "__del__"),
        "AttributeError: 'Bar' object has no attribute 'pos'",
    ],
    "a destructor's error in a chain": [
        "Exception ignored in: <function Pool.__del__ at 0x7f2>",
        HEAD,
        *frame("pool.py", "__del__"),
        "KeyError: 3",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        HEAD,
        *frame("pool.py", "__del__"),
        "ValueError: closed",
    ],
    "a finaliser's error in a chain": [
        HEAD,
        *frame("shutil.py", "rmtree"),
        "KeyError: 3",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *TEMPORARY,
    ],
}


@pytest.mark.parametrize("name", CAUGHT)
def test_an_error_that_was_caught_is_no_verdict(name, tmp_path):
    assert told(judge(tmp_path, [*STEPS, *CAUGHT[name]]), NONE) == NONE


@pytest.mark.parametrize("name", CAUGHT)
def test_a_rank_that_printed_such_an_error_may_wait_like_the_others(name, tmp_path):
    caught = [f"[rank1]: {line}" for line in CAUGHT[name]]
    wanted = answer("absent", 2, 9)
    assert told(judge(tmp_path, [*caught, *(timed_out(rank, 9) for rank in (0, 1, 3))]), wanted) == wanted


@pytest.mark.parametrize("name", CAUGHT)
def test_an_error_that_was_raised_below_one_that_was_caught_counts(name, tmp_path):
    wanted = answer("exception", 2, 9)
    log = [*CAUGHT[name], *raised(2, "KeyError: 'x'"), *(timed_out(rank, 9) for rank in (0, 1, 3))]
    assert told(judge(tmp_path, log), wanted) == wanted


@pytest.mark.parametrize(
    "frames",
    [
        [*frame("job.py", "<module>"), *frame("pool.py", "__del__")],
        [*frame("multiprocessing/queues.py", "_feed"), *frame("multiprocessing/reduction.py", "dumps")],
        [*frame("job.py", "<module>"), *frame("shutil.py", "rmtree")],
    ],
)
def test_an_error_is_raised_where_nothing_outside_catches_it(frames, tmp_path):
    log = [f"[rank2]: {line}" for line in (HEAD, *frames, BUSY)]
    wanted = answer("exception", 2, 9)
    assert told(judge(tmp_path, [*log, *(timed_out(rank, 9) for rank in (0, 1, 3))]), wanted) == wanted
