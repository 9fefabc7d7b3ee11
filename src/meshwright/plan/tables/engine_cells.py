"""Cells under names of other engines, as those of our own columns: switches, joined degrees, shares of torch's meshes.

What such a column says and nothing reads is refused here, where it would change the price of its row.
"""

import contextlib
import difflib
import functools
import re
from collections.abc import Mapping

from ...errors import InputError
from ...layout_names import (
    DEGREE,
    NEAR,
    OF_PAPERS,
    RANK_BATCH,
    REST,
    names_sharding,
    near_key,
    own_name,
    own_values,
    pairs_of,
    unnamed_hint,
)
from ..layouts.stacks import find_stack
from .batch_cells import (
    MICRO_TOKENS,
    batch_of_bare,
    batch_of_dp,
    batch_of_tokens,
    check_one_of_gpu,
    is_bare_batch,
    is_of_dp,
    is_of_gpu,
)
from .cells import FLAGS, count_of, is_empty
from .columns import INPUTS, zero_stage
from .mesh_cells import DEVICE_BATCH, batch_of_devices, is_axis, mesh_of
from .names import IN_CELLS, KNOWN, SAMPLES_OF_ONE, SWITCHES, is_open_rate, leaf_of, letters
from .row_layout import BATCH_SAID, SPLITS
from .told_flops import is_flops

FSDP_SWITCHES = frozenset({"fsdp", "usefsdp", "megatronfsdp", "usemegatronfsdp"})  # columns that may be no degree
ZERO1_SWITCHES = frozenset({"zero1", "zero1size", "zero1parallel", "zero1degree"})
SHARDED = re.compile(
    r"(?i)ddp|fsdp[12]?|hsdp|(?:deepspeed[\s_-]*)?zero[\s_-]*[1-3]"
)  # a layout that is no more than that
_KEY = r"(?:etp|tp|vpp|vp|pp|dp|cp|ep|mbs)"
_MARK = r"[\s/x×*,;:+&_-]+"
JOINED = re.compile(rf"(?i)[(\[]?({_KEY}(?:{_MARK}{_KEY})+)[)\]]?")  # "TP/PP/DP", "tp x pp", "(TP, PP)"
DEGREE_NAMED = re.compile(
    rf"(?i)(?<![a-z])(?:{_KEY}|mp|fsdp|hsdp|stages?|(?:model|pipe|pipeline|tensor)[\s_-]*(?:paral[a-z]*|stages?|ranks?)"
    r"|(?:pipeline|tensor)[\s_-]*size|(?:model|virtual|pipeline)[\s_-]*chunks?|replicas?)(?![a-z])"
)
NO_DEGREE = re.compile(
    r"(?i)time|comm|byte|overlap|bubble|share|util|bandwidth|%|(?<![a-z])(rate|m?s|[gm]i?b|bw)(?![a-z])"
)
COUNTS = re.compile(r"[\d\s/x×*,;:+_.-]*\d[\d\s/x×*,;:+_.-]*")
SPLIT = re.compile(
    r"(?i)(tensor|pipeline|data|context|expert|sequence)[\s_-]*(model[\s_-]*)?paral|micro[\s_-]*batch|zero|[fh]sdp|shard"
    r"|recomp|checkpointing|(act|grad)[a-z]*[\s_-]*ckpt|remat|offload"
)
BATCH = re.compile(r"(?i)batch|(?<![a-z])bsz?(?![a-z])")
NO_BATCH = re.compile(
    r"(?i)eval|val(?![a-z])|valid|test|time|idx|index|tokens?|batches|infer|(?<![a-z])(m?s|id)(?![a-z])"
)
FLAVOR = "modelflavor"  # torchtitan's size of a model, beside its name
WHOLE_NAMES = {"trainingbatchsize": RANK_BATCH}  # that mean more than their last part: torchtitan's of 2024
CHECKPOINTING = frozenset({"ckpt", "checkpointing"})  # of activations, where yes or no stands below it
CONVERTERS = "modelconverters"  # torchtitan's, of which some change the precision of products
ACTIVATIONS = frozenset({"activation", "activationfunction", "hiddenact", "mlptype", "ffntype"})
# of the network, by the words of its activation: with a gate it has three matrices (arXiv 2002.05202)
GATES = {**dict.fromkeys(("swiglu", "geglu", "reglu", "glu"), "1"), **dict.fromkeys(("gelu", "relu", "relu2"), "0")}
# Megatron-LM's first releases and GPT-NeoX call tensor parallelism so, but others both tensor and pipeline
MODEL_PARALLEL = frozenset({"mp", "mpsize", "modelparallel", "modelparallelism", "modelparallelsize"})
# torchtitan's tokens a second are of one GPU under these names too (pytorch/torchtitan:docs/performance.md)
TITANS, TITANS_RATES = ("torchtitan", "titan"), frozenset({"wps", "tps"})
BESIDE = frozenset({FLAVOR, DEVICE_BATCH, CONVERTERS, *CHECKPOINTING})
ADAPTERS = re.compile(r"(?i)(?<![a-z])(?:q?lora|peft|adapters?)(?![a-z])")
PRICED = INPUTS.keys() - {"id", "source", "notes", "year"}


def _short(name: str) -> str:
    """Return a name without marks, case and the objects around it, unless it means something with them alone."""
    whole = letters(name)
    if whole in SWITCHES:
        return whole
    plain = WHOLE_NAMES.get(whole) or letters(leaf_of(name))
    return RANK_BATCH if is_of_gpu(plain) and plain != DEVICE_BATCH else plain


def is_read(name: str) -> bool:
    """Return whether cells of a column that is none of ours are read all the same."""
    plain = _short(name)
    return (
        plain in SWITCHES
        or plain in BESIDE
        or is_axis(name)
        or JOINED.fullmatch(name.strip()) is not None
        or _is_shares(name)
        or is_of_dp(name)
        or is_open_rate(name)
        or is_bare_batch(name)
        or plain in MODEL_PARALLEL
        or _is_samples_of_one(name)
        or MICRO_TOKENS.fullmatch(letters(leaf_of(name))) is not None
        or is_flops(name)
    )


def with_engine_cells(cells: Mapping[str, str], assumed: list[str]) -> dict[str, str]:
    """Return the cells of a row with what other engines' columns say under our names, and without those columns.

    What is taken for granted is added to `assumed`. InputError where two of them disagree, or one cannot be read.
    """
    found = dict(cells)
    others = {name: text for name, text in cells.items() if name not in KNOWN and not is_empty(text)}
    for plain in SWITCHES:  # fp8 before bf16, which is beside it
        for name in (name for name in others if _short(name) == plain):
            _switch(found, name, others[name])
    for name, text in others.items():
        if is_of_gpu(name) and letters(leaf_of(name)) not in (RANK_BATCH, DEVICE_BATCH):
            check_one_of_gpu(found, name, text)
    for name, text in others.items():
        if joined := JOINED.fullmatch(name.strip()):
            _add(found, name, _degrees(name, re.findall(_KEY, joined[1].lower()), text))
    if axes := [name for name in others if is_axis(name)]:
        _add(found, " and ".join(axes), mesh_of(cells))
    _add_shares(found, {name: text for name, text in others.items() if _is_shares(name)})
    for name, text in others.items():
        if _short(name) in MODEL_PARALLEL:
            _add(found, name, _tensor_ranks(found, name, text, assumed))
        elif _short(name) in ACTIVATIONS:
            _add(found, name, {"gated_mlp": gate} if (gate := GATES.get(letters(text))) else {})
        elif _is_samples_of_one(name):
            _add(found, name, _samples_of_all(found, text))
        elif letters(name) in TITANS_RATES and find_stack(found.get("family", "")) in TITANS:
            _add(found, name, {"tokens_per_s_per_gpu": text})
        elif MICRO_TOKENS.fullmatch(letters(leaf_of(name))):
            _add(found, name, batch_of_tokens(found, name, text, assumed))
    for name, text in others.items():
        if _short(name) == FLAVOR:
            found["model_name"] = "-".join(filter(None, [found.get("model_name", ""), text]))
        elif _short(name) in CHECKPOINTING and _says_recomputation(text):
            _add(found, name, {"recompute": text})
        elif _short(name) == CONVERTERS:
            _add(found, name, _converted(others, text))
        elif is_of_dp(name):
            _add(found, name, batch_of_dp(found, name, text))
        elif is_bare_batch(name):
            _add(found, name, batch_of_bare(with_layout(found), name, text, assumed))
        elif _short(name) == DEVICE_BATCH:
            _add(found, name, batch_of_devices(found, name, text))
    return {name: text for name, text in found.items() if name in KNOWN or is_empty(text) or not _is_taken(name, found)}


def _is_taken(name: str, found: Mapping[str, str]) -> bool:
    """Return whether what a column says is among the cells of our own."""
    if is_bare_batch(name):
        return not is_empty(found.get("global_batch_sequences", ""))
    if _short(name) in MODEL_PARALLEL:
        return not is_empty(found.get("tp", ""))
    if MICRO_TOKENS.fullmatch(letters(leaf_of(name))):
        return not is_empty(found.get("micro_batch", ""))
    return is_read(name)


def _is_samples_of_one(name: str) -> bool:
    return SAMPLES_OF_ONE.fullmatch(letters(leaf_of(name))) is not None


def _samples_of_all(cells: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the sequences a second of all GPUs, from those of one."""
    try:
        return {"samples_per_s": f"{float(text) * count_of(cells, 'num_gpus'):.9g}"}
    except ValueError:
        return {"samples_per_s": text}


def _tensor_ranks(cells: Mapping[str, str], name: str, text: str, assumed: list[str]) -> dict[str, str]:
    """Return the tensor parallelism that model parallelism means; {} where it need not be that alone.

    It is that where it makes the GPUs together with the pipeline and the copies that the row states. Where it makes
    them without the pipeline, that is a part of it.
    """
    gpus, dp = cells.get("num_gpus", ""), cells.get("dp", "")
    if is_empty(dp) and (shards := re.fullmatch(r"shard (\d+)", cells.get("zero_stage_fsdp", ""))):
        dp = shards[1]
    if not text.isdecimal() or is_empty(gpus) or is_empty(dp) or not is_empty(cells.get("tp", "")):
        return {}
    ranks, pp = int(text), count_of(cells, "pp", 1)
    others = count_of({"dp": dp}, "dp") * count_of(cells, "cp", 1)
    left, rest = divmod(count_of(cells, "num_gpus"), others)
    if rest or not (left == ranks * pp or (left == ranks and ranks % pp == 0)):
        return {}
    tp = left // pp
    assumed.append(f"{name} {ranks}: tp {tp}, pp {pp}, which make the GPUs beside {dp} copies or shards")
    return {"tp": str(tp)}


def _converted(others: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the precision of the products that torchtitan's converters make, tensorwise unless a recipe is rowwise.

    Source: pytorch/torchtitan:torchtitan/components/quantization/float8.py.
    """
    if "mx" in re.findall(r"[a-z]+", text.lower()):
        return {"precision": "mxfp8"}
    if "float8" not in text.lower():
        return {}
    rowwise = any(letters(name).endswith("recipename") and "rowwise" in cell for name, cell in others.items())
    return {"precision": "fp8-row" if rowwise else "fp8"}


def _says_recomputation(text: str) -> bool:
    return text.lower() in FLAGS or re.fullmatch(r"(?i)(full|selective|none)\w*", text) is not None


def _add_shares(found: dict[str, str], shares: Mapping[str, str]) -> None:
    """Add what columns of torch's meshes and of a rank's batch say to the cells of a row."""
    unstated = all(is_empty(found.get(name, "")) or found[name] == REST for name in BATCH_SAID)
    if not is_empty(found.get("micro_batch", "")):  # what a pipeline cuts a rank's batch into, or the same
        shares = {name: text for name, text in shares.items() if _short(name) != RANK_BATCH}
    if not shares:
        return
    _add(found, " and ".join(shares), _shared(found, shares))
    if unstated and any(_short(name) == RANK_BATCH for name in shares):  # torchtitan: the ranks' are all of the batch
        found |= {"global_batch_sequences": "", "accumulation_steps": "1"}


def _is_shares(name: str) -> bool:
    plain = _short(name)
    return plain == RANK_BATCH or (names_sharding(plain) and plain not in FSDP_SWITCHES)


def _shared(cells: Mapping[str, str], shares: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of degrees that torch's meshes have, and of torchtitan's batch of a rank."""
    stated = cells.get("zero_stage_fsdp", "")
    beside = {key: cells[key] for key in ("pp", "cp") if not is_empty(cells.get(key, ""))}
    beside |= {"zero": stated} if stated.isdecimal() else {}
    where = f"column{'s' if len(shares) > 1 else ''} {' and '.join(shares)}"
    read = own_values({**beside, **{_short(name): text for name, text in shares.items()}}, where)
    if not is_empty(stated):
        read.pop("zero", None)
    return {IN_CELLS[key]: value for key, value in read.items()}


def _switch(found: dict[str, str], name: str, text: str) -> None:
    """Add what a switch of another engine says to the cells of a row."""
    column, on, off = SWITCHES[_short(name)]
    state = FLAGS.get(text.lower(), 1 if on == "fp8" else None)  # Megatron-LM: --fp8-format hybrid
    if state is None and column == "notes":  # "v2" of a kernel, "max-autotune" of a compiler; a number is of neither
        found[column] = "; ".join(filter(None, [found.get(column, ""), on if text[:1].isalpha() else ""]))
    elif state is None and column == "zero_stage_fsdp":
        _add(found, name, {column: text})
    elif state is None:
        raise InputError(f"{name}: expected true or false, got {text!r}")
    elif column == "notes":
        found[column] = "; ".join(filter(None, [found.get(column, ""), on if state else off]))
    elif state:
        stated = found.get(column, "").lower()
        beside = column == "precision" and ("fp8" in stated or (on == "bf16" and "fp4" in stated))
        if not beside:
            _add(found, name, {column: on})
    elif off and is_empty(found.get(column, "")):
        found[column] = off
    elif name.lower() == "bf16" and is_empty(found.get(column, "")) and not _is_on(found, "fp16"):
        raise InputError(f"{name}: {text}, and precision is not stated")


def _is_on(cells: Mapping[str, str], name: str) -> bool:
    return any(_short(other) == name and FLAGS.get(text.lower()) == 1 for other, text in cells.items())


def _add(found: dict[str, str], name: str, read: Mapping[str, str]) -> None:
    for column, value in read.items():
        stated = found.get(column, "")
        if not is_empty(stated) and stated != value:
            raise InputError(f"{name} makes {column} {value}, but {column} = {stated}")
        found[column] = value


def _degrees(name: str, keys: list[str], text: str) -> dict[str, str]:
    """Return the columns of a cell such as 4/8/2 under TP/PP/DP."""
    columns = [IN_CELLS[own_name(key) or key] for key in keys]
    parts = re.split(_MARK, text.strip("()[] "))
    if len(parts) == len(columns) and all(re.fullmatch(r"[1-9]\d{0,5}", part) for part in parts):
        return dict(zip(columns, parts, strict=True))
    said = {IN_CELLS.get(own_name(key) or key, ""): value for key, value in pairs_of(text)}
    if said.keys() == set(columns) and all(value.isdecimal() for value in said.values()):
        return said
    like = "/".join("482"[n % 3] for n in range(len(columns)))
    raise InputError(
        f"column {name}: expected {len(columns)} whole numbers such as {like}, got {text!r} "
        "(a spreadsheet makes dates of such cells unless they are text)"
    )


def with_layout(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a row, with what its layout stands for; InputError where another cell says otherwise."""
    text = cells.get("layout", "")
    if is_empty(text):
        return dict(cells)
    found = dict(cells)
    if _is_sharding(text) and is_empty(cells.get("zero_stage_fsdp", "")):
        return found | {"zero_stage_fsdp": text.strip()}
    for key, value in own_values(_pairs(text), "layout").items():
        if key not in IN_CELLS:
            raise InputError(f"layout: {text!r}: expected KEY=VALUE with keys of {', '.join(IN_CELLS)}")
        column = IN_CELLS[key]
        if not is_empty(found.get(column, "")) and found[column] != value:
            raise InputError(f"layout: {text!r}, but {column} = {found[column]}")
        found[column] = value
    return found


def _is_sharding(text: str) -> bool:
    """Return whether a layout is no more than how states are shared: "FSDP", "DeepSpeed ZeRO-2", "FULL_SHARD"."""
    if SHARDED.fullmatch(text.strip()):
        return True
    if re.search(r"[=\d]", text):
        return False
    with contextlib.suppress(InputError):
        return zero_stage(text, 1, 1) is not None
    return False


def _pairs(text: str) -> dict[str, str]:
    """Return the keys and values of a layout; InputError where one lacks a value, or is said twice."""
    found = pairs_of(text)
    given = {name.lower(): value for name, value in found}
    if not all(given.values()) or len(given) < len(found):
        raise InputError(f"layout: {text!r}: expected each KEY=VALUE once, such as tp=4,pp=2,dp=8")
    return given


def check_unread(cells: Mapping[str, str]) -> None:
    """Raise InputError where a column that nothing reads says what would change the price of a row.

    That is how the run was split, by its name or in its cell, a batch where that of a micro-batch is not stated, or
    what a column with nearly its name has.
    """
    for name, text in cells.items():
        if name in KNOWN or is_empty(text):
            continue
        if _short(name) in OF_PAPERS and COUNTS.fullmatch(text) and not _says_split(cells):
            raise InputError(f"column {name}, {text!r}, is not read: did you mean {OF_PAPERS[_short(name)]}?")
        if ADAPTERS.search(text) and is_empty(cells.get("lora_rank", "")):
            raise InputError(f"column {name} is not read, and says {text!r}: lora_rank says the rank of adapters")
        close = _near(name.lower(), frozenset(PRICED - cells.keys())) or near_key(name)
        if close:
            raise InputError(f"column {name}, {text!r}, is not read: did you mean {close}?")
        if (hint := unnamed_hint(_short(name))) and text.lower() != "none":
            raise InputError(f"column {name}, {text!r}, is not read: {hint}")
        if _says_layout(name, text):
            raise InputError(
                f"column {name} is not read, and says {text!r} of the layout; `validate --columns` has names"
            )
        if MICRO_TOKENS.fullmatch(letters(leaf_of(name))):
            raise InputError(
                f"column {name}, {text!r} tokens, is not read: micro_batch says how many sequences they are"
            )
        if _says_batch(name, text) and is_empty(cells.get("micro_batch", "")):
            raise InputError(
                f"column {name}, {text!r}, is not read: global_batch_sequences or micro_batch says which batch it is"
            )


def _says_split(cells: Mapping[str, str]) -> bool:
    return any(not is_empty(cells.get(name, "")) for name in (*SPLITS, "layout"))


def _says_layout(name: str, text: str) -> bool:
    if SPLIT.search(name):
        return "offload" not in name.lower() or FLAGS.get(text.lower()) != 0
    if DEGREE.search(text):
        return True
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)  # numTP
    degrees = 0 if NO_DEGREE.search(words) else len(DEGREE_NAMED.findall(words))
    return degrees > 1 or (degrees == 1 and COUNTS.fullmatch(text) is not None)


def _says_batch(name: str, text: str) -> bool:
    return bool(BATCH.search(name) and not NO_BATCH.search(name) and re.match(r"\d", text))


@functools.lru_cache(maxsize=256)
def _near(name: str, absent: frozenset[str]) -> str:
    """Return the one of these columns, which a table lacks, that a name is a slip of; "" where it is none."""
    return next(iter(difflib.get_close_matches(name, absent, n=1, cutoff=NEAR)), "")
