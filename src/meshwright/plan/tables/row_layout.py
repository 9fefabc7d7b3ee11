"""The layout of a row, and what its cells say that the stack does otherwise."""

import math
import re

import msgspec

from ...errors import InputError
from ...hardware import Accelerator, NodeType
from ...layout import OFFLOADS, Layout
from ...units import counted
from ...workload.adapters import ADAPTED, check_rank, share_in_layers, trained_share
from ...workload.architecture import Architecture
from ...workload.conventions import Conventions
from ...workload.recomputed import away_number, away_of, modules_of
from ..analytic.coefficients import STRANGERS, StackCoefficients
from ..analytic.held_roles import UNPACKED, loss_roles, weight_roles
from ..analytic.optimizers import module_roles, optimizer_assumed, optimizer_roles
from .cells import Cells, count_of, flag_of, is_empty
from .columns import (
    is_looped,
    overlap_off,
    overlapped,
    recomputation,
    says_only_that,
    schedule_word,
    without_fsdp,
    zero_stage,
)

SPLITS = (
    "tp",
    "pp",
    "dp",
    "cp",
    "ep",
    "zero_stage_fsdp",
)  # columns of which one at least says how ranks share the work
BATCH_SAID = ("global_batch_sequences", "global_batch_tokens", "accumulation_steps")  # one of which says the batch
IN_TOKENS = re.compile(r"(?i)\s*(?:toks?|tokens)$")  # behind a number
SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMG])")  # 4M, 0.5M
NEARBY = 0.01  # of a batch: a digit that is wrong or was rounded away
NO_LAYOUT = "layout: data parallelism alone, since the row states none"


def counted_parts(accelerator: Accelerator, node: NodeType | None) -> str:
    """Return what else may be counted of an accelerator in place of it, for a row whose numbers do not agree."""
    if node is not None and accelerator.cores:
        cores, whole = round(accelerator.cores.number), round(node.gpus.number)
        return f"; an accelerator has {cores} cores: where each counts as a GPU, gpus_per_node is {whole * cores}"
    if node is not None and node.slice_name_counts and node.slice_name_counts.number > 1:
        cores = round(node.slice_name_counts.number)
        return f"; num_gpus counts chips: the number in a name such as {node.slice_names[0]}-128 is {cores} times that"
    return ""


def shared_ranks(cells: Cells) -> int:
    """Return the ranks that work at the same sequences."""
    return math.prod(count_of(cells, axis, 1) for axis in ("tp", "pp", "cp"))


def layout_of(
    cells: Cells, stack: StackCoefficients, gpus: int, per_node: int, assumed: list[str], *, parts: str = ""
) -> tuple[Layout, int]:
    """Return the layout and the ranks that share one copy of a sharded model; defaults are added to `assumed`.

    `parts` is what `counted_parts` says.
    """
    degrees = {name: count_of(cells, name, 1) for name in ("tp", "pp", "vpp", "cp", "ep")}
    split = degrees["tp"] * degrees["pp"] * degrees["cp"]
    dp = count_of(cells, "dp", max(1, gpus // split))
    if split * dp != gpus:
        raise InputError(f"tp x pp x cp x dp = {split * dp}, but num_gpus = {gpus}{parts}")
    if gpus > 1 and all(is_empty(cells.get(name, "")) for name in SPLITS):
        assumed.append(NO_LAYOUT)
    elif gpus > 1 and (blank := [name for name in ("tp", "pp", "cp") if cells.get(name) == ""]):
        assumed.append(f"{', '.join(f'{name} 1' for name in blank)}: the row leaves it empty")
    mbs = _micro_batch(cells, dp, assumed)
    ranks = dp * degrees["cp"]
    zero, shard = _sharding(cells, stack, ranks, per_node, assumed)
    sp = _sequence_parallel(cells, stack, degrees, assumed) if degrees["tp"] > 1 else 0
    schedule = schedule_word(cells.get("schedule", "")) or ("interleaved" if degrees["vpp"] > 1 else "1f1b")
    if degrees["pp"] > 1 and is_looped(cells.get("schedule", "")) and is_empty(cells.get("vpp", "")):
        degrees["vpp"] = 2
        assumed.append(f"vpp 2, the fewest of schedule {cells['schedule']}")
    if degrees["pp"] > 1 and all(is_empty(cells.get(name, "")) for name in ("schedule", "vpp")):
        assumed.append("schedule 1f1b, one stage a rank (schedule, vpp say another)")
    if degrees["pp"] == 1:
        if degrees["vpp"] > 1:
            assumed.append("vpp without a pipeline: none")
        degrees["vpp"], schedule = 1, "1f1b"
    recompute = recomputation(cells.get("recompute", ""))
    if says_only_that(cells.get("recompute", "")):
        assumed.append(f"recompute full: the table says {cells['recompute']!r}, not what")
    if recompute is None:
        assumed.append(f"recompute {stack.recompute}")
        recompute = stack.recompute
    values = {**degrees, "dp": dp, "mbs": mbs, "zero": zero, "sp": sp}
    if not is_empty(cells.get("etp", "")):
        values["etp"] = count_of(cells, "etp")
    words = {"schedule": schedule, "recompute": recompute}
    if not is_empty(cells.get("order", "")):
        words["order"] = cells["order"]
    if not is_empty(cells.get("offload", "")):
        words["offload"] = cells["offload"].lower()
        if words["offload"] not in OFFLOADS:
            raise InputError(f"offload: {cells['offload']!r}: expected {', '.join(OFFLOADS)}")
    try:
        return msgspec.convert(values | words, Layout), shard
    except (msgspec.ValidationError, ValueError) as error:
        raise InputError(str(error)) from None


def _sequence_parallel(cells: Cells, stack: StackCoefficients, degrees: dict[str, int], assumed: list[str]) -> float:
    """Return 1 with sequence parallelism: as a row states, or as its stack does where ranks can share the tokens."""
    if not is_empty(cells.get("seq_parallel", "")):
        return flag_of(cells, "seq_parallel", 0)
    tokens = count_of(cells, "seq_len", degrees["tp"] * degrees["cp"]) // degrees["cp"]
    if stack.sp and tokens % degrees["tp"]:
        assumed.append(f"seq_parallel 0, since tp {degrees['tp']} does not divide {tokens} tokens")
        return 0
    assumed.append(f"seq_parallel {stack.sp:g}, as its stack does")
    return stack.sp


def batch_sequences(cells: Cells, layout: Layout, assumed: list[str], *, parts: str = "") -> int:
    """Return the sequences of a step; InputError where they are not whole micro-batches of all copies.

    They are stated, or follow from tokens, or from the micro-batches of a rank: what is stated has to agree.
    """
    steps, each = count_of(cells, "accumulation_steps", 0, least=0), layout.dp * layout.mbs
    said = _stated_batches(cells, steps * each)
    if steps and not said:
        if is_empty(cells.get("micro_batch", "")):
            raise InputError("global_batch_sequences: not stated, nor micro_batch, which accumulation_steps multiply")
        said["accumulation_steps"] = steps * each
        assumed.append(f"batch {steps * each}: accumulation_steps {steps} x micro-batch {layout.mbs} x dp {layout.dp}")
    batch = next(iter(said.values()))
    for column, other in said.items():
        if other != batch:
            raise InputError(f"{column}: {cells[column]!r} makes {other} sequences, but {next(iter(said))} is {batch}")
    if batch % each:
        raise InputError(
            f"global_batch_sequences: {batch} is not a multiple of dp x micro_batch = {layout.dp} x {layout.mbs}"
            f"{_nearby(batch, layout)}{parts}"
        )
    if steps and steps * each != batch:
        # with a pipeline what is accumulated may be batches that it cuts into micro-batches, as torchtitan does
        if layout.pp == 1 or batch % (steps * each):
            raise InputError(
                f"accumulation_steps: {steps} x micro-batch {layout.mbs} x dp {layout.dp} = {steps * each} sequences, "
                f"but the batch is {batch}"
            )
        assumed.append(f"accumulation_steps {steps} counts batches that the pipeline cuts into micro-batches")
    return batch


def _nearby(batch: int, layout: Layout) -> str:
    """Return what a batch that is no multiple may be meant as: exchanged with the micro-batch, or a slip or rounded."""
    if layout.mbs > batch and not layout.mbs % (layout.dp * batch):
        return f"; the two exchanged, a batch of {layout.mbs} and micro-batches of {batch}, would be"
    nearest = round(batch / (layout.dp * layout.mbs)) * layout.dp * layout.mbs
    return f"; {nearest} would be" if 0 < abs(nearest - batch) <= NEARBY * batch else ""


def _stated_batches(cells: Cells, made: int = 0) -> dict[str, int]:
    """Return the sequences of a step by the columns that state them, or their tokens.

    `made`: what its micro-batches make, 0 where they make nothing. 4M tokens are 4,000,000 or 4 x 1024 x 1024: the
    second where that is what the row says otherwise.
    """
    found: dict[str, int] = {}
    for column in BATCH_SAID[:2]:
        said = cells.get(column, "")
        if is_empty(said) or SHORT.fullmatch(IN_TOKENS.sub("", said)):
            continue
        if column == "global_batch_sequences" and IN_TOKENS.search(said) is None:
            found[column] = count_of(cells, column)
        else:
            tokens = count_of({column: IN_TOKENS.sub("", said)}, column)
            found[column] = _whole(tokens, said, column, count_of(cells, "seq_len"))
    otherwise = {*found.values(), made} - {0}
    for column in BATCH_SAID[:2]:
        if not is_empty(cells.get(column, "")) and column not in found:
            found[column] = _of_short(cells, column, otherwise)
    return found


def _of_short(cells: Cells, column: str, otherwise: set[int]) -> int:
    """Return the sequences that tokens such as 4M make; InputError where they are no whole ones, or of what is open."""
    said, seq_len = cells[column], count_of(cells, "seq_len")
    short = SHORT.fullmatch(IN_TOKENS.sub("", said))
    assert short is not None
    power = "kmg".index(short[2].lower()) + 1
    tokens, binary = (float(short[1]) * float(base) ** power for base in (1000, 1024))
    for number in (tokens, binary):
        if number / seq_len in otherwise:
            return int(number) // seq_len
    if column == "global_batch_sequences" and IN_TOKENS.search(said) is None:
        raise InputError(f"{column}: expected a whole number, got {said!r}; global_batch_tokens says that it is tokens")
    full = f" ({binary:.0f} would be {binary / seq_len:.0f})" if not binary % seq_len else ""
    return _whole(tokens, said, column, seq_len, f", and tokens in full{full}")


def _whole(tokens: float, said: str, column: str, seq_len: int, more: str = "") -> int:
    """Return the sequences that tokens make; InputError where they are no whole ones."""
    if tokens % seq_len:
        raise InputError(
            f"{column}: {said!r} are {tokens / seq_len:.6g} sequences of {seq_len} tokens: expected whole ones{more}"
        )
    return int(tokens) // seq_len


def _micro_batch(cells: Cells, dp: int, assumed: list[str]) -> int:
    """Return the sequences of a micro-batch: where a row does not state them, what its batch and its steps make."""
    if not is_empty(cells.get("micro_batch", "")):
        return count_of(cells, "micro_batch")
    steps, batches = count_of(cells, "accumulation_steps", 0, least=0), _stated_batches(cells)
    batch = next(iter(batches.values()), 0)
    if steps and batch and not batch % (dp * steps):
        assumed.append(f"micro-batch {batch // (dp * steps)}: the batch over dp {dp} x accumulation_steps {steps}")
        return batch // (dp * steps)
    assumed.append("micro-batch 1")
    return 1


def row_facts(
    cells: Cells, model: Architecture, c: Conventions, assumed: list[str], *, stack: str
) -> dict[str, float | str]:
    """Return the roles of the cost model that a row's own cells settle, in place of what its stack does, `c`."""
    found: dict[str, float | str] = {}
    rank = count_of(cells, "lora_rank", 0, least=0)
    held = weight_roles(_word(cells, "weights"), float(c.master_bytes), adapters=rank > 0, where="weights")
    found |= held
    found |= loss_roles(_word(cells, "loss"), where="loss", stranger=stack in STRANGERS)
    assumed += [UNPACKED] if "base_bytes" in held else []
    optimizer = cells.get("optimizer", "")
    if not is_empty(optimizer):
        found |= optimizer_roles(optimizer, held.get("optimizer_bytes", float(c.optimizer_bytes)), where="optimizer")
        assumed += optimizer_assumed(optimizer)
    named = cells.get("recompute_modules", "")
    modules = () if is_empty(named) else modules_of(re.findall(r"\w+", named), where="recompute_modules")
    if modules:
        found |= module_roles(modules, float(c.selective_saves), where="recompute_modules")
    if told := re.findall(r"\w+", _word(cells, "activations_away")):
        found["results_away"] = float(away_number(away_of(told, where="activations_away")))
    if rank:
        check_rank(model, rank, where="lora_rank")
        found |= {"trained": trained_share(model, rank), "base_share": share_in_layers(model)}
        assumed.append(ADAPTED)
    hidden = overlapped(cells.get("overlap", ""))
    if hidden is not None:
        found |= {"tp_hidden": "tp_hidden" if "tp" in hidden else 0.0, "sends_hidden": float("pp" in hidden)}
        found |= {"dp_hidden": float("dp" in hidden)}
        found |= {"ep_exposed": 0.0} if "ep" in hidden else {}  # beside the other half of a batch, as DualPipe does
    else:
        found |= {f"{'sends' if axis == 'pp' else axis}_hidden": 0.0 for axis in overlap_off(cells.get("notes", ""))}
    return found


def _word(cells: Cells, name: str) -> str:
    """Return a word of a row, "" where it is empty."""
    return "" if is_empty(cells.get(name, "")) else cells[name].strip()


def _sharding(cells: Cells, stack: StackCoefficients, ranks: int, per_node: int, assumed: list[str]) -> tuple[int, int]:
    said = cells.get("zero_stage_fsdp", "")
    unsharded, found = without_fsdp(said), zero_stage(said, ranks, per_node)
    if found is None:
        usual = 0 if unsharded and stack.zero >= 2 else stack.zero
        found = (usual if ranks > 1 else 0), ranks  # one rank shares with nobody, whatever its stack does
        if ranks > 1:
            assumed.append(f"ZeRO {usual}")
    copies = count_of(cells, "replicas", 1)
    if copies > 1:
        if ranks % copies or found[0] < 1:
            raise InputError(
                f"replicas: {counted(copies, 'copy', 'copies')} need ZeRO 1 to 3 and divide dp x cp = {ranks}"
            )
        found = found[0], ranks // copies
    if found[0] == 1 and found[1] < ranks:
        assumed.append(f"groups of {found[1]} ranks for ZeRO 1: what is sent is priced as among all {ranks}")
    return found
