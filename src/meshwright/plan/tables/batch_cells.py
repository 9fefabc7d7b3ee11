"""Columns of a batch that are no whole step's: of one GPU, of one rank of data parallelism, or of what is not said."""

import re
from collections.abc import Mapping

from ...errors import InputError
from .cells import count_of, is_empty
from .names import BARE_BATCHES, SEQUENCES, letters
from .row_layout import BATCH_SAID, shared_ranks

_BATCH = r"(?:train|training)?(?:batch(?:size|sz)?|bsz|bs|sequences|seqs|samples)"
_GPU = r"(?:gpu|device|chip|accelerator|hpu|npu|rank|card)"
_DP = r"(?:dp|dprank|dpgroup|dpworker|dataparallelrank|dataparallelgroup|dataparallelreplica|replica)"
OF_GPU = re.compile(
    rf"{_BATCH}(?:per|of|on|in)?(?:a|each|one)?{_GPU}|(?:per|each)?{_GPU}{_BATCH}|lbs|local(?:bsz|bs|batch)"
)
OF_DP = re.compile(rf"{_BATCH}(?:per|of|on|in)?(?:a|each|one)?{_DP}|(?:per)?{_DP}{_BATCH}")
MOST_TOKENS = 2**27  # of a step: twice those of DeepSeek-V3, 15360 x 4096 (arXiv 2412.19437, section 4.2)


MICRO_TOKENS = re.compile(  # tokens of a micro-batch: "token_mb", "tokens per micro-batch", "micro batch (tokens)"
    r"tokens?(?:per|of|in)?(?:a|each|one)?(?:mb|mbs|microbatch)|(?:mb|mbs|microbatch(?:size)?)(?:in)?tokens?"
)


def is_of_gpu(name: str) -> bool:
    """Return whether a column is the batch of one GPU."""
    return OF_GPU.fullmatch(letters(name)) is not None


def is_of_dp(name: str) -> bool:
    """Return whether a column is the batch of one rank of data parallelism, of which a pipeline may be one."""
    return OF_DP.fullmatch(letters(name)) is not None


def is_bare_batch(name: str) -> bool:
    """Return whether a column is a batch of which its name does not say whose."""
    return letters(SEQUENCES.sub("", name)) in BARE_BATCHES


def check_one_of_gpu(cells: Mapping[str, str], name: str, text: str) -> None:
    """Raise InputError where several GPUs work at the same sequences: whose batch one of them has is not known then."""
    if shared_ranks(cells) > 1:
        raise InputError(f"column {name}: {text!r} of each GPU, of which several share sequences: say micro_batch")


def batch_of_dp(cells: Mapping[str, str], name: str, text: str) -> dict[str, str]:
    """Return the batch of a step that those of all ranks of data parallelism make."""
    return {"global_batch_sequences": str(count_of({name: text}, name) * _copies(cells))}


def batch_of_tokens(cells: Mapping[str, str], name: str, text: str, assumed: list[str]) -> dict[str, str]:
    """Return the micro-batch that a number of tokens makes; {} where they are no whole sequences, or it is stated."""
    if not text.isdecimal() or is_empty(cells.get("seq_len", "")):
        return {}
    sequences, rest = divmod(int(text), count_of(cells, "seq_len"))
    if rest or not sequences or not is_empty(cells.get("micro_batch", "")):
        return {}
    assumed.append(f"{name} {text}: tokens of a micro-batch, {sequences} sequences")
    return {"micro_batch": str(sequences)}


def batch_of_bare(cells: Mapping[str, str], name: str, text: str, assumed: list[str]) -> dict[str, str]:
    """Return the batch of a step and its micro-batch where a plain batch can be only one: {} where it can be several.

    It may be the step's, that of a rank, or its micro-batch, of which a step has accumulation_steps; each has to be
    whole micro-batches, and no step has more tokens than any is known to have. What is taken is added to `assumed`.
    """
    if any(not is_empty(cells.get(column, "")) for column in ("micro_batch", *BATCH_SAID[:2])):
        return {}
    if not re.fullmatch(r"\d+", text) or int(text) < 1 or is_empty(cells.get("num_gpus", "")):
        return {}
    if count_of(cells, "pp", 1) > 1:
        return {}
    said, steps, copies = int(text), count_of(cells, "accumulation_steps", 1), _copies(cells)
    seq_len = count_of(cells, "seq_len", 1)
    whole = {said * copies * steps: "of a micro-batch" if steps > 1 else "of each rank"}
    if said % steps == 0:
        whole.setdefault(said * copies, "of each rank")
    if said % (copies * steps) == 0:
        whole[said] = "of a step"
    whole = {batch: whose for batch, whose in whole.items() if batch == said or batch * seq_len <= MOST_TOKENS}
    if len(whole) != 1:
        return {}
    ((batch, whose),) = whole.items()
    mbs = batch // (copies * steps)
    if copies > 1 or steps > 1:
        assumed.append(f"{name} {said}, {whose}: {batch} sequences a step, micro-batch {mbs}")
    return {"global_batch_sequences": str(batch), "micro_batch": str(mbs)}


def _copies(cells: Mapping[str, str]) -> int:
    """Return the ranks of data parallelism of a row: stated, or what the other degrees leave of its GPUs."""
    return count_of(cells, "dp", max(1, count_of(cells, "num_gpus") // shared_ranks(cells)))
