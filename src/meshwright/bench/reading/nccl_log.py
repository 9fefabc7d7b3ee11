"""NCCL's own log between the tables of a file: the way that bytes take (NICs, sockets, GPUDirect, shared memory)."""

import re

import msgspec

from ...quantities import Count

_VIA = re.compile(r"\bvia (?P<way>NET/\w+(?: \w+)?|SHM|P2P)/\S*")
_USING = re.compile(r"NET/IB : Using((?: +\[\d+\][^\s\[]+)+)")
_FOUND = re.compile(r"NET/OFI .*\(found (\d{1,3}) nics\)")
_NIC = re.compile(r"\[\d+\](\w+):")

_FAILED = re.compile(
    r"Test (?:NCCL |CUDA |MPI )?failure .*|\b(?:un)?handled (?:cuda|system) error\b.*|Segmentation fault.*|"
    r"\*\*\* Process received signal.*|\bexited on signal \d+.*|Cancelled at .*|oom-kill event.*"
)


class LoggedPath(msgspec.Struct, frozen=True, kw_only=True):
    """The path that a log shows; what it does not show is None or false."""

    nics: Count | None = None  # that a process opened
    sockets: bool = False  # all of the network through sockets
    no_gpudirect: bool = False  # RDMA, but never from a GPU's memory
    shared_memory: bool = False  # GPUs of a host never through peer access

    @property
    def words(self) -> str:
        """Name what slows the bytes down, "" where nothing does."""
        found = {
            "sockets in place of RDMA (NET/Socket)": self.sockets,
            "no GPUDirect RDMA (NET/IB without GDRDMA)": self.no_gpudirect,
            "no peer access between GPUs of a host (SHM)": self.shared_memory,
        }
        return ", ".join(word for word, said in found.items() if said)


def failed_run(text: str) -> str:
    """Return the first words that say that a run of nccl-tests failed, "" where none do."""
    return failure_in(text) if "nThread" in text or "nccl-tests" in text else ""


def failure_in(words: str) -> str:
    """Return the first words that say that a program failed, "" where none do."""
    found = _FAILED.search(words)
    return found[0].strip()[:120] if found else ""


def logged_path(text: str) -> LoggedPath:
    """Return what the lines of NCCL's log in a text show."""
    if "NCCL INFO" not in text:
        return LoggedPath()
    nics: set[int] = set()
    ways: set[str] = set()
    for line in text.splitlines():
        if "NET/" not in line and " via " not in line:
            continue
        if using := _USING.search(line):
            nics.add(len(set(_NIC.findall(using[1]))))
        elif found := _FOUND.search(line):
            nics.add(int(found[1]))
        elif via := _VIA.search(line):
            ways.add("GDRDMA" if "GDRDMA" in line else via["way"])
    network = {way for way in ways if way.startswith("NET/") or way == "GDRDMA"}
    return LoggedPath(
        nics=nics.pop() if len(nics) == 1 else None,
        sockets=network == {"NET/Socket"},
        no_gpudirect=network == {"NET/IB"},
        shared_memory="SHM" in ways and "P2P" not in ways,
    )
