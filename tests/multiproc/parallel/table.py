"""Write docs/generated/parity.md: every layout of the parity tests with its differences from one process.

    python -m tests.multiproc.parallel.table [TEXT]

With a text, such as offload, the layouts that have it are run and the other rows stay. Rows are written as they are
found, so that a table that was stopped holds what was run until then, and says so.
"""

import sys
from pathlib import Path

from benchmarks.result import banner
from meshwright.bench.ranks.pool import RankPool
from meshwright.device import CPU
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.parallel.spmd.offload import check_offloadable
from tests.multiproc.parallel.layouts import FAST, OFFLOADED, SLOW, Case
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, STEPS, difference, loss_difference, run

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "parity.md"
TIMEOUT_S = 240.0


def refusal() -> str:
    """Return what is said of weights that would live in the host's memory where the device is a CPU."""
    try:
        check_offloadable(Layout.parse("dp=2,mbs=2,zero=3,offload=parameters"), CPU)
    except InputError as error:
        return str(error)
    raise AssertionError("offload is refused on a CPU")


HEAD = f"""# Parity: the same result however a model is split

{banner("python -m tests.multiproc.parallel.table")}
{STEPS} steps of a small decoder (4 layers, {GLOBAL_BATCH} sequences of {SEQ_LEN} tokens a step, AdamW, gradients
clipped by their global norm, a rising learning rate) in float64 under each layout, beside the same steps in one
process. *Loss* is the largest relative difference of any step's loss on any rank, *weights* and *moments* the largest
of any element of any tensor at the end, relative to the largest element of that tensor. Rounding of sums in another
order explains all of them; the tests ask for 1e-12 of losses and 1e-10 of weights.

Embeddings are tied unless the row says otherwise. Batch norm under micro-batches is excepted: its statistics are
those of a micro-batch.

The same layouts are tests (`tests/multiproc/parallel`). Those with `offload=optimizer` have their states in a second
store, which stands for the memory of a host. On a CPU `train` refuses offload, and `offload=parameters` is not in the
table: {refusal()}.

| layout | ranks | model | backend | loss | weights | moments |
|---|---:|---|---|---:|---:|---:|
"""


def main(text: str = "") -> None:
    """Run every layout that has the text, fewest ranks first."""
    every = sorted((*FAST, *SLOW, *OFFLOADED), key=lambda case: Layout.parse(case.layout).world_size)
    cases = [case for case in every if text in case.layout]
    before = PAGE.read_text().splitlines() if text else []
    kept = {_head(case): row for case in every for row in before if row.startswith(_head(case))}
    alone: dict[str, list[dict[str, object]]] = {}
    for ranks in sorted({Layout.parse(case.layout).world_size for case in cases}):
        with RankPool(ranks) as pool, RankPool(1) as one:
            for case in (case for case in cases if Layout.parse(case.layout).world_size == ranks):
                key = str(case.model)
                if key not in alone:
                    alone[key] = one.run(run, f"dp=1,mbs={GLOBAL_BATCH}", case.model, "gloo", timeout_s=TIMEOUT_S)
                found = pool.run(run, case.layout, case.model, case.backend, timeout_s=TIMEOUT_S)
                kept[_head(case)] = _row(case, alone[key], found)
                _write([kept[_head(each)] for each in every if _head(each) in kept], len(every))
                sys.stdout.write(kept[_head(case)] + "\n")
                sys.stdout.flush()


def _head(case: Case) -> str:
    model = ", ".join(f"{key}={value}" for key, value in case.model.items())
    return f"| `{case.layout}` | {Layout.parse(case.layout).world_size} | {model} | {case.backend} | "


def _row(case: Case, alone: list[dict[str, object]], found: list[dict[str, object]]) -> str:
    figures = [loss_difference(alone, found), difference(alone, found), difference(alone, found, "exp_avg_sq")]
    return _head(case) + " | ".join(f"{f:.1e}" for f in figures) + " |"


def _write(rows: list[str], cases: int) -> None:
    tail = "" if len(rows) == cases else f"\n{cases - len(rows)} of the {cases} layouts were not run for this table.\n"
    PAGE.write_text(HEAD + "\n".join(rows) + "\n" + tail)


if __name__ == "__main__":
    main(*sys.argv[1:2])
