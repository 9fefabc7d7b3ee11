"""Refusals of files that configure no engine that is read: each says what is missing, or what is started instead."""

import re

from ..errors import InputError
from .shell.marks import shown
from .sources import Sources, as_given

EXPECTED = (
    "a Megatron-LM script or YAML, a Megatron-Bridge recipe, NeMo, Automodel, Accelerate or MaxText YAML, "
    "a torchtitan TOML or registry, a DeepSpeed JSON, or TrainingArguments"
)
# variables of a script that say how a training is split, or of which sizes it is
OF_SPLIT = re.compile(
    r"(?:TP|PP|CP|EP|DP|SP|VPP|MBS|GBS|MINIBS|FP8|(?:\w+_)?(?:TP|PP|CP|EP|DP|BATCH|LAYERS|HIDDEN|HEADS|SEQ_?LEN(?:GTH)?)"
    r"|\w*(?:NNODES|NODES|NGPUS?|GPUS_PER_NODE|BATCH_SIZE|(?:TENSOR|PIPELINE|CONTEXT)\w*_(?:PARALLEL|SIZE)))"
)
MOST_TOLD = 12


def unrecognised(sources: Sources) -> InputError:
    """Return why none of these files is the job of an engine that is read."""
    own, given = sources.names[0], as_given(sources.names[0])
    if sources.called_missing:
        name = sources.called_missing[0]
        return InputError(f"{own}: starts {name}, which is not here: give it too (--job {given} {name})")
    if sources.programs:
        return _of_own_program(sources)
    missing = list(dict.fromkeys(sources.sourced_missing))
    if missing:
        names = " ".join(path.rpartition("/")[2] for path in missing)
        are = "are" if len(missing) > 1 else "is"
        return InputError(
            f"{own}: starts no training by itself, and sources {' and '.join(missing)}, which {are} not here: "
            f"give {'them' if len(missing) > 1 else 'it'} too (--job {given} {names}){_split_told(sources)}"
        )
    if sources.variables and not sources.documents:
        return InputError(
            f"{' + '.join(sources.names)}: starts no training: give the script that does too (--job {given} SCRIPT)"
            f"{_split_told(sources)}"
        )
    return InputError(f"{' + '.join(sources.names)}: no engine's configuration is recognised; expected {EXPECTED}")


def _of_own_program(sources: Sources) -> InputError:
    """Return the refusal of a program that is of no engine that is known."""
    told, own, name = ", ".join(sources.programs[:3]), sources.names[0], sources.programs[0]
    files = sources.python_files
    here = any(files.started_by(one, sources.written, sources.folder) for one in sources.programs[:3])
    gives = "" if here else f"; {name} is not here: --job {as_given(own)} {name} gives it too"
    ranks = f"; read so far: {sources.ranks_told}" if sources.ranks_told else ""
    return InputError(
        f"{own}: starts {told}, no training of an engine that is known (what a program of one's own does "
        f"is said by --model, --layout, --gpus, --global-batch and --seq-len in place of --job{gives}); "
        f"expected {EXPECTED}{ranks}"
    )


def _split_told(sources: Sources) -> str:
    """Return in words the settings of a split that scripts set, "" where they set none."""
    found = [
        f"{name}={shown(value)}" for name, value in sources.variables.items() if OF_SPLIT.fullmatch(name) and value
    ]
    return f"; it sets {', '.join(found[:MOST_TOLD])}" if found else ""
