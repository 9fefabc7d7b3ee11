"""A pipeline, trained from the command line: what it prints, and the trace of its messages in a viewer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.train.job.config import to_toml
from testkit.caches import new_cache
from testkit.chromium import Browser
from testkit.train_jobs import small_job, write_corpus
from tests.browser.viewers import catapult, missing_viewers, perfetto

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
STEPS, MICRO_BATCHES = 4, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train two stages of a small decoder; return the run folder and what the command wrote on standard output."""
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "job.toml").write_text(to_toml(small_job(write_corpus(folder), steps=STEPS)))
    words = ["train", "job.toml", "--layout", "pp=2,dp=1,mbs=1", "--ranks", "2", "--run-dir", "run", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "meshwright", *words], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"XDG_CACHE_HOME": new_cache(folder / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "run", done.stdout


def trace_of(folder: Path) -> list[dict]:
    return json.loads((folder / "timeline.json").read_text())["traceEvents"]


def test_the_json_of_a_run_is_all_that_it_prints(run):
    folder, printed = run

    found = json.loads(printed)
    assert found["predicted"] == json.loads((folder / "predicted.json").read_text())
    assert found["measured"] == json.loads((folder / "measured.json").read_text())
    assert found["layout"]["pp"] == 2


def test_an_arrow_goes_from_every_send_to_its_receive(run):
    """Each begins inside a send and ends inside the receive of the same micro-batch on the other rank."""
    events = trace_of(run[0])
    spans = [event for event in events if event["ph"] == "X" and event["cat"] != "message"]
    begun = {event["id"]: event for event in events if event["ph"] == "s"}
    ended = {event["id"]: event for event in events if event["ph"] == "f"}

    def under(arrow):
        (span,) = [
            span
            for span in spans
            if (span["pid"], span["tid"]) == (arrow["pid"], arrow["tid"])
            and span["ts"] <= arrow["ts"] < span["ts"] + span["dur"]
        ]
        return span

    steps = {span["args"]["step"] for span in spans}
    assert begun.keys() == ended.keys()
    assert len(begun) == 2 * MICRO_BATCHES * len(steps)  # an activation and a gradient for each
    for number, arrow in begun.items():
        send, receive = under(arrow), under(ended[number])
        assert send["name"].removeprefix("send_") == receive["name"].removeprefix("recv_")
        assert send["pid"] != receive["pid"]
        assert send["args"]["step"] == receive["args"]["step"]
        assert send["args"]["detail"].split(" to ")[0] == receive["args"]["detail"].split(" from ")[0]
        assert arrow["ts"] <= ended[number]["ts"]


@pytest.mark.skipif(bool(missing_viewers()), reason=missing_viewers())
@pytest.mark.parametrize("viewer", ["perfetto", "catapult"])
def test_viewers_open_the_trace_with_its_arrows(run, viewer, tmp_path):
    """Perfetto, and Catapult, which was chrome://tracing: no complaint, every span, every arrow at the right ones."""
    text, events = (run[0] / "timeline.json").read_text(), trace_of(run[0])
    with Browser() as browser:
        page = tmp_path / "empty.html"
        found = perfetto(browser, text) if viewer == "perfetto" else catapult(browser, page, text)

    assert found.complaints == []
    assert found.slices == sum(event["ph"] == "X" for event in events)
    assert len(found.arrows) == sum(event["ph"] == "s" for event in events)
    assert set(found.arrows) == {("send_activation", "message"), ("send_gradient", "message")}
