"""Names of GPUs anywhere in a text: `nvidia-smi -L`, its table, environment reports; they settle open rates."""

import re
from collections.abc import Iterable

# "GPU 0: NVIDIA H100 80GB HBM3 (UUID: ...)", the UUID left out by environment reports
# also "GPU 0,1,2,3: NVIDIA GB200" and "GPU 0-7: ..." of reports that say it once for all
MAKERS = r"(?:NVIDIA|Tesla|GeForce|Quadro|AMD|GRID|TITAN)\b"
LISTING = re.compile(
    rf"^\s*(?:GPU models and configuration: +)?GPU (\d+(?:[,-] ?\d+)*)\s*: +({MAKERS}.*?)\s*(?:\(UUID: [^)]*\))?\s*$"
)
# "GPU0: NVIDIA GeForce RTX 4090, 24564 MiB, driver 590.44", as `nvidia-smi --query-gpu` is noted down; may be bold
NOTED = re.compile(rf"^\s*(?:[-*] )?\**GPU ?(\d{{1,3}})\**\s*[:=]\**\s*({MAKERS}[^,;(|]*?)\s*(?:[,;(].*)?$")
# what notes write before a GPU's name: "GPU: ", "- **GPUs:** ", "| GPU | "
KEY = r"^\s*(?:[-*+\u2022] )?\|?\s*\**(?:GPUs?|GPU (?:model|type|name)|Accelerators?)\**\s*[:|]\**\s*"
# "GPU: 8 * NVIDIA H100 80GB HBM3", or behind the name
COUNTED = re.compile(rf"{KEY}(\d{{1,3}})\s?[x*\u00d7]\s?({MAKERS}[^,;(|]*?)\s*(?:[,;(|].*)?$", re.I)
COUNTED_BEHIND = re.compile(rf"{KEY}({MAKERS}[^,;(|]*?)\s*[x*\u00d7]\s?(\d{{1,3}})\s*(?:[,;(|].*)?$", re.I)
# "GPU: NVIDIA H100 80GB HBM3": how many is not said
KEYED = re.compile(rf"{KEY}({MAKERS}[^,;(|]*?)\s*(?:[,;(|].*)?$", re.I)
LISTED = re.compile(r"^\s*GPU (\d+)\s*: (.*?)\s*\(UUID: [^)]*\)\s*$")
# "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |"
TABLE = re.compile(r"^\s*\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s+\|\s+[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:")
# "#  Rank  0 Group  0 Pid  4711 on node01 device  0 [0000:18:00] NVIDIA H100 80GB HBM3", above a table of nccl-tests
RANKED = re.compile(rf"^\s*#\s+Rank\s+\d+ .*\sdevice\s+(\d+) \[[^\]]*\] ({MAKERS}.*?)\s*$")
MIG = re.compile(r"^\s*MIG (\S+)\s+Device\s+(\d+):")
# the third line of a GPU in the table of nvidia-smi, whose last cell is the MIG mode
MIG_ON = re.compile(r"^\s*\|.*\|\s+Enabled\*?\s+\|\s*$")
# a GPU a line without its number: "NVIDIA H100 80GB HBM3, 81559 MiB" of `nvidia-smi --query-gpu=name,... --format=csv`
BARE = re.compile(rf"^\s*({MAKERS}[^,:|]*?)\s*(?:,.*)?$")
# and "18:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)" of lspci
ON_BUS = re.compile(
    r"^\s*(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] "
    r"(?:3D|VGA compatible|Display) controller(?: \[[0-9a-f]{4}\])?: "
    r"(.*?)(?: \[[0-9a-f]{4}:[0-9a-f]{4}\])?(?: \(rev.*)?$"
)
NAMING = (LISTED, LISTING, TABLE, NOTED, RANKED)


def gpu_names(lines: Iterable[str]) -> dict[int, str]:
    """Return the name of each GPU by its number, as far as the lines say it; a name that was cut ends in "..."."""
    found: dict[int, str] = {}
    for line in lines:
        if match := next(filter(None, (pattern.match(line) for pattern in NAMING)), None):
            for number in _numbers(match.group(1)):
                found.setdefault(number, match.group(2))
        elif counted := COUNTED.match(line):
            found = _of_all(counted.group(1), counted.group(2)) | found
        elif counted := COUNTED_BEHIND.match(line):
            found = _of_all(counted.group(2), counted.group(1)) | found
    return found


def _of_all(count: str, name: str) -> dict[int, str]:
    return dict.fromkeys(range(int(count)), name)


def unnumbered_names(lines: Iterable[str]) -> list[str]:
    """Return what may be names of GPUs, one a line and without numbers, in their order; catalogues know which are."""
    matches = (BARE.match(line) or ON_BUS.match(line) or _keyed(line) for line in lines)
    return [match.group(1) for match in matches if match]


def _keyed(line: str) -> re.Match[str] | None:
    return None if COUNTED_BEHIND.match(line) else KEYED.match(line)


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list such as "0,1,4-7"."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        low, _, high = part.partition("-")
        found += range(int(low), min(int(high or low), int(low) + 1024) + 1)
    return found


def is_listing(line: str) -> bool:
    """Return whether a line names a GPU and is no row of a matrix."""
    return any(pattern.match(line) for pattern in (LISTED, LISTING, TABLE, NOTED, MIG))


def mig_parts(lines: Iterable[str]) -> dict[int, list[str]]:
    """Return the MIG instances of each GPU that is split, as `nvidia-smi -L` lists them; its table names none."""
    parts: dict[int, list[str]] = {}
    last = None
    for line in lines:
        listed, part = LISTED.match(line) or TABLE.match(line), MIG.match(line)
        if listed:
            last = int(listed.group(1))
        elif part and last is not None:
            parts.setdefault(last, []).append(part.group(1))
        elif last is not None and MIG_ON.match(line):
            parts.setdefault(last, [])
    return parts


# "GPU[0] : Card series: AMD Instinct MI300X", of rocm-smi --showproductname
CARD = re.compile(r"^\s*GPU\s*\[(\d+)\]\s*:\s*Card series:\s*(\S.*?)\s*$", re.I)
# "GPU: 0", and some lines below it "MARKET_NAME: AMD Instinct MI300X", of amd-smi static
STATIC = re.compile(r"^\s*GPU: (\d{1,4})\s*$")
MARKET = re.compile(r"^\s+MARKET_NAME: +(\S.*?)\s*$")


def card_names(lines: Iterable[str]) -> dict[int, str]:
    """Return the series of each card by its number, where rocm-smi or amd-smi static says it in the same file."""
    found: dict[int, str] = {}
    number = None
    for line in lines:
        if match := CARD.match(line):
            found[int(match.group(1))] = match.group(2)
        elif match := STATIC.match(line):
            number = int(match.group(1))
        elif (match := MARKET.match(line)) and number is not None:
            found[number] = match.group(1)
    return found
