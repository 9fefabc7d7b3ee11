"""How fast this machine is at this moment: half a second of work, kept beside a calibration and done again before use
and at the end of a run.

All usable cores work, so that another program is in the way wherever it runs.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence

from ..cluster.discovery.local import usable_cores
from ..cluster.graph import Pace

LOOK_S = 0.25  # for each of the two kinds of work
MOST_LOOKS, LEAST_LOOKS = 40, 5
PRODUCT = 512  # rows and columns of the matrices that are multiplied
COPIED_BYTES = 32 * 2**20  # more than caches hold
DRIFT = 0.05  # of the pace, beyond its uncertainty: measurements from before are no longer right
SURE = 2.0  # standard errors


def pace() -> Pace:
    """Return the pace of computation and of memory, each with its relative standard error; takes half a second."""
    import torch  # here, since a report compares paces and needs none of it

    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        factor, block, other = (
            torch.ones(PRODUCT, PRODUCT),
            torch.ones(COPIED_BYTES // 4),
            torch.ones(COPIED_BYTES // 4),
        )
        product_s, product_error = _looked_at(lambda: factor @ factor)
        copy_s, copy_error = _looked_at(lambda: other.copy_(block))
    finally:
        torch.set_num_threads(before)
    return Pace(product_s=product_s, product_error=product_error, copy_s=copy_s, copy_error=copy_error)


def _looked_at(work: Callable[[], object]) -> tuple[float, float]:
    work()  # allocates, starts threads
    taken_s: list[float] = []
    end = time.perf_counter() + LOOK_S
    while len(taken_s) < LEAST_LOOKS or (time.perf_counter() < end and len(taken_s) < MOST_LOOKS):
        start = time.perf_counter()
        work()
        taken_s.append(time.perf_counter() - start)
    return centre(taken_s)


def centre(samples: Sequence[float]) -> tuple[float, float]:
    """Return the median of samples and its relative standard error, from their median deviation as of a normal law."""
    middle = statistics.median(samples)
    deviation = 1.4826 * statistics.median(abs(sample - middle) for sample in samples)
    return middle, 1.2533 * deviation / middle / math.sqrt(len(samples))


def drifted(then: Pace, now: Pace) -> tuple[str, float] | None:
    """Return what work takes another time now, and how many times as long; None where it differs by 5 % at most.

    Of the two kinds of work the one that differs more. What may be chance is not counted.
    """
    worst: tuple[str, float] | None = None
    for name, before_s, after_s, errors in (
        ("a product of matrices", then.product_s, now.product_s, (then.product_error, now.product_error)),
        ("a copy in memory", then.copy_s, now.copy_s, (then.copy_error, now.copy_error)),
    ):
        ratio = after_s / before_s
        beyond = abs(math.log(ratio)) - SURE * math.hypot(*errors)
        if beyond > math.log1p(DRIFT) and (worst is None or abs(math.log(ratio)) > abs(math.log(worst[1]))):
            worst = name, ratio
    return worst
