"""NCCL settings on a command line (NCCL_P2P_DISABLE=1 ...): they explain a rate, and limit the NICs."""

import re
from collections.abc import Sequence

_SETTING = re.compile(r"\b(?P<name>(?:NCCL|RCCL)_[A-Z0-9_]+)=(?P<value>[^\s\\\"']+)")
# what a value other than the default does to the path of the bytes
_MEANS = {
    ("NCCL_P2P_DISABLE", "1"): "no peer access between GPUs",
    ("NCCL_SHM_DISABLE", "1"): "no shared memory inside a node",
    ("NCCL_IB_DISABLE", "1"): "sockets in place of InfiniBand or RoCE",
    ("NCCL_NVLS_ENABLE", "0"): "no sum in the switch",
    ("NCCL_NET_GDR_LEVEL", "0"): "no GPUDirect RDMA",
    ("NCCL_NET_GDR_LEVEL", "LOC"): "no GPUDirect RDMA",
    ("NCCL_NET", "Socket"): "sockets in place of InfiniBand or RoCE",
    ("NCCL_P2P_LEVEL", "LOC"): "no peer access between GPUs",
    ("NCCL_MNNVL_ENABLE", "0"): "no NVLink between hosts",
}
_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_P2P_LEVEL", "NCCL_BUFFSIZE")


def settings_in(line: str) -> dict[str, str]:
    """Return the settings of NCCL that a command line or an export makes."""
    return {found["name"]: found["value"] for found in _SETTING.finditer(line)}


def explained(settings: Sequence[tuple[str, str]]) -> str:
    """Return the settings that change which way the bytes go, in words; "" where there is none."""
    told = [f"{name}={value} ({_MEANS[name, value]})" for name, value in settings if (name, value) in _MEANS]
    told += [f"{name}={value}" for name, value in settings if name in _FORCED and (name, value) not in _MEANS]
    return f"the command sets {', '.join(told)}" if told else ""


def leaves_the_rack(settings: Sequence[tuple[str, str]]) -> bool:
    """Return whether hosts of one NVLink domain are told to reach each other through NICs."""
    return ("NCCL_MNNVL_ENABLE", "0") in settings


def keeps_off_nics(settings: Sequence[tuple[str, str]]) -> bool:
    """Return whether NCCL is told to send through sockets in place of InfiniBand, RoCE or EFA."""
    return not {("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")}.isdisjoint(settings)


def nics_named(settings: Sequence[tuple[str, str]]) -> int | None:
    """Return how many NICs NCCL_IB_HCA names one by one; None where it names none, all of a kind, or those to avoid."""
    value = dict(settings).get("NCCL_IB_HCA", "").lstrip("=")
    names = [name.split(":")[0] for name in value.split(",") if name]
    if not names or value.startswith("^") or not all(re.search(r"[_p]\d+\w*$", name) for name in names):
        return None
    return len(set(names))
