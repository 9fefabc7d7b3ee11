"""Known hangs with lines, files and prefixes changed: an innocent rank is never named."""

import json
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.postmortem.inputs import examine_files

from .mutations import mutations

CASES = Path(__file__).parent / "cases"
ANSWERS = json.loads((CASES / "answers.json").read_text())
# A rank that left no word at all, where all others wait in one call, is named: in these cases all ranks waited, and
# without one of them nothing is left that tells it from a rank that never came.
ALL_WAIT = {"logs/nobody_behind", "records/all_in"}


def judged(folder, files):
    """The verdict on files, None where nothing is left that can be read."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        return examine_files([folder])
    except InputError:
        return None


@pytest.mark.parametrize("name", ANSWERS)
def test_no_mutation_of_a_known_hang_blames_an_innocent_rank(name, tmp_path):
    answer, case = ANSWERS[name], CASES / name
    files = {str(path.relative_to(case)): path.read_bytes() for path in sorted(case.rglob("*")) if path.is_file()}
    ranks = tuple(answer.get("ranks") or ([answer["rank"]] if answer["rank"] is not None else []))

    blamed = {}
    for number, mutation in enumerate(mutations(files, ranks)):
        if name in ALL_WAIT and mutation.name.startswith("without"):
            continue
        verdict = judged(tmp_path / str(number), mutation.files)
        if verdict is not None and set(verdict.blamed) - mutation.blamable:
            blamed[mutation.name] = verdict.blamed

    assert blamed == {}


def test_a_host_agents_label_on_every_line_is_no_rank(tmp_path):
    lines = [
        f"0: {task}: [E ProcessGroupNCCL.cpp:474] [Rank {task}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=1000) ran for 1001 milliseconds"
        for task in (0, 1, 3)
    ]
    lines.insert(0, "0: 2: RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.")

    verdict = judged(tmp_path, {"job.out": "\n".join(lines).encode()})

    assert (verdict.kind, verdict.rank) == ("host_memory", 2)


def test_places_inside_an_unknown_group_name_nobody(tmp_path):
    lines = [
        f"[E ProcessGroupNCCL.cpp:474] [Rank {place}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=1000) ran for 1001 milliseconds"
        for place in (0, 1, 3)
    ]

    verdict = judged(tmp_path, {"job.out": "\n".join(lines).encode()})

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("absent", None, True)


def test_a_process_that_passes_on_the_lines_of_several_ranks_is_none_of_them(tmp_path):
    lines = ["(launch pid=7, ip=10.0.0.7) KeyError: 'x'"]
    lines += [f"(launch pid=7, ip=10.0.0.7) [rank{rank}]: step 3 loss 2.0" for rank in (0, 1)]

    verdict = judged(tmp_path, {"job.out": "\n".join(lines).encode()})

    assert verdict.rank is None


def test_the_code_of_the_rank_that_gave_up_first_blames_nobody_whose_log_is_not_here(tmp_path):
    lines = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : 1 (pid: 5003)",
        "=" * 60,
    ]
    lines.insert(0, "[rank0]: starts")

    verdict = judged(tmp_path, {"job.out": "\n".join(lines).encode()})

    assert (verdict.kind, verdict.rank, verdict.unknown) == ("exception", None, True)
