"""The ranks that the others of a run waited for, on the steps that the parts of its verdict are of.

Parts are the means of the half of a run's steps nearest to the median; spans are kept of its last steps alone. A rank
is judged by the steps in both sets. Its share of the others' waiting there is applied to their waiting in the parts,
so the stated cost never exceeds the exposed communication. If too few of the last steps are in both sets, the verdict
names the steps that it is about.
"""

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ..timeline import Span, Timeline, step_parts
from ..traces.formats.from_timeline import ranks_of_timeline
from ..traces.stragglers.culprit import LEAST_SHARE, LEAST_STEPS, CulpritFinding, find_culprit
from ..traces.stragglers.meetings import meetings_of
from ..train.run.events import Event
from ..units import counted, format_time

MOST_LATE = 3  # ranks that a verdict names


def late_ranks(
    events: Sequence[Event],
    measured: Timeline,
    step_s: float,
    parts: Mapping[int, Mapping[str, float]],
    steps: Collection[int] | None,
) -> str:
    """Return which rank the others waited for: as the run itself said, else as its spans show; "" if none.

    `parts` are the seconds of the median step of each rank, of `steps` of the run, some of which are in `measured`
    (None: not known). Of several ranks that a run named each is said with the last word on it.
    """
    told = {event.culprit: event.message for event in events if event.kind == "slow_rank"}
    if told:
        return "; ".join(list(told.values())[-MOST_LATE:])
    chosen = [span for span in measured.spans if span.step in (steps or ())]
    if len({span.step for span in chosen}) < LEAST_STEPS:
        return _late_in_its_last_steps(measured.spans)
    finding = _found(chosen, step_s)
    culprit = finding.culprit
    if culprit is None:
        return ""
    waited_s = statistics.median(_waited_s(parts[rank]) for rank in finding.peers)
    cost_s = waited_s * waited_share(finding, chosen)
    if cost_s <= LEAST_SHARE["host"] * step_s:
        return ""
    return (
        f"rank {culprit.rank} comes last to the collectives and costs {format_time(cost_s)} a step of the "
        f"{format_time(waited_s)} that the others wait and communicate, because {culprit.because}"
    )


def _late_in_its_last_steps(spans: Sequence[Span]) -> str:
    """Return who comes last in steps that are not those of the parts, or not known to be."""
    ends_s: dict[int, list[float]] = defaultdict(list)
    for span in spans:
        ends_s[span.step] += [span.start_s, span.end_s]
    if not ends_s:
        return ""
    step_s = statistics.median(max(times_s) - min(times_s) for times_s in ends_s.values())
    culprit = _found(spans, step_s).culprit
    if culprit is None:
        return ""
    return (
        f"rank {culprit.rank} comes last to the collectives and costs {format_time(culprit.costs_s_per_step)} a step "
        f"in the last {counted(len(ends_s), 'step')} (of {format_time(step_s)}), because {culprit.because}"
    )


def _found(spans: Sequence[Span], step_s: float) -> CulpritFinding:
    ranks = ranks_of_timeline(Timeline(tuple(spans), "measured"))
    return find_culprit(ranks, meetings_of(ranks), step_s)


def waited_share(finding: CulpritFinding, spans: Sequence[Span]) -> float:
    """Return which share of the wait of a culprit's peers, 0 to 1, is what it costs them, in the steps of `spans`."""
    assert finding.culprit is not None
    cells: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span in spans:
        if span.rank in finding.peers:
            cells[span.step][span.rank].append(span)
    waited_s = statistics.median(
        statistics.median(_waited_s(step_parts(found)) for found in by_rank.values()) for by_rank in cells.values()
    )
    return min(1.0, finding.culprit.costs_s_per_step / waited_s) if waited_s > 0 else 0.0


def _waited_s(parts: Mapping[str, float]) -> float:
    """Return the seconds of a step in which a rank only waits and communicates."""
    return parts["exposed_comm_s"] + parts["bubble_s"]
