"""Run a command on every rank or node in the foreground: prefixed output, signals passed on, one exit code.

The end comes when all programs have ended, or, in a run that does not wait for the others, some seconds after the first
failure: SIGTERM to who is left, then SIGKILL. An interrupt takes the same way.
"""

import os
import selectors
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO

import msgspec

from .session import Emulation

_KILL_AFTER_S = 5.0  # from SIGTERM to SIGKILL
_READ_BYTES = 2**16


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: exit codes in the order of ranks (or nodes), 128 + n for signal n."""

    exit_codes: tuple[int, ...]
    setup_s: float
    run_s: float

    @property
    def worst(self) -> int:
        """The exit code of the whole run."""
        return max(self.exit_codes)


class Foreground:
    """One command on all places of an emulation, until its end."""

    def __init__(self, emulation: Emulation, out: IO[bytes], err: IO[bytes]) -> None:
        self._emulation = emulation
        self._sinks = {"out": out, "err": err}
        self._selector = selectors.DefaultSelector()
        self._ids: list[int] = []
        self._deadline: float | None = None  # when who is left gets the next, harder signal
        self._escalation = [signal.SIGTERM, signal.SIGKILL]

    def run(self, argv: Sequence[str], *, per_node: bool, stop_after_s: float | None, setup_s: float = 0.0) -> Outcome:
        """Start `argv` everywhere and return when all has ended.

        `stop_after_s`: seconds that the others have after the first failure; None: as long as they want.
        """
        began = time.monotonic()
        wanted = self._emulation.spec
        count = wanted.nodes if per_node else wanted.world_size
        with ExitStack() as stack:
            stack.enter_context(self._selector)
            self._catch_signals(stack)
            self._selector.register(self._emulation, selectors.EVENT_READ)
            for index in range(count):
                self._start(index, argv, per_node=per_node)
            while None in (codes := self._emulation.exit_codes(self._ids)):
                if stop_after_s is not None and self._deadline is None and any(codes):
                    self._deadline = time.monotonic() + stop_after_s
                self._escalate()
                self._turn(None if self._deadline is None else max(0.0, self._deadline - time.monotonic()))
            while self._turn(0.0):  # what the pipes still hold; an orphan that keeps one open is not waited for
                pass
        exit_codes = tuple(code for code in codes if code is not None)
        return Outcome(exit_codes=exit_codes, setup_s=setup_s, run_s=time.monotonic() - began)

    def _start(self, index: int, argv: Sequence[str], *, per_node: bool) -> None:
        node, rank = (index, None) if per_node else (index // self._emulation.spec.ranks_per_node, index)
        name = f"node{node}" if rank is None else f"node{node}:rank{rank}"
        nothing = os.open(os.devnull, os.O_RDONLY)
        ends = {stream: os.pipe() for stream in self._sinks}
        try:
            handles = (nothing, ends["out"][1], ends["err"][1])
            self._ids.append(self._emulation.launch(node, rank, argv, handles))
        finally:
            os.close(nothing)
            for stream, (reader, writer) in ends.items():
                os.close(writer)
                self._selector.register(reader, selectors.EVENT_READ, _Lines(name, self._sinks[stream]))

    def _turn(self, wait_s: float | None) -> bool:
        """Wait for output, an end, a signal or the deadline, pass on what there is; return whether there was output."""
        printed = False
        for key, _ in self._selector.select(wait_s):
            if isinstance(key.data, _Lines):
                data = os.read(key.fd, _READ_BYTES)
                printed = True
                key.data.write(data)
                if not data:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
            elif key.data == "signals":
                for number in os.read(key.fd, 64):
                    self._pass_on(signal.Signals(number))
        return printed

    def _pass_on(self, number: signal.Signals) -> None:
        if number in _PASSED_ON:
            self._emulation.send_signal(self._ids, number)
            self._deadline = time.monotonic() + _KILL_AFTER_S

    def _escalate(self) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        self._emulation.send_signal(self._ids, self._escalation[0])
        self._escalation = self._escalation[1:] or self._escalation
        self._deadline = time.monotonic() + _KILL_AFTER_S

    def _catch_signals(self, stack: ExitStack) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, reader)
        stack.callback(os.close, writer)
        self._selector.register(reader, selectors.EVENT_READ, "signals")
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writer))
        for number in _PASSED_ON:
            stack.callback(signal.signal, number, signal.signal(number, _noted))


_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Lines:
    """Bytes of one stream in, whole prefixed lines out."""

    def __init__(self, name: str, sink: IO[bytes]) -> None:
        self._prefix = f"[{name}] ".encode()
        self._sink = sink
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Print the lines that are complete; empty data is the end and prints what is left."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            self._sink.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._sink.flush()


def _noted(*_: object) -> None:
    """Leave a signal to the loop, which reads it from the wake-up pipe."""
