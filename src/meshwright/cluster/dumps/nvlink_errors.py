"""Error counters of NVLinks, as `nvidia-smi nvlink -e` prints them: which link is damaged."""

import re
from collections.abc import Sequence

from ...units import counted

# "Link 5: Replay Errors: 84213"; since Blackwell of more kinds, which may end in "events"
COUNTER = re.compile(
    r"^\s*Link (\d{1,3})(?:,? Lane \d{1,2})?: ([A-Z][\w ]{1,50}?) (?:Errors|events) ?: ?(\d{1,20})\s*$"
)
# what a sound link shows too: bits that its own code mends, and recoveries that succeeded
_MENDED = re.compile(r"\bFEC\b|\bSymbol\b|\bsuccessful\b|\bTotal link recovery\b", re.I)
_SHOWN = 8  # links that a warning names


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
        if not damaged:
            return [f"the error counters of {whole} are 0"]
        shown = [f"GPU{gpu} link {link} ({_kinds(kinds)})" for (gpu, link), kinds in damaged.items()]
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        verb = "has" if len(shown) == 1 else "have"
        return [
            f"{len(shown)} of {whole} {verb} errors: {'; '.join(shown[:_SHOWN])}{more}: a damaged link repeats what it "
            "sends; counters add up since the driver was loaded: read them again under load (nvidia-smi nvlink -e)"
        ]


def _kinds(kinds: dict[str, int]) -> str:
    words: Sequence[str] = [f"{name} {count:,}" for name, count in kinds.items()]
    return ", ".join(words)
