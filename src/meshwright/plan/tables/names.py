"""Names of columns as people and engines write them, each with the column that it means and the unit behind it."""

import re

from ...layout_names import own_name
from .columns import CARRIED, INPUTS, MEASURED

UNIT = re.compile(r"(?i)^(.*?)[\s_]*(?:\(\s*|\[\s*|[\s_])(s|ms|us|sec|seconds|bytes|[kmgt]i?b)\s*[)\]]?$")
UNITS = {"sec": "s", "seconds": "s", "bytes": "B"}
BATCHES = ("globalbatchsize", "globalbatch", "gbs")
NAMES = {  # of columns, without marks, case and units
    **dict.fromkeys(("name", "run", "runname", "runid"), "id"),
    **dict.fromkeys(("stack", "engine", "framework"), "family"),
    **dict.fromkeys(("accelerator", "gputype", "gpumodel", "gpuname"), "gpu"),
    **dict.fromkeys(("gpus", "ngpus", "numgpu", "gpucount", "numberofgpus", "totalgpus", "worldsize"), "num_gpus"),
    **dict.fromkeys(("gpuspernode", "gpusnode", "nprocpernode"), "gpus_per_node"),
    "model": "model_name",
    **dict.fromkeys(("numlayers", "nlayers", "numhiddenlayers"), "layers"),
    **dict.fromkeys(("seqlength", "seqlen", "sequencelength", "contextlength", "maxseqlen"), "seq_len"),
    **dict.fromkeys(BATCHES, "global_batch_sequences"),
    **dict.fromkeys(
        ("tokensperstep", "tokensstep", "tokensperbatch", "tokensbatch", "batchtokens", "globalbatchsizetokens"),
        "global_batch_tokens",
    ),
    **dict.fromkeys(
        (
            *("gradientaccumulationsteps", "gradientaccumulation", "gradaccumulationsteps", "gradaccumulation"),
            *("gradaccum", "gradaccumsteps", "accumulation", "gas", "ga", "nummicrobatches"),
        ),
        "accumulation_steps",
    ),
    **dict.fromkeys(("zero", "sharding", "shardingstrategy", "fsdpshardingstrategy"), "zero_stage_fsdp"),
    **dict.fromkeys(
        ("activationcheckpointing", "gradientcheckpointing", "recomputation", "recomputegranularity", "ac"), "recompute"
    ),
    "dtype": "precision",
    **dict.fromkeys(("note", "comment", "comments", "remarks"), "notes"),
    **dict.fromkeys(("parallelism", "parallel", "parallelconfig", "strategy"), "layout"),
    **dict.fromkeys(("steptime", "timeperstep", "iterationtime", "itertime", "timeperiteration"), "step_time_s"),
    **dict.fromkeys(("peakmemory", "peakmem", "maxmemory", "peakmemorypergpu"), "peak_memory_bytes_per_gpu"),
}
RATE = re.compile(  # of one GPU: "Tokens / sec / GPU", "Throughput (T/s/GPU)", "TPS per GPU", "tok/GPU/s", "TGS"
    r"(?:throughput)?(?:t|toks?|tokens?)"
    r"(?:(?:per|p)?(?:s|sec|second)(?:per)?(?:gpu|device)|(?:per)?(?:gpu|device)(?:per)?(?:s|sec|second))|tgs"
)
TOKENS = re.compile(r"(?i)\s*(?:[(\[]\s*(?:t|toks?|tokens?)\s*[)\]]|[\s_](?:in[\s_])?tok(?:en)?s)$")  # a unit
IN_TOKENS = {  # columns that are in tokens where their names say so
    "seq_len": "seq_len",
    "global_batch_sequences": "global_batch_tokens",
}
OF_MANY_STEPS = frozenset({"step_time_s", "tokens_per_s_per_gpu"})  # what has a mean
STATISTIC = re.compile(r"(?i)(?:avg\.?|average|mean|median)[\s_]+(?=\S)")
A_SECOND = "it/s"  # the unit of steps a second
STEP = r"(?:it|iters?|iterations?|steps?)"
OF_STEPS = re.compile(rf"(?i)(?:train[/_ ])?{STEP}[\s_]*(?:/|per)[\s_]*(?:s|sec|seconds?)")  # a rate
A_STEP = re.compile(rf"(?i)(s|sec|seconds?|ms)[\s_]*(?:/|per)[\s_]*{STEP}")
# objects inside of which a name means what it means alone
_LIFTED = (
    r"(?:parallel\w*|layout|strategy|mesh|config|args|hparams|train\w*|run|job|setup|batch|measured|results?|metrics)"
)
LIFTED = re.compile(rf"(?i){_LIFTED}(?:\.{_LIFTED})*")
IN_CELLS = {  # keys of a layout whose column has another name
    **{"mbs": "micro_batch", "zero": "zero_stage_fsdp", "sp": "seq_parallel"},
    **{name: name for name in ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "replicas")},
    **{name: name for name in ("schedule", "recompute", "order", "offload")},
}
SWITCHES = {  # columns of other engines that are on or off: the column that they stand for, and its cell for each
    **dict.fromkeys(("usedistributedoptimizer", "distributedoptimizer"), ("zero_stage_fsdp", "1", "0")),
    **{name: ("precision", name, "") for name in ("fp8", "bf16", "fp16")},
    "recomputeactivations": ("recompute", "selective", ""),
}
KNOWN = frozenset({*INPUTS, *MEASURED, *CARRIED})


def letters(name: str) -> str:
    """Return a name without marks and case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_column(name: str) -> bool:
    """Return whether a name means a column of a table of runs."""
    return column_of(name)[0] in KNOWN


def column_of(name: str) -> tuple[str, str]:
    """Return the column that a name means, and the unit behind it; a name that is none of them as it stands."""
    if name in KNOWN:
        return name, ""
    around, _, leaf = name.rpartition(".")
    if around and LIFTED.fullmatch(around):
        found = column_of(leaf)
        return found if found[0] in KNOWN else (name, "")
    if known := _known(name):
        return known, ""
    if OF_STEPS.fullmatch(name):
        return "step_time_s", A_SECOND
    if of_one := A_STEP.fullmatch(name):
        return "step_time_s", "ms" if of_one[1].lower() == "ms" else "s"
    united = UNIT.match(name)
    known = _known(united.group(1)) if united else ""
    if united is None or known not in MEASURED:
        return name, ""
    return known, unit_of(united.group(2))


def is_derived(name: str, unit: str) -> bool:
    """Return whether a column has a statistic of what it means, or its rate, with this unit."""
    return unit == A_SECOND or STATISTIC.match(name) is not None


def unit_of(word: str) -> str:
    """Return a unit of time or memory as cells have it: "ms", "GiB"."""
    unit = word.lower()
    return UNITS.get(unit) or (unit if unit.endswith("s") else unit[:-1].upper().replace("I", "i") + "B")


def _known(name: str) -> str:
    """Return the column that a name without a unit means, "" where none is."""
    plain = letters(name)
    if plain in SWITCHES:
        return ""
    if (statistic := STATISTIC.match(name)) and (of := _known(name[statistic.end() :])) in OF_MANY_STEPS:
        return of
    own = IN_CELLS.get(own_name(plain) or plain, "")
    exact = next((known for known in (*INPUTS, *MEASURED) if letters(known) == plain), "")
    found = exact or NAMES.get(plain, "") or own or ("tokens_per_s_per_gpu" if RATE.fullmatch(plain) else "")
    if found or not TOKENS.search(name):
        return found
    bare = letters(TOKENS.sub("", name))
    return IN_TOKENS.get("global_batch_sequences" if bare == "batchsize" else _known(bare), "")
