"""A program that the supervisor started in a node, and how it ended."""

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any


class EmulatedProgram:
    """One started command: a rank, a node's command, or one that `emulate exec` sent in."""

    def __init__(
        self, number: int, node: str, rank: int | None, pid: int, argv: Sequence[str], asker: socket.socket
    ) -> None:
        self.id = number
        self.node = node
        self.rank = rank
        self.pid = pid  # as the machine sees it, not the node
        self.argv = list(argv)
        self.asker = asker
        self.exit_code: int | None = None  # 128 + n for a program that signal n ended

    def send(self, number: int) -> bool:
        """Signal the program's process group; False if it has ended."""
        if self.exit_code is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.Signals(number))
            return True
        return False

    def end(self, status: int) -> None:
        """Note how the program ended, from waitpid's status."""
        code = os.waitstatus_to_exitcode(status)
        self.exit_code = 128 - code if code < 0 else code

    def as_dict(self) -> dict[str, Any]:
        """Return what `status` tells of it."""
        return {
            "id": self.id,
            "node": self.node,
            "rank": self.rank,
            "pid": self.pid,
            "argv": self.argv,
            "exit_code": self.exit_code,
        }
