"""Errors of a GPU's allocator that found no room: what it wanted, what was free, and who holds the rest."""

import re

from ..nouns.names import FRAGMENTED, HELD_BY_OTHERS

_SIZE = r"[\d.]{1,12} ?(?:[KMGT]i?B?|bytes|B)\b"
_WANTED = re.compile(
    rf"Tried to allocate (?:more than )?(?P<wanted>{_SIZE}).*?(?:of which|;) ?(?P<free>{_SIZE}) (?:is )?free"
    rf"|Attempting to (?:allocate|reserve) (?P<asked>{_SIZE}).*?There (?:are|is) (?P<left>{_SIZE}) free",
    re.DOTALL,
)
_OTHERS = re.compile(rf"\bProcess (?P<pid>\d{{1,8}}) has (?P<size>{_SIZE}) memory in use")
_OWN = "this process has"  # torch tells its own use from that of others
_UNALLOCATED = re.compile(rf"(?P<size>{_SIZE}) is reserved by PyTorch but unallocated")
_ALLOCATED = re.compile(rf"(?P<size>{_SIZE}) already allocated")
_RESERVED = re.compile(rf"(?P<size>{_SIZE}) reserved in total by PyTorch")  # before 2.1
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_OF_TPU = re.compile(r"\(\d+x\d+x\d+_HBM\d+\)")  # a chip's place in its torus
_MANY = 3  # processes that are told one by one


def told_of_memory(text: str) -> str:
    """Return what an error of a GPU's memory tells: sizes, other processes, and what torch holds without a tensor.

    Others, and what lies fragmented, are told where they outweigh what was lacking: without them there was room.
    """
    what = f"out of {'TPU' if _OF_TPU.search(text) else 'GPU'} memory"
    if not (found := _WANTED.search(text)):
        return what
    wanted, free = found["wanted"] or found["asked"], found["free"] or found["left"]
    what += f": {wanted} wanted, {free} free"
    lacking = _bytes(wanted) - _bytes(free)
    others = {int(one["pid"]): one["size"] for one in _OTHERS.finditer(text)} if _OWN in text else {}
    if others and sum(map(_bytes, others.values())) >= lacking:
        told = [f"process {pid} ({size})" for pid, size in sorted(others.items(), key=lambda one: -_bytes(one[1]))]
        more = f" and {len(told) - _MANY} more" if len(told) > _MANY else ""
        what += f"; {HELD_BY_OTHERS}{', '.join(told[:_MANY])}{more}"
    unallocated = _unallocated(text)
    if unallocated and _bytes(unallocated) >= lacking:
        what += f"; {unallocated} {FRAGMENTED}"
    return what


def _unallocated(text: str) -> str:
    """Return what torch has reserved and not given to a tensor, "" where the error does not tell."""
    if found := _UNALLOCATED.search(text):
        return found["size"]
    allocated, reserved = _ALLOCATED.search(text), _RESERVED.search(text)
    if not allocated or not reserved:
        return ""
    return f"{(_bytes(reserved['size']) - _bytes(allocated['size'])) / 2**30:.2f} GiB"


def _bytes(size: str) -> float:
    """Return the bytes of a size as torch and XLA print it, by powers of 1024."""
    number = size.rstrip("KMGTiBbytes ")
    unit = size[len(number) :].strip().lower()[:1]
    return float(number) * 2.0 ** _UNITS[unit] if number.count(".") <= 1 else 0.0
