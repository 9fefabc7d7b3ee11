"""Words of batch systems and clouds on a job that they ended: PBS, LSF, HTCondor, SLURM's records, spot machines."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Fact, Failure, Succeeded
from ..nouns.identities import NodeGone, TimeUp
from ..nouns.names import BY_REQUEST
from ..nouns.where import Where
from ..text.lines import LogMessage
from .pods import all_completed, pod_rows
from .scheduled_hosts import hosts_in_list

_PBS = re.compile(r"PBS: job killed: (?P<what>walltime|cput|v?mem|pmem|ncpus)\b")
_LSF = re.compile(r"^TERM_(?P<what>[A-Z_]+): ")
_FLUX = re.compile(r"\bjob\.exception\b.*\btype=(?P<what>timeout|preempt)\b")
_DEADLINE = re.compile(r"\bDeadlineExceeded\b.*\bactive\b.*\blonger than specified deadline\b")  # of a pod or a job
_CONDOR = re.compile(  # an event of HTCondor's log of a job, whose reason stands below
    r"^(?:004|009|012) \(\d+\.\d+\.\d+\) \S+ \S+ Job was (?P<what>evicted|aborted|held)\b"
)
_GRID_ENGINE = re.compile(
    r"\bjob \d+(?:\.\d+)? exceeded job (?:hard|soft) limit \"(?P<what>[hs]_(?:rt|cpu|vmem|rss|data))\""
)
_MODAL = re.compile(r"\bTask's current input \S+ hit its timeout of \d+ ?s\b")
_VERTEX = re.compile(  # of one replica of Vertex AI
    r"\bThe replica (?P<replica>\S+(?: \d+)?) (?P<full>ran out-of-memory and )?exited with a non-zero status of"
    r" (?P<code>\d+)(?:\(SIGKILL\))?(?P<why>.{0,40}OOMKilled)?"
)
_BY_KILL = {"9", "137"}  # codes
_SLURMCTLD = re.compile(r"_job_complete: JobId=\S+ WTERMSIG (?P<signal>\d+)")
_NOT_RESPONDING = re.compile(
    r"\berror: Nodes? (?P<hosts>[A-Za-z][\w.,\[\]-]*) not responding(?P<down>, setting DOWN)?"
    r"|\bNodes? (?P<back>[A-Za-z][\w.,\[\]-]*) now responding"
)
_FAILED_NODE = re.compile(
    r"\b(?:Killing JobId=\S+ on failed node|JobId=\S+ due to failure of node) (?P<host>[A-Za-z][\w.-]*)"
)
_DOWN = re.compile(r"^Not responding +\S+ +\S+ +(?P<hosts>[A-Za-z][\w.,\[\]-]*)$")  # a row of sinfo -R
_OF_NODE = re.compile(r"\b(?:NodeName=(?P<host>\S+)|State=(?P<state>\S+)|Reason=(?P<why>Not responding\b)?)")
_STATE = re.compile(  # scontrol's JobState, a line of sacct with its exit code
    r"JobState=(?P<state>[A-Z_]+)"
    r"|^\s*\d+(?:_\d+)?(?:\.\w+)?\s.*?\b(?P<row>OUT_OF_ME\w*\+?|NODE_FAIL|PREEMPTED|TIMEOUT)\s.*?\b\d+:\d+\b"
)
_CANCELLED = re.compile(r"^\s*\d+(?:_\d+)?[\s|].*?\bCANCELLED by (?P<user>\d+)\b")  # a row of sacct
_CLOUD = re.compile(
    r"Spot Instance interruption (?:notice|warning)|compute\.instances\.preempted"
    r"|instance/preempted\W{1,4}TRUE|[Ii]nstance (?:was|is being) preempted|\"EventType\": ?\"Preempt\""
    r"|instance-action\b.*\"action\"\W{1,4}(?:terminate|stop|hibernate)\""
    r"|spot/termination-time\b\D{1,20}20\d\d-\d\d-\d\dT|\bSPOT_ITN\b"
    r"|\b(?:[Ss]pot|[Pp]reempt\w*)\b(?: [Ii]nstance| VM| node)? (?:terminat|interrupt|reclaim|preempt|evict)\w*"
    r" (?:notice|warning|signal|event)s? (?:was |is )?(?:received|arrived|detected|seen|came|for \d|at \d)"
    r"|\b(?:[Rr]eclaim|[Rr]eclamation|[Pp]reemption|[Ii]nterruption|[Ee]viction) (?:notice|warning),? (?:was |is )?"
    r"(?:draining|received|arrived|detected|in \d|at \d)"
    r"|\b[Rr]eceived (?:an? |the )?(?:AWS |EC2 |GCP |GCE )?(?:[Ss]pot|[Pp]reemption)"
    r"(?: [Ii]nstance)?(?: terminat\w*| interrupt\w*)?(?: notice| warning)"
)
_WATCHER = re.compile(r"\b[\w-]{2,40}[\[(](?:host=|node=)?(?P<host>[A-Za-z][\w.-]*\d[\w.-]*)[\])]")
_NO_NOTICE = re.compile(  # in front of such words
    r"\b(?:if|when|until|no|not|never|without|whether|wait\w*|watch\w* for)\b", re.IGNORECASE
)
_STORE_GONE = re.compile(
    r"has failed to send a keep-alive heartbeat to the rendezvous '[^']*' due to an error of type (\w+)"
)
STORE_ENDED = "the process that holds the store ended before the others: rank 0, or torchrun's first agent"
_STORE_ENDED = re.compile(r"TCPStore server has shut down too early")
_ENDED = re.compile(  # a line of sacct with its exit code, scontrol, Ray's word on a job
    r"^\s*\d+(?:_\d+)?(?:\.\w+)?[\s|].*?"
    r"\b(?P<row>COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_ME|RUNNING)\b.*?\b(?P<code>\d+:\d+)\b"
    r"|JobState=(?P<state>COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY)\b"
    r"|^Job '(?P<ray>[^']+)' (?P<how>succeeded|failed)$"
    r"|^(?P<lsf>Successfully completed\.)$"
)
_LIMITS = {  # end whatever hangs
    *("walltime", "cput", "RUNLIMIT", "CPULIMIT", "TIMEOUT", "timeout", "deadline", "h_rt", "s_rt", "h_cpu", "s_cpu"),
}
_MEMORY = {"mem", "vmem", "pmem", "MEMLIMIT", "SWAP", "h_vmem", "s_vmem", "h_rss", "s_rss", "h_data", "s_data"}
_OTHERS = {
    "preempt",
    "PREEMPT",
    "NODE_FAIL",
    "PREEMPTED",
    "OWNER",
    "ADMIN",
    "FORCE_ADMIN",
    "FORCE_OWNER",
    "LOAD",
    "ncpus",
    "evicted",
    "aborted",
    "held",
}
_REQUESTED = {
    "OWNER",
    "FORCE_OWNER",
    "ADMIN",
    "FORCE_ADMIN",
    "aborted",
    "held",
}  # somebody ended it: perhaps because it hung
_MAY_SAY_END = re.compile(r"COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF|RUNNING|^Job '|^Successfully")
_MAY_TELL = (  # a quick look, since most lines are none of these
    *("failed node", "failure of node", "PBS: job", "TERM_", "_job_complete", "JobState=", "OUT_OF_ME", "NODE_FAIL"),
    *("PREEMPTED", "TIMEOUT", "spot", "Spot", "SPOT", "instance-action", "reempt", "notice", "warning", "keep-alive"),
    *(
        "CANCELLED by",
        "shut down too",
        "job.exception",
        "DeadlineExceeded",
        "Job was ",
        "exceeded job",
        "hit its timeout",
        "replica",
    ),
)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield what batch systems and clouds say in the messages of one file."""
    yield from _nodes_down(messages)
    yield from _nodes_silent(messages)
    ends = [
        (message, end)
        for message in messages
        if not message.is_of_library and _MAY_SAY_END.search(message.text) and (end := _ENDED.search(message.text))
    ]
    for message, end in ends:
        yield Succeeded(well=_is_well(end), where=message.where)
    pods_well = all_completed(messages) is not None  # one that runs on or began anew says nothing of the job
    for message in pod_rows(messages):
        yield Succeeded(well=pods_well, where=message.where)
    for index, message in enumerate(messages):
        text = message.text
        if not any(word in text for word in _MAY_TELL):
            continue
        yield from _of_others(message, messages[index + 1 : index + 2])
        if found := _PBS.search(text):
            yield from _ended("PBS", found["what"], message)
        elif found := _LSF.search(text):
            yield from _ended("LSF", found["what"], message)
        elif found := _FLUX.search(text):
            yield from _ended("Flux", found["what"], message)
        elif _DEADLINE.search(text):
            yield from _ended("Kubernetes", "deadline", message)
        elif found := _STATE.search(text):
            yield from _ended("SLURM", found["state"] or found["row"], message)
        elif found := _CANCELLED.search(text):
            what = f"{BY_REQUEST} of user {found['user']}"
            yield Failure(kind="killed", what=what, where=message.where, follows=True, is_general=True)
        elif found := _FAILED_NODE.search(text):
            what = f"SLURM: node {found['host']} failed"
            yield Failure(kind="killed", what=what, host=found["host"], where=message.where, is_general=True)
        elif found := _SLURMCTLD.search(text):
            what = f"SLURM: the job was ended by signal {found['signal']}"
            yield Failure(kind="killed", what=what, where=message.where, follows=True)
        elif (found := _CLOUD.search(text)) and not _NO_NOTICE.search(text, 0, found.start()):
            what, host = "the cloud took the machine back (preemption)", _machine_of(message, found.start())
            what = f"{what}: {host}" if host else what
            yield Failure(kind="killed", what=what, host=host, where=message.where, is_general=True)
        elif _STORE_ENDED.search(text):
            yield Failure(kind="killed", what=STORE_ENDED, where=message.where, follows=True)
        elif found := _STORE_GONE.search(text):
            what = f"the host of the rendezvous no longer answers ({found[1]}): its agent ended, or the way to it"
            yield Failure(kind="killed", what=what, where=message.where, follows=True)


def _machine_of(message: LogMessage, end: int) -> str:
    """Return the machine of a notice: the one before the line, or in brackets behind the name of a watcher."""
    named = _WATCHER.search(message.text, 0, end)
    return message.host or (named["host"] if named else "")


def _of_others(message: LogMessage, below: Sequence[LogMessage]) -> Iterator[Failure | TimeUp]:
    """Yield what HTCondor, Grid Engine, Modal and Vertex AI say of a job that they ended."""
    text = message.text
    if found := _CONDOR.search(text):
        is_memory = found["what"] == "held" and any("emory" in line.text for line in below)
        yield from _ended("HTCondor", "mem" if is_memory else found["what"], message)
    elif found := _GRID_ENGINE.search(text):
        yield from _ended("Grid Engine", found["what"], message)
    elif _MODAL.search(text):
        yield from _ended("Modal", "timeout", message)
    elif (found := _VERTEX.search(text)) and (found["full"] or found["why"]):
        what = f"Vertex AI: replica {found['replica']} ran out of memory"
        yield Failure(kind="host_memory", what=what, where=message.where)
    elif found and found["code"] in _BY_KILL:
        what = f"Vertex AI: replica {found['replica']} was ended by SIGKILL"
        yield Failure(kind="killed", what=what, where=message.where, follows=True)


def _nodes_down(messages: Sequence[LogMessage]) -> Iterator[NodeGone]:
    """Yield the nodes that SLURM gave up, for they did not respond, by `sinfo -R` and `scontrol show node`."""
    host = state = ""
    for message in messages:
        text = message.text
        if "Not responding" not in text and "NodeName=" not in text and "State=" not in text:
            continue
        if down := _DOWN.match(text):
            yield NodeGone(node=down["hosts"], what="it does not respond", where=message.where)
        for found in _OF_NODE.finditer(text):
            host, state = found["host"] or host, "" if found["host"] else found["state"] or state
            if found["why"] and host and state.startswith("DOWN"):
                yield NodeGone(node=host, what="it does not respond", where=message.where)


def _hosts_of(text: str) -> tuple[str, ...]:
    """Return the hosts of SLURM's list, or the one whose name it is."""
    return hosts_in_list(text) or ((text,) if "[" not in text else ())


def _nodes_silent(messages: Sequence[LogMessage]) -> Iterator[Failure | NodeGone]:
    """Yield the nodes that SLURM's controller did not hear again, by the first line that says so.

    A node that it set down is a failure; one that was merely silent is so only where the job ended for a node.
    """
    silent: dict[str, Where] = {}
    down: dict[str, Where] = {}
    for message in messages:
        if "responding" not in message.text or not (found := _NOT_RESPONDING.search(message.text)):
            continue
        for host in _hosts_of(found["back"] or found["hosts"]):
            if found["back"]:
                silent.pop(host, None)
                continue
            first = silent.setdefault(host, message.where)
            if found["down"]:
                down.setdefault(host, first)
    for host, where in down.items():
        what = f"SLURM: node {host} does not respond"
        yield Failure(kind="killed", what=what, host=host, where=where, is_general=True)
    for host, where in silent.items():
        if host not in down:
            yield NodeGone(node=host, what="it does not respond", where=where)


def _is_well(end: re.Match[str]) -> bool:
    """Return whether a job is said to have ended well."""
    said = "COMPLETED" in (end["row"], end["state"]) or end["how"] == "succeeded" or bool(end["lsf"])
    return said and end["code"] in {None, "0:0"}


def _ended(by: str, why: str, message: LogMessage) -> Iterator[Failure | TimeUp]:
    """Yield that a batch system ended the job, for one of the reasons that it has words for."""
    if why in _MEMORY or why.startswith("OUT_OF_ME"):
        yield Failure(kind="host_memory", what=f"{by}: the job's memory limit ({why})", where=message.where)
    elif why in _LIMITS or why in _OTHERS:
        follows = why in _LIMITS or why in _REQUESTED
        what = f"{by} ended the job: {why.lower().replace('_', ' ')}"
        yield Failure(kind="killed", what=what, where=message.where, follows=follows, is_general=True)
        if why in _LIMITS:
            yield TimeUp(where=message.where)
