"""The rank that the others of a run waited for, said of the steps that its parts are of."""

import itertools
import random
import re
import statistics

import pytest

from meshwright.report.late_ranks import late_ranks, waited_share
from meshwright.timeline import Span, Timeline, middle_steps, step_parts, typical_step
from meshwright.traces.formats.from_timeline import ranks_of_timeline
from meshwright.traces.stragglers.culprit import find_culprit
from meshwright.traces.stragglers.meetings import meetings_of

SAID = re.compile(
    r"rank (?P<rank>\d+) comes last to the collectives and costs (?P<cost>[\d.]+) ms a step of the "
    r"(?P<waited>[\d.]+) ms that the others wait and communicate, because "
)


def job(ranks: int, late_s: list[dict[int, float]], transfer_s: float = 0.001) -> dict[tuple[int, int], list[Span]]:
    """Return the spans of each step of each rank: 20 ms of forward and two sums; `late_s` makes ranks longer."""
    found = {}
    begun_s = 0.0
    rng = random.Random(0)
    for step, late in enumerate(late_s):
        work_s = 0.02 + rng.uniform(0, 1e-5)  # no two steps are alike
        now_s = dict.fromkeys(range(ranks), begun_s)
        spans: dict[int, list[Span]] = {rank: [] for rank in range(ranks)}
        for half in (0.5, 0.5):
            for rank in range(ranks):
                came_s = now_s[rank] + half * (work_s + late.get(rank, 0.0))
                spans[rank].append(Span(rank, "compute", "forward", now_s[rank], came_s, step))
                now_s[rank] = came_s
            done_s = max(now_s.values()) + transfer_s
            for rank in range(ranks):
                spans[rank].append(Span(rank, "comm", "all_reduce", now_s[rank], done_s, step, 1000))
                now_s[rank] = done_s
        begun_s = max(now_s.values())
        found |= {(rank, step): spans[rank] for rank in range(ranks)}
    return found


def recorded(ranks: int, cells: dict[tuple[int, int], list[Span]], last: int):
    """Return what a run hands in: the parts of each rank, the steps they share with the timeline, and the timeline."""
    steps = max(step for _, step in cells) + 1
    parts = {key: step_parts(spans) for key, spans in cells.items()}
    chosen = middle_steps({step: parts[0, step]["step_time_s"] for step in range(steps)})
    typical = {
        rank: typical_step(
            [parts[rank, step] for step in range(steps)], parts_of=[parts[rank, step] for step in chosen]
        )
        for rank in range(ranks)
    }
    kept = range(steps - last, steps)
    spans = [span for step in kept for rank in range(ranks) for span in cells[rank, step]]
    return typical, set(chosen) & set(kept), Timeline(tuple(spans), "measured")


def said_of(ranks: int, late_s: list[dict[int, float]], last: int = 20) -> tuple[str, dict[int, dict[str, float]]]:
    parts, steps, timeline = recorded(ranks, job(ranks, late_s), last)
    step_s = statistics.median(each["step_time_s"] for each in parts.values())
    return late_ranks([], timeline, step_s, parts, steps), parts


def test_what_a_late_rank_costs_is_the_wait_of_the_others_in_the_parts():
    said, parts = said_of(2, [{1: 0.01}] * 60)

    found = SAID.match(said)
    assert found
    assert found["rank"] == "1"
    assert float(found["cost"]) == pytest.approx(10, rel=0.01)
    assert float(found["waited"]) == pytest.approx(parts[0]["exposed_comm_s"] * 1e3, rel=0.01)


def test_a_rank_that_was_late_in_unusual_steps_alone_costs_nothing_in_the_usual_ones():
    """Of the last 20 steps 12 are longer by a late rank: their median has it, the median of the run has not."""
    said, parts = said_of(2, [{}] * 60 + [{1: 0.006}, {1: 0.006}, {}, {1: 0.006}, {}] * 4)

    assert said == ""
    assert parts[0]["exposed_comm_s"] == pytest.approx(0.002, rel=0.01)


def test_a_rank_that_is_late_in_all_of_the_last_steps_is_said_of_those():
    said, _ = said_of(2, [{}] * 100 + [{1: 0.01}] * 20)

    assert said.startswith(
        "rank 1 comes last to the collectives and costs 10 ms a step in the last 20 steps (of 32 ms), because"
    )


def test_of_a_run_that_did_not_say_which_steps_its_parts_are_of_the_last_steps_are_named():
    parts, _, timeline = recorded(2, job(2, [{1: 0.01}] * 60), 20)

    assert "costs 10 ms a step in the last 20 steps" in late_ranks([], timeline, 0.032, parts, None)


@pytest.mark.parametrize("seed", range(40))
def test_a_late_rank_never_costs_more_than_the_others_wait_in_the_same_steps(seed):
    rng = random.Random(seed)
    ranks = rng.randint(2, 5)
    late_s = [
        {rank: rng.expovariate(1 / (0.008 if rank == 0 else 0.002)) * (rng.random() < 0.8) for rank in range(ranks)}
        for _ in range(50)
    ]
    parts, steps, timeline = recorded(ranks, job(ranks, late_s, transfer_s=rng.uniform(0, 0.004)), 20)
    spans = [span for span in timeline.spans if span.step in steps]
    traces = ranks_of_timeline(Timeline(tuple(spans), "measured"))
    step_s = statistics.median(each["step_time_s"] for each in parts.values())
    finding = find_culprit(traces, meetings_of(traces), step_s)
    if finding.culprit is not None:
        keyed = itertools.groupby(sorted(spans, key=lambda s: (s.step, s.rank)), key=lambda s: (s.step, s.rank))
        waits = {(step, rank): step_parts(list(group))["exposed_comm_s"] for (step, rank), group in keyed}
        by_step = [statistics.median(waits[step, rank] for rank in finding.peers) for step in steps]
        assert finding.culprit.costs_s_per_step <= statistics.median(by_step) + 1e-9
        assert 0 < waited_share(finding, spans) <= 1

    found = SAID.match(late_ranks([], timeline, step_s, parts, steps))
    if found:
        others = [parts[rank]["exposed_comm_s"] for rank in range(ranks) if rank != int(found["rank"])]
        assert float(found["cost"]) <= float(found["waited"]) <= max(others) * 1e3 * 1.01


def test_the_property_above_is_of_jobs_in_which_some_rank_is_named():
    named = [bool(SAID.match(said_of(3, [{0: 0.01 + 0.001 * seed}] * 40)[0])) for seed in range(4)]

    assert all(named)
