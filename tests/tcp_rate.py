"""A plain TCP transfer between two hosts, timed by the receiver: the oracle of link rates. No torch, no Meshwright.

`python tcp_rate.py receive PORT` prints the bytes per second that arrived after the first 20 % of the transfer;
`python tcp_rate.py send ADDRESS PORT BYTES` sends. Two blocks of equal length would hide a slow start; the first fifth
also swallows the burst that a token bucket lets through.
"""

import socket
import sys
import time

CHUNK = 1 << 20


def receive(port: int) -> float:
    with socket.create_server(("0.0.0.0", port)) as server:
        connection, _ = server.accept()
        with connection:
            total = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
            buffer, got, started, skipped = bytearray(CHUNK), 0, 0.0, 0
            while got < total:
                got += connection.recv_into(buffer)
                if not started and got >= total / 5:
                    started, skipped = time.monotonic(), got
            return (got - skipped) / (time.monotonic() - started)


def send(address: str, port: int, size_bytes: int) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection((address, port), timeout=10)
            break
        except ConnectionRefusedError:  # the receiver is still starting
            if time.monotonic() > end:
                raise
    connection.settimeout(None)
    with connection:
        connection.sendall(size_bytes.to_bytes(8, "big"))
        chunk, left = bytes(CHUNK), size_bytes
        while left:
            left -= connection.send(chunk[: min(CHUNK, left)])


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        sys.stdout.write(f"{receive(int(sys.argv[2])):.0f}\n")
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
