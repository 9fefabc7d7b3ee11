"""`doctor --logs` on flight records beside torch's own `fr_trace`: the stored sets, random jobs, a pickle with code.

Both are given the same folders of records, fr_trace with the prefix that the files share; it is run as it is, and again
with `--allow-incomplete-ranks` where it ends with an error, and the second counts then. Its answer is read from what it
prints: "missing ranks" (absent), "Culprit rank" with the kind of the mismatch (desync, sizes), or nothing. An answer is
right that names the kind and the rank of `answers.json`, or of the plant; where nobody is to blame, one that names
nobody. Blamed: a rank that is not at fault.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.result import Result
from meshwright.errors import InputError
from meshwright.postmortem.inputs import examine_files
from testkit.hanging_jobs import planted

CASES = Path(__file__).parents[1] / "tests" / "unit" / "postmortem" / "cases"
RECORDS = CASES / "records"
SEEDS = 120
FR_TRACE = """
import contextlib, io, json, logging, sys
from torch.distributed.flight_recorder import fr_trace
found = []
for folder, prefix in json.load(sys.stdin):
    answers = []
    for more in ([], ["--allow-incomplete-ranks"]):
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        for known in logging.root.manager.loggerDict.values():
            if isinstance(known, logging.Logger):
                known.addHandler(handler)
        error = ""
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                fr_trace.main([folder, *(["-p", prefix] if prefix else []), *more])
        except (Exception, SystemExit) as problem:
            error = type(problem).__name__
        answers.append({"said": said.getvalue(), "error": error})
        for known in logging.root.manager.loggerDict.values():
            if isinstance(known, logging.Logger):
                known.removeHandler(handler)
        if not error:
            break
    found.append(answers)
print("\\n" + json.dumps(found))
"""
MISMATCHES = {"COLLECTIVE_TYPE_MISMATCH": "desync", "SIZE_OR_SYNTAX_MISMATCH": "sizes", "DTYPE": "sizes"}


class Answer(msgspec.Struct, frozen=True):
    """What a tool says of a set: a kind and the ranks that it names, or the error that it ended with."""

    kind: str = ""
    ranks: tuple[int, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        who = f" {', '.join(map(str, self.ranks))}" if self.ranks else ""
        return self.error or f"{self.kind or 'nothing'}{who}"


def run(arguments: list[str]) -> Result:
    """Judge every set with both; return a row for each, and one for the random jobs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hangs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="random jobs with a planted fault")
    options = parser.parse_args(arguments)
    wanted = json.loads((CASES / "answers.json").read_text())
    stored = {path.name: path for path in sorted(RECORDS.iterdir())}
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        for seed in range(options.seeds):
            jobs[seed] = planted(seed)
            place = Path(folder) / str(seed)
            place.mkdir()
            for name, data in jobs[seed].files.items():
                (place / name).write_bytes(data)
        places = [*stored.values(), *(Path(folder) / str(seed) for seed in jobs)]
        theirs = _fr_trace(places)
        rows = []
        for path, answer in zip(stored.values(), theirs, strict=False):
            right = wanted[f"records/{path.name}"]
            truth = Answer(right["kind"], () if right["rank"] is None else (right["rank"],))
            rows.append(_row(path.name, truth, _ours(path), answer))
        plants = [Answer(job.fault, () if job.culprit is None else (job.culprit,)) for job in jobs.values()]
        ours = [_ours(Path(folder) / str(seed)) for seed in jobs]
        rows.append(_sums(f"{len(plants)} random jobs", plants, ours, theirs[len(stored) :]))
        rows.append(_hostile(Path(folder)))
    return Result("hangs by flight records", rows, ["right by kind and rank; blamed: an innocent rank is named"])


def _row(name: str, truth: Answer, ours: Answer, theirs: Answer) -> dict[str, Any]:
    return {
        "set": name,
        "answer": str(truth),
        "ours": str(ours),
        "ours right": is_right(ours, truth),
        "fr_trace": str(theirs),
        "fr_trace right": is_right(theirs, truth),
    }


def is_right(answer: Answer, truth: Answer) -> bool:
    """Whether an answer names the fault and who is at fault; nobody where nobody is."""
    if answer.error or answer.ranks != truth.ranks:
        return False
    return answer.kind == truth.kind or (truth.kind == "none" and not answer.ranks and not answer.kind)


def _sums(name: str, truths: Sequence[Answer], ours: Sequence[Answer], theirs: Sequence[Answer]) -> dict[str, Any]:
    def told(answers: Sequence[Answer]) -> str:
        counts: Counter[str] = Counter()
        for answer, truth in zip(answers, truths, strict=True):
            innocent = set(answer.ranks) - set(truth.ranks)
            right = is_right(answer, truth)
            counts["right" if right else "innocent blamed" if innocent else "error" if answer.error else "unknown"] += 1
        return ", ".join(
            f"{counts[key]} {key}" for key in ("right", "innocent blamed", "unknown", "error") if counts[key]
        )

    return {"set": name, "answer": "the plant", "ours": told(ours), "fr_trace": told(theirs)}


def _ours(path: Path) -> Answer:
    try:
        verdict = examine_files([path])
    except InputError:
        return Answer(error="refused")
    return Answer("" if verdict.kind == "none" else verdict.kind, verdict.blamed)


def _fr_trace(places: Sequence[Path]) -> list[Answer]:
    """Return what torch's fr_trace says of each folder, all read in one process."""
    asked = [(str(place), _prefix(place)) for place in places]
    done = subprocess.run(
        [sys.executable, "-c", FR_TRACE],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=1800,
    )
    return [_told(answers) for answers in json.loads(done.stdout.splitlines()[-1])]


def _prefix(place: Path) -> str:
    """Return what fr_trace is to strip from the names of the files, "" where it finds that itself."""
    return "nccl_trace_rank_" if any(place.glob("*.json")) and any(place.glob("nccl_trace_rank_*")) else ""


def _told(answers: Sequence[dict[str, str]]) -> Answer:
    last = answers[-1]  # it is asked again only after an error
    return Answer(error=f"ends with {last['error']}") if last["error"] else _answer(last["said"])


def _answer(said: str) -> Answer:
    """Return the first thing that fr_trace prints of a fault."""
    for line in said.splitlines():
        if line.startswith("missing ranks: {"):
            return Answer("absent", _numbers(line.split("{")[1]))
        if "Culprit rank" in line:
            kind = next((kind for key, kind in MISMATCHES.items() if key in line), "other")
            return Answer(kind, _numbers(line.split("Culprit rank")[1].split(";")[0]))
    return Answer()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(word) for word in "".join(c if c.isdecimal() else " " for c in text).split()))


class _Runs:
    """A value whose pickle makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


def _hostile(folder: Path) -> dict[str, Any]:
    """Return whether the code in a pickle runs when a record is read by each."""
    found = {}
    for name, read in (("ours", _ours), ("fr_trace", lambda path: _fr_trace([path])[0])):
        place, mark = folder / f"hostile {name}", folder / f"ran {name}"
        place.mkdir()
        (place / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": [], "version": "2.10", "more": _Runs(mark)}))
        answer = read(place)
        found[name] = "its code ran" if mark.exists() else f"{answer}, nothing ran"
    return {"set": "a pickle with code", "answer": "refused", **found}
