"""Junk on the control socket of an emulation changes nothing: what runs goes on, and other terminals are answered."""

import contextlib
import json
import random
import socket
import sys
import time

import pytest

from meshwright.cluster.emulation import protocol
from meshwright.cluster.emulation.session import send_request

pytestmark = pytest.mark.netns

JUNK = [
    b"junk",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'"status"',
    b"[" * 100_000,
    b'{"op": 1}',
    b'{"op": "explode"}',
    b'{"op": "status", "more": 1}',
    b'{"op": "signal"}',
    b'{"op": "signal", "ids": "all", "number": 9}',
    b'{"op": "signal", "ids": [0], "number": 99}',
    b'{"op": "signal", "ids": [0], "number": 33}',
    b'{"op": "signal", "ids": [0], "number": ' + b"9" * 5000 + b"}",
    b'{"op": "fault", "text": ["cut"]}',
    b'{"op": "fault", "text": ""}',
    b'{"op": "fault", "text": "kill rank' + b"9" * 5000 + b'"}',
    b'{"op": "fault", "text": "slow node0 1e400Gbps"}',
    b"\xff\xfe",
    b"x" * 200_000,
]


def start(**changed):
    whole = {"op": "start", "node": "node0", "rank": None, "argv": ["true"], "env": {}, "cwd": "/"}
    return json.dumps(whole | changed).encode()


WITHOUT_HANDLES = [start()]
STARTS = [
    start(argv=[]),
    start(argv=["a\0b"]),
    start(argv=["\ud800"]),
    start(node="node99"),
    start(node=0),
    start(rank=99),
    start(rank=-1),
    start(rank=0.5),
    start(env={"A=B": "1"}),
    start(env={"A": "\0"}),
    start(cwd="\0"),
    start(cwd="/nowhere"),
    start(argv=["/nowhere"]),
]


@contextlib.contextmanager
def visitor(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        with protocol.control_path(folder) as path:
            connection.connect(path)
        connection.settimeout(10)
        protocol.enlarge(connection)
        yield connection


def still_works(cluster):
    return send_request(str(cluster.folder), {"op": "status"})["spec"]["nodes"] == cluster.spec.nodes


def test_every_kind_of_junk_is_answered_in_one_line_and_the_emulation_goes_on(emulated):
    cluster = emulated(nodes=2)
    job = cluster.start_on(0, [sys.executable, "-c", "input()"])
    with open("/dev/null", "rb") as nothing, visitor(cluster.folder) as stranger:
        handles = [nothing.fileno()] * 3
        for said in (*JUNK, *WITHOUT_HANDLES, *STARTS):
            socket.send_fds(stranger, [said], handles if said in STARTS else [])
            reply = json.loads(stranger.recv(2**18))["reply"]
            assert "error" in reply, (said[:80], reply)
            assert "\n" not in reply["error"]
    assert still_works(cluster)
    assert job.wait(timeout_s=10) == (1,)  # of its own: no input


def test_random_bytes_and_visitors_that_leave_or_stay_or_never_read_hold_up_nobody(emulated):
    cluster, rng = emulated(nodes=2), random.Random(1)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(visitor(cluster.folder))
        for _ in range(200):
            with visitor(cluster.folder) as stranger:
                stranger.send(rng.randbytes(rng.randrange(1, 2000)))
        deaf = stack.enter_context(visitor(cluster.folder))
        deaf.setblocking(False)
        with contextlib.suppress(OSError):  # nobody reads any more, or it was closed
            for _ in range(5000):
                deaf.send(b'{"op": "status"}')
        begin_s = time.monotonic()
        assert still_works(cluster)
        assert time.monotonic() - begin_s < 10
    assert cluster.run_on(1, ["echo", "works"]) == "works\n"
