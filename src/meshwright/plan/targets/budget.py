"""How long a budget of tokens trains at the step that is predicted for a layout.

days = tokens / (sequences of a step x tokens of a sequence) x seconds of a step / 86,400
"""

import msgspec

from ...timeline import Performance
from ...units import format_days, format_time
from ..analytic import Setting
from .envelope import gpu_hours, training_days


class TrainingTime(msgspec.Struct, frozen=True, kw_only=True):
    """A budget of tokens as days at a predicted step; restarts, checkpoints and evaluation come on top.

    `error_band` is that of the step, None where it is unknown.
    """

    tokens: int
    tokens_per_step: int
    step_time_s: float
    days: float
    gpu_hours: float
    error_band: float | None = None

    def __str__(self) -> str:
        band = "" if self.error_band is None else f", held to lie within {self.error_band:.0%}"
        return (
            f"training: {format_days(self.days)} for {self.tokens:,} tokens, {self.tokens_per_step:,} a step of "
            f"{format_time(self.step_time_s)}{band}: {self.gpu_hours:,.0f} GPU-hours; restarts, checkpoints and "
            "evaluation come on top"
        )


def training_time(setting: Setting, predicted: Performance, tokens: int) -> TrainingTime:
    """Return the days that `tokens` tokens take at a predicted step of a setting."""
    tokens_per_step = setting.global_batch * setting.seq_len
    days = training_days(tokens, tokens_per_step, predicted.step_time_s)
    return TrainingTime(
        tokens=tokens,
        tokens_per_step=tokens_per_step,
        step_time_s=predicted.step_time_s,
        days=days,
        gpu_hours=gpu_hours(days, setting.gpus),
        error_band=predicted.error_band,
    )
