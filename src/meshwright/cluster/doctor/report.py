"""A machine's facts in a file that may be sent to strangers: no names of hosts, users, folders or addresses."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from ...machine_load import others_share
from .facts import NodeFacts

SCHEMA = "meshwright.machine/1"
# whose values say how something is set up; of all others that are no number only the name is told
TOLD = re.compile(r"NCCL_(?:ALGO|PROTO|DEBUG|DEBUG_SUBSYS|P2P_LEVEL|NET_GDR_LEVEL|NVLS_ENABLE)|OMP_PROC_BIND")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NAMES = re.compile(r"ADDR|HOST|NAME|USER|FILE|DIR|PATH|HOME|HCA|_ID$")  # what is told by these may be a number too
# what the builds of torch and its kin are called after their version; anything else may be who built it
BUILD = re.compile(r"cpu|xpu|(?:nv|cu|rocm)?\d+|(?:git)?[0-9a-f]{7,40}")  # each part between dots


def machine_report(facts: NodeFacts, accelerators: Iterable[dict[str, Any]], findings: Iterable[Any]) -> dict[str, Any]:
    """Return a node's facts without names and addresses; `accelerators` and findings by check are put beside them."""
    return {
        "schema": SCHEMA,
        "versions": {name: _version(version) for name, version in facts.versions.items()},
        "cores": len(facts.cores),
        "quota_cores": facts.quota_cores,
        "numa_nodes": {str(node): len(cores) for node, cores in facts.numa.items()},
        "governors": facts.governors,
        "shm_bytes": facts.shm_bytes,
        "memlock_bytes": facts.memlock_bytes,
        "infiniband": len(facts.infiniband),
        "interfaces": [
            {"kind": _kind(interface.name), "up": interface.up, "mtu": interface.mtu} for interface in facts.interfaces
        ],
        "environment": {name: _setting(name, value) for name, value in sorted(facts.environment.items())},
        "other_programs_share": round(others_share([facts.load]), 3) if facts.load else None,
        "accelerators": list(accelerators),
        "checks_failed": sorted({finding.check for finding in findings}),
    }


def _kind(name: str) -> str:
    """Return what an interface is called but for its number: "eth", "ib", "other" where people choose the names."""
    stem = re.match(r"lo|eth|en|ib|wl|docker|veth|br", name)
    return stem.group() if stem else "other"


def _setting(name: str, value: str) -> str:
    return value if TOLD.fullmatch(name) or (NUMBER.fullmatch(value) and not NAMES.search(name)) else "(set)"


def _version(version: str) -> str:
    public, plus, build = version.partition("+")
    return version if all(map(BUILD.fullmatch, filter(None, build.split(".")))) else f"{public}{plus}local"


def encoded(report: dict[str, Any]) -> bytes:
    """Return the file of a report."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
