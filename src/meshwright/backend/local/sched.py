"""Short turns on a processor for the threads that carry messages while their rank computes.

Such a thread runs for microseconds while other ranks wait for it. Where ranks share cores, the kernel queues it behind
threads that compute, for milliseconds at every hop of a collective; a thread with a short time slice runs sooner.
"""

from .helper import load_helper

TURN_NS = 100_000  # the shortest that Linux grants


def request_short_time_slice() -> bool:
    """Ask the kernel for short turns for the calling thread; return whether it took note. Without the helper: no."""
    library = load_helper()
    return library is not None and bool(library.mw_short_turns(TURN_NS))
