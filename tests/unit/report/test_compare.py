import msgspec
import pytest

from meshwright.layout import Layout, Plan
from meshwright.report.compare import compare
from meshwright.report.page import write_page
from meshwright.timeline import Performance, Span, Timeline

PREDICTED = Performance(
    step_time_s=0.105, forward_s=0.03, backward_s=0.06, optimizer_s=0.005, exposed_comm_s=0.01, hidden_comm_s=0.02,
    bubble_s=0.0, data_s=0.0, tokens_per_s_per_gpu=1000.0, model_tflops_per_gpu=0.1, mfu=0.5,
    peak_memory_bytes_per_gpu=2**30, error_band=0.15, not_modelled=("<script>alert(1)</script>",),
)  # fmt: skip
MEASURED = msgspec.structs.replace(PREDICTED, step_time_s=0.112, exposed_comm_s=0.018, optimizer_s=0.004)


def test_the_part_that_explains_most_of_the_error_is_named():
    comparison = compare(PREDICTED, MEASURED)

    assert comparison.culprit == "exposed communication"
    assert "step 112 ms, predicted 105 ms (-6.2%)" in comparison.verdict
    assert comparison.verdict.endswith("within the band of 15%")
    assert {row.name.strip(): row.error for row in comparison.rows}["optimizer"] == pytest.approx(0.25)


def test_a_step_far_off_is_said_to_be_outside_the_band():
    slow = msgspec.structs.replace(MEASURED, step_time_s=0.2)

    assert compare(PREDICTED, slow).verdict.endswith("outside the band of 15%")


def test_a_part_that_took_no_time_has_no_relative_error():
    errors = {row.name.strip(): row.error for row in compare(PREDICTED, MEASURED).rows}

    assert errors["pipeline bubble"] is None


def test_the_page_needs_no_network_and_keeps_hostile_names_as_text(tmp_path):
    hostile = "</script><script>alert(2)</script>"
    spans = (Span(0, "compute", "forward", 0.0, 1.0), Span(0, "comm", hostile, 1.0, 2.0, bytes=8))
    plan = Plan(
        layout=Layout(dp=2), predicted=PREDICTED, global_batch_sequences=2, seq_len=8, bucket_bytes=1, reason=hostile
    )
    write_page(
        tmp_path / "report.html",
        title=hostile,
        comparison=compare(PREDICTED, MEASURED),
        plan=plan,
        predicted=PREDICTED,
        measured=MEASURED,
        metrics=[{"step": 0, "loss": 1.0, "tokens_per_s": 5.0, "validation_loss": 2.0}],
        timelines={"measured": Timeline(spans, "measured")},
    )
    page = (tmp_path / "report.html").read_text()

    assert "step 112 ms" in page
    assert "<script>alert" not in page
    assert 'src="http' not in page
