"""Lines as the tool wrote them: without what launchers, schedulers and log collectors put before or between.

Known: times (kubectl logs --timestamps, ts, journals, glog, containerd), mpirun --tag-output and -prepend-rank, srun
--label, kubectl --prefix, torchrun, SkyPilot and Ray, docker compose, pdsh; NCCL's own log lines, alone or in the
middle of a row. A command that goes on over several lines is one line.
"""

import re
from itertools import groupby

_TAGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?:\]|\s)",  # a timestamp
        r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(?=[\[<])",  # mpirun --timestamp-output
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d\s(?:\S+ [\w./-]+\[\d+\]:\s)?",  # ts; syslog, journalctl
        r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+:\d+\]\s",  # glog
        r"\d\d:\d\d:\d\d(?:[.,]\d+)?\s",  # a time
        r"std(?:out|err) [FP]\s",  # the files of containerd and CRI-O, behind a timestamp
        r"\[(?:prterun-[^\s@\]]+@)?\d+,\d+\](?:<\w+>)?:?",  # mpirun --tag-output, of Open MPI 5 too
        r"\[(?:default|rank)?\d+\]:?",  # torchrun, mpiexec -prepend-rank
        r"\[(?:pod/)?[\w.-]+(?:/[\w.-]+)+\]\s",  # kubectl logs --prefix
        r"\[[A-Za-z][\w.-]*:\d+\]:",  # a host and its rank
        r"\([^()]*\b(?:rank|pid|ip)=[^()]*\)",  # SkyPilot, Ray
        r"\d+:\s",  # srun --label
        r"[A-Za-z][\w.-]*\s*\|\s",  # docker compose
        r"(?!(?:alg|bus)bw:)[A-Za-z][\w.-]*:\s(?=\s*(?:#|\d|\|))",  # pdsh
    )
)
_HOST = re.compile(r"([A-Za-z][\w.-]*): |\[((?:pod/)?[\w.-]+(?:/[\w.-]+)+)\] ")
_FIGURES = re.compile(r" *(?:\[ *\w+\] *)?\d[\d.]*(?:\s+|-)\d[\d.]*\s")  # perhaps behind the number of a stream
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# the number of the device is gone where the launcher's tag of the rank looks like it
_NCCL = re.compile(r"[A-Za-z][\w.-]{0,253}:\d+:\d+ +(?:\[[\d-]+\] )?(?:\S+ )?NCCL (?:INFO|WARN|TRACE|ABORT).*$")


def without_prefix(line: str) -> str:
    """Return a line without launchers' tags, also where one is glued into its middle."""
    line = _ANSI.sub("", line.rstrip("\r\n"))
    rest = line.lstrip()
    tags = []
    while True:
        found = next((match for tag in _TAGS if (match := tag.match(rest))), None)
        if found is None:
            break
        tags.append(found.group().strip())
        rest = rest[found.end() :].lstrip()
    for tag in tags:
        if tag.startswith("["):
            rest = rest.replace(tag, " ")
    return rest if tags else line


def texts_by_host(text: str) -> dict[str, str]:
    """Return the text of each host where pdsh or kubectl wrote lines of several into one another, {} elsewhere.

    Several hosts print rows of figures, and their lines take turns. A text has every line of the whole, those of other
    hosts blank, so that numbers of lines stay.
    """
    lines = text.splitlines()
    matches = [_HOST.match(line) for line in lines]
    tags = [match[1] or match[2] if match else "" for match in matches]
    starts = [match.end() if match else 0 for match in matches]
    rows = {tag for tag, line, at in zip(tags, lines, starts, strict=True) if _FIGURES.match(line, at)}
    turns = [tag for tag, _ in groupby(tag for tag in tags if tag in rows)]
    if len(rows) < 2 or "" in rows or len(turns) == len(rows):
        return {}
    return {
        host: "\n".join(line if tag in {host, ""} else "" for tag, line in zip(tags, lines, strict=True))
        for host in dict.fromkeys(turns)
    }


def clean_lines(text: str) -> list[tuple[int, str]]:
    """Return the numbered lines; those of NCCL's log are gone, and a row that one of them cut in two is whole again."""
    result: list[tuple[int, str]] = []
    cut = False  # the line before lost its end to a log line
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
        kept = without_prefix(line)
        without = _NCCL.sub("", kept)
        has_log = without != kept
        if has_log and not without.strip():
            continue
        if result and result[-1][1].rstrip().endswith("\\"):
            at, head = result[-1]
            result[-1] = (at, f"{head.rstrip()[:-1]} {without.strip()}")
        elif cut and re.fullmatch(r"[\s\d.e+N/A-]+", without) and without.strip():
            at, head = result[-1]
            result[-1] = (at, f"{head} {without}")
        else:
            result.append((number, without))
        cut = has_log
    return result
