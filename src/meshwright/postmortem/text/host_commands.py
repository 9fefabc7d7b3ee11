"""Commands of launchers that number hosts, the first rank of a log's own host by one, and lists of its agent."""

import re
from collections.abc import Sequence

from .lines import LogMessage

# of a launcher's command, or of what a host's script prints; a rendezvous of its own numbers hosts as they come
NUMBERED = re.compile(
    r"(?:--(?:node|machine)[-_]rank[= ]|\b(?:PET_)?(?:NODE|GROUP|MACHINE)_RANK=|\bSLURM_NODEID=|\bJOB_COMPLETION_INDEX="
    r"|\bnode[_ ]rank[ =:]{1,2})(?P<node>\d{1,5})\b"
)
OWN_NUMBERS = re.compile(r"\brdzv[-_](?:backend[= '\"]{1,3}(?!static)|(?:id|conf)\b(?!.*backend))")  # static by default
PER_HOST = re.compile(
    r"(?:--nproc[-_]per[-_]node[= ]|\b(?:PET_)?NPROC(?:_PER_NODE)?=|\bLOCAL_WORLD_SIZE=|\bGPUS_PER_NODE="
    r"|\bnproc[_ ]per[_ ]node[ =:]{1,2})(?P<ranks>\d{1,2})\b"
)
_OF_AGENT = re.compile(r"\bglobal_ranks=\[(?P<ranks>\d[\d, ]*)\]")  # torchrun's, as it starts them on its host
NUMBERS_HOSTS = ("node", "Node", "NODE", "machine", "GROUP_RANK", "MACHINE", "INDEX")  # a quick look


def ranks_of_agent(text: str) -> tuple[int, ...]:
    """Return the ranks that torchrun's agent says it starts on its host, in their order there; () in another line."""
    found = _OF_AGENT.search(text) if "global_ranks" in text else None
    return tuple(int(number) for number in found["ranks"].split(",") if number.strip()) if found else ()


def first_rank(found: Sequence[LogMessage]) -> int | None:
    """Return the first rank of the host whose launcher's command a log has; None where it has none, or several."""
    firsts: set[int] = set()
    for message in found:
        text = message.text
        if not any(word in text for word in NUMBERS_HOSTS):
            continue
        if OWN_NUMBERS.search(text):
            return None
        numbers, sizes = _counts_in(text)
        firsts |= {number * size for number in numbers for size in sizes}
    return firsts.pop() if len(firsts) == 1 else None


def ranks_of_numbered(text: str) -> tuple[int, ...]:
    """Return the ranks of a host by a text that says its number and how many each has; () where it does not."""
    numbers, sizes = _counts_in(text)
    if len(numbers) != 1 or len(sizes) != 1 or OWN_NUMBERS.search(text):
        return ()
    number, size = numbers.pop(), sizes.pop()
    return tuple(range(number * size, (number + 1) * size))


def _counts_in(text: str) -> tuple[set[int], set[int]]:
    """Return the numbers of hosts that a text says, and how many ranks it says that each has."""
    numbers = {int(one["node"]) for one in NUMBERED.finditer(text)}
    return numbers, {int(one["ranks"]) for one in PER_HOST.finditer(text)}
