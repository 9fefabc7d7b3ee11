"""From what the ranks of a run recorded to its measured.json and timeline."""

from collections.abc import Sequence
from typing import Protocol

from ...layout import Plan
from ...timeline import Span, Timeline, summarize
from ...workload.transformer import describe_workload
from ..job.config import JobConfig
from ..run.run_folder import RankParts, RunFolder


class RankMeasures(Protocol):
    """One rank's report."""

    @property
    def rank(self) -> int:
        """The rank that it is of."""

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each part of its steps."""

    @property
    def parts_of(self) -> tuple[int, ...] | None:
        """The steps with spans that the parts are of; None: not known."""

    @property
    def spans(self) -> list[Span]:
        """Spans of its last steps."""

    @property
    def peak_memory_bytes(self) -> int:
        """Peak bytes of its live tensors."""


def write_measured(
    folder: RunFolder,
    config: JobConfig,
    plan: Plan,
    records: Sequence[RankMeasures],
    *,
    step_time_s: float | None = None,
) -> None:
    """Write what the records of all ranks add up to; `step_time_s` where no rank's own steps tell that of the run."""
    workload = describe_workload(config.model, seq_len=config.data.seq_len, micro_batch=config.train.global_batch)
    predicted = plan.predicted
    pace = {} if step_time_s is None else {"step_time_s": step_time_s}
    measured = summarize(
        [record.parts | pace for record in records],
        ranks=plan.layout.world_size,
        tokens_per_step=workload.tokens,
        model_flops_per_step=workload.model_flops,
        peak_flops_per_s=predicted.model_tflops_per_gpu * 1e12 / predicted.mfu if predicted.mfu else None,
        peak_memory_bytes=max(record.peak_memory_bytes for record in records),
    )
    spans = tuple(span for record in records for span in record.spans)
    folder.write_rank_memory([record.peak_memory_bytes for record in records])
    folder.write_rank_parts([RankParts(record.rank, record.parts, record.parts_of) for record in records])
    folder.write_measured(measured, Timeline(spans=spans, source="measured"))
