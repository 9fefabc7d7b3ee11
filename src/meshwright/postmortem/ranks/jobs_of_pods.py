"""Jobs of pods by their names: Kubernetes' events of a namespace tell of other jobs' pods and workloads, too."""

import re
from pathlib import PurePath

from ..nouns.facts import Fact, Failure, of
from ..nouns.identities import Placed, Spoke

_ROLE = re.compile(
    r"(?:master|worker|launcher|leader|chief|head|node|replica|learner|trainer|ps|group|slice)s?|\d+"
    r"|[bcdfghjklmnpqrstvwxz2456789]{5}"  # Kubernetes' random endings: no vowels
)
_IS_ROLE = re.compile(r"-(?:master|worker|launcher|leader|chief|replica|learner|trainer)s?-\d+\b")
_OBJECT = re.compile(r"\b(?P<kind>workload|\w{0,16}job|jobset)s?/(?P<name>[a-z0-9][\w.-]*)", re.IGNORECASE)
_WORKLOAD = re.compile(r"^(?:\w{0,16}job|jobset|pod)-(?P<owner>.+)-[0-9a-f]{2,5}$")  # Kueue names it after its owner


def job_of_pod(pod: str) -> str:
    """Return a pod's name without its numbers, role and random endings: `sft` of `sft-worker-1`; "" for none."""
    parts = pod.split("-")
    while parts and _ROLE.fullmatch(parts[-1]):
        parts.pop()
    return "-".join(parts)


def is_of_other_job(fault: Failure, facts: list[Fact]) -> bool:
    """Whether an event tells of a pod or workload whose job is none of those whose pods' logs are here.

    The name of a log is that of a pod where it has a pod's role and number, or another line names such a pod.
    """
    told = _job_of_event(fault)
    if not told:
        return False
    named = {placed.pod for placed in of(facts, Placed)} | {one.pod for one in of(facts, Failure) if one.pod}
    logs = {PurePath(fact.where.file).stem for fact in of(facts, Spoke)}
    jobs = {job_of_pod(log) for log in logs if log in named or _IS_ROLE.search(log)} - {""}
    return bool(jobs) and not any(_may_be_one(told, job) for job in jobs)


def _may_be_one(told: str, job: str) -> bool:
    """Whether two names may be of one job, whose groups of pods may have names of their own behind its own."""
    return told == job or told.startswith(f"{job}-") or job.startswith(f"{told}-")


def _job_of_event(fault: Failure) -> str:
    """Return the name of the job that an event is about, "" where it is about none."""
    if fault.pod:
        return job_of_pod(fault.pod)
    named = _OBJECT.search(fault.where.text)
    if named is None:
        return ""
    owner = _WORKLOAD.match(named["name"]) if named["kind"].lower() == "workload" else None
    return owner["owner"] if owner else named["name"]
