"""What a run says while it goes on: metrics.jsonl, TensorBoard events, and a progress display. Rank 0 only."""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .run_folder import RunFolder

PLAIN_LINE_EVERY = 50  # steps, where the output is not a terminal


class RunLog:
    """Writes one JSON object a step and shows the last one."""

    def __init__(self, folder: RunFolder, first_step: int, steps: int) -> None:
        self._steps = steps
        self._file = folder.metrics.open("a", buffering=1)
        self._events = _Events(folder.tensorboard)
        console = Console(file=sys.stderr)
        self._progress: Progress | None = None
        if console.is_terminal:
            self._progress = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                console=console,
            )
            self._progress.start()
            self._task = self._progress.add_task("", total=steps, completed=first_step)

    def step(self, row: dict[str, Any]) -> None:
        """Write the figures of a step that is done."""
        self._file.write(json.dumps(row) + "\n")
        step = row["step"]
        self._events.write(
            step, {name: value for name, value in row.items() if name != "step" and isinstance(value, int | float)}
        )
        text = f"loss {row['loss']:.3f}  {row['tokens_per_s']:,.0f} tokens/s"
        if "validation_loss" in row:
            self.say(f"step {step + 1}: validation loss {row['validation_loss']:.4f} nats per token")
        if self._progress is not None:
            self._progress.update(self._task, completed=step + 1, description=text)
        elif (step + 1) % PLAIN_LINE_EVERY == 0 or step + 1 == self._steps:
            self.say(f"step {step + 1}/{self._steps}  {text}")

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
            self._file.close()


class _Events:
    """TensorBoard's event file, written at once: a full disk is an error here, not a traceback of a thread."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX.record_writer import RecordWriter

        folder.mkdir(exist_ok=True)
        self._writer = RecordWriter(str(folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"))
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
