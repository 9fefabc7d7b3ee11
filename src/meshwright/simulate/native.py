"""The event engine in C where there is a compiler, else the one in NumPy; both give the same times."""

import ctypes
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import MeshwrightError
from ..native import load_compiled
from .engine import run_numpy
from .program import ActivityTimes, EventProgram, check_reached

SOURCE = Path(__file__).with_name("engine.c")
INCLUDED = (Path(__file__).with_name("sharing.h"),)
MOST = 2**31 - 1  # of activities, of resources, and of each list of a program: their numbers have 32 bits
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")


def run_activities(program: EventProgram) -> ActivityTimes:
    """Return when each activity starts and ends; InputError if some never do."""
    library = load_engine()
    return run_numpy(program) if library is None else run_native(library, program)


def engine_name() -> Literal["C", "NumPy"]:
    """Return which engine `run` takes here."""
    return "NumPy" if load_engine() is None else "C"


def load_engine() -> ctypes.CDLL | None:
    """Return the engine in C, built if need be; None where it is switched off or cannot be built."""
    return load_compiled(SOURCE, FLAGS, INCLUDED)


def run_native(library: ctypes.CDLL, program: EventProgram) -> ActivityTimes:
    """Run a program in C."""
    n = program.activities
    start_s, end_s = np.empty(n), np.empty(n)
    floats = [program.work, program.delay_s, program.weight, program.capacity, program.ready_s, program.burst]
    work, delay, weight, capacity, ready, burst = (
        None if values is None else np.ascontiguousarray(values, dtype=np.float64) for values in floats
    )
    pairs = (program.uses, program.releases, program.signals)
    if max(n, len(program.capacity), *(len(values) for pair in pairs for values in pair)) > MOST:
        raise MeshwrightError(f"simulation: {n} activities are too many for the event engine")
    rows = [np.ascontiguousarray(values, dtype=np.int32) for pair in pairs for values in pair]
    arrays = [work, delay, ready, *rows[:2], weight, capacity, burst, *rows[2:], start_s, end_s]
    sizes = [ctypes.c_int64(count) for count in (n, len(program.capacity), program.gates)]

    def simulate() -> int:
        """Call C, and hold its arrays until it returns: after Ctrl-C nobody else does."""
        pointers = [None if array is None else ctypes.c_void_p(array.ctypes.data) for array in arrays]
        return int(library.mw_simulate(*sizes, *pointers))

    if _heard(simulate):
        raise MeshwrightError(f"simulation: not enough memory for {n} activities")
    check_reached(program, end_s)
    return ActivityTimes(start_s, end_s)


def _heard(call: Callable[[], int]) -> int:
    """Return what a call into C returns, made on a thread beside: the main one hears Ctrl-C meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    answers: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put(call())
        except BaseException as error:  # raised where the answer is waited for
            answers.put(error)

    threading.Thread(target=answer, daemon=True, name="simulation").start()
    found = answers.get()
    if isinstance(found, BaseException):
        raise found
    return found
