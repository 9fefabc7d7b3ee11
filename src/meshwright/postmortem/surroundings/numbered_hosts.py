"""Numbers that lines give to hosts (`h01: NODE_RANK=0`, `node 0..1 = h01 h02`), and the ranks that follow from them.

A script's comment or a launcher's line names the number of each host, another says how many ranks each has.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..nouns.identities import AgentRanks
from ..text.host_commands import PER_HOST
from ..text.lines import LogMessage
from .placements import CLOCK, ELSE, HOST, NO_HOST, WORDS

_KEY = (  # of a number that counts hosts, or tasks of which each has a host
    r"(?:(?P<task>(?:slurm )?tasks?)|(?:PET_)?(?:NODE|GROUP|MACHINE)_RANKS?|SLURM_NODEID|JOB_COMPLETION_INDEX"
    r"|(?:node|machine)s?(?:[ _-]?(?:rank|id|index|number)s?)?|completion[ _-]index)"
)
_KEYED = re.compile(_KEY, re.IGNORECASE)
_TO = r"(?:->|=>|→|[:=]|\b(?:is|on|runs on)\b)"
_AFTER = re.compile(  # the number first
    rf"(?<![\w.-])(?:{_KEY}[ =:#]{{0,3}})?(?P<number>\d{{1,4}}) ?{_TO} ?(?P<host>{HOST})(?![\w/])",
    re.IGNORECASE,
)
_BEFORE = re.compile(  # the host first
    rf"(?<![\w./-])(?P<host>{HOST}) ?(?:[:=,(]|->|=>|\b(?:is|has)\b)? ?{_KEY}[ =:#]{{1,3}}"
    r"(?P<number>\d{1,4})(?![\w.-])",
    re.IGNORECASE,
)
_BARE = re.compile(rf"(?<![\w./-])(?P<host>{HOST}) ?(?:->|=>|→|[:=]) ?(?P<number>\d{{1,4}})(?![\w.-])")
_IN_ORDER = re.compile(  # `NODEID 0..2 = h01 h02 h03`
    rf"(?<!\w){_KEY} 0 ?(?:\.\.\.?|-|to) ?(?P<last>\d{{1,4}}) ?{_TO} ?(?P<hosts>{HOST}(?:,? {HOST})+)(?![\w/.-])",
    re.IGNORECASE,
)
_HEADED = re.compile(rf"(?<!\w){_KEY}(?: of (?:the )?hosts)? ?(?:map\w*|list|table)?[ :=({{]{{1,4}}", re.IGNORECASE)
_SIZE = re.compile(
    r"\b(?P<size>\d{1,2}) (?P<what>rank|process(?:es)?|proc|task|gpu)s? (?:per|/|on each|in each|(?:on|in) every|an?) ?"
    r"(?P<each>task|node|host|machine|pod)\b",
    re.IGNORECASE,
)
_WORLD = re.compile(r"\bworld[_ ]?size[ =:]{1,3}(?P<ranks>\d{1,6})\b", re.IGNORECASE)
_MAY_COUNT = re.compile(r"per|/ |each|every|\ban? |nproc|world", re.IGNORECASE)
_OTHER_ORDER = re.compile(r"\bcyclic\b|\bround[ -]?robin\b|\bplane\b|\brdzv\S*[ =]c10d\b", re.IGNORECASE)
_MAY_TELL = re.compile(r"[Tt]ask|TASK|[Nn]ode|[Mm]achine|[Ii]ndex|NODEID|_RANK|_INDEX")
_INSIDE = re.compile(r"\bnuma\b|\bcpus?\b|\bsockets?\b", re.IGNORECASE)  # of one host
_DEVICE = re.compile(
    r"(?:mlx\d?|bnxt|irdma|hfi\d?|cxi|nvme|cuda|numa|stage|layer|shard|chunk|queue|en[ops])[_-]?[\d_]\w*", re.IGNORECASE
)
_LONGEST = 2000  # characters
_FEW = 2  # hosts

Numbered = tuple[str, int, bool, LogMessage]  # the host, its number, whether that counts tasks, the line


def read(messages: Sequence[LogMessage]) -> Iterator[AgentRanks]:
    """Yield the ranks of the hosts that one file numbers, all from 0 on, with one number of ranks for each.

    Not where ranks go round the hosts, or a rendezvous of c10d numbers these anew as they come.
    """
    told = [one for message in messages if len(message.where.text) <= _LONGEST for one in _of_line(message)]
    hosts = {number: host for host, number, _, _ in told}
    if len(hosts) < _FEW or len({(host, number) for host, number, _, _ in told}) > len(hosts):
        return
    if set(hosts) != set(range(len(hosts))) or len(set(hosts.values())) < len(hosts):
        return
    size = _size(messages, len(hosts), is_of_tasks=any(is_task for _, _, is_task, _ in told))
    if not size or any(_OTHER_ORDER.search(message.text) for message in messages):
        return
    for host, number, _, message in told:
        ranks = tuple(range(number * size, (number + 1) * size))
        yield AgentRanks(ranks=ranks, where=replace(message.where, host=host))


def _of_line(message: LogMessage) -> list[Numbered]:
    """Return the hosts that a line numbers: several, or one where it says nothing else."""
    text = message.where.text
    if message.is_of_library or not _MAY_TELL.search(text) or ELSE.search(text) or _INSIDE.search(text):
        return []
    text = CLOCK.sub(" ", text)
    if in_order := _IN_ORDER.search(text):
        hosts = re.split(r",? ", in_order["hosts"])
        is_all = len(hosts) == int(in_order["last"]) + 1
        is_task = bool(in_order["task"])
        return [(host, number, is_task, message) for number, host in enumerate(hosts)] if is_all else []
    found = list(_BEFORE.finditer(text)) or list(_AFTER.finditer(text))
    headed = _HEADED.search(text)
    if len(found) < _FEW and headed and len(bare := list(_BARE.finditer(text, headed.end()))) >= _FEW:
        found = bare
    is_task = any(one.groupdict().get("task") for one in (*found, *([headed] if headed else [])))
    is_keyed = headed is not None or any(_KEYED.match(one[0]) for one in found)
    found = [one for one in found if not (NO_HOST.fullmatch(one["host"]) or _DEVICE.fullmatch(one["host"]))]
    if not is_keyed and any(one.re is _AFTER for one in found):
        return []
    if len(found) < _FEW and re.search(r"[A-Za-z]", WORDS.sub(" ", _rest(text, found))):
        return []
    return [(one["host"], int(one["number"]), is_task, message) for one in found]


def _rest(text: str, found: Sequence[re.Match[str]]) -> str:
    for one in found:
        text = text.replace(one[0], " ")
    return text


def _size(messages: Sequence[LogMessage], hosts: int, *, is_of_tasks: bool) -> int | None:
    """Return the number of ranks of each host, or each task, by options and words of a file.

    Where none says it, the ranks of the job are shared out evenly. None where they do not agree.
    """
    told: set[int] = set()
    worlds: set[int] = set()
    for message in messages:
        if not _MAY_COUNT.search(message.text):
            continue
        worlds |= {int(world["ranks"]) for world in _WORLD.finditer(message.text)}
        told |= {int(option["ranks"]) for option in PER_HOST.finditer(message.text)}
        told |= {
            int(one["size"]) for one in _SIZE.finditer(message.text) if (one["each"].lower() == "task") == is_of_tasks
        }
    if not told and len(worlds) == 1 and min(worlds) % hosts == 0:
        return min(worlds) // hosts
    return told.pop() if len(told) == 1 else None
