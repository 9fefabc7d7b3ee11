"""GPUs that fail the diagnostics of their vendor: `dcgmi diag`, as its versions print the tests of a host.

A test has no clock: the GPU may have failed before the job. So it `follows`, and counts where nothing blames another.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..text.lines import LogMessage
from .gpu_memory_errors import COUNTED
from .gpu_tables import host_of_smi

_TESTS = re.compile(  # of the hardware: others judge settings and programs
    r"^\| *(?P<test>Page Retirement/Row Remap|(?:GPU )?Memory(?: Bandwidth)?|Diagnostic|Targeted (?:Stress|Power)"
    r"|Pulse Test|PCIe|NVBandwidth|EUD Test)\s*\| *(?P<result>\S.*?) *\|$",
    re.IGNORECASE,
)
_MORE = re.compile(r"^\| +\| *(?P<result>\S.*?) *\|$")  # of the test above, one line a GPU
_FAILED = re.compile(r"\bFail(?:ed)? - GPUs?: ?(?P<gpus>\d{1,2}(?:, ?\d{1,2})*)|\bGPU ?(?P<gpu>\d{1,2}): Fail\b")
_HOST = re.compile(r"(?P<host>[A-Za-z][\w-]*\d[\w.-]*)")


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the GPUs of one file that fail a test which the others of their host pass."""
    tests: dict[tuple[str, int], list[str]] = defaultdict(list)
    lines: dict[tuple[str, int], LogMessage] = {}
    asked, test, is_host = "", "", False
    for message in messages:
        text = message.text
        if "dcgmi" in text:
            asked, test, is_host = host_of_smi(text), "", "hostname" in text
        elif is_host and (named := _HOST.fullmatch(text.strip())):
            asked, is_host = named["host"], False
        if not text.startswith("|"):
            continue
        row = _TESTS.match(text)
        test = row["test"] if row else test
        if not row and not (test and (row := _MORE.match(text))):
            test = ""
            continue
        for gpu in _gpus(row["result"]):
            key = message.host or asked or message.where.host, gpu
            tests[key] += [test] if test not in tests[key] else []
            lines.setdefault(key, message)
    for (host, gpu), failed in tests.items():
        on = f" of {host}" if host else ""
        what = f"GPU {gpu}{on}{COUNTED}failures in dcgmi diag: {', '.join(failed)}"
        yield Failure(kind="device", what=what, host=host, device=gpu, follows=True, where=lines[host, gpu].where)


def _gpus(result: str) -> list[int]:
    """Return the GPUs that failed by one cell of a table."""
    found = [one["gpus"] or one["gpu"] for one in _FAILED.finditer(result)]
    return [int(number) for numbers in found for number in re.findall(r"\d+", numbers)]
