"""Strangers at every port of the machine that this runs on, for some seconds: idle, junk, oversize, in turns.

Run by the campaign inside of a node; prints how many connections it made. Needs nothing but the standard library.
"""

import contextlib
import random
import socket
import sys
import time
from collections import deque
from pathlib import Path

HELD = 300  # idle connections at a time
LISTENS = "0A"  # the state of a socket in /proc/net/tcp
PAUSE_S = 0.002  # between two connections: it shares the cores with the job


def listening() -> list[tuple[str, int]]:
    """Return the IPv4 addresses and ports on which somebody listens here."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == LISTENS:
            address, _, port = local.partition(":")
            host = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
            found.add(("127.0.0.1" if host == "0.0.0.0" else host, int(port, 16)))
    return sorted(found)


def main() -> None:
    """Connect until the time is over."""
    rng, made = random.Random(0), 0
    held: deque[socket.socket] = deque()
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        for place in listening():
            stranger = socket.socket()
            stranger.settimeout(1)
            with contextlib.suppress(OSError):  # it was let go, which is what is asked for
                stranger.connect(place)
                made += 1
                held.append(stranger)
                if made % 3:
                    stranger.sendall(rng.randbytes(rng.choice((8, 2000, 2**16))))
            if len(held) > HELD:
                held.popleft().close()
            time.sleep(PAUSE_S)
    print(made)


if __name__ == "__main__":
    main()
