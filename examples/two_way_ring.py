"""An all-reduce of your own in a file of your own: half of the data goes round clockwise, half counter-clockwise.

meshwright collectives verify examples/two_way_ring.py:two_way_ring --ranks 6
meshwright collectives draw examples/two_way_ring.py:two_way_ring --ranks 6
"""

from meshwright.collectives.schedules.schedule import Schedule, Transfer, make, parallel


def two_way_ring(ranks: int) -> Schedule:
    def one_way(turn: int, first: int) -> list[list[Transfer]]:
        def step(k: int, reduce: bool) -> list[Transfer]:
            chunks = [first + turn * (r - k) % ranks if turn > 0 else first + (r + k) % ranks for r in range(ranks)]
            return [Transfer(r, (r + turn) % ranks, (chunks[r],), reduce) for r in range(ranks)]

        return [step(k, True) for k in range(1, ranks)] + [step(k, False) for k in range(ranks - 1)]

    return make("all_reduce", "two_way_ring", ranks, parallel(one_way(1, 0), one_way(-1, ranks)), chunks=2 * ranks)
