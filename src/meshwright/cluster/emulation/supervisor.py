"""The process that owns an emulation: builds it, starts programs in its nodes, applies faults, and takes it down.

Started by `Emulation` with one end of a socket as its only argument; lives as long as the other end is open. One
thread, one loop: requests from the launcher and from other terminals, and the ends of its children.

Each request (requests.py) is answered with one message, junk with what was expected. The launcher also gets an `exit`
event for each program that ends.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import psutil

from ...errors import InputError, MeshwrightError
from ...files import convert, write_atomic, write_struct
from . import faults, inside, linux, node, protocol, requests, rootless, spec, state
from .links import EmulatedFabric
from .program import EmulatedProgram

_BACKLOG = 16
_MOST_VISITORS = 64  # connections that have started nothing; with more, the oldest is closed


class Supervisor:
    """One running emulation."""

    def __init__(self, wanted: spec.EmulationSpec, launcher: socket.socket, base: Path) -> None:
        self.spec = wanted
        self.nodes: dict[str, node.Node] = {}
        self.programs: list[EmulatedProgram] = []
        self._launcher = launcher
        self._visitors: dict[socket.socket, None] = {}  # from other terminals, the oldest first
        self._closing = False
        self._stack = contextlib.ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        state.sweep_dead(base)
        self.folder = state.create_folder(base)
        self._stack.callback(state.remove, self.folder)
        self._stack.callback(self._end_nodes)

    def build(self) -> None:
        """Make namespaces, links and addresses; MeshwrightError if the kernel refuses."""
        owner = os.getpid()
        write_struct(self.folder / "spec.json", self.spec)
        write_struct(self.folder / "cluster.json", _cluster(self.spec))
        linux.adopt_orphans()
        try:
            linux.unshare(linux.CLONE_NEWNET)  # the switches' own network
        except OSError as error:
            raise InputError(rootless.refusal(error.errno or 0, str(error.strerror))) from None
        for number in range(self.spec.nodes):
            name = spec.node_name(number)
            self.nodes[name] = node.start_node(name, etc=self._etc(name), shm_bytes=self.spec.shm_bytes)
        self.fabric = EmulatedFabric(self.spec, self.nodes, owner)
        self._stack.callback(self.fabric.close)
        self._listener = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        with protocol.control_path(self.folder) as path:
            self._listener.bind(path)
        self._listener.listen(_BACKLOG)

    def serve(self) -> None:
        """Answer requests until the launcher is gone or asks to close."""
        wakeup = self._signals_as_packets()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(wakeup, selectors.EVENT_READ, self._on_signal)
        self._selector.register(self._launcher, selectors.EVENT_READ, self._on_request)
        while not self._closing:
            for key, _ in self._selector.select():
                key.data(key.fileobj)

    def close(self) -> None:
        """Take everything down; nothing of the emulation is left when this returns."""
        signal.set_wakeup_fd(-1)
        for visitor in self._visitors:
            visitor.close()
        self._stack.close()

    def _etc(self, name: str) -> dict[str, Path]:
        """Write a node's host names; they alone answer its look-ups, no name server could be reached."""
        hosts, order = self.folder / f"{name}.hosts", self.folder / f"{name}.nsswitch"
        write_atomic(hosts, spec.hosts_file(self.spec, os.getpid()).encode())
        write_atomic(order, b"passwd: files\ngroup: files\nhosts: files\n")
        found = {"/etc/hosts": hosts, "/etc/nsswitch.conf": order}
        return {path: own for path, own in found.items() if os.path.exists(path)}

    def _accept(self, listener: socket.socket) -> None:
        is_full = False
        try:
            connection, _ = listener.accept()
            connection.setblocking(False)  # who does not read its answers holds up nobody
            protocol.enlarge(connection)
            self._selector.register(connection, selectors.EVENT_READ, self._on_request)
            self._visitors[connection] = None
        except OSError:  # it has gone again, or no descriptor is left
            is_full = True
        askers = {program.asker for program in self.programs}
        idle = [visitor for visitor in self._visitors if visitor not in askers]
        if len(idle) > (0 if is_full else _MOST_VISITORS):
            self._hung_up(idle[0])

    def _on_request(self, connection: socket.socket) -> None:
        if connection is not self._launcher and connection not in self._visitors:
            return  # closed by what the selector told before
        handles: list[int] = []
        try:
            message, handles = protocol.receive(connection)
            if message is None:
                self._hung_up(connection)
                return
            reply = self._answer(
                requests.parse_request(message, len(handles), ranks=self.spec.world_size), handles, connection
            )
        except BlockingIOError:
            return
        except MeshwrightError as error:
            reply = protocol.failure(error)
        except (OSError, ValueError, ArithmeticError) as error:
            reply = protocol.failure(MeshwrightError(f"the request failed: {error}"))
        finally:
            for handle in handles:
                os.close(handle)
        self._tell(connection, {"reply": reply})

    def _hung_up(self, connection: socket.socket) -> None:
        """End what a terminal that left has started; when it was the launcher, end everything."""
        self._selector.unregister(connection)
        self._visitors.pop(connection, None)
        connection.close()
        self._closing = self._closing or connection is self._launcher
        for program in self.programs:
            if program.asker is connection and not self._closing:
                program.send(signal.SIGHUP)

    def _answer(self, request: requests.Request, handles: list[int], asker: socket.socket) -> dict[str, Any]:
        match request:
            case requests.Start():
                return self._start(request, handles, asker)
            case requests.Signal(ids, number):
                return {"pids": [p.pid for p in self.programs if p.id in ids and p.send(number)]}
            case requests.Break(text):
                return {"done": faults.apply_fault(faults.parse_fault(text), self.fabric, self.nodes, self.programs)}
            case requests.Status():
                return {"spec": msgspec.to_builtins(self.spec), "programs": [p.as_dict() for p in self.programs]}
            case requests.Close():
                self._closing = True
                return {}

    def _start(self, request: requests.Start, handles: list[int], asker: socket.socket) -> dict[str, Any]:
        place = self.nodes.get(request.node)
        if place is None:
            raise InputError(f"{request.node}: no such node (nodes: {', '.join(self.nodes)})")
        argv = request.argv
        env = {**spec.default_variables(self.spec), **os.environ, **self._variables(request), **request.env}
        stdin, stdout, stderr = handles
        try:
            pid = node.spawn(place, argv, env=env, cwd=request.cwd, stdin=stdin, stdout=stdout, stderr=stderr)
        except OSError as error:
            raise InputError(f"{argv[0]}: {error.strerror}; expected a program to run") from None
        started = EmulatedProgram(len(self.programs), place.name, request.rank, pid, argv, asker)
        self.programs.append(started)
        return {"id": started.id, "pid": pid}

    def _variables(self, request: requests.Start) -> dict[str, str]:
        owner = os.getpid()
        if request.rank is not None:
            found = spec.rank_environment(self.spec, owner, request.rank)
        else:
            found = spec.node_environment(self.spec, owner, list(self.nodes).index(request.node))
        return {**found, inside.VARIABLE: str(self.folder / "cluster.json")}

    def _signals_as_packets(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            self._stack.enter_context(end)
            end.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _noted)
        return ours

    def _on_signal(self, wakeup: socket.socket) -> None:
        numbers = set(wakeup.recv(4096))
        if signal.SIGCHLD in numbers:
            self._reap()
        self._closing = self._closing or bool(numbers & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

    def _reap(self) -> None:
        """Collect the children that ended and tell their starters."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                for program in self.programs:
                    if program.pid == ended[0] and program.exit_code is None:
                        program.end(ended[1])
                        self._tell(program.asker, {"event": "exit", "id": program.id, "code": program.exit_code})

    def _tell(self, connection: socket.socket, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the asker left; if it was the launcher, its end of file says so
            protocol.send_message(connection, message)

    def _end_nodes(self) -> None:
        """Kill all nodes, collect every child (the kernel waits for that), let go of the namespaces."""
        for place in self.nodes.values():
            place.kill()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        for place in self.nodes.values():
            place.close()


def main(handle: str) -> int:
    """Run one emulation for the launcher at the other end of the socket `handle`."""
    launcher = socket.socket(fileno=int(handle))
    os.set_inheritable(launcher.fileno(), False)
    message, _ = protocol.receive(launcher)
    if message is None:
        return 0
    supervisor = None
    try:
        base = state.root()
        rootless.enter()
        supervisor = Supervisor(convert(message["spec"], spec.EmulationSpec, where="emulate"), launcher, base)
        supervisor.build()
        protocol.send_message(launcher, {"reply": {"owner_pid": os.getpid(), "folder": str(supervisor.folder)}})
        supervisor.serve()
    except MeshwrightError as error:
        protocol.send_message(launcher, {"reply": protocol.failure(error)})
        return 1
    finally:
        if supervisor is not None:
            supervisor.close()
    return 0


def _cluster(wanted: spec.EmulationSpec) -> Any:
    cores = len(os.sched_getaffinity(0))
    return spec.cluster_of(wanted, cores=cores, memory_bytes=psutil.virtual_memory().total)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Leave a signal to the loop, which reads it from the wake-up socket."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
