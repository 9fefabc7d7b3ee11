"""Short turns on a processor for the threads that carry messages while their rank computes.

What such a thread does lasts microseconds, and other ranks wait for it. Where ranks share cores, the kernel has it wait
behind what computes, for milliseconds at every hop of a collective; who asks for short turns gets them sooner.
"""

from .helper import load_helper

TURN_NS = 100_000  # the shortest that Linux grants


def request_short_time_slice() -> bool:
    """Ask the kernel for short turns for the calling thread; return whether it took note. Without the helper: no."""
    library = load_helper()
    return library is not None and bool(library.mw_short_turns(TURN_NS))
