"""Write docs/generated/parity.md: every layout of the parity tests with its differences from one process.

    python -m tests.multiproc.parallel.table

Rows are written as they are found, so that a table that was stopped holds what was run until then, and says so.
"""

import sys
from pathlib import Path

from benchmarks.result import banner
from meshwright.bench.pool import RankPool
from meshwright.layout import Layout
from tests.multiproc.parallel.layouts import FAST, SLOW, Case
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, STEPS, difference, loss_difference, run

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "parity.md"
TIMEOUT_S = 240.0

HEAD = f"""# Parity: the same result however a model is split

{banner("python -m tests.multiproc.parallel.table")}
{STEPS} steps of a small decoder (4 layers, {GLOBAL_BATCH} sequences of {SEQ_LEN} tokens a step, AdamW, gradients
clipped by their global norm, a rising learning rate) in float64 under each layout, beside the same steps in one
process. *Loss* is the largest relative difference of any step's loss on any rank, *weights* and *moments* the largest
of any element of any tensor at the end, relative to the largest element of that tensor. Rounding of sums in another
order explains all of them; the tests ask for 1e-12 of losses and 1e-10 of weights.

Embeddings are tied unless the row says otherwise. Batch norm under micro-batches is excepted: its statistics are
those of a micro-batch.

The same layouts are tests (`tests/multiproc/parallel`).

| layout | ranks | model | backend | loss | weights | moments |
|---|---:|---|---|---:|---:|---:|
"""


def main() -> None:
    """Run every layout, fewest ranks first."""
    cases = sorted((*FAST, *SLOW), key=lambda case: Layout.parse(case.layout).world_size)
    alone: dict[str, list[dict[str, object]]] = {}
    rows: list[str] = []
    for ranks in sorted({Layout.parse(case.layout).world_size for case in cases}):
        with RankPool(ranks) as pool, RankPool(1) as one:
            for case in (case for case in cases if Layout.parse(case.layout).world_size == ranks):
                key = str(case.model)
                if key not in alone:
                    alone[key] = one.run(run, f"dp=1,mbs={GLOBAL_BATCH}", case.model, "gloo", timeout_s=TIMEOUT_S)
                found = pool.run(run, case.layout, case.model, case.backend, timeout_s=TIMEOUT_S)
                rows.append(_row(case, ranks, alone[key], found))
                _write(rows, len(cases))
                sys.stdout.write(rows[-1] + "\n")
                sys.stdout.flush()


def _row(case: Case, ranks: int, alone: list[dict[str, object]], found: list[dict[str, object]]) -> str:
    model = ", ".join(f"{key}={value}" for key, value in case.model.items())
    figures = [loss_difference(alone, found), difference(alone, found), difference(alone, found, "exp_avg_sq")]
    return f"| `{case.layout}` | {ranks} | {model} | {case.backend} | " + " | ".join(f"{f:.1e}" for f in figures) + " |"


def _write(rows: list[str], cases: int) -> None:
    tail = "" if len(rows) == cases else f"\n{cases - len(rows)} of the {cases} layouts were not run for this table.\n"
    PAGE.write_text(HEAD + "\n".join(rows) + "\n" + tail)


if __name__ == "__main__":
    main()
