"""The model that `--model` names; where the file is an engine's configuration in its place, what reads that."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..workload.models import Model

NAMES = {"huggingface": "a Hugging Face trainer or DeepSpeed", "nemo_rl": "NeMo RL"}
OF_ENGINE = "{error}; it configures {engine}: --job {file} reads that"
SCRIPTS = frozenset({".sh", ".bash", ".slurm", ".sbatch"})
OF_SCRIPT = (
    "{error}; arguments in a script are read beside the one that starts a training with them: --job {file} SCRIPT"
)


def named_model(text: str, *, allow_unknown: bool = False) -> "Model":
    """Return the model of a name or a file; InputError says of an engine's own configuration that --job reads it."""
    from ..workload.models import load_model

    try:
        return load_model(text, allow_unknown=allow_unknown)
    except InputError as error:
        if (engine := _engine_of(text)) is None:
            if not Path(text).is_file() or Path(text).suffix not in SCRIPTS:
                raise
            raise InputError(OF_SCRIPT.format(error=error, file=text)) from None
        raise InputError(OF_ENGINE.format(error=error, file=text, engine=NAMES.get(engine, engine))) from None


def _engine_of(text: str) -> str | None:
    """Return the engine that a file configures or that a script starts, None where it is no such file."""
    from ..jobs.gather import gather_sources
    from ..jobs.read import reader_name

    if not Path(text).is_file():
        return None
    try:
        return reader_name(gather_sources([text]))
    except InputError:
        return None
