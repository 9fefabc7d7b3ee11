"""Error counters of NVLinks, as `nvidia-smi nvlink -e` prints them: which link is damaged."""

import re
from collections.abc import Mapping, Sequence

from ...units import counted, first_few

# "Link 5: Replay Errors: 84213"; since Blackwell of more kinds, which may end in "events"
COUNTER = re.compile(
    r"^\s*Link (\d{1,3})(?:,? Lane \d{1,2})?: ([A-Z][\w ]{1,50}?) (?:Errors|events) ?: ?(\d{1,20})\s*$"
)
# what a sound link shows too: bits that its own code mends, and recoveries that succeeded
_MENDED = re.compile(r"\bFEC\b|\bSymbol\b|\bsuccessful\b|\bTotal link recovery\b", re.I)
_SHOWN = 8  # links that a warning names
_CHECKSUMS = re.compile(r"\bCRC\b")
_STRAY = 10  # checksums that failed since the driver was loaded, and nothing was repeated: chance, and no damage


class NvlinkErrors:
    """Counters by GPU and link, as the lines of a text come."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], dict[str, int]] = {}

    def take(self, gpu: int | None, line: str) -> None:
        """Take a line of the GPU that was named last."""
        match = COUNTER.match(line)
        if match is None or gpu is None:
            return
        of_link = self._found.setdefault((gpu, int(match[1])), {})
        if not _MENDED.search(match[2]):
            of_link[match[2]] = of_link.get(match[2], 0) + int(match[3])

    def notes(self) -> list[str]:
        """Return the links with errors, or that none has any; [] where nothing was counted."""
        damaged = {link: {k: n for k, n in kinds.items() if n} for link, kinds in self._found.items()}
        damaged = {link: kinds for link, kinds in damaged.items() if kinds}
        whole = counted(len(self._found), "NVLink")
        if not self._found:
            return []
        stray = {link: kinds for link, kinds in damaged.items() if _is_stray(kinds)}
        damaged = {link: kinds for link, kinds in damaged.items() if link not in stray}
        if not damaged and not stray:
            return [f"the error counters of {whole} are 0"]
        notes = []
        if damaged:
            verb = "has" if len(damaged) == 1 else "have"
            notes.append(
                f"{len(damaged)} of {whole} {verb} errors: {_listed(damaged)}: a damaged link repeats what it sends; "
                "counters add up since the driver was loaded: read them again under load (nvidia-smi nvlink -e)"
            )
        if stray:
            notes.append(f"single checksum errors without a repeat are chance, and no fault yet: {_listed(stray)}")
        return notes


def _is_stray(kinds: Mapping[str, int]) -> bool:
    """Return whether the errors of a link are a few checksums alone, with nothing sent again or recovered."""
    return all(_CHECKSUMS.search(name) for name in kinds) and sum(kinds.values()) <= _STRAY


def _listed(links: Mapping[tuple[int, int], Mapping[str, int]]) -> str:
    """Return links with their counters in words, those with the most errors first."""
    worst = sorted(links.items(), key=lambda item: -sum(item[1].values()))
    shown = [f"GPU{gpu} link {link} ({_kinds(kinds)})" for (gpu, link), kinds in worst]
    return first_few(shown, _SHOWN, "; ")


def _kinds(kinds: Mapping[str, int]) -> str:
    words: Sequence[str] = [f"{name} {count:,}" for name, count in kinds.items()]
    return ", ".join(words)
