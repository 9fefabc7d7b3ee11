"""Trainings that go on with a loss or a gradient norm that is no number: no fault of a process, and yet lost."""

import pytest

from .made import judge, timed_out

END = ["Training completed"]


def titan(step, loss, norm):
    return f"[titan] step: {step}  loss:  {loss}  grad_norm:  {norm}  memory: 61GiB(77%)"


def hugging_face(step, loss, norm):
    return f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 1e-05, 'epoch': 0.{step}}}"


def megatron(step, loss, norm):
    return f" iteration {step}/ 900 | lm loss: {loss} | loss scale: 1.0 | grad norm: {norm} | nan iterations: 0 |"


def lightning(step, loss, _):
    return f"Epoch 0:  {step}%|##| {step}/100 [00:01<00:01, 3.1it/s, v_num=0, train_loss={loss}]"


LOST = {
    "torchtitan": (titan, "nan", "nan"),
    "Hugging Face, whose loss is then 0": (hugging_face, "0.0", "nan"),
    "Megatron": (megatron, "NaN", "nan"),
    "Lightning's bar": (lightning, "nan.0", ""),
    "an infinite loss": (titan, "inf", "1.0"),
}


def steps(form, loss, norm, *, good=5, bad=6):
    return [form(step, "2.5", "0.9") if step <= good else form(step, loss, norm) for step in range(1, good + bad + 1)]


@pytest.mark.parametrize(("form", "loss", "norm"), LOST.values(), ids=LOST)
def test_a_training_that_ends_well_after_its_loss_was_no_number_is_lost(tmp_path, form, loss, norm):
    verdict = judge(tmp_path, [*steps(form, loss, norm), *END])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("not_finite", (), False)
    assert "from train.log:6 on" in verdict.because
    assert [line.line for line in verdict.evidence] == [4, 5, 6, 11]
    assert verdict.faulty


def without_loss(step, norm, scale="1.0", skipped=0):
    return (
        f" iteration {step}/ 900 | elapsed time per iteration (ms): 210.1 | loss scale: {scale} | grad norm: {norm} |"
        f" number of skipped iterations:   {skipped} |"
    )


def test_gradients_that_are_no_numbers_and_are_applied_lose_a_training_that_prints_no_loss(tmp_path):
    verdict = judge(tmp_path, [without_loss(step, "nan") for step in range(300, 310)])

    assert (verdict.kind, verdict.blamed, verdict.unknown) == ("not_finite", (), False)
    assert "grad norm is nan from train.log:1 on" in verdict.because


@pytest.mark.parametrize(
    "log",
    [
        [without_loss(step, "inf", scale="65536.0", skipped=1) for step in range(9)],
        [line for step in range(9) for line in (without_loss(step, "nan"), f"step {step} loss: 2.{step}")],
    ],
    ids=["that a scaler leaves out", "beside a loss that is one"],
)
def test_gradients_that_are_no_numbers_lose_nothing(tmp_path, log):
    assert judge(tmp_path, log).kind == "none"


HEALTHY = {
    "that come back": [*steps(titan, "nan", "nan"), *(titan(step, "2.4", "0.8") for step in (12, 13)), *END],
    "of gradients while a scaler finds its scale": [*steps(megatron, "2.1E+00", "inf"), *END],
    "of data that train nothing": [*steps(titan, "2.4", "0.9"), *[f"eval loss: nan step {n}" for n in range(9)], *END],
    "of two last steps": [*steps(titan, "nan", "nan", bad=2), *END],
}


@pytest.mark.parametrize("log", HEALTHY.values(), ids=HEALTHY)
def test_values_that_are_no_numbers_for_a_while_lose_nothing(tmp_path, log):
    assert judge(tmp_path, log).kind == "none"


def test_gradients_that_stay_no_numbers_for_long_are_lost_whatever_the_loss(tmp_path):
    assert judge(tmp_path, [*steps(titan, "2.5", "nan", bad=30), *END]).kind == "not_finite"


def test_the_one_rank_whose_loss_is_no_number_is_named(tmp_path):
    losses = {0: "2.5", 1: "2.6", 2: "nan", 3: "2.4"}
    log = [f"[rank{rank}]: {titan(step, loss, 1.0)}" for step in range(12) for rank, loss in losses.items()]

    assert judge(tmp_path, [*log, *END]).blamed == (2,)


def test_what_ends_a_training_afterwards_is_the_verdict_with_the_values_before_it(tmp_path):
    log = [*steps(titan, "nan", "nan"), *(timed_out(rank, 90) for rank in (0, 1, 3))]
    verdict = judge(tmp_path, log)

    assert (verdict.kind, verdict.blamed) == ("absent", (2,))
    assert verdict.because.endswith("; before that loss is nan, grad norm is nan from train.log:6 on (near step 6)")
