"""The supervisor of an asynchronous run by itself."""

from types import SimpleNamespace

import pytest

from meshwright.train.asynchronous.supervisor import RunSupervisor


def test_a_signal_before_the_first_server_runs_ends_the_run_at_once(tmp_path):
    folder = SimpleNamespace(config=lambda: None, plan=lambda: None, events=tmp_path / "events.jsonl")
    supervisor = RunSupervisor(folder, tmp_path)

    with pytest.raises(KeyboardInterrupt):
        supervisor.stop(15, None)
