"""The supervisor of an asynchronous run by itself."""

from types import SimpleNamespace

import msgspec
import pytest

from meshwright.train.asynchronous.processes import Arrival, Ended
from meshwright.train.asynchronous.supervisor import Child, RunSupervisor


def test_a_signal_before_the_first_server_runs_ends_the_run_at_once(tmp_path):
    folder = SimpleNamespace(config=lambda: None, plan=lambda: None, events=tmp_path / "events.jsonl")
    supervisor = RunSupervisor(folder, tmp_path)

    with pytest.raises(KeyboardInterrupt):
        supervisor.stop(15, None)


def tell_more_than_a_pipe_holds(pipe, parent):
    for rank in range(2000):
        pipe.send_bytes(msgspec.json.encode(Arrival(rank, pid=1, joined=True, silent=False)))
    pipe.send_bytes(msgspec.json.encode(Ended(stopped="stopped after step 3")))


def test_a_server_whose_notices_nobody_asks_for_ends_all_the_same():
    server = Child("server 0", tell_more_than_a_pipe_holds)
    try:
        server.hear_beside()

        assert server.wait().stopped == "stopped after step 3"
    finally:
        server.end()
