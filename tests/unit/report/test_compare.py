import msgspec
import pytest

from meshwright.report.compare import compare_parts
from meshwright.timeline import Performance

PREDICTED = Performance(
    step_time_s=0.105, forward_s=0.03, backward_s=0.06, optimizer_s=0.005, exposed_comm_s=0.01, hidden_comm_s=0.02,
    bubble_s=0.0, data_s=0.0, tokens_per_s_per_gpu=1000.0, model_tflops_per_gpu=0.1, mfu=0.5,
    peak_memory_bytes_per_gpu=2**30, error_band=0.15, )  # fmt: skip
MEASURED = msgspec.structs.replace(PREDICTED, step_time_s=0.112, exposed_comm_s=0.018, optimizer_s=0.004)


def test_the_part_that_explains_most_of_the_error_is_named():
    comparison = compare_parts(PREDICTED, MEASURED)

    assert comparison.culprit == "exposed communication"
    assert "step 112 ms, predicted 105 ms (-6.2%)" in comparison.verdict
    assert comparison.verdict.endswith("within the band of 15%")
    assert {row.name.strip(): row.error for row in comparison.rows}["optimizer"] == pytest.approx(0.25)


def test_a_step_far_off_is_said_to_be_outside_the_band():
    slow = msgspec.structs.replace(MEASURED, step_time_s=0.2)

    assert compare_parts(PREDICTED, slow).verdict.endswith("outside the band of 15%")


def test_a_prediction_without_a_band_says_what_it_leaves_out_in_place_of_it():
    bare = msgspec.structs.replace(PREDICTED, error_band=None, not_modelled=("the cable to the other room",))

    verdict = compare_parts(bare, MEASURED).verdict

    assert verdict.endswith("no band is known, not modelled: the cable to the other room")
    assert "the band of" not in verdict


def test_a_part_that_took_no_time_has_no_relative_error():
    errors = {row.name.strip(): row.error for row in compare_parts(PREDICTED, MEASURED).rows}

    assert errors["pipeline bubble"] is None


def test_the_parts_of_a_comparison_add_up_to_its_steps():
    rows = compare_parts(PREDICTED, MEASURED).rows
    step, parts = rows[0], [row for row in rows if row.name.startswith("  ")]

    assert sum(row.predicted for row in parts) == pytest.approx(step.predicted)
    assert sum(row.measured for row in parts) == pytest.approx(step.measured)


def test_what_lies_between_the_parts_is_a_row_of_its_own():
    idle = msgspec.structs.replace(MEASURED, step_time_s=MEASURED.step_time_s + 0.05)

    assert {row.name.strip(): row.measured for row in compare_parts(PREDICTED, idle).rows}["between the parts"] == (
        pytest.approx(0.05)
    )


def test_a_difference_that_lies_between_the_parts_is_said_to_lie_there():
    idle = msgspec.structs.replace(PREDICTED, step_time_s=PREDICTED.step_time_s + 0.05)
    found = compare_parts(PREDICTED, idle)

    assert "most of the difference is between the parts (-50 ms)" in found.verdict
    assert found.culprit == "between the parts"


def test_most_of_the_difference_is_said_only_of_more_than_half_of_it():
    slower = {"forward_s": 0.033, "backward_s": 0.062, "exposed_comm_s": 0.014}
    spread = msgspec.structs.replace(PREDICTED, step_time_s=0.114, **slower)

    assert "the largest difference is in exposed communication" in compare_parts(PREDICTED, spread).verdict
    assert "most of the difference is in exposed communication" in compare_parts(PREDICTED, MEASURED).verdict
