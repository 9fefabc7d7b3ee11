"""Keys of a layout as other engines call them: Megatron-LM's, torchtitan's and FSDP's names, read as what they are."""

import difflib
import re
from collections.abc import Iterable, Mapping

from .errors import InputError, nearest

DEGREE = re.compile(r"(?i)(?<![a-wyz])(tp|pp|dp|cp|ep|etp|vpp|vp|mbs|fsdp|zero)[\s=:_-]*(\d{1,5})(?!\d)")

SAME = {  # names that mean what one key means, without marks between words
    "tp": (
        "tensorparallel",
        "tensorparallelism",
        "tensormodelparallelsize",
        "tensorparallelsize",
        "tensorparalleldegree",
        "tpsize",
        "tpdegree",
    ),
    "pp": (
        "pipelineparallel",
        "pipelineparallelism",
        "pipelinemodelparallelsize",
        "pipelineparallelsize",
        "pipelineparalleldegree",
        "ppsize",
        "ppdegree",
    ),
    "cp": (
        "contextparallel",
        "contextparallelism",
        "contextparallelsize",
        "contextparalleldegree",
        "cpsize",
        "cpdegree",
    ),
    "ep": (
        "expertparallel",
        "expertparallelism",
        "expertmodelparallelsize",
        "expertparallelsize",
        "expertparalleldegree",
        "epsize",
        "epdegree",
    ),
    "etp": ("experttensorparallelsize", "experttensorparalleldegree", "etpsize"),
    "dp": ("dataparallel", "dataparallelism", "dataparallelsize", "dataparalleldegree", "dpsize", "ddp"),
    "vpp": ("virtualpipelinemodelparallelsize", "virtualstages", "vp", "vppsize"),
    "mbs": ("microbatchsize", "microbatch", "perdevicetrainbatchsize", "trainmicrobatchsizepergpu"),
    "sp": ("sequenceparallel", "sequenceparallelism"),
    "zero": ("zerostage", "usedistributedoptimizer", "distributedoptimizer"),  # Megatron-LM's is ZeRO 1, or none
}
RANK_BATCH = "localbatchsize"  # torchtitan's, of one data-parallel rank: a micro-batch where no pipeline cuts it
SHARDS = frozenset({"fsdp", "dpshard", "dpshardsize", "dataparallelsharddegree"})  # ranks that share all states
# of them, degrees of torch's meshes, where FSDP cuts weights over dp_shard x cp: torchtitan (pytorch/torchtitan:
# torchtitan/distributed/parallel_dims.py, fsdp_enabled) and Accelerate (huggingface/accelerate:
# src/accelerate/parallelism_config.py, fsdp_dim_names)
MESH_SHARDS = SHARDS - {"fsdp"}
COPIES = frozenset({"dpreplicate", "dpreplicatesize", "dataparallelreplicatedegree"})  # whole copies beside each other
SHARDING = {  # what stands for each of them in a hint
    **{name: "fsdp" if name == "fsdp" else "dp_shard" for name in SHARDS},
    **dict.fromkeys(COPIES, "dp_replicate"),
}
REST = "-1"  # torchtitan: the ranks that are left
SWITCH = {"true": "1", "false": "0"}
VALUES = {  # of a name, or of the key that it stands for: switches as words, and PyTorch's schedules that are the same
    **{"sp": SWITCH, "usedistributedoptimizer": SWITCH, "distributedoptimizer": SWITCH},
    "schedule": {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved1f1b": "interleaved"},
}
ELSEWHERE = {  # values that are priced under another name
    ("schedule", "dualpipe"): "a bidirectional pipeline is not priced; --stack deepseek hides the traffic of experts "
    "behind computation as DualPipe does, and schedule=zb is the nearest to its bubble",
}
ULYSSES = (  # arXiv 2309.14509, section 3.1: heads are shared out over the ranks
    "Ulysses has no key; cp=N prices a ring, which sends keys and values in place of its all-to-alls and may have more "
    "ranks than there are heads"
)
UNNAMED = {  # what is no one key
    "hsdp": "say dp_replicate=COPIES,dp_shard=RANKS",
    **dict.fromkeys(
        ("numlayerspervirtualpipelinestage", "layerspervirtualpipelinestage", "layersperstage"),
        "say vpp, the stages of a pipeline rank: layers / pp / layers of a stage",
    ),
    "b": "mbs=N says the sequences of a micro-batch, --global-batch N those of a step",
    **dict.fromkeys(("ulysses", "ulyssesdegree", "ulyssessize", "ulyssessequenceparallelsize"), ULYSSES),
}
OF_PAPERS = {"t": "tp", "p": "pp", "d": "dp", "v": "vpp"}  # arXiv 2104.04473, section 3; its b is a key of nothing
NEAR = 0.85  # of two names, from which on one is taken for a slip of the other
OWN_NAME = {name: key for key, names in SAME.items() for name in names}


def pairs_of(text: str) -> list[tuple[str, str]]:
    """Return the keys and values that a text has in turn, "" for a value that it lacks.

    Commas, semicolons or blanks part them: "tp=4,pp=2", "tp=4 pp=2", or "TP4 PP2" where nothing else is said.
    """
    if "=" not in text and not re.sub(r"[\s,;/x*+-]", "", DEGREE.sub("", text)):
        return [(name.lower(), value) for name, value in DEGREE.findall(text)]
    parts = re.split(r"[\s,;]+", re.sub(r"\s*=\s*", "=", text))
    return [(part.partition("=")[0], part.partition("=")[2]) for part in parts if part]


def _plain(name: str) -> str:
    """Return a name without what engines put between and before its words: `--dp-shard` is `dpshard`."""
    return name.strip().lower().replace("-", "").replace("_", "")


def own_name(name: str) -> str | None:
    """Return the key of a layout that a name of another engine stands for; None where it is none."""
    return OWN_NAME.get(_plain(name))


def is_key(name: str) -> bool:
    """Return whether `own_values` reads a name of another engine."""
    return own_name(name) is not None or names_sharding(name) or _plain(name) == RANK_BATCH


def key_hint(name: str, known: Iterable[str]) -> str:
    """Return what may be meant by a name that is no key: how it is said, the key that it is a slip of, or the known."""
    key = _slip(name, OWN_NAME | SHARDING)
    return unnamed_hint(name) or (f"did you mean {key}?" if key else nearest(name, known))


def unnamed_hint(name: str) -> str:
    """Return how what a name means is said, where it is no one key of a layout; "" for all other names."""
    return UNNAMED.get(_plain(name), "")


def near_key(name: str) -> str:
    """Return the key of a layout of whose long names a name is a slip: `tensor_paralel` is `tp`; "" where of none."""
    return _slip(name, OWN_NAME)


def _slip(name: str, meant: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(_plain(name), meant, n=1, cutoff=NEAR)
    return meant[close[0]] if close else ""


def names_sharding(name: str) -> bool:
    """Return whether a name tells how many ranks share all states, or how many copies of them there are."""
    return _plain(name) in SHARDS | COPIES


def own_values(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Return given keys under a layout's own names: `dp_replicate=2,dp_shard=8` is `dp=16,replicas=2,zero=3`.

    A key that is no one's stays as it is. InputError where one thing is said twice, or shares are no whole number.
    """
    found: dict[str, str] = {}
    told = {_plain(name): (name, value.strip()) for name, value in given.items() if names_sharding(name)}
    for name, value in given.items():
        if names_sharding(name):
            continue
        own = "mbs" if _plain(name) == RANK_BATCH else own_name(name) or name
        if own in found:
            raise InputError(f"{where}: {own} is given twice, once as {name}")
        if (own, _plain(value)) in ELSEWHERE:
            raise InputError(f"{where}: {own}={value.strip()}: {ELSEWHERE[own, _plain(value)]}")
        found[own] = VALUES.get(_plain(name), VALUES.get(own, {})).get(_plain(value), value)
    batch = next((name for name in given if _plain(name) == RANK_BATCH), "")
    if batch and found.get("pp", "1").strip() != "1":
        raise InputError(f"{where}: {batch}: a pipeline cuts it into micro-batches; expected mbs, the size of one")
    if not told:
        return found
    if "dp" in found:
        names = " and ".join(name for name, _ in told.values())
        raise InputError(f"{where}: dp is the product of {names}; leave it out")
    shards = _whole(told, SHARDS, where)
    copies = _whole(told, COPIES, where)
    if copies == REST:
        raise InputError(f"{where}: expected the copies as a number of 1 or more; the ranks that are left share states")
    over_cp = found.get("cp", "1").strip() not in {"1", ""} and any(name in MESH_SHARDS for name in told)
    if shards == "1" and over_cp:  # weights are shared by the ranks of a sequence all the same
        found.setdefault("zero", "3")
        return found | {"dp": copies or "1"} | ({"replicas": copies} if copies not in {None, "1"} else {})
    if shards is None or shards == "1":
        return found | {"dp": copies or "1"}
    if found.setdefault("zero", "3").strip() in {"0", "1"}:
        zero = found["zero"].strip()
        raise InputError(f"{where}: zero={zero} shards no weights; expected zero=2 or 3, or dp={shards}")
    if copies is not None and copies != "1":
        found["replicas"] = copies
    return found if shards == REST else found | {"dp": str(int(shards) * int(copies or 1))}


def _whole(told: Mapping[str, tuple[str, str]], names: frozenset[str], where: str) -> str | None:
    """Return the number that one of some names has; None where none is given."""
    said = [told[name] for name in told if name in names]
    if len(said) > 1:
        raise InputError(f"{where}: {said[0][0]} and {said[1][0]} say the same; give one of them")
    if not said:
        return None
    name, value = said[0]
    if value != REST and not (value.isdecimal() and len(value) < 20 and int(value) > 0):
        raise InputError(f"{where}: {name}={value}: expected a whole number of 1 or more")
    return value
