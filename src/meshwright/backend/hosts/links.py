"""The links between hosts as a group sees them: measured once, remembered, and watched for a change."""

import contextlib
import hashlib
import math
import os
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil
import torch

from ...collectives.schedules.schedule import Schedule
from ...errors import InputError
from ...files import read_struct, write_struct
from ...native import cache_folder
from ...quantities import Instant, PositiveSeconds, SecondsPerByte
from ..wire.executor import Executor
from .choice import MessageCost
from .placement import GroupMember

ROUNDS = 7
SMALL_PROBES = 5  # in each round, and one large one
PROBE_BYTES = 256 * 1024
LOOK_EVERY = 16  # reductions between two looks at whether the price still holds
ENOUGH = 8  # with fewer notes between two looks nothing is decided
DRIFT = 2.0  # a ratio of measured to priced time this far from the usual one is no noise
KEPT_S = 12 * 3600.0
LINKS_VARIABLE = "MESHWRIGHT_LINKS"  # a folder of one job: its links for good, so that it always chooses alike


def measure(executor: Executor, schedule: Schedule) -> MessageCost:
    """Return what the executor's links cost, from small and larger exchanges of everybody with everybody.

    The quickest of several rounds counts: starting processes keep their machines busy, and a later measurement should
    find the same.
    """
    quickest_s = {4: math.inf, PROBE_BYTES: math.inf}
    for size_bytes in [*[4] * SMALL_PROBES, PROBE_BYTES] * ROUNDS:
        tensor = torch.zeros(size_bytes // 4)
        start = time.perf_counter()
        executor.all_reduce(tensor, schedule)
        quickest_s[size_bytes] = min(quickest_s[size_bytes], time.perf_counter() - start)
    alpha_s, large_s = quickest_s.values()
    return MessageCost(alpha_s, max(0.0, large_s - alpha_s) / (PROBE_BYTES * (executor.ranks - 1)))


class PriceWatch:
    """Says when reductions have left their price for good.

    Every rank notes measured over priced time; at each look the ranks agree on the largest medians. Once links were
    measured again and the choice is as good as before, the ratio is the price's own error (or a rank that always comes
    late), and only another change counts.
    """

    def __init__(self) -> None:
        self._ratios: list[float] = []
        self._usual = 1.0
        self._was_far = False
        self._calls = 0

    def is_due(self) -> bool:
        """Count a reduction; return whether the ranks are to look before it. The same on all ranks."""
        self._calls += 1
        return self._calls % LOOK_EVERY == 0

    def note(self, measured_s: float, priced_s: float) -> None:
        """Note what one reduction took."""
        if priced_s > 0:
            self._ratios.append(measured_s / priced_s)

    def taken(self) -> float:
        """Return the median ratio since the last look, 0 if there is too little to say; and start again."""
        ratio = statistics.median(self._ratios) if len(self._ratios) >= ENOUGH else 0.0
        self._ratios.clear()
        return ratio

    def has_left(self, ratio: float) -> bool:
        """Return whether the agreed ratio is far from the usual one at this look and at the last: noise passes."""
        is_far = ratio > 0 and not self._usual / DRIFT < ratio < self._usual * DRIFT
        was_far, self._was_far = self._was_far, is_far
        return is_far and was_far

    def measured_again(self, ratio: float, *, kept: bool) -> None:
        """Hear whether the price is kept though the ratio had left the usual one."""
        self._usual = ratio if kept else 1.0
        self._was_far = False


class _StoredLinks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One measurement in the cache."""

    alpha_s: PositiveSeconds
    beta_s_per_byte: SecondsPerByte
    unix_s: Instant


class LinkCache:
    """The file in which rank 0 of a group remembers its links.

    It serves every job on these hosts for some hours; its key changes with them and with their boot. In the folder that
    `MESHWRIGHT_LINKS` names it serves one job for good, whatever hosts it is started on: the key is which ranks share a
    host. So every start chooses the same algorithms and sums in the same order, until a look finds that the links have
    left their price.
    """

    def __init__(self, members: Sequence[GroupMember], columns: int, address: str) -> None:
        kept = os.environ.get(LINKS_VARIABLE)
        if kept:
            self._folder: Path | None = Path(kept)
            self._kept_s = math.inf
            parts = _together(members)
        else:
            cache = cache_folder()
            self._folder = cache / "links" if cache else None  # without one, every group measures
            self._kept_s = KEPT_S
            parts = [_hardware_address(address), *sorted(member.identity for member in members)]
        self._name = hashlib.sha256("\n".join([str(columns), *parts]).encode()).hexdigest()[:32]

    def get(self) -> MessageCost | None:
        """Return the remembered links, or None where there are none of the last hours."""
        path = self._path()
        if path is None:
            return None
        with contextlib.suppress(InputError, OSError):
            stored = read_struct(path, _StoredLinks)
            if 0 <= time.time() - stored.unix_s < self._kept_s:
                return MessageCost(stored.alpha_s, stored.beta_s_per_byte)
        return None

    def put(self, links: MessageCost) -> None:
        """Remember links; a folder that cannot be written costs only the next group's measurement."""
        stored = _StoredLinks(alpha_s=links.alpha_s, beta_s_per_byte=links.beta_s_per_byte, unix_s=time.time())
        path = self._path()
        if path is not None:
            with contextlib.suppress(OSError):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                write_struct(path, stored)

    def _path(self) -> Path | None:
        return self._folder / f"{self._name}.json" if self._folder else None


def _together(members: Sequence[GroupMember]) -> list[str]:
    """Return the ranks of each host, a text each."""
    hosts: dict[str, list[int]] = {}
    for member in members:
        hosts.setdefault(member.identity, []).append(member.world_rank)
    return sorted(str(sorted(ranks)) for ranks in hosts.values())


def _hardware_address(address: str) -> str:
    """Return the hardware address of the interface with this address; a virtual link made again has a new one."""
    for found in psutil.net_if_addrs().values():
        if any(item.address == address for item in found):
            return next((str(item.address) for item in found if item.family == socket.AF_PACKET), "")
    return ""
