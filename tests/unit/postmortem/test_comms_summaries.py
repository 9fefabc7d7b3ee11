"""DeepSpeed's summaries of its communication, of which one column is a wait for stragglers."""

import pytest

from .made import judge

STEPS = [f"[Rank 0] step={10 * n}, skipped=0, lr=[1e-05], mom=[0.9]" for n in range(1, 5)]


def summary(columns, *rows):
    head = "".join(f"{name:<20}" for name in ("Comm. Op", "Message Size", "Count", *columns))
    lines = ["".join(f"{cell:<20}" for cell in (" ", *row)) for row in rows]
    return [*STEPS, "comms summary of this run", head.rstrip(), "reduce_scatter", *lines]


OWN = ("Total Latency(ms)", "Total straggler(ms)", "Avg Latency(ms)", "busbw_avg (Gbps)")
SHORTEST = ("Total comm lat(ms)", "Total straggler(ms)", "Avg comm lat(ms)", "Avg straggler(ms)")


@pytest.mark.parametrize(
    ("columns", "latency", "straggler", "kind"),
    [
        (OWN, "9000.00", "8100.00", "slow"),
        (SHORTEST, "900.00", "8100.00", "slow"),
        (OWN, "9000.00", "810.00", "none"),
        (SHORTEST, "9000.00", "8100.00", "none"),
        (OWN, "9.00", "8.10", "none"),
    ],
    ids=["of its own latency", "beside the shortest", "little", "little beside the shortest", "a short time"],
)
def test_who_waits_most_of_its_calls_for_a_straggler_does_not_know_whom(columns, latency, straggler, kind, tmp_path):
    rows = [("2.0 MB", "400", latency, straggler, "3.0", "9.0"), ("64.0 B", "1", "99999.00", "99999.00", "3.0", "9.0")]
    verdict = judge(tmp_path, summary(columns, *rows))

    assert (verdict.kind, verdict.blamed, verdict.unknown) == (kind, (), True)
