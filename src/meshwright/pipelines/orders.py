"""The pipeline schedules: from a name and sizes to a grid.

p ranks, v stages a rank, m micro-batches. Sources: GPipe (Huang et al. 2019, arXiv 1811.06965), 1F1B (Narayanan et
al. 2019, PipeDream; 2021, arXiv 2006.09503), interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473), zero-bubble
ZB-H1 and ZB-V (Qi et al. 2023, arXiv 2401.10241; 2024, arXiv 2405.15362).
"""

from collections.abc import Callable

from ..errors import InputError, nearest
from ..layout import PipelineSchedule
from ..units import counted
from .grid import Action, PipelineGrid

Row = tuple[Action, ...]


def schedule(name: PipelineSchedule, ranks: int, virtual_stages: int, micro_batches: int) -> PipelineGrid:
    """Return the grid of a schedule for `ranks` x `virtual_stages` stages, or raise InputError with the broken rule."""
    problem = broken_rule(name, ranks, virtual_stages, micro_batches)
    if problem:
        raise InputError(problem)
    return PipelineGrid(SCHEDULES[name](ranks, virtual_stages, micro_batches))


def broken_rule(name: str, ranks: int, virtual_stages: int, micro_batches: int) -> str:
    """Return the rule that these sizes break, or "" where the schedule exists."""
    if name not in SCHEDULES:
        return f"schedule: {name!r} is unknown ({nearest(name, SCHEDULES)})"
    if min(ranks, virtual_stages, micro_batches) < 1:
        return f"schedule={name}: ranks, virtual stages and micro-batches must be 1 or more"
    if name in {"gpipe", "1f1b"} and virtual_stages > 1:
        return f"schedule={name} has one stage a rank; vpp={virtual_stages} needs schedule=interleaved or zb"
    if name == "interleaved" and micro_batches % ranks:
        return (
            "schedule=interleaved takes micro-batches in rounds of pp: "
            f"{counted(micro_batches, 'micro-batch')} {'is' if micro_batches == 1 else 'are'} not a "
            f"multiple of pp={ranks}"
        )
    if name == "zb" and virtual_stages > 2:
        return f"schedule=zb has one stage a rank (ZB-H1) or two (ZB-V), not vpp={virtual_stages}"
    least = 2 * ranks - 1 if virtual_stages == 2 else ranks
    if name == "zb" and micro_batches < least:
        form = "2 pp - 1" if virtual_stages == 2 else "pp"
        return (
            f"schedule=zb, vpp={virtual_stages} needs {form} = {counted(least, 'micro-batch')} or more, "
            f"got {micro_batches}"
        )
    return ""


def _gpipe(ranks: int, _: int, micro_batches: int) -> tuple[Row, ...]:
    """All forwards, then all backwards."""
    return tuple(
        tuple(Action(rank, kind, i) for kind in ("F", "B") for i in range(micro_batches)) for rank in range(ranks)
    )


def _one_f_one_b(ranks: int, _: int, micro_batches: int) -> tuple[Row, ...]:
    """Fill the pipeline, then alternate, so that rank r holds at most p - r micro-batches."""
    return tuple(
        _alternate(
            [Action(rank, "F", i) for i in range(micro_batches)],
            [Action(rank, "B", i) for i in range(micro_batches)],
            warm_up=ranks - 1 - rank,
        )
        for rank in range(ranks)
    )


def _interleaved(ranks: int, virtual_stages: int, micro_batches: int) -> tuple[Row, ...]:
    """Rank r holds stages r, r + p, ..: rounds of p micro-batches go through one of them after the other."""
    passes = [
        (chunk, first + i)
        for first in range(0, micro_batches, ranks)
        for chunk in range(virtual_stages)
        for i in range(ranks)
    ]
    return tuple(
        _alternate(
            [Action(chunk * ranks + rank, "F", i) for chunk, i in passes],
            [Action((virtual_stages - 1 - chunk) * ranks + rank, "B", i) for chunk, i in passes],
            # the last stage's first backward may start p - 1 - r passes after this rank's last chunk began, and its
            # gradient is back p - 1 - r passes later
            warm_up=(virtual_stages - 1) * ranks + (2 if virtual_stages > 1 else 1) * (ranks - 1 - rank),
        )
        for rank in range(ranks)
    )


def _alternate(forwards: list[Action], backwards: list[Action], *, warm_up: int) -> Row:
    """Return `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards."""
    warm_up = min(warm_up, len(forwards))
    pairs = zip(forwards[warm_up:], backwards, strict=False)
    steady = [action for pair in pairs for action in pair]
    return (*forwards[:warm_up], *steady, *backwards[len(forwards) - warm_up :])


def _zero_bubble(ranks: int, virtual_stages: int, micro_batches: int) -> tuple[Row, ...]:
    if virtual_stages == 2:
        return tuple(_zero_bubble_v(ranks, rank, micro_batches) for rank in range(ranks))
    return tuple(_zero_bubble_h1(ranks, rank, micro_batches) for rank in range(ranks))


def _zero_bubble_h1(ranks: int, rank: int, micro_batches: int) -> Row:
    """1F1B with the weight gradients of rank r r micro-batches late: every rank holds p of them, as rank 0 of 1F1B."""
    forwards = [Action(rank, "F", i) for i in range(micro_batches)]
    gradients = [Action(rank, "I", i) for i in range(micro_batches)]
    row: list[Action] = []
    for action in _alternate(forwards, gradients, warm_up=ranks - 1 - rank):
        row.append(action)
        if action.kind == "I" and action.micro_batch >= rank:
            row.append(Action(rank, "W", action.micro_batch - rank))
    late = range(max(0, micro_batches - rank), micro_batches)
    return (*row, *(Action(rank, "W", i) for i in late))


def _zero_bubble_v(ranks: int, rank: int, micro_batches: int) -> Row:
    """Run the stages down the ranks and back up: the last rank turns without a transfer, the first has the loss.

    Rank r holds stages r ("a") and 2p - 1 - r ("b").
    """
    stage = {"a": rank, "b": 2 * ranks - 1 - rank}
    count: dict[str, int] = {}
    row: list[Action] = []

    def add(times: int, *passes: str) -> None:
        for _ in range(times):
            for what in passes:
                index = count.get(what, 0)
                count[what] = index + 1
                row.append(Action(stage[what[1]], what[0], index))  # type: ignore[arg-type]

    add(2 * (ranks - rank) - 1, "Fa")
    add(rank, "Fb", "Fa")
    add(ranks - rank, "Fb", "Ib", "Wb")
    add(micro_batches - count["Fa"], "Fa", "Ia", "Wa", "Fb", "Ib", "Wb")
    add(micro_batches - count["Fb"], "Ia", "Wa", "Fb", "Ib", "Wb")
    add(rank, "Ia", "Ib")
    add(ranks - rank, "Ia", "Wa")
    add(micro_batches - count["Wb"], "Wb")
    add(micro_batches - count["Wa"], "Wa")
    return tuple(row)


SCHEDULES: dict[str, Callable[[int, int, int], tuple[Row, ...]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_f_one_b,
    "interleaved": _interleaved,
    "zb": _zero_bubble,
}
