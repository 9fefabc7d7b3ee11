"""The ways of asking `meshwright plan`, and which options each of them reads: what it does not read is refused.

A new option belongs in this table: until it is named here every way refuses it.
"""

from collections.abc import Mapping

import click

from ..errors import InputError
from .plan_here import HERE

SEARCH = "a search"
LOCAL = f"--cluster {HERE}"
JOB_TARGET = "--job and a target"
TARGETS = frozenset({"--target-mfu", "--target-step-time", "--target-days"})
_ASKED = frozenset({"model_name", "cluster", "gpus", "global_batch", "seq_len", "precision", "as_json"})
_RATES = frozenset({"intra", "inter", "hardware"})
_OWN_RUNS = frozenset({"calibrate", "save"})
_CONDITIONS = frozenset({"only", "without"})
_EMITTED = frozenset({"engine", "emit", "emit_to"})
_FILES = frozenset({"output", "html", "graph"})
# what a setting of the planner is made of
_SETTING = _ASKED | _RATES | _OWN_RUNS | {
    *("allow_unknown", "stack", "optimizer", "weights", "loss", "lora_rank", "mtp_layers", "imbalance"),
    *("recompute_modules", "activations_away", "recipe", "latency", "fabric", "placements"),
}  # fmt: skip
_TARGET = _SETTING | _CONDITIONS | {"plot"}
_JOB = _ASKED | _RATES | _OWN_RUNS | _CONDITIONS | {
    *("job", "more", "stack", "weights", "loss", "mtp_layers", "latency", "fabric", "tokens"),
}  # fmt: skip
_ENVELOPE = _ASKED - {"model_name"} | _RATES | {"tokens", "mfu", "recompute", "layers", "optimizer", "target_days"}
READ: Mapping[str, frozenset[str]] = {  # the way as it is named to the user: the options that it reads
    SEARCH: _SETTING | _CONDITIONS | _EMITTED | _FILES | {"refine", "tokens"},
    "--layout": _SETTING | _EMITTED | _FILES | {"layout", "tokens"},
    "--job": _JOB | _EMITTED | {"layout", "output", "html"},
    JOB_TARGET: _JOB | {"target_mfu", "target_step_time", "target_days", "plot"},
    "--params": _ENVELOPE | {"params"},
    "--mfu": _ENVELOPE | {"model_name", "mtp_layers", "allow_unknown"},
    "--target-mfu": _TARGET | {"target_mfu"},
    "--target-step-time": _TARGET | {"target_step_time"},
    "--target-days": _TARGET | {"target_days", "tokens"},
    "--compare": _SETTING - {"save"} | _CONDITIONS | {"compare", "layout"},
    "--scaling": _SETTING | _CONDITIONS | {"scaling"},
    "--modes": _SETTING | _CONDITIONS | {"modes", "slow"},
    LOCAL: _ASKED | {"allow_unknown", "layout", "output", "graph"},
}  # fmt: skip
# where several are typed the first of these is the way, and refuses the others
_ORDER = (
    *(JOB_TARGET, "--job", "--params", "--mfu", "--target-mfu", "--target-step-time", "--target-days"),
    *("--compare", "--scaling", "--modes", "--layout"),
)

_ITS_SIZES = "--model, --gpus and --global-batch in place of the job's files"
# what comes near to a way that does not go with a job
_BESIDE_A_JOB = {
    "--compare": "--job is priced on one --cluster after another",
    "--scaling": f"{_ITS_SIZES} draw the curve",
    "--modes": f"{_ITS_SIZES} set them side by side",
    "--lora-rank": "the engine's own word behind the files says it, such as lora_r=16",
}


def check_read(context: click.Context, *, here: bool = False) -> None:
    """Raise InputError for the first option of the command line that the way it asks for does not read.

    `here`: the cluster is this machine.
    """
    typed = {
        option.name: option.opts[0]
        for option in context.command.params
        if option.name and context.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    }
    way = LOCAL if here else asked_way(typed)
    for name, flag in typed.items():
        if name not in READ[way]:
            raise InputError(refusal_of_way(way, name, flag))


def asked_way(typed: Mapping[str, str]) -> str:
    """Return the way that options ask for on machines of the catalogue, by their names and flags."""
    flags = set(typed.values())
    if "--job" in flags and not flags.isdisjoint(TARGETS):
        flags.add(JOB_TARGET)
    return next((way for way in _ORDER if way in flags), SEARCH)


def refusal_of_way(way: str, name: str, flag: str) -> str:
    """Return why a way does not take an option, with the ways that do."""
    if way == LOCAL:
        return f"{LOCAL} is measured, not looked up: {flag} does not go with it"
    near = _BESIDE_A_JOB.get(flag, "") if way in {"--job", JOB_TARGET} else ""
    more = f" ({near})" if near else ""
    if flag in READ:
        return f"{flag}: not with {way}: give one of the two{more}"
    *others, last = [other for other in READ if name in READ[other] and other != JOB_TARGET]
    ways = f"{', '.join(others)} or {last}" if others else last
    return f"{flag}: needs {ways}" if way == SEARCH else f"{flag}: not with {way}; it goes with {ways}{more}"
