"""The log of a run: metrics.jsonl, TensorBoard events, and a progress display. Rank 0 only."""

import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ...units import format_bytes, format_time
from .run_folder import RunFolder

PLAIN_LINE_EVERY = 50  # steps, where the output is not a terminal
MOST_KEPT_BYTES = 2**24  # of rows that a full disk refuses: some 50,000 steps


def progress(row: Mapping[str, Any], left_s: float) -> str:
    """Return the figures of a step in one line: loss, gradient norm, time, rate, MFU, memory, what is left.

    What a row does not have (the gradient norm of an asynchronous run, say) is left out; an MFU of None is unknown.
    """
    forms: dict[str, Callable[[Any], str]] = {
        "loss": lambda value: f"loss {value:.3f}",
        "grad_norm": lambda value: f"gradient norm {value:.3g}",
        "step_time_s": format_time,
        "tokens_per_s": lambda value: f"{value:,.0f} tokens/s",
        "mfu": lambda value: "MFU unknown" if value is None else f"MFU {value:.1%}",
        "memory_bytes": lambda value: f"{format_bytes(value)} held",  # on CPUs by the whole process, libraries too
    }
    told = [name for name in forms if name in row and (name == "mfu" or row[name] is not None)]
    figures = [forms[name](row[name]) for name in told]
    return "  ".join([*figures, *([f"{_duration(left_s)} left"] if left_s > 0 else [])])


def _duration(time_s: float) -> str:
    minutes, seconds = divmod(math.ceil(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


class RunLog:
    """Writes one JSON object a step and shows the last one."""

    def __init__(self, folder: RunFolder, first_step: int, steps: int) -> None:
        self._steps, self._first = steps, first_step
        self._began_s = time.monotonic()
        self._rows = _Lines(folder.metrics)
        self._events = _Events(folder.tensorboard)
        console = Console(file=sys.stderr)
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=16),
                TextColumn("{task.description}"),
                console=console,
            )
            self._progress.start()
            self._task = self._progress.add_task("", total=steps, completed=first_step)

    def step(self, row: dict[str, Any]) -> None:
        """Write the figures of a step that is done; OSError if the disk refuses, which loses no row."""
        known = {name: value for name, value in row.items() if value is not None}
        self._rows.write(json.dumps(known) + "\n")
        step = row["step"]
        self._events.write(
            step, {name: value for name, value in known.items() if name != "step" and isinstance(value, int | float)}
        )
        text = progress(row, self._left_s(step))
        if "validation_loss" in row:
            self.say(f"step {step + 1}: validation loss {row['validation_loss']:.4f} nats per token")
        if self._progress is not None:
            self._progress.update(self._task, completed=step + 1, description=text)
        elif (step + 1) % PLAIN_LINE_EVERY == 0 or step + 1 == self._steps:
            self.say(f"step {step + 1}/{self._steps}  {text}")

    def _left_s(self, step: int) -> float:
        """Return the seconds until the last step, at the pace so far, validation and saving included."""
        done = step + 1 - self._first
        return (time.monotonic() - self._began_s) / done * (self._steps - step - 1)

    def say(self, text: str) -> None:
        """Show one line beside the progress display."""
        if self._progress is not None:
            self._progress.console.print(text, highlight=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def close(self) -> None:
        """End the display and flush the files; OSError if the disk refuses."""
        if self._progress is not None:
            self._progress.stop()
        try:
            self._events.close()
        finally:
            self._rows.close()


class _Lines:
    """Lines at the end of a file; what a full disk refuses is kept in memory and written when there is room again."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._kept = b""

    def write(self, line: str) -> None:
        """Write what was kept, then a line; OSError if the disk refuses."""
        if len(self._kept) < MOST_KEPT_BYTES:
            self._kept += line.encode()
        while self._kept:
            self._kept = self._kept[self._file.write(self._kept) :]

    def close(self) -> None:
        """Write what was kept and close the file; OSError if the disk still refuses."""
        try:
            self.write("")
        finally:
            self._file.close()


class _Events:
    """TensorBoard's event file, written at once: a full disk is an error here, not a traceback of a thread."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX.record_writer import RecordWriter

        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"  # a clock may jump back
        self._writer = RecordWriter(str(folder / name))
        self._put(file_version="brain.Event:2")

    def write(self, step: int, scalars: dict[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._put(step=step, summary=Summary(value=values))

    def close(self) -> None:
        self._writer.close()

    def _put(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write(Event(wall_time=time.time(), **fields).SerializeToString())
