"""Hosts of a hostfile (`name slots=8`), and those of them that DeepSpeed's launcher takes.

Source: microsoft/DeepSpeed:deepspeed/launcher/runner.py (`--include` and `--exclude` name hosts as `a@b:0,2`, joined by
`@`, with the slots behind a colon; `--num_nodes` takes the first hosts, `--num_gpus` the first slots of each).
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath

from ..errors import InputError
from ..units import counted
from .documents import read_document
from .launch import Launch, flags_of
from .nearby import nearby
from .shell.marks import reasons

HOST = re.compile(r"([^\s#]\S*)\s+slots\s*=\s*(\d{1,4})\s*(?:#.*)?")

Slots = dict[str, frozenset[int]]  # of each host


def hostfile_text(path: str, given: Mapping[str, str], folder: Path) -> str | None:
    """Return the text of a hostfile that was given, or that is beside the files; None where it is not here."""
    name = PurePath(path).name
    beside = nearby(folder, path)
    return given.get(name) or (None if beside is None else read_document(str(beside))[1])


def read_hosts(text: str) -> Slots:
    """Return the slots of each host of a hostfile; a host may be left out by a comment."""
    found = (HOST.fullmatch(line.strip()) for line in text.splitlines())
    return {match[1]: frozenset(range(int(match[2]))) for match in found if match}


def chosen_hosts(slots: Slots, flags: Mapping[str, object]) -> Slots | None:
    """Return the hosts and slots that the launcher's flags leave, None where they name what the file has not."""
    include, exclude = _named(flags.get("include"), slots), _named(flags.get("exclude"), slots)
    if include is None or exclude is None:
        return None
    left = {host: own - exclude.get(host, frozenset()) for host, own in slots.items()}
    found = include if "include" in flags else left
    found = {host: own for host, own in found.items() if own}
    for name in ("num_nodes", "num_gpus"):
        value = flags.get(name)
        if value is None or str(value) == "-1":
            continue
        if not str(value).isdecimal():
            return None
        if name == "num_nodes":
            found = dict(list(found.items())[: int(str(value))])
        else:
            found = {host: frozenset(sorted(own)[: int(str(value))]) for host, own in found.items()}
    return found


def _named(text: object, slots: Slots) -> Slots | None:
    """Return the hosts and slots that an option names, all slots where it names none; None for what is not there."""
    found: Slots = {}
    for part in str(text or "").split("@"):
        host, colon, places = part.strip().strip("\"'").partition(":")
        if not host:
            continue
        if host not in slots or (colon and not re.fullmatch(r"\d+(?:,\d+)*", places)):
            return None
        named = frozenset(map(int, places.split(","))) if colon else slots[host]
        if not named <= slots[host]:
            return None
        found[host] = named
    return found


def _not_there(flags: Mapping[str, object], slots: Slots) -> str:
    """Return in words the host, or host and slots, that an option names and a hostfile has not, else ""."""
    for name in ("include", "exclude"):
        for part in str(flags.get(name, "")).split("@"):
            if part.strip() and not reasons(part) and _named(part, slots) is None:
                return f"--{name} {part.strip()}: is none of the {counted(len(slots), 'host')} and their slots"
    return ""


def included(text: str) -> Slots | None:
    """Return the hosts and slots of an `--include` that says the slots of every host, None for another."""
    found: Slots = {}
    for part in text.split("@"):
        host, _, places = part.strip().strip("\"'").partition(":")
        if not host or not re.fullmatch(r"\d+(?:,\d+)*", places):
            return None
        found[host] = frozenset(map(int, places.split(",")))
    return found


def told_hosts(slots: Slots) -> str:
    """Return in words how many hosts and slots there are."""
    return f"{counted(len(slots), 'host')} of the hostfile with {len(slots_of(slots))} slots"


def slots_of(slots: Slots) -> list[tuple[str, int]]:
    """Return the host and slot of each rank."""
    return [(host, slot) for host, own in slots.items() for slot in sorted(own)]


def even_slots(slots: Slots) -> int | None:
    """Return the slots of every host, None where hosts have different numbers of them."""
    each = {len(own) for own in slots.values()}
    return each.pop() if len(each) == 1 else None


def _refuse_filters(flags: Mapping[str, object], where: str) -> None:
    """Raise InputError for two ways of choosing hosts, of which DeepSpeed's launcher takes one alone."""
    named = [name for name in ("include", "exclude") if flags.get(name)]
    numbers = [name for name in ("num_nodes", "num_gpus") if str(flags.get(name, "-1")) != "-1"]
    for one, other in itertools.pairwise([*named, *numbers] if named else []):
        if one in named:
            raise InputError(f"{where}: --{one} contradicts --{other}: the launcher takes one of them alone")


def on_hosts(launch: Launch, given: Mapping[str, str], folder: Path) -> Launch:
    """Return a launch of DeepSpeed's with the counts of its hostfile; unchanged where its hosts are not known.

    Raises InputError for options that the launcher does not take beside each other.
    """
    flags = flags_of(launch.options, dashes=False)
    if launch.launcher == "deepspeed":
        _refuse_filters(flags, launch.where)
    path = flags.get("hostfile", flags.get("H"))
    text = hostfile_text(path, given, folder) if isinstance(path, str) and launch.launcher == "deepspeed" else None
    named = flags.get("include") if launch.launcher == "deepspeed" else None
    slots = included(str(named or "")) if text is None else chosen_hosts(read_hosts(text), flags)
    if text is not None and slots is None and (why := _not_there(flags, read_hosts(text))):
        raise InputError(f"{launch.where}: {why} of {PurePath(str(path)).name}")
    if not slots:
        missing = isinstance(path, str) and text is None and "per_node" not in launch.counts
        if launch.launcher != "deepspeed" or not missing or reasons(str(path)):
            return launch
        return replace(launch, unknown=(*launch.unknown, f"the number of ranks (slots in {path}, which is not here)"))
    ranks, each = len(slots_of(slots)), even_slots(slots)
    told = told_hosts(slots) if text is not None else f"--include {named}"
    counts = {key: value for key, value in launch.counts.items() if key not in {"nodes", "per_node", "world"}}
    own = {"world": (ranks, told)} if each is None else {"nodes": (len(slots), told), "per_node": (each, told)}
    return replace(launch, counts={**counts, **own})
