"""An agent's messages where machines do not meet."""

import socket
import threading
import time

import msgspec
import pytest
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

from meshwright.errors import MeshwrightError
from meshwright.train.elastic import agent
from meshwright.train.elastic.agent import AgentStart, SealedBackend, check_machines, run_agent
from meshwright.train.elastic.meeting import host_store
from meshwright.train.elastic.store import SealedStore
from meshwright.train.run.events import EventLog

START = AgentStart(name="job", ranks=1, nodes=2, min_nodes=2, secret=b"secret", timeout_s=5.0)


def test_a_machine_whose_fellows_have_given_up_says_so_in_one_line(monkeypatch, tmp_path):
    def closed(host, port, timeout_s, secret):
        store = host_store(host, port, timeout_s, secret)
        backend = SealedBackend(store, START.name, secret)
        other = DynamicRendezvousHandler.from_backend(START.name, store, backend, START.min_nodes, START.nodes)
        other.set_closed()
        return store

    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
    monkeypatch.setattr(agent, "host_store", closed)

    with pytest.raises(MeshwrightError, match=r"the others wait no longer: fewer than 2 machines .*launch.min_nodes"):
        run_agent(START, print, (), EventLog(tmp_path, None))


def test_a_machine_that_reaches_nothing_where_all_meet_says_so_in_one_line(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
    monkeypatch.setattr(agent, "is_here", lambda host: False)
    start = msgspec.structs.replace(START, port=port, timeout_s=0.2)

    with pytest.raises(MeshwrightError, match=rf"127.0.0.1:{port}: no store of this job: .*launch.rendezvous"):
        run_agent(start, print, (), EventLog(tmp_path, None))


def test_a_machine_that_was_one_too_many_until_the_end_says_so_in_one_line(monkeypatch, tmp_path):
    start = msgspec.structs.replace(START, nodes=1, min_nodes=1)

    def ended_once_another_waits(handler):
        while handler.num_nodes_waiting() + len(handler._state_holder.state.redundancy_list) == 0:
            time.sleep(0.05)
        handler.shutdown()

    def full(host, port, timeout_s, secret):
        store = host_store(host, port, timeout_s, secret)
        other = DynamicRendezvousHandler.from_backend(start.name, store, SealedBackend(store, start.name, secret), 1, 1)
        other.next_rendezvous()
        threading.Thread(target=ended_once_another_waits, args=(other,)).start()
        return store

    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
    monkeypatch.setattr(agent, "host_store", full)

    with pytest.raises(MeshwrightError, match=r"ended without this machine: 1 others were enough \(launch.nodes\)"):
        run_agent(start, print, (), EventLog(tmp_path, None))


def test_a_machine_whose_job_was_ended_where_all_meet_says_why_in_one_line(monkeypatch, tmp_path):
    hosted = []

    def ends_soon(host, port, timeout_s, secret):
        hosted.append(host_store(host, port, timeout_s, secret))
        store = SealedStore(host, hosted[0].port, timeout_s, secret)
        threading.Timer(1.0, hosted[0].close, kwargs={"farewell": "rank 0 failed: no space"}).start()
        return store

    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
    monkeypatch.setattr(agent, "host_store", ends_soon)

    with pytest.raises(MeshwrightError, match=r"where all meet has ended the job: rank 0 failed: no space$"):
        run_agent(START, print, (), EventLog(tmp_path, None))


def test_fewer_machines_than_are_needed_do_not_train_alone():
    check_machines(2, 2)
    check_machines(3, 2)

    with pytest.raises(
        MeshwrightError, match=r"1 machines have met, 2 are needed \(launch.min_nodes\).*silent for 5 s"
    ):
        check_machines(1, 2)
