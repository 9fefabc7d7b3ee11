"""What happened is on disk when `record` returns, in order, and a hook hears of it."""

import json
import time

from meshwright.train.events import HOOK_VARIABLE, Event, EventLog, read_events


def test_events_of_all_ranks_are_read_in_order_and_damaged_lines_left_out(tmp_path):
    first, second, launcher = EventLog(tmp_path / "e", 1), EventLog(tmp_path / "e", 0), EventLog(tmp_path / "e", None)
    first.record(Event(kind="failure", message="rank 2 died", culprit=2, step=5))
    launcher.record(Event(kind="restart", message="again"))
    second.record(Event(kind="resume", message="goes on", step=4))
    with first.path.open("ab") as file:
        file.write(b'{"kind": "fail')

    found = read_events(tmp_path / "e")

    assert [(event.rank, event.kind) for event in found] == [(1, "failure"), (None, "restart"), (0, "resume")]
    assert [str(event) for event in found] == [
        "rank 1 in step 5: rank 2 died",
        "launcher: again",
        "rank 0 in step 4: goes on",
    ]


def test_a_folder_that_cannot_be_written_does_not_stop_the_run(tmp_path):
    (tmp_path / "e").touch()

    EventLog(tmp_path / "e", 0).record(Event(kind="stop", message="told to stop"))


def test_a_command_gets_each_event_on_its_standard_input(tmp_path, monkeypatch):
    monkeypatch.setenv(HOOK_VARIABLE, f"cat >> {tmp_path}/heard")

    EventLog(tmp_path / "e", 3).record(Event(kind="slow_rank", message="$(touch x) `y`", evidence={"ratio": 2.0}))

    for _ in range(1000):
        if (tmp_path / "heard").exists() and (tmp_path / "heard").read_text().endswith("\n"):
            break
        time.sleep(0.01)
    heard = json.loads((tmp_path / "heard").read_text())
    assert (heard["rank"], heard["message"], heard["evidence"]) == (3, "$(touch x) `y`", {"ratio": 2.0})
