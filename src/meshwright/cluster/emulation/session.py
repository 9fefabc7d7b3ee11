"""The launcher's side: start an emulation, run programs in it, break it, and be sure that it is gone afterwards."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from ...errors import InputError, MeshwrightError
from . import protocol, spec

_CLOSE_S = 20.0  # a supervisor that needs longer than this to kill its nodes hangs


class Emulation:
    """A running cluster in a box: a context manager; methods may be called from any thread."""

    def __init__(self, wanted: spec.EmulationSpec) -> None:
        self.spec = wanted
        self.owner_pid = 0  # of the supervisor, once entered
        self.folder = Path()
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._socket, theirs = protocol.pair()
        with theirs:
            command = [sys.executable, "-P", "-m", f"{__package__}.supervisor", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._stack.callback(self._end)
        try:
            born = self._request({"spec": msgspec.to_builtins(self.spec)})
            self.owner_pid, self.folder = born["owner_pid"], Path(born["folder"])
            self._outputs = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-")))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def cluster_file(self) -> Path:
        """The emulated machines and links as a Cluster, in JSON."""
        return self.folder / "cluster.json"

    def address(self, node: int) -> str:
        """Return a node's address on the emulated network."""
        return spec.address(self.owner_pid, node)

    def start_ranks(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> "StartedJob":
        """Start a command once a rank, with torchrun's variables; its output is kept in files."""
        places = [(rank // self.spec.ranks_per_node, rank) for rank in range(self.spec.world_size)]
        return self._start_all(places, argv, env, cwd)

    def start_nodes(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> "StartedJob":
        """Start a command once a node, with MASTER_ADDR, NODE_RANK and torchrun's own defaults (PET_*)."""
        return self._start_all([(node, None) for node in range(self.spec.nodes)], argv, env, cwd)

    def start_on(
        self, node: int, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> "StartedJob":
        """Start a command on one node."""
        return self._start_all([(node, None)], argv, env, cwd)

    def run_on(self, node: int, argv: Sequence[str], *, timeout_s: float = 30.0) -> str:
        """Run a command on one node to its end and return what it printed; MeshwrightError if it fails."""
        job = self.start_on(node, argv)
        (code,) = job.wait(timeout_s=timeout_s)
        if code != 0:
            raise MeshwrightError(f"{argv[0]} on node{node} ended with {code}: {job.stderr(0).strip()}")
        return job.stdout(0)

    def fault(self, text: str) -> str:
        """Break or mend something ("cut node1", "slow node0 100Mbps", "kill rank3"); return what was done."""
        return str(self._request({"op": "fault", "text": text})["done"])

    def launch(
        self,
        node: int,
        rank: int | None,
        argv: Sequence[str],
        handles: tuple[int, int, int],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> int:
        """Start one program with the given stdin, stdout and stderr; return its number in this emulation."""
        if not argv:
            raise InputError("emulate: no command; expected one after `--`")
        message = {
            "op": "start",
            "node": spec.node_name(node),
            "rank": rank,
            "argv": list(argv),
            "env": dict(env or {}),
            "cwd": cwd or os.getcwd(),
        }
        return int(self._request(message, handles)["id"])

    def send_signal(self, ids: Sequence[int], number: int) -> None:
        """Send a signal to the process groups of programs that still run."""
        self._request({"op": "signal", "ids": list(ids), "number": int(number)})

    def status(self) -> dict[str, Any]:
        """Return the spec, and of each program its node, rank, pid (as the machine sees it) and exit code."""
        return self._request({"op": "status"})

    def exit_codes(self, programs: Iterable[int]) -> list[int | None]:
        """Return how programs ended (128 + n for signal n), or None for each that runs; does not block.

        All are of one moment: where one has ended since, this handle is readable.
        """
        self.drain()
        return [self._codes.get(program) for program in programs]

    def fileno(self) -> int:
        """Return the handle that becomes readable when a program ends, for select."""
        return self._socket.fileno()

    def drain(self) -> None:
        """Read the ends of programs that have been reported; MeshwrightError if the supervisor is gone."""
        while select.select([self._socket], [], [], 0)[0]:
            with self._lock:
                if select.select([self._socket], [], [], 0)[0]:
                    self._note(protocol.receive(self._socket)[0])

    def await_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for `done()`, which is asked again whenever a program ends; return whether it came true."""
        end = time.monotonic() + timeout_s
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            select.select([self._socket], [], [], min(left, 1.0))
            self.drain()
        return True

    def _start_all(
        self,
        places: Sequence[tuple[int, int | None]],
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
    ) -> "StartedJob":
        folder = Path(tempfile.mkdtemp(dir=self._outputs))
        ids = []
        for index, (node, rank) in enumerate(places):
            with (
                open(os.devnull, "rb") as nothing,
                open(folder / f"{index}.out", "wb") as out,
                open(folder / f"{index}.err", "wb") as err,
            ):
                handles = (nothing.fileno(), out.fileno(), err.fileno())
                ids.append(self.launch(node, rank, argv, handles, env=env, cwd=cwd))
        return StartedJob(self, tuple(ids), folder)

    def _request(self, message: dict[str, Any], handles: tuple[int, ...] = ()) -> dict[str, Any]:
        with self._lock:
            try:
                protocol.send_message(self._socket, message, handles)
            except OSError:
                return protocol.checked_reply(None)
            while (answer := protocol.receive(self._socket)[0]) is not None and "reply" not in answer:
                self._note(answer)
            return protocol.checked_reply(answer and answer["reply"])

    def _note(self, message: dict[str, Any] | None) -> None:
        self._codes[protocol.checked_reply(message)["id"]] = message["code"] if message else 0

    def _end(self) -> None:
        """Hang up, which is all that the supervisor needs to take everything down, and wait until it has."""
        self._socket.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel takes the nodes down with it
            self._process.wait()


class StartedJob:
    """Programs started together: one a rank, or one a node."""

    def __init__(self, emulation: Emulation, ids: tuple[int, ...], folder: Path) -> None:
        self._emulation = emulation
        self._folder = folder
        self.ids = ids

    def codes(self) -> tuple[int | None, ...]:
        """Return the exit codes so far, None for what still runs."""
        return tuple(self._emulation.exit_codes(self.ids))

    def wait(self, *, timeout_s: float) -> tuple[int, ...]:
        """Return all exit codes; TimeoutError, with the last lines of what still runs, after `timeout_s`."""
        if not self._emulation.await_until(lambda: None not in self.codes(), timeout_s):
            late = [index for index, code in enumerate(self.codes()) if code is None]
            tails = "\n".join(f"{index}: {self.stdout(index)[-500:]}{self.stderr(index)[-1500:]}" for index in late)
            raise TimeoutError(f"still running after {timeout_s:g} s: {late}\n{tails}")
        return tuple(code for code in self.codes() if code is not None)

    def stdout(self, index: int) -> str:
        """Return what the program of a rank (or node) has printed."""
        return (self._folder / f"{index}.out").read_text(errors="replace")

    def stderr(self, index: int) -> str:
        """Return what the program of a rank (or node) has printed on standard error."""
        return (self._folder / f"{index}.err").read_text(errors="replace")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to all programs that still run."""
        self._emulation.send_signal(self.ids, number)


def send_request(folder: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send one request to an emulation that another process owns, found by its folder, and return the reply.

    NoAnswerError if it is not up yet or has ended meanwhile.
    """
    with _connected(folder) as connection:
        protocol.send_message(connection, message)
        return _reply(connection)


def visit(folder: str, node: str, argv: Sequence[str]) -> int:
    """Run a command on a node of an emulation that another process owns, at this terminal; return its exit code."""
    with _connected(folder) as connection:
        message: dict[str, Any] = {
            "op": "start",
            "node": node,
            "rank": None,
            "argv": list(argv),
            "env": {},
            "cwd": os.getcwd(),
        }
        protocol.send_message(connection, message, (0, 1, 2))
        _reply(connection)
        return int(protocol.checked_reply(protocol.receive(connection)[0])["code"])


@contextlib.contextmanager
def _connected(folder: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            with protocol.control_path(folder) as path:
                connection.connect(path)
        except OSError as error:
            raise protocol.NoAnswerError(f"{folder}: {error.strerror}; the emulation starts or has ended") from None
        protocol.enlarge(connection)
        try:
            yield connection
        except ConnectionError:
            raise protocol.NoAnswerError(f"{folder}: the emulation has ended") from None


def _reply(connection: socket.socket) -> dict[str, Any]:
    answer, _ = protocol.receive(connection)
    return protocol.checked_reply(answer and answer["reply"])
