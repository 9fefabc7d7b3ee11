"""The command of `--on-event`, beside the job: whatever it does or leaves undone, the job does not wait or end for it.

It is started at once and reads the event from a file without a name, so it need not read at all. No more than
`MOST_AT_ONCE` of a process run at a time, each for at most `HOOK_S`. What it prints and what went wrong is in
`events/hook.log`: it has no pipe of the job's, which a daemon of its own would hold open after the job's end.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO

HOOK_VARIABLE = "MESHWRIGHT_ON_EVENT"  # a command that gets each event as JSON on its standard input
HOOK_S = 60.0  # for a command to end
MOST_AT_ONCE = 16
MOST_LOG_BYTES = 2**20

_running = threading.BoundedSemaphore(MOST_AT_ONCE)


def start_hook(command: str, event: bytes, log: Path) -> None:
    """Start the user's command with `event` on its standard input; never raises, never waits for it."""
    running = _running
    if not running.acquire(blocking=False):
        _log(log, f"not called: {MOST_AT_ONCE} of the command are running already")
        return
    try:
        with tempfile.TemporaryFile() as file:
            file.write(event)
            file.seek(0)
            with _for_output(log) as output:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", command], stdin=file, stdout=output, stderr=output, process_group=0
                )
        threading.Thread(target=_see_to, args=(process, log, running), name="hook", daemon=True).start()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # no descriptor, process or thread is left
        running.release()
        _log(log, f"not called: {error}")


def _see_to(process: "subprocess.Popen[bytes]", log: Path, running: threading.BoundedSemaphore) -> None:
    """Wait for a command to end, and end it where it takes too long."""
    try:
        code = process.wait(HOOK_S)
        if code:
            _log(log, f"pid {process.pid} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}")
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _log(log, f"pid {process.pid} was ended after {HOOK_S:g} s")
    finally:
        running.release()


def _for_output(log: Path) -> BinaryIO:
    """Return the end of the log for a command to print to; nothing is kept where it is full or cannot be written."""
    with contextlib.suppress(OSError):
        if _has_room(log):
            return log.open("ab", buffering=0)
    return open(os.devnull, "ab", buffering=0)


def _has_room(log: Path) -> bool:
    return not log.exists() or log.stat().st_size < MOST_LOG_BYTES


def _log(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        if _has_room(path):
            with path.open("a") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} --on-event: {text}\n")
