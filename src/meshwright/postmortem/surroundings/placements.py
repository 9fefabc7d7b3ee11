"""Lines that tell where the ranks are: ranges of ranks on a host or in a pod, numbers of nodes, pods on nodes.

Scripts of jobs print such lines in their own words: a line is read where it names hosts and ranks and says nothing
else, or where it says which ranks the host or pod of its own log has.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from ..nouns.facts import Fact
from ..nouns.identities import AgentRanks, Placed, RankIdentity
from ..nouns.where import Where
from ..nouns.world import MOST_RANKS
from ..text.host_commands import NUMBERED, NUMBERS_HOSTS, OWN_NUMBERS, PER_HOST
from ..text.lines import LogMessage
from .pods import described_node, node_of_row, pod_of_row
from .system import syslog_host

HOST = r"[A-Za-z](?=[\w.]*[\d-])[\w-]*(?:\.[A-Za-z][\w-]*)*"  # a name with a number or a dash in it
_PLACED = re.compile(r"Successfully assigned (?:[\w.-]+/)?(?P<pod>[\w.-]+) to (?P<node>[\w.-]+)")
_ON_NODE = re.compile(  # of what a pod's script prints of itself
    r"(?<!\bby )\b(?:POD_NAME|pod(?:[ _]name)?)[ =:/]{1,2}(?P<pod>[a-z0-9][\w.-]*-[\w.-]+)\b.{0,40}?"
    r"\b(?:NODE_NAME=|node(?:[ _]name)?[ =:]{1,2}|on (?:node |host )?)(?P<node>[a-z][\w-]*[\d-][\w.-]*)\b"
)
_OF_NUMBER = re.compile(  # of a comment: `g1 is node_rank 0`, `node rank 0 = g1`
    rf"(?<![\w./-])(?P<host>{HOST}) ?(?:[:=,(]|->|=>|→|\b(?:is|has|gets|as)\b) ?(?:the )?"
    r"(?:node|machine)[-_ ]?rank[ =:]{1,2}(?P<number>\d{1,5})\b"
    r"|(?<![\w-])(?:node|machine)[-_ ]?rank[ =:]{1,2}(?P<first>\d{1,5}) ?(?:[:=(]|->|=>|→|\b(?:is|on)\b) ?"
    rf"(?P<behind>{HOST})(?![\w/])",
    re.IGNORECASE,
)
_ASIDE = re.compile(  # who writes, as loggers print it; torchrun's number of a host
    r"^\[[A-Za-z_.]+\]|\| *[A-Z]+ *\| *[\w.<>]+:[\w.<>]+:\d+ +-|\bgroup_rank[ =:]{1,2}\d{1,5}\b"
)
_IN_GROUP = re.compile(  # beside the ranks of the job: of a replica, and the places in its group
    r"\([^()]{0,80}\bgroup[_ ]ranks?[ =:]{1,3}[\[{]?\d[^()]{0,80}\)"
    r"|\bgroup[_ ]ranks?[ =:]{1,3}[\[{]?\d{1,6}(?:(?:-|\.\.|, ?)\d{1,6})*[\]}]?"
    r"|\breplica(?:[_ ]?(?:id|group))?[ =:]{1,3}\w[\w:-]*",
    re.IGNORECASE,
)
_OWN_PLACE = re.compile(  # of what a process prints of itself: its rank, and its number on the host that is named
    r"(?<!local_)(?<!local )(?<!node_)(?<!node )(?<!group )(?<![tpdec]p )\b(?:global[_ ]?|world[_ ]?)?"
    r"rank[ =:]{1,3}(?P<rank>\d{1,6})(?: ?/ ?\d{1,6}| of \d{1,6})?\b[^\d\n]{1,8}\blocal[_ ]?rank[ =:]{1,3}\d{1,2}\b"
    r"|\blocal[_ ]?rank[ =:]{1,3}\d{1,2}\b[^\d\n]{1,8}\b(?:global|world)[_ ]?rank[ =:]{1,3}(?P<behind>\d{1,6})\b"
    r"|\bprocess \(global:? (?P<process>\d{1,6}), local:? \d{1,2}\)",  # OpenCLIP and what is made of it
    re.IGNORECASE,
)
_SETS_UP = re.compile(r"\b(?:init_)?process[ _]groups?\b|\bmultiple processes\b", re.IGNORECASE)
_CELL = re.compile(r"\| *(?P<host>" + HOST + r") *\|")  # of a logger's prefix
_LOCAL = re.compile(  # on the host; of how many ranks
    r"\(?\blocal[_ ]?rank[ =:#]{0,3}\d{1,2}\b\)?|(?<=\d)(?:/| of )\d{1,6}\b(?! ?[A-Za-z])"
    r"|\(?\blocal[_ ](?:rank|gpu|device)s[ =:#]{0,3}[\[({]?\d{1,2}(?: ?(?:-|\.{2,3}|,|to|through) ?\d{1,2})*\b"
    r"[\])}]{0,2}",
    re.IGNORECASE,
)
_LAUNCHED = re.compile(  # srun -v
    r"^srun: launching \S+ on host (?P<host>\S+), (?P<tasks>\d{1,3}) tasks: "
    r"\[(?:(?P<first>\d{1,6})-(?P<last>\d{1,6})|(?P<list>\d{1,6}(?:,\d{1,6})+))\]$"
)
_MODEL = re.compile(  # of an accelerator
    r"\b(?:NVIDIA|AMD|Intel(?:\(R\))?|Tesla|GeForce|Quadro|Instinct|Ascend|MI\d{3}[A-Z]?)(?![\w-])"
    r"(?:[ _-](?:[A-Z]{0,5}\d[\w.-]*|GB|RTX|PCIe|NVL|GPU|Data|Center|Max|Instinct|GeForce)(?![\w-]))*"
)
_VERSION = re.compile(  # 2.4.1+cu124, 2.6.0a0
    r"(?<![\w.-])v?\d{1,4}(?:\.\d{1,6}){1,3}(?:[A-Za-z]\w*)?(?:[+-][A-Za-z][\w.]*)?(?!\.?\w)"
)
_SAYS_WHERE = re.compile(r"\b(?:host(?:name)?|node(?:name)?|running on)\b|NVIDIA|\bAMD\b|Instinct")
_OF_LEADER = re.compile(r"master|leader|head|main|addr|rdzv|peer|remote", re.IGNORECASE)
_ENDED = re.compile(r"^srun: error: (?P<host>[\w.-]+): tasks? \[?(?P<tasks>\d[\d,-]*)\]?: ")
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_AGENT = re.compile(r"torchrun|torch[./]distributed[./](?:elastic|run|launch)\b")
_TASK = re.compile(r"\s*(\d{1,6}): ")  # a label of srun's
_MOST_TASKS = 128  # of a host
_FEW = 2  # tasks
_VARIABLE = re.compile(  # of the environment in a description of a pod
    r"^\s+(?:(?:PET_)?(?:NODE|GROUP|MACHINE)_RANK|JOB_COMPLETION_INDEX):\s+(?P<number>\d{1,5})\s*$"
    r"|^\s+(?:(?:PET_)?NPROC_PER_NODE|LOCAL_WORLD_SIZE|GPUS_PER_NODE):\s+(?P<size>\d{1,2})\s*$"
)
_MARKED = re.compile(  # a label or an annotation of a pod
    r"^(?:Labels:|Annotations:)?\s+(?:[\w.-]{1,80}/)?(?:global-)?ranks?(?:-range)?(?:=|: )"
    r"(?P<first>\d{1,6})-(?P<last>\d{1,6})$"
)
_MAY_TELL = ("ank", "RANK", "INDEX", "NODEID", "(global")
_RANKS = re.compile(
    r"\b(?P<word>(?:global[_ ]|world[_ ])?ranks?)[ =:]{0,3}[\[({]?(?:(?P<first>\d{1,6})"
    r" ?(?:-|–|\.{2,3}|:| to | through ) {0,3}(?P<last>\d{1,6})|(?P<list>\d{1,6}(?:(?:, ?|,? and )\d{1,6})+"
    r"|(?:(?<=s[ =:])|(?<=s: )|(?<=s[ =:][\[({])|(?<=s: [\[({]))\d{1,6}(?: \d{1,6})++(?! ?[a-zA-Z%]))"
    r"|(?P<one>\d{1,6}))[\])}]?(?![\w.])",
    re.IGNORECASE,
)
_ROW = re.compile(  # of a table
    r"^\W*(?P<host>[A-Za-z][\w.-]*)(?=[ |,\t]).{0,100}[ |,\t](?P<first>\d{1,6})(?:-|\.\.)(?P<last>\d{1,6})\W*$"
)
_HEADER = re.compile(r"^\W*(?:node|host|hostname|pod|instance)s?\b[^\d]*\branks?\W*$", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w./-])" + HOST + r"(?![\w/])")
_SETTING = re.compile(  # of the environment: whose host or rank it is not
    r"(?<!\w)(?:(?:MASTER|HEAD|MAIN|LEADER|RDZV)_\w+"
    r"|(?![A-Z_]*(?:HOST|NODE_?NAME|RANK|NODE_?ID))[A-Z][A-Z0-9_]*_[A-Z0-9_]+)[=:] ?\S+"
)
_OWN_NAME = re.compile(  # behind a word that says whose it is
    r"(?<![\w-])(?:(?:host|node|machine)(?:[ _]?name)?|SLURMD_NODENAME|HOSTNAME|on)[ =:]{1,2}"
    r"(?P<host>" + HOST + r")(?![\w/])",
    re.IGNORECASE,
)
_SENT_TO = re.compile(  # of a command that runs there
    r"\b(?:ssh +(?:-\S+ +(?:\w+=\S+ +)?)*(?:[\w.-]+@)?|pdsh +-w +)(?P<host>" + HOST + r")(?![\w/])"
)
_LABEL = re.compile(r"^\W*(?P<host>" + HOST + r")(?:\]|:)? ")
_PAIR = re.compile(  # of a list of hosts, each with its ranks
    r"(?<![\w./-])['\"]?(?P<host>" + HOST + r")['\"]?"
    r" ?(?:->|=>|[:=]| ) ?(?:ranks? ?)?[\[({]?(?:(?P<first>\d{1,6}) ?(?:-|\.{2,3}| to ) ?(?P<last>\d{1,6})"
    r"|(?P<list>\d{1,6}(?:, ?\d{1,6}(?!\d*[-.]))+))[\])}]?(?![\w.])"
)
_OF_RANKS = re.compile(r"ranks?\b|_rank_", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])")
CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d(?:[.,]\d+)?Z?|[EWIF]\d{4} ")
WORDS = re.compile(  # of a line that only says where ranks are
    r"\b(?:nodes?|hosts?|hostname|servers?|npus?|pods?|workers?|machines?|instances?|runs?|running|on|has|have|holds?"
    r"|hosting|is|are|the|and|with|of|at|in|rank|ranks|node_?rank|node_?id|local|local_rank|global|world|gpus?|gpu_ids|devices?|ip|addr"
    r"|address|maps?|table|list|rank_?map|hostmap|training|nproc|nproc_per_node|size|world_size|master|leader|info"
    r"|hostfile|machinefile|hosts?_?list"
    r"|placement|layout|mapping|topology|assigned|prolog|prologue|job|jobid|slurm"
    r"|to|index|id|name|torchrun|launch(?:ed|ing)?|start(?:ed|ing)?|processes|procs?|\d*x"
    r"|cuda|xpu|npu|hip|hpu|driver|torch|h\d00|a\d00|nic|rack\w*(?: [a-z]\b)?|(?:max_)?slots|fabric|ipoib|which|this"
    r"|pytorch|nccl|rccl|rocm|cann|python|version|dmesg|logs?|collected|taken|captured)\b",
    re.IGNORECASE,
)
NO_HOST = re.compile(
    r"(?:rank|cuda|local|step|iter|pid|mlx|ib|eth)[_-]?\d*|[hab]\d00(?:[_-]?(?:40|48|64|80|94|96|141|180|192|288))?"
    r"|gpu_?\d*|(?-i:GPU-\d*)|\w*rank\w*|\w+-",
    re.IGNORECASE,
)
_LIKE_A_GPU = re.compile(r"gpu-?\d{2,5}")
_NUMBERED_NAME = re.compile(r"(?:node|host|worker|pod|machine)[_-]?\d+", re.IGNORECASE)
_BESIDE = re.compile(r"\([^()]{1,80}\)")  # what else a person's comment says of a host
_COMMENT = re.compile(r"(?:^|\s)(?:#|//) ?\S")
_OF_ITS_OWN = re.compile(r"\bthis (?:is )?(?:node|host|machine)\b", re.IGNORECASE)
_OWN = re.compile(
    r"\b(?:node[_ ]?rank|node_?id|completion_index|this (?:is )?(?:node|host|pod|machine)|launch\w*|start\w*|spawn\w*"
    r"|here|global[_ ]ranks?)\b|->|=>",
    re.IGNORECASE,
)
ELSE = re.compile(  # what befell ranks, and groups of them
    r"wait|miss|time|lost|fail|join|group|parallel|dead|gone|kill|exit|barrier|expect|error|slow|warn|abort|stuck|restart"
    r"|\b[tpdec]p\b|broadcast|reduce|gather|send|recv|between|from",
    re.IGNORECASE,
)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield where ranks and pods are, by the messages of one file."""
    for fact in _told(messages):
        is_own = isinstance(fact, AgentRanks) and not fact.where.host and _OF_ITS_OWN.search(fact.where.text)
        hosts = {host for one in messages if (host := syslog_host(one.text))} if is_own else set()
        yield replace(fact, where=replace(fact.where, host=hosts.pop())) if len(hosts) == 1 else fact


def _told(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    yield from _tasks(messages)
    is_table = False
    pod = ""
    environment: dict[str, int] = {}  # of the pod that is described
    numbered = not any("rdzv" in message.text and "c10d" in message.text for message in messages)
    for message in messages:
        text, where = message.text, message.where
        if row := pod_of_row(text):
            yield Placed(pod=row, node=node_of_row(text), where=where)
            continue
        described, (pod, node) = pod, described_node(text, pod)
        if pod and node:
            yield Placed(pod=pod, node=node, where=where)
        environment = environment if pod == described else {}
        if pod and (variable := _VARIABLE.match(text)):
            environment["number" if variable["number"] else "size"] = int(variable["number"] or variable["size"])
            if len(environment) > 1:
                first = environment["number"] * environment["size"]
                ranks = tuple(range(first, first + environment["size"]))
                yield AgentRanks(ranks=ranks, where=replace(where, host=pod))
                environment = {}
        if pod and "rank" in text and (marked := _MARKED.match(text)):
            yield from _ranks(_numbers(marked), pod, where)
        if found := _placed(text):
            yield Placed(pod=found["pod"], node=found["node"], where=where)
        if text.startswith("srun: launching") and (tasks := _LAUNCHED.match(text)):
            yield from _ranks(_numbers(tasks), tasks["host"], where)
        is_table = _HEADER.match(text) is not None or (is_table and _ROW.match(text) is not None)
        if is_table and (row_ := _ROW.match(text)):
            yield from _ranks(_numbers(row_), row_["host"], where)
        elif message.is_of_library or "(node_id=" in text:
            continue  # a list of Ray Train's begins with the host of who prints it: `launchers`
        elif any(word in text for word in _MAY_TELL):
            yield from _of_line(text, where, numbered=numbered)
        elif message.rank is not None and _SAYS_WHERE.search(text) and not _OF_LEADER.search(text):
            yield from _of_line(f"rank {message.rank} {text}", where, numbered=numbered)


def _tasks(messages: Sequence[LogMessage]) -> Iterator[AgentRanks]:
    """Yield the tasks of each host that srun lists when a step ends, where they are ranks and known to be all of it.

    Its lists are of tasks that ended alike: all hosts have as many, and two of them follow each other without a gap. A
    task is no rank where torchrun started the ranks, or a label of srun's stands in front of another one.
    """
    told: dict[str, set[int]] = {}
    lines: dict[str, Where] = {}
    for message in messages:
        if message.rank is not None and (label := _TASK.match(message.where.text)) and int(label[1]) != message.rank:
            return
        if "torch" in message.text and _AGENT.search(message.text):
            return
        if message.text.startswith("srun: error: ") and (ended := _ENDED.match(message.text)):
            numbers = {n for first, last in _SPAN.findall(ended["tasks"]) for n in _span(first, last)}
            told.setdefault(ended["host"], set()).update(numbers)
            lines.setdefault(ended["host"], message.where)
    sizes = {len(tasks) for tasks in told.values()}
    firsts = {min(tasks) for tasks in told.values()}
    rows = all(max(tasks) - min(tasks) == len(tasks) - 1 for tasks in told.values())
    size = sizes.pop() if len(sizes) == 1 else 1
    if size < _FEW or not rows or len(firsts) < len(told) or any(first % size for first in firsts):
        return
    if any(first + size in firsts for first in firsts):
        for host, tasks in told.items():
            yield AgentRanks(ranks=tuple(sorted(tasks)), where=replace(lines[host], host=host))


def _span(first: str, last: str) -> range:
    return range(int(first), min(int(last or first), int(first) + _MOST_TASKS) + 1)


def _placed(text: str) -> re.Match[str] | None:
    """Return the pod and the node that a line says it is on, None for none."""
    found = _PLACED.search(text) if "assigned" in text else None
    return found or (_ON_NODE.search(text) if "ode" in text or "NODE" in text else None)


def _of_line(text: str, where: Where, *, numbered: bool) -> Iterator[Fact]:
    """Yield the ranks of hosts by one line; numbers of nodes count where they are `numbered`, not met in c10d."""
    number = NUMBERED.search(text) if any(word in text for word in NUMBERS_HOSTS) else None
    per_host = PER_HOST.search(text) if number else None
    if numbered and number and per_host and not OWN_NUMBERS.search(text) and not _RANKS.search(NUMBERED.sub(" ", text)):
        size = int(per_host["ranks"])
        for node, place in _numbered_hosts(text, where) or [(int(number["node"]), _on_own_host(text, where))]:
            yield AgentRanks(ranks=tuple(range(node * size, (node + 1) * size)), where=place)
        return
    if speaker := _own_place(text, where):
        yield speaker
        return
    whole, text = text, _VERSION.sub(_unless_address, _MODEL.sub(" ", _ASIDE.sub(" ", text)))
    if "global" in text or "world" in text:
        text = _IN_GROUP.sub(" ", text)
    if "ank" not in text.lower() or ELSE.search(text):
        return
    if pairs := _pairs(text):
        for host, own in pairs.items():
            yield AgentRanks(ranks=own, where=replace(where, host=host))
    if pairs or len(text) > 200:
        return
    bare = _LOCAL.sub(" ", NUMBERED.sub(" ", _SETTING.sub(" ", text)))
    found = list(_RANKS.finditer(bare))
    rest = _RANKS.sub(" ", CLOCK.sub(" ", bare))
    if not found:
        return
    addresses = [address[0].partition(":")[0] for address in _ADDRESS.finditer(rest)]
    rest = _ADDRESS.sub(" ", rest)
    several = not any(one["one"] for one in found)
    names = [name[0] for name in _NAME.finditer(rest) if _may_be_host(name[0], of_several=several)]
    if names or not addresses:
        rest = _NAME.sub(" ", rest)
    rest = _BESIDE.sub(" ", rest) if _COMMENT.search(whole) else rest
    if len(names) > len(found) and (placed := _placed(text)):
        names = [placed["pod"]]
    if len(names) > len(found):
        names = [name for name in names if not _NUMBERED_NAME.fullmatch(name)]
    hosts = names or addresses or [where.host] * bool(where.host)
    if len(addresses) == len(found) != len(names):
        hosts = addresses  # behind the name of the host that prints them
    if len(hosts) == len(found) and not re.search(r"[A-Za-z]", WORDS.sub(" ", rest)):
        for ranks, host in zip(found, hosts, strict=True):
            yield from _ranks(_numbers(ranks), host, where)
    elif len(found) == 1 and not found[0]["one"] and _OWN.search(whole):
        numbers = _numbers(found[0])
        if len(numbers) > 1:
            yield AgentRanks(ranks=numbers, where=_on_own_host(whole, where))


def _unless_address(version: re.Match[str]) -> str:
    """Return an address, which is written like a version, and nothing of any other."""
    return version[0] if _ADDRESS.fullmatch(version[0]) else " "


def _numbered_hosts(text: str, where: Where) -> list[tuple[int, Where]]:
    """Return the numbers that a line gives to hosts that it names, and the line as one of each of them."""
    found = [(int(one["number"] or one["first"]), one["host"] or one["behind"]) for one in _OF_NUMBER.finditer(text)]
    return [(number, replace(where, host=host)) for number, host in found if not NO_HOST.fullmatch(host)]


def _own_place(text: str, where: Where) -> RankIdentity | None:
    """Return the host of a process that says its rank and its number there, named in the line or in front of it.

    Not where the line has an address, which may be that of another host, or a pod beside its node.
    """
    place = _OWN_PLACE.search(text) if "ocal" in text or "OCAL" in text else None
    if place is None or ELSE.search(_SETS_UP.sub(" ", text)) or _ADDRESS.search(text) or _placed(text):
        return None
    cells = {cell["host"] for cell in _CELL.finditer(text) if not NO_HOST.fullmatch(cell["host"])}
    host = _on_own_host(text, where).host or (cells.pop() if len(cells) == 1 else "")
    rank = next(int(number) for number in place.groups() if number is not None)
    return RankIdentity(rank=rank, host=host, where=where) if host else None


def _may_be_host(name: str, *, of_several: bool) -> bool:
    """Whether a name is not that of a device; `gpu07` is a host where it has several ranks."""
    return not NO_HOST.fullmatch(name) or (of_several and _LIKE_A_GPU.fullmatch(name) is not None)


def _on_own_host(text: str, where: Where) -> Where:
    """Return a line as one of the host that it names as its own, as it is where it names none or several."""
    told = _SETTING.sub(" ", CLOCK.sub(" ", text))
    named = {name["host"] for pattern in (_OWN_NAME, _SENT_TO) for name in pattern.finditer(told)}
    if not named and (label := _LABEL.match(told)) and not NO_HOST.fullmatch(label["host"]):
        named = {label["host"]}
    return replace(where, host=named.pop()) if len(named) == 1 else where


def _pairs(text: str) -> dict[str, tuple[int, ...]]:
    """Return the ranks of hosts by a line that lists several hosts and says once that these are ranks."""
    found = list(_PAIR.finditer(text)) if _OF_RANKS.search(text) else []
    ranks = {pair["host"]: _numbers(pair) for pair in found}
    told = [rank for numbers in ranks.values() for rank in numbers]
    rest = CLOCK.sub(" ", _PAIR.sub(" ", _SETTING.sub(" ", text)))
    aliases = [name[0] for name in _NAME.finditer(rest) if not NO_HOST.fullmatch(name[0])]
    if len(aliases) == len(ranks):  # pods and their nodes side by side
        rest = _without(rest, aliases)
    if _RANKS.search(rest) or len(ranks) < max(2, len(found)) or not all(ranks.values()) or len(set(told)) < len(told):
        return {}
    if re.search(r"[A-Za-z]", WORDS.sub(" ", rest)) and not _are_shares([pair[0] for pair in found], ranks.values()):
        return {}
    return ranks


def _are_shares(texts: Sequence[str], ranks: Iterable[tuple[int, ...]]) -> bool:
    """Whether ranks from 0 on are shared out in equal rows, each of which says that they are ranks.

    That is where the ranks are, whatever else a line tells.
    """
    rows = sorted(ranks)
    told = [rank for row in rows for rank in row]
    is_even = len({len(row) for row in rows}) == 1 and told == list(range(len(told)))
    return is_even and len(told) > len(rows) and all(_OF_RANKS.search(text) for text in texts)


def _without(text: str, names: Sequence[str]) -> str:
    for name in names:
        text = text.replace(name, " ")
    return text


def _ranks(ranks: tuple[int, ...], host: str, where: Where) -> Iterator[Fact]:
    """Yield that a host or pod has these ranks: one alone is one process of perhaps several there."""
    if len(ranks) == 1:
        yield RankIdentity(rank=ranks[0], host=host, where=where)
    elif ranks:
        yield AgentRanks(ranks=ranks, where=replace(where, host=host))


def _numbers(found: re.Match[str]) -> tuple[int, ...]:
    told = found.groupdict()
    if told.get("one"):
        return (int(told["one"]),)
    if told.get("list"):
        return tuple(int(number) for number in re.findall(r"\d+", told["list"]))
    first, last = int(told["first"]), int(told["last"])
    return tuple(range(first, last + 1)) if first <= last < first + MOST_RANKS else ()
