"""The page of a run: complete, offline, its numbers those of the JSON beside it."""

import html
import itertools
import json
import re
import subprocess
import sys

import msgspec
import pytest

from meshwright.cluster.graph import Conditions, Measurements, Pace
from meshwright.errors import InputError
from meshwright.files import write_struct
from meshwright.layout import Layout
from meshwright.machine_load import Load
from meshwright.mesh import Position, position
from meshwright.report.document import Lines, Page, Section, table
from meshwright.report.figures import curve_figure, mesh_figure
from meshwright.report.grid import pipeline_figure
from meshwright.report.lanes import MAX_BARS, lanes_figure, on_every_rank
from meshwright.report.page import page_html
from meshwright.report.pages.run import report
from meshwright.report.pages.two_runs import two_runs_page
from meshwright.report.sampling import thinned
from meshwright.report.sections import layout_section
from meshwright.timeline import Span, Timeline, step_parts, summarize
from meshwright.train.run.events import Event, EventLog
from meshwright.train.run.run_folder import RankParts
from testkit.runs import fake_run, step_spans

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fake_run(tmp_path_factory.mktemp("run") / "first")


def blocks(data: dict) -> list[dict]:
    return [block for section in data["sections"] for block in section["blocks"]]


def test_the_page_shows_all_that_a_run_left(run):
    comparison = report(run)
    data = json.loads(run.report.with_suffix(".json").read_text())

    assert data["verdict"] == comparison.verdict
    assert [section["heading"] for section in data["sections"]] == [
        "What was run", "Predicted beside measured", "Timeline", "Loss and throughput", "Ranks", "Cluster and links",
        "Layout", "Alternatives", "Not modelled",
    ]  # fmt: skip
    titles = {block["title"] for block in blocks(data)}
    assert {"Parts of a step", "One step on each rank", "Peak memory of each rank", "Cluster", "Stragglers"} <= titles


def test_every_number_in_a_table_is_the_one_in_the_json(run):
    report(run)
    data = json.loads(run.report.with_suffix(".json").read_text())
    cells = re.findall(r"<td(?: data-value=\"([^\"]*)\")?>([^<]*)</td>", run.report.read_text())

    expected = [
        ("" if cell.get("value") is None else str(cell["value"]), cell["text"])
        for block in blocks(data)
        if block["type"] == "table"
        for row in block["rows"]
        for cell in row
    ]
    assert [(html.unescape(value), html.unescape(text)) for value, text in cells] == expected
    assert len(expected) > 100


def test_the_page_loads_nothing_from_elsewhere(run):
    report(run)
    text = run.report.read_text()
    own = text[: text.index("<script>")]  # what follows is Plotly itself, which names addresses but loads none

    assert not re.findall(r"(?:src|href)=\"(?!data:,|#)", own)
    assert "url(" not in own


def test_the_page_offers_to_send_nothing_to_the_makers_of_its_figures(run):
    report(run)
    own = run.report.read_text().rpartition("<script>")[2]  # what we wrote, after Plotly itself

    assert "showSendToCloud: false" in own
    assert 'plotlyServerURL: ""' in own


def test_hostile_names_stay_text(tmp_path):
    folder = fake_run(tmp_path / "run", hostile=HOSTILE)
    report(folder)
    page = folder.report.read_text()

    assert "<script>alert" not in page
    assert "<img" not in page[: page.index("<script>")]
    figures = re.findall(r'class="figure"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert any("onerror" in figure for figure in figures)
    for figure in figures:
        assert "<" not in re.sub(r"</?b>|<br>|<extra>|</extra>", "", json.dumps(json.loads(figure)))


def test_the_verdict_names_the_rank_that_computes_longest(run):
    assert "rank 1 longest" in report(run).verdict


def test_the_slow_rank_is_called_a_straggler(run):
    report(run)

    assert re.search(r"rank 1 computes 1\d% longer than the median rank", run.report.read_text())


def test_what_happened_to_the_run_is_listed(tmp_path):
    folder = fake_run(tmp_path / "run")
    log = EventLog(folder.events, 0)
    log.record(Event(kind="failure", message="rank 1 died of signal 9", culprit=1, step=12, host="node0"))
    log.record(Event(kind="restart", message="from step 10"))
    report(folder)
    data = json.loads(folder.report.with_suffix(".json").read_text())
    events = next(section for section in data["sections"] if section["heading"] == "Events")["blocks"][0]

    assert events["title"] == "1 x failure, 1 x restart"
    assert [cell["text"] for cell in events["rows"][0]][1:] == [
        "failure", "12", "1", "node0", "rank 1 died of signal 9",
    ]  # fmt: skip


def test_an_asynchronous_run_shows_how_stale_its_gradients_were(tmp_path):
    folder = fake_run(tmp_path / "run", steps=3)
    rows = [row | {"staleness_mean": 0.5, "staleness_max": 2, "workers": 4} for row in folder.metric_rows()]
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report(folder)
    figures = {b["title"]: b for b in blocks(json.loads(folder.report.with_suffix(".json").read_text()))}

    assert [trace["y"] for trace in figures["Staleness of the gradients"]["traces"]] == [[0.5] * 3, [2] * 3]
    assert figures["Workers"]["traces"][0]["y"] == [4] * 3


def test_two_runs_are_set_side_by_side(run, tmp_path):
    other = fake_run(tmp_path / "second", slow_rank=99)
    comparison, page = two_runs_page(run, other)

    assert comparison.verdict.startswith("second takes")
    assert comparison.rows[0].error == pytest.approx(other.measured().step_time_s / run.measured().step_time_s - 1)
    assert page.title == "first and second"


def test_of_two_runs_it_is_said_beside_which_other_programs_each_ran(run, tmp_path):
    other = fake_run(tmp_path / "second")
    load = Load(host="n", wall_s=10.0, processors=2, own_s=8.0, all_s=18.0, stolen_s=0.0, waited_s=4.0)
    other.write_loads([load])

    comparison, page = two_runs_page(run, other)

    assert "; while second ran, other programs took 50% of the processors; " in comparison.verdict
    assert "while first ran" not in comparison.verdict
    assert page.verdict == comparison.verdict


def test_a_run_is_not_compared_with_itself(run):
    with pytest.raises(InputError, match="the same run twice"):
        two_runs_page(run, run)


def test_a_long_curve_keeps_its_spikes_and_says_that_it_was_thinned():
    values = [1.0] * 100_000
    values[77_777], values[12_345] = 9.0, -9.0
    figure = curve_figure("Loss", {"training": (list(range(100_000)), values)}, "nats")

    assert {9.0, -9.0} <= set(figure.traces[0]["y"])
    assert len(figure.traces[0]["y"]) <= 2002
    assert "of 100,000 points are drawn" in figure.note


def test_a_loss_that_is_no_number_is_said_and_not_drawn_as_one():
    figure = curve_figure("Loss", {"training": ([0, 1, 2], [1.0, float("nan"), 1.0])}, "nats")

    assert figure.traces[0]["y"] == [1.0, None, 1.0]
    assert figure.note == "training is not a finite number at step 1"


def test_a_short_curve_is_drawn_whole():
    assert thinned([3.0, 1.0, 2.0]) == [0, 1, 2]


def test_the_timeline_of_many_ranks_stays_within_what_a_browser_draws():
    spans = [span for rank in range(200) for span in step_spans(rank, 0, 0.0, buckets=60)]
    figure = lanes_figure({"measured": Timeline(tuple(spans), "measured")})

    assert sum(len(trace["x"]) for trace in figure.traces) <= MAX_BARS
    assert "64 of 200 ranks" in figure.note


def test_short_spans_share_their_time_among_names_and_none_hides_another():
    spans = []
    for number in range(MAX_BARS):  # forward and backward by turns, as a pipeline's steady state: one third, two thirds
        spans.append(Span(0, "compute", "forward", number * 3.0, number * 3.0 + 1.0))
        spans.append(Span(0, "compute", "backward", number * 3.0 + 1.0, number * 3.0 + 3.0))
    figure = lanes_figure({"measured": Timeline(tuple(spans), "measured")})

    drawn = {trace["name"]: sum(trace["x"]) for trace in figure.traces}
    assert drawn["backward"] == pytest.approx(2 * drawn["forward"])
    bars = sorted((start, start + long) for t in figure.traces for start, long in zip(t["base"], t["x"], strict=True))
    assert all(end <= start + 1e-9 for (_, end), (start, _) in itertools.pairwise(bars))
    assert "in right proportion" in figure.note


def test_a_trace_of_endlessly_many_names_is_cut_and_says_so():
    spans = [Span(0, "comm", f"name{i}", i * 1.0, i + 0.5) for i in range(MAX_BARS + 100)]
    figure = lanes_figure({"measured": Timeline(tuple(spans), "measured")})

    assert sum(len(trace["x"]) for trace in figure.traces) == MAX_BARS
    assert "100 shorter ones are not" in figure.note


def test_a_prediction_of_one_rank_a_stage_is_drawn_on_every_rank_of_the_stage():
    layout = Layout(pp=2, dp=2)
    stages = Timeline(tuple(Span(rank, "compute", "forward", rank, rank + 1.0) for rank in range(2)), "predicted")

    drawn = on_every_rank(stages, layout, range(4))

    assert [(span.rank, span.start_s) for span in drawn.spans] == [(0, 0.0), (1, 0.0), (2, 1.0), (3, 1.0)]
    assert [position(layout, rank).pp for rank in range(4)] == [0, 0, 1, 1]
    assert on_every_rank(drawn, layout, range(4)) == drawn  # one that has all ranks already


def test_a_prediction_for_many_ranks_is_drawn_on_the_first_of_each_stage_and_says_so():
    stages = Timeline(tuple(Span(rank, "compute", "forward", rank, rank + 1.0) for rank in range(2)), "predicted")
    ran = Timeline(tuple(Span(rank, "compute", "forward", 0.0, 1.0) for rank in range(64)), "measured")

    drawn = on_every_rank(stages, Layout(pp=2, dp=32), range(64))
    figure = lanes_figure({"predicted": drawn, "measured": ran})

    assert [(span.rank, span.start_s) for span in drawn.spans] == [(0, 0.0), (32, 1.0)]
    assert "drawn on the first" in figure.note


def test_what_lies_over_a_bar_tells_bytes_and_rate():
    spans = (Span(0, "comm", "all_reduce", 0.0, 1e-3, 0, 10**6, "8 ranks of dp"),)
    figure = lanes_figure({"measured": Timeline(spans, "measured")})

    assert figure.traces[0]["hovertext"] == [
        "<b>all_reduce</b><br>measured, rank 0, comm<br>1 ms, from 0 s<br>977 KiB, 1 GB/s of payload<br>8 ranks of dp"
    ]


@pytest.mark.parametrize(
    ("rank", "place"),
    [
        (0, Position(tp=0, cp=0, dp=0, pp=0, data=0)),
        (5, Position(tp=1, cp=0, dp=0, pp=1, data=0)),
        (7, Position(tp=1, cp=0, dp=1, pp=1, data=1)),
    ],
)
def test_the_order_of_a_layout_names_the_innermost_axis_first(rank, place):
    assert position(Layout(tp=2, dp=2, pp=2), rank) == place


def test_plain_data_parallelism_is_a_mesh_of_rows_whose_ranks_have_their_numbers():
    mesh = mesh_figure(Layout.parse("dp=72,mbs=1")).traces[0]

    assert [len(row) for row in mesh["text"]] == [32, 32, 32]
    assert mesh["text"][1][0] == "32"
    assert mesh["z"][2][7:9] == [71, None]


@pytest.mark.parametrize(("loading_s", "rows"), [(1e-4, ["r0 compute"]), (1e-2, ["r0 data", "r0 compute"])])
def test_a_lane_that_is_too_short_to_be_seen_has_no_row_and_the_note_says_so(loading_s, rows):
    spans = (Span(0, "data", "data", 0.0, loading_s), Span(0, "compute", "forward", loading_s, 1.0))
    figure = lanes_figure({"measured": Timeline(spans, "measured")})

    assert figure.layout["yaxis"]["ticktext"] == rows
    assert ("no rows for data, at most 100 us on any rank" in figure.note) == (len(rows) == 1)


def test_only_the_first_clause_of_a_verdict_is_large(run):
    comparison = report(run)
    first, _, rest = comparison.verdict.partition("; ")

    (shown,) = re.findall(r'<p class="verdict"><strong>(.*?)</strong>(.*?)</p>', run.report.read_text())
    assert [html.unescape(part.replace("<wbr>", "")) for part in shown] == [first, f"; {rest}"]


def test_a_layout_is_broken_between_its_keys_alone():
    cells = table(("layout",), [["dp=2, order=tp-cp-pp-dp"], ["a-b <c>"]])
    text = page_html(Page(title="t", verdict="<b> dp=2,order=tp-cp-pp-dp fits", sections=(Section("s", (cells,)),)))

    assert "&lt;b&gt; dp=2,<wbr>order=tp-cp-pp-dp fits" in text
    assert '<td>dp=2, <span class="whole">order=tp-cp-pp-dp</span></td>' in text
    assert "<td>a-b &lt;c&gt;</td>" in text


def test_each_reason_for_a_layout_is_a_line(run):
    reason = "dp=2,mbs=1 takes 1.5 s a step (forward 30%). tp=1 rather than tp=2 saves 6.5%: it is local. It fits."
    plan = msgspec.structs.replace(run.plan(), reason=reason)

    assert [len(block.items) for block in layout_section(plan).blocks if isinstance(block, Lines)] == [3]


@pytest.mark.parametrize(
    ("text", "actions"),
    [("pp=4,schedule=1f1b", 64), ("pp=4,schedule=zb", 96), ("pp=2,vpp=2,schedule=interleaved", 64), ("pp=2", 32)],
)
def test_the_grid_of_a_pipeline_has_a_bar_for_every_action(text, actions):
    predicted = summarize(
        [step_parts(step_spans(0, 0, 0.0))], ranks=4, tokens_per_step=1, model_flops_per_step=1.0,
        peak_flops_per_s=None, peak_memory_bytes=1,
    )  # fmt: skip
    figure = pipeline_figure(Layout.parse(f"{text},mbs=1"), 8, predicted)

    assert sum(len(trace["x"]) for trace in figure.traces) == actions
    assert "the formula says" in figure.note


def test_the_verdict_names_the_slow_rank_as_the_run_itself_did(tmp_path):
    folder = fake_run(tmp_path / "run")
    message = "rank 3 is slow: it works 2.00 times as long as the others (median of 12 steps)"
    EventLog(folder.events, 0).record(Event(kind="slow_rank", message=message, culprit=3, step=12))

    assert report(folder).verdict.endswith(f"; {message}")


def test_the_verdict_names_each_rank_that_the_run_called_slow(tmp_path):
    folder = fake_run(tmp_path / "run")
    for culprit, step in ((1, 12), (0, 40), (1, 60)):
        message = f"rank {culprit} is slow: at step {step}"
        EventLog(folder.events, 0).record(Event(kind="slow_rank", message=message, culprit=culprit, step=step))

    assert report(folder).verdict.endswith("; rank 1 is slow: at step 60; rank 0 is slow: at step 40")


def test_the_verdict_names_who_comes_last_where_the_run_said_nothing(tmp_path):
    folder = fake_run(tmp_path / "run", ranks=3)
    spans = []
    for step in range(5):
        for rank in range(3):
            begun, met = step * 0.1, step * 0.1 + 0.05
            comes = met if rank == 1 else begun + 0.02
            spans.append(Span(rank, "compute", "forward", begun, comes, step))
            spans.append(Span(rank, "comm", "all_reduce", comes, met + 0.001, step, 1000))
            spans.append(Span(rank, "compute", "optimizer", met + 0.001, begun + 0.1, step))
    folder.write_measured(folder.measured(), Timeline(tuple(spans), "measured"))

    assert "rank 1 comes last to the collectives and costs 30 ms a step" in report(folder).verdict


def test_ranks_and_verdict_are_of_the_steps_that_were_measured_not_of_the_last_ones(tmp_path):
    folder = fake_run(tmp_path / "run")
    parts = folder.rank_parts()
    slower = {rank: {name: 3 * seconds for name, seconds in of_rank.items()} for rank, of_rank in parts.items()}
    folder.write_rank_parts([RankParts(rank, of_rank) for rank, of_rank in slower.items()])
    report(folder)
    data = json.loads(folder.report.with_suffix(".json").read_text())
    table = next(block for block in blocks(data) if block["title"] == "Each rank")

    steps = [row[table["columns"].index("step")]["value"] for row in table["rows"]]
    assert steps == [pytest.approx(of_rank["step_time_s"]) for of_rank in slower.values()]


def test_the_verdict_says_that_the_machine_has_another_pace_than_at_its_calibration(tmp_path):
    run = fake_run(tmp_path / "run")
    then = Pace(product_s=0.020, product_error=0.01, copy_s=0.010, copy_error=0.01)
    conditions = tuple(
        Conditions(ranks=ranks, made="2026-01-01 12:00 UTC", others_share=0.0, pace=then)
        for ranks in {1, len(run.hosts())}
    )
    measured = Measurements(fingerprint="0", conditions=conditions)
    write_struct(run.path / "cluster.json", msgspec.structs.replace(run.cluster(), measured=measured))
    run.write_pace(then)
    as_before = report(run).verdict
    run.write_pace(msgspec.structs.replace(then, copy_s=0.013))

    assert "calibration" not in as_before
    assert "; a copy in memory took 1.30 times as long at the end of the run as at the calibration; " in (
        report(run).verdict
    )


def test_the_page_of_a_run_is_made_without_torch():
    check = "import meshwright.report.pages.run, sys; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
