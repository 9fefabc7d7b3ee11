"""Random loss without netem: a four-instruction packet filter at a switch port, asked for over plain netlink.

pyroute2 can attach a filter only by the handle of a loaded eBPF program, which needs rights that a user namespace does
not give; a classic program inside the request needs none. What is dropped are packets as the kernel forwards them: with
segmentation offload one of them can be 64 KiB of a TCP stream.
"""

import os
import socket
import struct

_RTM_NEWTFILTER = 44
_NLMSG_ERROR = 2
_REQUEST_ACK, _CREATE = 0x1 | 0x4, 0x400 | 0x100  # CREATE | REPLACE
_DIRECTIONS = (0xFFFF_FFF2, 0xFFFF_FFF3)  # clsact's ingress and egress hooks
_INFO = 1 << 16 | socket.htons(0x0003)  # priority 1, all protocols
_KIND, _OPTIONS = 1, 2
_OPS_LEN, _OPS, _NAME, _FLAGS = 4, 5, 7, 8
_DIRECT_ACTION = 1

_LOAD_RANDOM = (0x20, 0, 0, 0xFFFF_F000 + 56)  # ld rand
_PASS, _DROP = (0x06, 0, 0, 0), (0x06, 0, 0, 2)  # ret TC_ACT_OK, ret TC_ACT_SHOT


def drop_filter(share: float) -> bytes:
    """Return the filter that drops a packet with probability `share`."""
    keep_from = (0x35, 0, 1, round(share * (2**32 - 1)))  # jge: next instruction, else the one after
    return b"".join(struct.pack("=HBBI", *step) for step in (_LOAD_RANDOM, keep_from, _PASS, _DROP))


def attach(interface_index: int, share: float) -> None:
    """Lose this share of an interface's packets, each way; it must have a clsact queue. OSError if refused."""
    code = drop_filter(share)
    options = _attribute(_OPS_LEN, struct.pack("=H", len(code) // 8)) + _attribute(_OPS, code)
    options += _attribute(_NAME, b"lose\0") + _attribute(_FLAGS, struct.pack("=I", _DIRECT_ACTION))
    for direction in _DIRECTIONS:
        _request(_RTM_NEWTFILTER, _CREATE, interface_index, direction, _attribute(_OPTIONS, options))


def _request(kind: int, flags: int, interface_index: int, direction: int, attributes: bytes) -> None:
    body = struct.pack("=BxxxiIII", socket.AF_UNSPEC, interface_index, 1, direction, _INFO)
    body += _attribute(_KIND, b"bpf\0") + attributes
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
        route.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST_ACK | flags, 1, 0) + body)
        answer = route.recv(2**16)
    _, answered, _, _, _, code = struct.unpack_from("=IHHIIi", answer)
    if answered != _NLMSG_ERROR or code != 0:
        raise OSError(-code, f"packet filter: {os.strerror(-code)}")


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
