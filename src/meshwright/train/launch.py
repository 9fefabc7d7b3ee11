"""Starting the ranks of a run on this machine through torchrun's own API."""

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ..bench.pool import start_fork_server
from ..errors import InputError, MeshwrightError
from .checkpoint.folder import latest_checkpoint
from .run_folder import RunFolder
from .worker import STOPPED_EXIT_CODE
from .worker import main as worker_main


def launch(run_dir: str, *, ranks: int, port: int) -> str:
    """Run the job of a run folder on `ranks` processes of this machine; return "" or what stopped it.

    Blocks until all have ended. Raises InputError or MeshwrightError with the one line of the first rank that failed,
    KeyboardInterrupt where the run was interrupted before it could save.
    """
    # A rank that is killed must not leave the others in a store that lives in the agent (see torch's elastic notes).
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    start_fork_server("meshwright.train.worker")
    with tempfile.TemporaryDirectory(prefix="meshwright-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id=os.path.basename(run_dir),
            rdzv_backend="c10d",
            rdzv_endpoint=f"127.0.0.1:{port}",
            local_addr="127.0.0.1",
            max_restarts=0,
            start_method="forkserver",
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        try:
            elastic_launch(config, worker_main)(run_dir, os.getpid())
        except ChildFailedError as error:
            if all(failure.exitcode == STOPPED_EXIT_CODE for failure in error.failures.values()):
                return _interrupted(run_dir)
            raise _failure(error) from None
        except SignalException:  # the ranks were told too
            return _interrupted(run_dir)
    return ""


def _interrupted(run_dir: str) -> str:
    """Return how to go on after an interrupt; KeyboardInterrupt if nothing had been saved."""
    saved = latest_checkpoint(RunFolder(Path(run_dir)).checkpoints)
    if saved is None:
        raise KeyboardInterrupt
    return f"interrupted; --resume {run_dir} goes on from {saved.name}"


def _failure(error: ChildFailedError) -> MeshwrightError:
    """Return the first rank's failure as an error of ours."""
    rank, first = min(error.failures.items(), key=lambda item: item[1].timestamp)
    message: Any = first.message  # of a rank that raised: a dict with "TypeName: text"
    text = " ".join(str(message["message"] if isinstance(message, dict) else message).split())
    kind, _, rest = text.partition(": ")
    if kind == "InputError":
        return InputError(rest)
    if kind == "MeshwrightError":
        return MeshwrightError(rest)
    return MeshwrightError(f"rank {rank} failed: {text if first.exitcode >= 0 else f'signal {-first.exitcode}'}")
