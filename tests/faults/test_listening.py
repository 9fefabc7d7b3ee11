"""The listening sockets of each command, from the kernel, held against the table of docs/faults.md."""

import contextlib
import fnmatch
import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pytest

from meshwright.cluster.doctor.exchange import meet_nodes
from meshwright.cluster.doctor.facts import NodeFacts
from meshwright.layout import Layout
from meshwright.train.job.config import DataParallelConfig
from testkit.caches import new_cache
from testkit.fault_jobs import Job
from testkit.train_jobs import small_job, write_corpus, write_run

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
ACCEPTS = 0x10000  # of a Unix socket in /proc/net/unix: somebody listens
LOOK_S = 0.02


class Row(NamedTuple):
    command: str
    process: str
    address: str  # a pattern
    always: bool
    told: tuple[str, ...]  # purpose, who is let in, what junk does


def table() -> list[Row]:
    """Return the rows of the table."""
    part = re.search(r"<!-- listening -->(.*?)<!-- end of listening -->", PAGE.read_text(), re.S)[1]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.split("\n") if line.startswith("|")]
    return [
        Row(cells[0].replace("`", ""), cells[1], cells[2].strip("`"), cells[3] == "always", tuple(cells[4:]))
        for cells in lines[2:]
    ]


def rows_of(command: str) -> list[Row]:
    return [row for row in table() if row.command == command]


def listening_unix() -> dict[str, str]:
    """Return the path of every listening Unix socket of this network by its inode."""
    found = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & ACCEPTS:
            found[fields[6]] = fields[7] if len(fields) > 7 else ""
    return found


def listens_on(process: psutil.Process) -> set[str]:
    """Return what a process listens on, TCP of any family and Unix."""
    found = set()
    with contextlib.suppress(psutil.Error, OSError):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                found.add(f"{connection.laddr.ip}:{connection.laddr.port}")
        paths = listening_unix()
        for handle in os.listdir(f"/proc/{process.pid}/fd"):
            with contextlib.suppress(OSError):
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process.pid}/fd/{handle}"))
                if match and match[1] in paths:
                    found.add(paths[match[1]])
    return found


def role(process: psutil.Process, job: Job, folder) -> str:
    """Return what a process of a job is."""
    if process.pid == job.process.pid:
        return "launcher"
    for path in folder.ranks.glob("*.json"):
        with contextlib.suppress(ValueError, OSError):
            if json.loads(path.read_text())["pid"] == process.pid:
                return "rank"
    with contextlib.suppress(psutil.Error):
        if process.ppid() == job.process.pid and "multiprocessing.forkserver" in " ".join(process.cmdline()):
            return "fork server"  # what it forks has the same command line, and another parent
    return "server or rank"  # that has not said yet which it is


def seen_of(job: Job, folder) -> dict[tuple[int, str], str]:
    """Return everything that the processes of a job listened on until it ended, by pid and address, with its role."""
    seen: dict[tuple[int, str], str] = {}
    while job.process.poll() is None:
        for process in job.members():
            for address in listens_on(process):
                seen[process.pid, address] = role(process, job, folder)
        time.sleep(LOOK_S)
    return seen


def matches(address: str, process: str, row: Row) -> bool:
    is_role = process == row.process or (process == "server or rank" and row.process in ("server", "rank"))
    return is_role and fnmatch.fnmatchcase(address, row.address)


@pytest.mark.slow
@pytest.mark.timeout(300)  # processes that load torch, and every look at them takes its time
@pytest.mark.parametrize(
    ("command", "settings"),
    [("train", {}), ("train, asynchronous", {"mode": "parameter_server", "silence_s": 60.0})],
)
def test_a_job_listens_on_what_the_table_says_and_on_nothing_else(tmp_path, command, settings):
    config = small_job(write_corpus(tmp_path), steps=20)
    config = msgspec.structs.replace(config, data_parallel=DataParallelConfig(**settings))
    folder = write_run(tmp_path / "run", config, Layout(dp=2, mbs=4))
    job = Job(["--resume", str(folder.path)], {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": new_cache(tmp_path / "cache")})

    seen = seen_of(job, folder)

    assert job.end()[0] == 0
    rows = rows_of(command)
    unknown = {(address, process) for (_, address), process in seen.items()
               if not any(matches(address, process, row) for row in rows)}  # fmt: skip
    assert unknown == set()
    missing = [row for row in rows if row.always
               and not any(matches(address, process, row) for (_, address), process in seen.items())]  # fmt: skip
    assert missing == []


@pytest.mark.netns
def test_an_emulation_listens_on_its_control_socket_alone(emulated):
    cluster = emulated(nodes=2)
    (row,) = rows_of("emulate")

    found = listens_on(psutil.Process(cluster.owner_pid))

    # the supervisor has moved to a network of its own, and its socket with it
    inner = Path(f"/proc/{cluster.owner_pid}/net/unix").read_text()
    paths = {line.split()[7] for line in inner.splitlines()[1:] if int(line.split()[3], 16) & ACCEPTS}
    assert {address for address in found if not fnmatch.fnmatchcase(address, row.address)} == set()
    assert len(paths) == 1
    assert (cluster.folder / "control.sock").is_socket()
    assert cluster.folder.stat().st_mode & 0o777 == 0o700


def test_doctor_listens_at_its_rendezvous_alone_and_only_while_it_runs():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    me, address = psutil.Process(), f"127.0.0.1:{port}"
    before = listens_on(me)
    running = threading.Thread(target=meet_nodes, args=(NodeFacts(node=0, nodes=2, host="a"), "127.0.0.1", port, 1.0))
    running.start()
    time.sleep(0.3)

    assert listens_on(me) - before == {address}

    running.join()
    assert listens_on(me) == before
    assert [row.address for row in rows_of("doctor on several nodes")] == ["MASTER_ADDR:MASTER_PORT"]


def test_every_row_says_purpose_who_is_let_in_and_what_junk_does():
    rows = table()

    assert {row.command for row in rows} >= {"train", "train, asynchronous", "emulate", "doctor on several nodes"}
    assert all(len(row.told) == 3 and all(row.told) for row in rows)
    assert not any(row.address.startswith(("0.0.0.0", "::", "*:")) for row in rows)  # no interface is open by itself


def test_a_socket_that_the_table_does_not_have_is_noticed():
    rows = rows_of("train")

    assert not any(matches("0.0.0.0:29500", "rank", row) for row in rows)
    assert not any(matches("/tmp/other.sock", "launcher", row) for row in rows)
    assert any(matches("127.0.0.1:29500", "launcher", row) for row in rows)
