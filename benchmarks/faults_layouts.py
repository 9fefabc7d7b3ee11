"""Every checkpoint under every other layout: the next five losses against those of the run that saved it."""

import itertools
import random
from pathlib import Path

from benchmarks.faults_rig import Row
from meshwright.bench.ranks.pool import RankPool
from testkit.reshard import LAYOUTS, goes_on, train
from testkit.train_jobs import write_corpus


def layouts(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Save under each of ten layouts, load under each other."""
    corpus = write_corpus(place)
    pools: dict[int, RankPool] = {}
    saved = {}

    def pool(ranks: int) -> RankPool:
        if ranks not in pools:
            pools[ranks] = RankPool(ranks)
        return pools[ranks]

    def save(layout: str):  # type: ignore[no-untyped-def]
        if layout not in saved:
            saved[layout] = train(place / f"saved-{len(saved)}", corpus, layout, pool)
        return saved[layout]

    try:
        pairs = list(itertools.permutations(LAYOUTS, 2))
        differences = [goes_on(place, corpus, pool, save, wrote, reads) for wrote, reads in pairs]
    finally:
        for each in pools.values():
            each.close()
    return [
        {
            "fault": "another layout",
            "system": "meshwright",
            "times": len(pairs),
            "within 1e-6": sum(d < 1e-6 for d in differences),
            "largest difference": f"{max(differences):.1e}",
        }
    ]
