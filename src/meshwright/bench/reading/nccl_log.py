"""NCCL's own log between the tables of a file: the way that bytes take (NICs, sockets, GPUDirect, shared memory)."""

import re

import msgspec

from ...quantities import Count

_VIA = re.compile(r"\bvia (?P<way>NET/\w+(?: \w+)?|SHM|P2P)/\S*")
_USING = re.compile(r"NET/IB : Using((?: +\[\d+\][^\s\[]+)+)")
_FOUND = re.compile(r"NET/OFI .*\(found (\d{1,3}) nics\)")
_HCA = re.compile(r"\bNCCL_IB_HCA set (?:by environment )?to (?P<names>\S{1,200})")
_SOCKETS = re.compile(r"\bUsing network Socket\b")
_NO_IB = re.compile(r"\bNCCL_IB_DISABLE set (?:by environment )?to 1\b")
_NO_RDMA = re.compile(r"\bNET/IB ?: No device found")
_NO_PLUGIN = re.compile(r"\bNET/Plugin ?: (?:Could not find|No plugin found)")
_SHARP = re.compile(r"\bLoaded collnet plugin|\bSHARP rank \d+/\d+ initialized|\bUsing network SHARP\b")
_NIC = re.compile(r"\[\d+\](\w+):")

_FAILED = re.compile(
    r"Test (?:NCCL |CUDA |MPI )?failure .*|\b(?:un)?handled (?:cuda|system) error\b.*|Segmentation fault.*|"
    r"\*\*\* Process received signal.*|\bexited on signal \d+.*|Cancelled at .*|oom-kill event.*"
)


NO_PLUGIN = (
    ", and no plugin for other networks was found (libnccl-net.so in LD_LIBRARY_PATH: aws-ofi-nccl for EFA, Google's "
    "for GPUDirect-TCPX, TCPXO and gIB)"
)


class LoggedPath(msgspec.Struct, frozen=True, kw_only=True):
    """The path that a log shows; what it does not show is None or false."""

    nics: Count | None = None  # that a process opened
    sockets: bool = False  # all of the network through sockets
    no_device: bool = False  # NCCL looked for RDMA devices and found none
    no_plugin: bool = False  # nor a plugin for networks that it does not know itself
    is_listed: bool = True  # by channels; else by the network that NCCL chose, which a run inside a host never uses
    ib_disabled: bool = False  # by NCCL_IB_DISABLE
    hca: str = ""  # the devices that NCCL_IB_HCA names
    no_gpudirect: bool = False  # RDMA, but never from a GPU's memory
    sharp: bool = False  # the plugin that lets switches add up was loaded
    shared_memory: bool = False  # GPUs of a host never through peer access

    @property
    def words(self) -> str:
        """Name what slows the bytes down, "" where nothing does."""
        named = f" by the name that NCCL_IB_HCA sets ({self.hca}; ibv_devices lists the devices)"
        missing = f": NET/IB found no device{named if self.hca else ' (ibv_devices)'}" if self.no_device else ""
        missing += NO_PLUGIN if self.no_device and self.no_plugin else ""
        missing = ": NCCL_IB_DISABLE=1 is set" if self.ib_disabled else missing
        found = {
            f"sockets in place of RDMA (NET/Socket){missing}": self.sockets,
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
    hca = ""
    for line in text.splitlines():
        if named := _HCA.search(line):
            hca = named["names"].rstrip(".")
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
        sockets=network == {"NET/Socket"} or (not network and _SOCKETS.search(text) is not None),
        is_listed=bool(network),
        ib_disabled=_NO_IB.search(text) is not None,
        no_device=_NO_RDMA.search(text) is not None,
        no_plugin=_NO_PLUGIN.search(text) is not None,
        hca=hca,
        no_gpudirect=network == {"NET/IB"},
        sharp=_SHARP.search(text) is not None,
        shared_memory="SHM" in ways and "P2P" not in ways,
    )
