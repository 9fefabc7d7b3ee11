"""One server: listens, lets in clients that know the word, and answers on a thread for each connection.

The first server has the coordinator too. A worker that joined on a connection is out when that connection ends.
"""

import contextlib
import socket
import threading

from ...handshake import Guest, answer, guarded
from .connection import Connection, ConnectionLost
from .coordinator import Coordinator
from .messages import Joined, Message, Refused, WorkerHeartbeat
from .server_group import ServerShard

BACKLOG = 1024  # connections that wait to be accepted: those of the workers, and strangers


class Listener:
    """Answers visitors of one address until it is closed; `coordinator` is None on all servers but the first."""

    def __init__(self, host: str, word: str, vault: ServerShard) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=BACKLOG)
        self._word = word.encode()
        self.vault = vault
        self.coordinator: Coordinator | None = None
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._connections: set[Connection] = set()
        self._thread = threading.Thread(target=self._accept, name="door", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more; visitors lose their connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self) -> None:
        with guarded(self._socket) as door, contextlib.suppress(OSError):  # closed
            while True:
                guest = door.next()
                if guest is not None:
                    self._welcome(guest)

    def _welcome(self, guest: Guest) -> None:
        """Answer, on a thread, peers that know the word and nobody else."""
        seal = answer(guest, self._word)
        if seal is None:
            guest.connection.close()
            return
        try:
            guest.connection.settimeout(None)
            guest.connection.sendall(seal)
            connection = Connection(guest.connection)
        except OSError:  # it has gone
            guest.connection.close()
            return
        self._connections.add(connection)
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        joined: list[int] = []
        reason = "its connection closed"
        try:
            while True:
                message, payload = connection.receive()
                if isinstance(message, WorkerHeartbeat):
                    if self.coordinator is not None:
                        self.coordinator.beat(message.member)
                    continue
                kept = self.vault.handle(message, payload)
                reply, data = kept if kept is not None else (self._decide(message), None)
                if isinstance(reply, Joined):
                    joined.append(reply.member)
                connection.send(reply, data) if data is not None else connection.send(reply)
        except ConnectionLost:
            pass
        except Exception as error:  # the coordinator keeps it for the waiter of the run
            reason = str(error)
        finally:
            self._connections.discard(connection)
            connection.close()
            for member in joined:
                assert self.coordinator is not None
                self.coordinator.leave(member, reason)

    def _decide(self, message: Message) -> Message:
        if self.coordinator is None:
            return Refused("the coordinator is elsewhere")
        return self.coordinator.answer(message)
