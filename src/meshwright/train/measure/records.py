"""The records of all ranks at the end of a run, which travel to rank 0 through the job's store."""

from collections.abc import Mapping

import msgspec
import torch.distributed as dist

from ...machine_load import Load
from ...timeline import Span, middle_steps

CHOSEN_STEPS = "meshwright/chosen_steps"  # in the store: the steps that rank 0 takes the parts of


class RankRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rank's report at the end, as JSON through the store."""

    rank: int
    parts: dict[str, float]
    parts_of: tuple[int, ...]  # the steps of `spans` that they are of, among others
    spans: list[Span]
    peak_memory_bytes: int
    load: Load | None = None


def agreed_steps(steps: Mapping[int, Mapping[str, float]], rank: int, store: dist.Store | None) -> list[int]:
    """Return the steps that the parts of all ranks are of, as rank 0 chooses them: those nearest to its median step.

    Called on all ranks, each with the parts of its own steps by number; `store` is the job's, None for a single rank.
    """
    chosen = middle_steps({step: parts["step_time_s"] for step, parts in steps.items()})
    if store is not None:
        if rank == 0:
            store.set(CHOSEN_STEPS, msgspec.json.encode(chosen).decode())
        else:
            chosen = msgspec.json.decode(store.get(CHOSEN_STEPS), type=tuple[int, ...])
    return [step for step in chosen if step in steps] or list(steps)


def gathered_records(record: RankRecord, rank: int, ranks: int) -> list[RankRecord]:
    """Return the records of all ranks on rank 0 and nothing elsewhere; they travel through the job's store."""
    if ranks == 1:
        return [record]
    store = dist.distributed_c10d._get_default_store()
    store.set(f"meshwright/record/{rank}", msgspec.json.encode(record).decode())
    if rank:
        dist.barrier()
        return []
    found = [msgspec.json.decode(store.get(f"meshwright/record/{other}"), type=RankRecord) for other in range(ranks)]
    dist.barrier()  # the store lives in rank 0 under some launchers: nobody leaves before all is read
    return found
