"""Flight records as torch writes them, and random jobs that hang: collectives over several groups, a planted fault.

Programs are played until nothing moves. Each rank's device runs its own in order; a call ends when all members of its
group stand in it and call alike. What each rank did becomes its flight record, with calls that its host had enqueued
ahead; one record may be lost.
"""

import pickle
import random
from collections import Counter
from collections.abc import Mapping

import msgspec

ALL_OF_FOUR = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
FAULTS = ("absent", "desync", "sizes", "stuck")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


class Step(msgspec.Struct, frozen=True):
    """One call of a program: in which group, what, of how many elements."""

    group: str
    operation: str
    numel: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job that hangs: its files, what is right to say of them, and the rank whose record is lost."""

    files: dict[str, bytes]
    fault: str
    culprit: int | None  # None: a link or a device, nobody's fault
    lost: int | None
    launched: dict[int, list[Step]]  # by each rank's host
    groups: dict[str, tuple[str, list[int]]]  # by name, with purpose and ranks


def planted(seed: int) -> Job:
    """Return the job of a seed."""
    rng = random.Random(seed)
    fault, world = FAULTS[seed % len(FAULTS)], rng.choice((4, 8))
    groups = _groups(world)
    length = rng.randrange(4, 9)
    purposes = [rng.choice(("default_pg", "dp", "tp")) for _ in range(length)]
    at, culprit = rng.randrange(1, length), rng.randrange(world)
    lost = rng.choice([rank for rank in range(world) if rank != culprit]) if rng.random() < 0.5 else None
    if fault == "stuck" and lost is not None:
        purposes[at] = rng.choice(("dp", "tp"))  # of all ranks, it would look as if the lost one had not come
    calls = [(purpose, rng.choice(OPERATIONS), rng.choice((512, 1000))) for purpose in purposes]
    programs = {
        rank: [Step(_group_of(groups, rank, purpose), operation, numel) for purpose, operation, numel in calls]
        for rank in range(world)
    }
    own = programs[culprit]
    if fault == "absent":
        del own[at:]
    elif fault == "desync":
        other = OPERATIONS[(OPERATIONS.index(own[at].operation) + 1) % len(OPERATIONS)]
        own[at] = Step(own[at].group, other, own[at].numel)
    elif fault == "sizes":
        own[at] = Step(own[at].group, own[at].operation, own[at].numel + 64)
    ended = _played(programs, groups, at if fault == "stuck" else None)
    ahead = rng.choice((0, 2, 5))
    files = _files(programs, ended, groups, ahead)
    files.pop(f"nccl_trace_rank_{lost}", None)
    return Job(
        files=files,
        fault=fault,
        culprit=None if fault == "stuck" else culprit,
        lost=lost,
        launched={rank: program[: ended[rank] + 1 + ahead] for rank, program in programs.items()},
        groups=groups,
    )


def _groups(world: int) -> dict[str, tuple[str, list[int]]]:
    """Return the groups by name, with their purpose and ranks: all, pairs across halves, and the halves."""
    half = world // 2
    found = {"0": ("default_pg", list(range(world)))}
    found |= {str(1 + rank): ("dp", [rank, rank + half]) for rank in range(half)}
    return found | {str(1 + half): ("tp", list(range(half))), str(2 + half): ("tp", list(range(half, world)))}


def _group_of(groups: Mapping[str, tuple[str, list[int]]], rank: int, purpose: str) -> str:
    return next(name for name, (what, members) in groups.items() if what == purpose and rank in members)


def _numbered(program: list[Step]) -> list[int]:
    """Return the sequence number of each call in its group."""
    counts: Counter[str] = Counter()
    found = []
    for step in program:
        counts[step.group] += 1
        found.append(counts[step.group])
    return found


def _played(
    programs: Mapping[int, list[Step]], groups: Mapping[str, tuple[str, list[int]]], held: int | None
) -> dict[int, int]:
    """Return how many calls of each rank ended; none gets out of its call number `held`."""
    ended, numbers = dict.fromkeys(programs, 0), {rank: _numbered(program) for rank, program in programs.items()}

    def standing(rank: int) -> tuple[Step, int] | None:
        at = ended[rank]
        return None if at == held or at >= len(programs[rank]) else (programs[rank][at], numbers[rank][at])

    moved = True
    while moved:
        moved = False
        for rank in programs:
            call = standing(rank)
            if call and all(standing(member) == call for member in groups[call[0].group][1]):
                for member in groups[call[0].group][1]:
                    ended[member] += 1
                moved = True
    return ended


def _files(
    programs: Mapping[int, list[Step]],
    ended: Mapping[int, int],
    groups: Mapping[str, tuple[str, list[int]]],
    ahead: int,
) -> dict[str, bytes]:
    """Return the flight record of each rank; its host is some calls ahead of its device."""
    config = {name: {"name": name, "desc": what, "ranks": str(ranks)} for name, (what, ranks) in groups.items()}
    files = {}
    for rank, program in programs.items():
        numbers, entries = _numbered(program), []
        for place, step in enumerate(program[: ended[rank] + 1 + ahead]):
            purpose, members = groups[step.group]
            whole = step.numel * len(members)
            sizes = {"all_gather": (step.numel, whole), "reduce_scatter": (whole, step.numel)}
            state = "completed" if place < ended[rank] else "started" if place == ended[rank] else "scheduled"
            entries.append(
                entry(
                    place,
                    numbers[place],
                    step.operation,
                    *sizes.get(step.operation, (step.numel, step.numel)),
                    state,
                    group=(step.group, purpose),
                    pg_id=int(step.group),
                )
            )
        files[f"nccl_trace_rank_{rank}"] = record(entries, config)
    return files


def entry(number, seq, operation, numel, out, state, *, group=("0", "default_pg"), pg_id=0, p2p=0, dtype="Float"):
    """One entry of a torch flight record; `p2p` is the number of a send or receive, 0 for a collective."""
    return {
        "frames": [{"name": "step", "filename": "/job/train.py", "line": 42}],
        "record_id": number,
        "pg_id": pg_id,
        "process_group": group,
        "collective_seq_id": seq,
        "p2p_seq_id": p2p,
        "op_id": number + 1,
        "profiling_name": f"nccl:{operation}",
        "time_created_ns": 1_790_000_000_000_000_000 + number * 10**7,
        "input_sizes": [[numel]],
        "input_dtypes": [dtype],
        "output_sizes": [[out]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else 1,
        "time_discovered_completed_ns": 2 if state == "completed" else None,
        "retired": state == "completed",
        "is_p2p": bool(p2p),
    }


def record(entries, config=None, status=None):
    """A torch flight record as a pickle."""
    return pickle.dumps(
        {
            "version": "2.10",
            "comm_lib_version": "2.27.5",
            "pg_config": ALL_OF_FOUR if config is None else config,
            "pg_status": status or {},
            "entries": entries,
        }
    )
