"""Two ranks, each started by a command of its own: in namespaces, as another user, with limits."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import meshwright

PROGRAM = Path(__file__).parents[1] / "multiproc" / "programs" / "start_somewhere.py"
SOURCE = Path(meshwright.__file__).parents[1]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_ranks(
    before: Sequence[Sequence[str]], *, environments: Sequence[dict[str, str]] = ({}, {}), limit_s: float = 50, **common
):
    """Start a rank behind each of the commands `before`; return what each said, and its lines of warning.

    An empty value of a variable takes it out. A rank that said nothing has None.
    """
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(len(before))}
    processes = []
    for rank, command in enumerate(before):
        asked = os.environ | shared | {"PYTHONPATH": str(SOURCE), "RANK": str(rank)} | common | dict(environments[rank])
        environment = {name: value for name, value in asked.items() if value}
        processes.append(
            subprocess.Popen(
                [*command, sys.executable, str(PROGRAM)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said, warned = [], []
    try:
        for process in processes:
            out, err = process.communicate(timeout=limit_s)
            lines = [line for line in out.splitlines() if line.startswith("{")]
            said.append(json.loads(lines[-1]) if lines else None)
            warned.append([line for line in err.splitlines() if line.startswith("meshwright: ")])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return said, warned


def need(*programs: str) -> None:
    """Skip the test where it cannot have namespaces of its own."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(programs)}")


@contextlib.contextmanager
def two_networks(*addresses: tuple[str, str]) -> Iterator[list[list[str]]]:
    """Yield two commands that run in network namespaces joined by one cable, v0; `addresses` are pairs for its ends."""
    need("ip")
    names = [f"mw-{uuid.uuid4().hex[:8]}{end}" for end in "ab"]
    try:
        for name in names:
            made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
            if made.returncode:
                pytest.skip(f"no network namespaces: {made.stderr.strip()}")
        ip("link", "add", "v0", "netns", names[0], "type", "veth", "peer", "name", "v0", "netns", names[1])
        for end, name in enumerate(names):
            for pair in addresses:
                quick = ["nodad"] if ":" in pair[end] else []
                ip("-n", name, "addr", "add", pair[end], "dev", "v0", *quick)
            for link in ("lo", "v0"):
                ip("-n", name, "link", "set", link, "up")
        for _ in range(100):  # an address of IPv6 counts when nobody else on the link has answered for it
            if not any(ip("-n", name, "-6", "addr", "show", "tentative") for name in names):
                break
            time.sleep(0.1)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def ip(*arguments: str) -> bytes:
    """Run `ip`; return what it prints."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True).stdout
