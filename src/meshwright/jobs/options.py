"""Settings of the command line for a job that is read from files."""

import msgspec

from ..workload.architecture import Architecture
from .model_choice import OwnModel

BY_LAYOUT = "say the layout with --layout in place of --job"  # of files that are not read


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the command line; each takes precedence over the files and is said."""

    gpus: int | None = None
    model: str | None = None  # name of the catalogue or file
    architecture: Architecture | None = None
    global_batch: int | None = None
    seq_len: int | None = None
    precision: str | None = None
    weights: str | None = None
    loss: str | None = None
    mtp_layers: int | None = None  # modules that predict further tokens, trained
    gpus_per_node: int | None = None  # of the cluster, for files that give nodes alone
    own: OwnModel | None = None  # the config.json of a model among the files
    folder: str = ""  # of the job's first file, from which its paths start
