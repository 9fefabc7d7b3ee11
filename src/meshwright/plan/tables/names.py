"""Names of columns as people and engines write them, each with the column that it means and the unit behind it."""

import re
from collections.abc import Mapping, Sequence

from ...layout_names import OF_PAPERS, own_name
from .columns import CARRIED, INPUTS, MEASURED

STEP = r"(?:it|iters?|iterations?|steps?)"
UNIT = re.compile(
    r"(?i)^(.*?)[\s_,]*(?:\(\s*|\[\s*|[\s_,])(?:in\s+)?(s|ms|us|sec|seconds|bytes|[kmgt]i?b)"
    rf"(?:\s*(?:/|per)\s*{STEP})?\s*[)\]]?$"
)
UNITS = {"sec": "s", "seconds": "s", "bytes": "B"}
BATCHES = (
    *("globalbatchsize", "globalbatch", "globalbsz", "globalbs", "gbs", "gbsz"),
    *("totalbatchsize", "totalbatch", "effectivebatchsize"),
)
BARE_BATCHES = frozenset({"bs", "bsz", "batch", "batchsize"})  # of a step, of a GPU or of a micro-batch
STREAM_WIDTHS = ("modeldim", "modeldims", "embdim", "baseembdim", "dim")  # of the residual stream
# of it too, but beside one of those of the network: Pax's model_dims and hidden_dims (google/paxml:
# paxml/tasks/lm/model_params.py), the dim and hidden_dim of Llama's own code
EITHER_WIDTHS = ("hiddendim", "hiddendims")
KINDS_OF_SPLIT = (  # columns of words such as DDP and FSDP
    *("dpstrategy", "dataparallelstrategy", "parallelstrategy", "parallelismstrategy", "trainingstrategy"),
    *("distributiontype", "distributedtype", "distributedstrategy", "distributionstrategy", "paralleltype"),
)
NAMES = {  # of columns, without marks, case and units
    **dict.fromkeys(("name", "run", "runname", "runid"), "id"),
    **dict.fromkeys(("stack", "engine", "framework"), "family"),
    **dict.fromkeys(
        (
            *("accelerator", "gputype", "gpumodel", "gpuname", "hardware", "devicetype", "devicename"),
            *("acceleratortype", "acceleratorname", "chiptype", "platform", "system"),
        ),
        "gpu",
    ),
    **dict.fromkeys(
        (
            *("gpus", "ngpus", "numgpu", "gpucount", "numberofgpus", "totalgpus", "worldsize"),
            *("chips", "nchips", "numchips", "numberofchips", "totalchips"),
            *("gpunum", "devices", "ndevices", "numdevices", "numberofdevices", "totaldevices", "devicecount"),
            *("numaccelerators", "numberofaccelerators", "hpus", "numhpus", "numberofhpus", "npus", "numnpus"),
        ),
        "num_gpus",
    ),
    **dict.fromkeys(("nodes", "nnodes", "numnodes", "nodecount", "numberofnodes", "servers", "numservers"), "nodes"),
    **dict.fromkeys(("gpuspernode", "gpusnode", "nprocpernode"), "gpus_per_node"),
    **dict.fromkeys(("model", "modelnameorpath", "modelid", "basemodel"), "model_name"),
    **dict.fromkeys(
        (
            *("numlayers", "nlayers", "nlayer", "numhiddenlayers", "numberoflayers", "modellayers"),
            *("decoderlayers", "numdecoderlayers", "basenumdecoderlayers", "transformerlayers"),
        ),
        "layers",
    ),
    **dict.fromkeys(
        (
            *("hiddensize", "dmodel", "nembd", "nhidden", "embeddingdim", "embeddingdimension"),
            *(*STREAM_WIDTHS, *EITHER_WIDTHS),
        ),
        "hidden",
    ),
    **dict.fromkeys(
        (
            *("nheads", "nhead", "numheads", "numattentionheads", "attentionheads", "numberofheads", "queryheads"),
            *("numqueryheads", "basenumqueryheads", "numberofattentionheads"),
        ),
        "heads",
    ),
    **dict.fromkeys(
        ("nkvheads", "numkvheads", "numkeyvalueheads", "numquerygroups", "keyvalueheads", "basenumkvheads"), "kv_heads"
    ),
    **dict.fromkeys(
        (
            *("ffn", "ffnsize", "ffnhiddensize", "intermediatesize", "dff", "ffndim", "mlpdim", "basemlpdim"),
            *("mlphiddensize", "intermediatedim", "dimfeedforward", "feedforwarddim", "feedforwardsize"),
        ),
        "ffn_hidden",
    ),
    **dict.fromkeys(("vocabsize", "vocabulary", "vocabularysize"), "vocab"),
    **dict.fromkeys(("gated", "swiglu", "useswiglu", "gatedlinearunit", "gatedlinearunits"), "gated_mlp"),
    **dict.fromkeys(
        ("tieembeddings", "tiedembeddings", "tiewordembeddings", "tiedwordembeddings", "weighttying"), "tied"
    ),
    **dict.fromkeys(
        (
            *(
                "seq",
                "seqlength",
                "seqlen",
                "sequencelength",
                "contextlength",
                "maxseqlen",
                "maxseqlength",
                "maxlength",
                "maxtargetlength",
            ),
            *("blocksize", "sl", "contextsize", "contextwindow", "ctx", "ctxlen", "nctx", "maxsequencelength"),
            *("packedseqlength", "packedseqlen", "packedsequencelength"),
        ),
        "seq_len",
    ),
    **dict.fromkeys(BATCHES, "global_batch_sequences"),
    **dict.fromkeys(
        ("tokensperstep", "tokensstep", "tokensperbatch", "tokensbatch", "batchtokens", "globalbatchsizetokens"),
        "global_batch_tokens",
    ),
    **dict.fromkeys(
        (
            *("gradientaccumulationsteps", "gradientaccumulation", "gradaccumulationsteps", "gradaccumulation"),
            *("gradaccum", "gradaccumsteps", "accumulation", "gas", "ga", "nummicrobatches"),
            *("nmicrobatches", "numberofmicrobatches", "micronum"),  # the last InternEvo's
        ),
        "accumulation_steps",
    ),
    **dict.fromkeys(("microbsz", "microbs", "mbsz"), "micro_batch"),
    **dict.fromkeys(
        ("zero", "sharding", "shardingstrategy", "fsdpshardingstrategy", "deepspeedstage", "deepspeedzerostage"),
        "zero_stage_fsdp",
    ),
    **dict.fromkeys(
        (
            *("activationcheckpointing", "gradientcheckpointing", "recomputation", "recomputegranularity", "ac"),
            *(
                "activationcheckpointmode",
                "rematpolicy",
                "activationcheckpoint",
                "activationckpt",
                "gradientcheckpoint",
            ),
            *("checkpointactivations", "usegradientcheckpointing", "gradientcheckpointingenable"),
            *("activationrecomputation", "activationrecompute"),
        ),
        "recompute",
    ),
    **dict.fromkeys(("dtype", "mixedprecision", "computedtype", "torchdtype", "datatype", "numerics"), "precision"),
    **dict.fromkeys(("note", "comment", "comments", "remarks"), "notes"),
    **dict.fromkeys(("parallelism", "parallel", "parallelconfig", "strategy", "mesh", *KINDS_OF_SPLIT), "layout"),
    **dict.fromkeys(("steptime", "timeperstep", "iterationtime", "itertime", "timeperiteration"), "step_time_s"),
    **dict.fromkeys(
        (
            *("peakmemory", "peakmem", "maxmemory", "maxmem", "peakmemorypergpu", "gpumemmax", "peakreserved"),
            *("peakmemorygpu", "peakmempergpu", "peakmemgpu", "maxmemorypergpu", "maxmempergpu", "maxmemorygpu"),
            *("memorymaxreserved", "memory", "mem", "memoryusage", "memoryused", "usedmemory", "memorypergpu"),
            *("gpumemory", "gpumem", "vram", "gpumemoryusage", "gpumemoryused", "vramusage", "peakvram"),
        ),
        "peak_memory_bytes_per_gpu",
    ),
    "throughputtps": "tokens_per_s_per_gpu",  # torchtitan's metric, of one device: pytorch/torchtitan, metrics.py
}
_DEVICE = "(?:gpu|device|chip|accelerator|hpu|npu)"
MICRO = re.compile(  # of one GPU: "per-gpu micro batch", "micro batch size per device", "MBS/GPU"
    rf"(?:per)?{_DEVICE}(?:train)?micro(?:batch(?:size)?|bsz?)|(?:train)?(?:micro(?:batch(?:size)?|bsz?)|mbs)(?:per|a|each)?{_DEVICE}"
)
# names that mean a column where no other one does
WEAK = frozenset(
    [
        *("hardware", "platform", "system", "devicetype", "devicename", "chiptype", "acceleratorname"),
        *("chips", "devices", "ndevices", "numdevices", "devicecount", "servers", "numservers"),
        *(
            "seq",
            "maxseqlength",
            "maxlength",
            "ffn",
            "mesh",
            "modelnameorpath",
            "modelid",
            "basemodel",
            "deepspeedstage",
        ),
        *("blocksize", "sl", "contextsize", "contextwindow", "ctx", "ctxlen", "nctx", "maxsequencelength"),
        *("gated", "swiglu", "mixedprecision", "computedtype", "torchdtype", "datatype", "numerics"),
        *(*STREAM_WIDTHS, *EITHER_WIDTHS, *KINDS_OF_SPLIT),
        *("gpumemory", "gpumem", "vram", "gpumemoryusage", "gpumemoryused", "vramusage", "peakvram"),
        *("gpumemmax", "peakreserved", "memorymaxreserved", "throughputtps"),
        *("memory", "mem", "maxmem", "memoryusage", "memoryused", "usedmemory", "memorypergpu"),
    ]
)
_SPEED = "(?:throughput|thput|speed)"
RATE = re.compile(  # of one GPU: "Tokens / sec / GPU", "Throughput (T/s/GPU)", "TPS per GPU", "tok/GPU/s", "TGS"
    rf"{_SPEED}?(?:t|toks?|tokens?|w|words?)"
    rf"(?:(?:per|p)?(?:s|sec|second)(?:per)?{_DEVICE}|(?:per)?{_DEVICE}(?:per)?(?:s|sec|second))|tgs"
)
_A_SECOND = r"(?:t|toks?|tokens?|w|words?)(?:per|p|/)(?:s|sec|second)"
_TOGETHER = r"(?:total|overall|global|aggregate|aggregated|cluster|allgpus|allchips|alldevices)"
OF_ALL = re.compile(  # "total tokens/s", "Throughput (tokens/s, all GPUs)"
    rf"{_TOGETHER}(?:throughput)?{_A_SECOND}|(?:throughput)?{_TOGETHER}{_A_SECOND}|(?:throughput)?{_A_SECOND}(?:of)?{_TOGETHER}"
)
OPEN_RATE = re.compile(rf"(?:train|training|avg|average|mean)?{_SPEED}?{_A_SECOND}")  # of one GPU or of all
_SAMPLES = "(?:samples|sequences|seqs|sentences|examples)"
SAMPLES = re.compile(  # of all GPUs: "Throughput (samples/s)", "train_samples_per_second", "Throughput (S/s)"
    rf"(?:train|training)?(?:(?:throughput|thput)s|{_SPEED}?{_SAMPLES})(?:per)?(?:s|sec|second)"
)
SAMPLES_OF_ONE = re.compile(  # of one GPU: "samples/s/GPU", "sentences per GPU per second"
    rf"{_SPEED}?{_SAMPLES}(?:(?:per)?(?:s|sec|second)(?:per)?{_DEVICE}|(?:per)?{_DEVICE}(?:per)?(?:s|sec|second))"
)
COUNT = re.compile(rf"(?i)(?:#|no\.?|num(?:ber)?[\s_-]+of)[\s_-]*(?:of[\s_-]+)?(?:{_DEVICE})s?")  # "# GPU"
NETWORK = re.compile(  # "network per node (Gbps)"; GB/s are bytes
    r"(?i:(?:inter-?node|network|interconnect|nics?)[\s_]*(?:rate|bandwidth|speed)?[\s_]*(?:per|/|a)[\s_]*node)[\s_,]*"
    r"[(\[]?\s*(?:Gbps|gbps|Gb/s|Gbit/s)\s*[)\]]?"
)
A_WHOLE_STEP = re.compile(rf"time(?:per|a)(?:one)?(?:global|train|training|optimi[sz]er)?{STEP}")
SEQUENCES = re.compile(r"(?i)\s*[(\[]?\s*(?:in )?(?:seqs?|sequences|samples|sentences)\s*[)\]]?$")  # a unit behind
TOKENS = re.compile(r"(?i)\s*(?:[(\[]\s*(?:t|toks?|tokens?)\s*[)\]]|[\s_](?:in[\s_])?tok(?:en)?s)$")  # a unit
IN_TOKENS = {  # columns that are in tokens where their names say so
    "seq_len": "seq_len",
    "global_batch_sequences": "global_batch_tokens",
}
OF_MANY_STEPS = frozenset({"step_time_s", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s"})  # what has a mean
STATISTIC = re.compile(r"(?i)(?:avg\.?|average|mean|median|approx\.?|approximate)[\s_]+(?=\S)")
MEASURED_WORD = re.compile(r"(?i)(?:train(?:ing)?|elapsed|measured|observed|actual)[\s_]+(?=\S)")  # before such a name
ONE_STEP = frozenset({"step", "iteration", "iter"})  # a number, and with a unit of time behind it how long one takes
A_SECOND = "it/s"  # the unit of steps a second
OF_STEPS = re.compile(rf"(?i)(?:train[/_ ])?{STEP}[\s_]*(?:/|per)[\s_]*(?:s|sec|seconds?)")  # a rate
A_STEP = re.compile(rf"(?i)(s|sec|seconds?|ms)[\s_]*(?:/|per)[\s_]*{STEP}")
# objects inside of which a name means what it means alone
_LIFTED = (
    r"(?:parallel\w*|layout|strategy|mesh|config|args|hparams|train\w*|run|job|setup|batch|measured|results?|metrics"
    r"|experimental|float8)"
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
    **dict.fromkeys(("enablefloat8linear", "tefp8"), ("precision", "fp8", "")),  # torchtitan's, ROCm's Megatron-LM's
    **dict.fromkeys(
        ("trainingcompile", "compileenable", "compile", "torchcompile"), ("notes", "torch.compile", "eager")
    ),
    **dict.fromkeys(
        ("flashattention", "flashattn", "useflashattention", "useflashattn"),
        ("notes", "flash attention", "no flash attention"),
    ),
}
KNOWN = frozenset({*INPUTS, *MEASURED, *CARRIED})


def letters(name: str) -> str:
    """Return a name without marks and case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def leaf_of(name: str) -> str:
    """Return the last part of a name behind objects inside of which it means what it means alone."""
    around, _, leaf = name.rpartition(".")
    return leaf if around and LIFTED.fullmatch(around) else name


def in_company(names: Sequence[str]) -> dict[str, str]:
    """Return what names mean beside others: t, p and d of papers, B and T of code, BS beside MBS."""
    plain = {name.strip().lower(): name for name in names if len(name.strip()) == 1}
    known = {column_of(name)[0] for name in names}
    return _letters_in_company(plain, known) | _batch_in_company(names, known) | _width_in_company(names, known)


def _width_in_company(names: Sequence[str], known: set[str]) -> dict[str, str]:
    """Return the column of a hidden dimension beside that of the model: the network's, where nothing else says it."""
    stream, either = (
        [name for name in names if letters(leaf_of(name)) in some] for some in (STREAM_WIDTHS, EITHER_WIDTHS)
    )
    return {either[0]: "ffn_hidden"} if stream and len(either) == 1 and "ffn_hidden" not in known else {}


def _batch_in_company(names: Sequence[str], known: set[str]) -> dict[str, str]:
    """Return the column of a plain batch beside that of a micro-batch: a whole step's, where nothing else says it."""
    bare = [name for name in names if letters(SEQUENCES.sub("", name)) in BARE_BATCHES]
    if "micro_batch" not in known or len(bare) != 1 or {"global_batch_sequences", "global_batch_tokens"} & known:
        return {}
    return {bare[0]: "global_batch_sequences"}


def _letters_in_company(plain: Mapping[str, str], known: set[str]) -> dict[str, str]:
    if {"t", "p"} <= plain.keys() and not {"tp", "pp"} & known:
        return {plain[one]: key for one, key in OF_PAPERS.items() if one in plain and key not in known}
    if {"b", "t"} <= plain.keys() and not {"micro_batch", "seq_len"} & known:
        return {plain["b"]: "micro_batch", plain["t"]: "seq_len"}
    return {}


def is_column(name: str) -> bool:
    """Return whether a name means a column of a table of runs."""
    return column_of(name)[0] in KNOWN


def column_of(name: str) -> tuple[str, str]:
    """Return the column that a name means, and the unit behind it; a name that is none of them as it stands."""
    if name in KNOWN:
        return name, ""
    if (leaf := leaf_of(name)) != name:
        found = column_of(leaf)
        return found if found[0] in KNOWN else (name, "")
    if known := _known(name):
        return known, ""
    if OF_STEPS.fullmatch(name):
        return "step_time_s", A_SECOND
    if of_one := A_STEP.fullmatch(name):
        return "step_time_s", "ms" if of_one[1].lower() == "ms" else "s"
    united = UNIT.match(name)
    if united and letters(MEASURED_WORD.sub("", united[1])) in ONE_STEP and unit_of(united[2]) in {"s", "ms", "us"}:
        plural = re.search(r"(?i)[a-z]\(s\)$", name)  # step(s)
        return (name, "") if plural else ("step_time_s", unit_of(united[2]))
    known = _known(united.group(1)) if united else ""
    if united is None or known not in MEASURED:
        return name, ""
    return known, unit_of(united.group(2))


def _with_strokes(name: str) -> str:
    """Return a name without marks and case but for strokes: tokens/s is a rate, tokens are none."""
    return re.sub(r"[^a-z0-9/]", "", name.lower())


def is_open_rate(name: str) -> bool:
    """Return whether a column is tokens a second of which its name does not say whether of one GPU or of all."""
    return column_of(name)[0] not in KNOWN and OPEN_RATE.fullmatch(_with_strokes(leaf_of(name))) is not None


def is_weak(name: str) -> bool:
    """Return whether a name means its column only where no other name does."""
    united = UNIT.match(name)
    return letters(united[1] if united else name) in WEAK


def is_derived(name: str, unit: str) -> bool:
    """Return whether a column has a statistic of what it means, or its rate, with this unit, or says it at length."""
    return unit == A_SECOND or any(before.match(name) for before in (STATISTIC, MEASURED_WORD))


def unit_of(word: str) -> str:
    """Return a unit of time or memory as cells have it: "ms", "GiB"."""
    unit = word.lower()
    return UNITS.get(unit) or (unit if unit.endswith("s") else unit[:-1].upper().replace("I", "i") + "B")


def _known(name: str) -> str:
    """Return the column that a name without a unit means, "" where none is."""
    plain = letters(name)
    if plain in SWITCHES:
        return ""
    if COUNT.fullmatch(name.strip()):
        return "num_gpus"
    before = STATISTIC.match(name) or MEASURED_WORD.match(name)
    if before and (of := _known(name[before.end() :])) in OF_MANY_STEPS:
        return of
    own = IN_CELLS.get(own_name(plain) or plain, "")
    exact = next((known for known in (*INPUTS, *MEASURED) if letters(known) == plain), "")
    rate = "tokens_per_s_per_gpu" if RATE.fullmatch(plain) else "samples_per_s" if SAMPLES.fullmatch(plain) else ""
    rate = rate or ("tokens_per_s" if OF_ALL.fullmatch(_with_strokes(name)) else "")
    whole = "step_time_s" if A_WHOLE_STEP.fullmatch(plain) else ""
    network = "inter_node_Gbps_per_node" if NETWORK.fullmatch(name.strip()) else ""
    micro = "micro_batch" if MICRO.fullmatch(plain) else ""
    found = exact or NAMES.get(plain, "") or own or rate or whole or network or micro
    if not found and (bare := SEQUENCES.sub("", name)) != name:  # "global batch (sequences)"
        found = "global_batch_sequences" if _known(bare) == "global_batch_sequences" else ""
    if found or not TOKENS.search(name):
        return found
    bare = letters(TOKENS.sub("", name))
    return IN_TOKENS.get("global_batch_sequences" if bare in {"batchsize", "batch"} else _known(bare), "")
