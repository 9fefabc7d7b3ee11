"""Columns of a batch that are no whole step's: of one GPU, of one rank of data parallelism, or of what is not said."""

import re
from collections.abc import Mapping

from ...errors import InputError
from .cells import count_of, is_empty
from .names import BARE_BATCHES, letters
from .row_layout import BATCH_SAID, SPLITS

_BATCH = r"(?:train|training)?(?:batch(?:size|sz)?|bsz|bs|sequences|seqs|samples)"
_GPU = r"(?:gpu|device|chip|accelerator|hpu|npu|rank|card)"
_DP = r"(?:dp|dprank|dpgroup|dpworker|dataparallelrank|dataparallelgroup|dataparallelreplica|replica)"
OF_GPU = re.compile(
    rf"{_BATCH}(?:per|of|on|in)?(?:a|each|one)?{_GPU}|(?:per|each)?{_GPU}{_BATCH}|lbs|local(?:bsz|bs|batch)"
)
OF_DP = re.compile(rf"{_BATCH}(?:per|of|on|in)?(?:a|each|one)?{_DP}|(?:per)?{_DP}{_BATCH}")
SHARED = ("tp", "pp", "cp")  # axes whose ranks work at the same sequences


def is_of_gpu(name: str) -> bool:
    """Return whether a column is the batch of one GPU."""
    return OF_GPU.fullmatch(letters(name)) is not None


def is_of_dp(name: str) -> bool:
    """Return whether a column is the batch of one rank of data parallelism, of which a pipeline may be one."""
    return OF_DP.fullmatch(letters(name)) is not None


def is_bare_batch(name: str) -> bool:
    """Return whether a column is a batch of which its name does not say whose."""
    return letters(name) in BARE_BATCHES


def check_one_of_gpu(cells: Mapping[str, str], name: str, text: str) -> None:
    """Raise InputError where several GPUs work at the same sequences: whose batch one of them has is not known then."""
    if any(count_of(cells, axis, 1) > 1 for axis in SHARED):
        raise InputError(f"column {name}: {text!r} of each GPU, of which several share sequences: say micro_batch")


def batch_of_dp(cells: Mapping[str, str], name: str, text: str) -> dict[str, str]:
    """Return the batch of a step that those of all ranks of data parallelism make."""
    return {"global_batch_sequences": str(count_of({name: text}, name) * _copies(cells))}


def batch_of_bare(cells: Mapping[str, str], name: str, text: str) -> dict[str, str]:
    """Return the batch of a step and its micro-batch where a plain batch can be only one: {} where it can be several.

    It may be the step's, that of a rank, or its micro-batch, of which a step has accumulation_steps; each has to be
    whole micro-batches.
    """
    alone = cells.get("num_gpus", "").strip() == "1"
    if any(not is_empty(cells.get(column, "")) for column in ("micro_batch", *BATCH_SAID[:2])):
        return {}
    if not alone and all(is_empty(cells.get(column, "")) for column in SPLITS):
        return {}
    if not re.fullmatch(r"\d+", text) or int(text) < 1 or count_of(cells, "pp", 1) > 1:
        return {}
    said, steps, copies = int(text), count_of(cells, "accumulation_steps", 1), _copies(cells)
    whole = {said * copies * steps}  # of a micro-batch
    whole |= {said * copies} if said % steps == 0 else set()  # of a rank
    whole |= {said} if said % (copies * steps) == 0 else set()
    if len(whole) > 1:
        return {}
    batch = whole.pop()
    return {"global_batch_sequences": str(batch), "micro_batch": str(batch // (copies * steps))}


def _copies(cells: Mapping[str, str]) -> int:
    """Return the ranks of data parallelism of a row: stated, or what the other degrees leave of its GPUs."""
    gpus = count_of(cells, "num_gpus")
    shared = 1
    for axis in SHARED:
        shared *= count_of(cells, axis, 1)
    return count_of(cells, "dp", max(1, gpus // shared))
