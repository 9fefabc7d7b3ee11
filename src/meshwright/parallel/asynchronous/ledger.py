"""The ledger of a run: rows as synchronous training writes them, with members, staleness and bytes.

A step is as many shares as there are workers, in the order in which they were done. Contributions of several shares
come at once, so the time since the last row is divided evenly among the rows that they make.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class DoneShare(NamedTuple):
    """One share that is done."""

    loss: float  # summed over its tokens
    rate: float
    norm: float
    staleness: int  # whole steps that the weights went on between reading them and applying what came of it
    delay: int  # the same in updates


class Ledger:
    """Turns shares into rows, which are written in the order of the steps; a row that is held holds those behind it."""

    def __init__(
        self, *, first_step: int, workers: int, tokens_per_share: int, write: Callable[[dict[str, Any]], None]
    ) -> None:
        self.step = first_step  # the next row's
        self._workers = workers
        self._tokens = workers * tokens_per_share
        self._write = write
        self._shares: list[DoneShare] = []
        self._rows: deque[dict[str, Any]] = deque()
        self._held: set[int] = set()
        self._moved_bytes = 0
        self._last_s: float | None = None

    def start(self, now_s: float) -> None:
        """Let the first step's time begin, if it has not."""
        if self._last_s is None:
            self._last_s = now_s

    def add(
        self, shares: Sequence[DoneShare], *, moved_bytes: int, ranks: Sequence[int], now_s: float
    ) -> list[dict[str, Any]]:
        """Add shares that were applied at once; return the rows that became full, which `release` writes."""
        assert self._last_s is not None
        self._moved_bytes += moved_bytes
        self._shares += shares
        full = len(self._shares) // self._workers
        rows = []
        for i in range(full):
            mine, self._shares = self._shares[: self._workers], self._shares[self._workers :]
            time_s = (now_s - self._last_s) / full
            rows.append(
                {
                    "step": self.step,
                    "loss": sum(s.loss for s in mine) / self._tokens,
                    "learning_rate": sum(s.rate for s in mine) / len(mine),
                    "grad_norm": sum(s.norm for s in mine) / len(mine),
                    "step_time_s": time_s,
                    "tokens_per_s": self._tokens / time_s,
                    "staleness_mean": sum(s.staleness for s in mine) / len(mine),
                    "staleness_max": max(s.staleness for s in mine),
                    "delay_mean": sum(s.delay for s in mine) / len(mine),
                    "moved_bytes": self._moved_bytes if i == full - 1 else 0,
                    "workers": len(ranks),
                    "ranks": list(ranks),
                }
            )
            self.step += 1
        if full:
            self._last_s, self._moved_bytes = now_s, 0
        self._rows.extend(rows)
        return rows

    def hold(self, step: int) -> None:
        """Keep the row of a step, for its validation loss is to come."""
        self._held.add(step)

    def let_go(self, step: int, **figures: float) -> None:
        """Add figures to the row of a step and keep it no longer."""
        self._held.discard(step)
        for row in self._rows:
            if row["step"] == step:
                row.update(figures)

    def release(self) -> None:
        """Write the rows up to the first that is held."""
        while self._rows and self._rows[0]["step"] not in self._held:
            self._write(self._rows.popleft())
