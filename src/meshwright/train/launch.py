"""Starting the ranks of a run on this machine through torchrun's agent, again and again where they die."""

import logging
import os
import signal
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from ..bench.ranks.pool import start_fork_server
from ..cluster.discovery.local import usable_cores
from ..device import count
from ..errors import InputError, MeshwrightError
from ..files import readable, to_json
from ..temporary import process_folder
from .checkpoint.folder import latest_checkpoint
from .checkpoint.manifest import read_manifest
from .elastic.agent import STOPPED_EXIT_CODE, AgentStart, failure_text, first_failure, run_agent
from .elastic.surroundings import handlers_kept, have_descriptors
from .job.config import JobConfig
from .run.events import Event, EventLog, ended_launchers
from .run.run_folder import RunFolder
from .worker import main as worker_main


def ranks_here(config: JobConfig) -> int:
    """Return how many ranks this machine runs where there are several: as configured, or one a GPU or core."""
    return config.launch.ranks or count() or usable_cores()


def launch(run_dir: str, *, config: JobConfig, ranks: int) -> str:
    """Run the job of a run folder on `ranks` processes of this machine; return "" or what stopped it.

    Blocks until all have ended. Raises InputError or MeshwrightError with the one line of the first rank that failed,
    KeyboardInterrupt where the run was interrupted before it could save.
    """
    # A rank that is killed must not leave the others in a store that lives in the agent (see torch's elastic notes).
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    for name in logging.root.manager.loggerDict:  # what they say is said in the events; each has a level of its own
        if name.startswith(("torch.distributed.elastic", "torch.multiprocessing")):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    have_descriptors(ranks)
    start_fork_server("meshwright.train.worker")
    settings = config.launch
    host, _, port = settings.rendezvous.rpartition(":")
    folder = RunFolder(Path(run_dir))
    events = EventLog(folder.events, None)
    events.keep_room()
    ended_before = Counter(ended_launchers(folder.events))
    was_complete = is_complete(folder, config)  # then what fails is not what comes after the last save

    def now_complete() -> bool:
        return not was_complete and is_complete(folder, config)

    with tempfile.TemporaryDirectory(dir=process_folder()) as logs:
        start = AgentStart(
            name=readable(os.path.basename(run_dir)) or "job",
            ranks=ranks,
            nodes=settings.nodes,
            min_nodes=settings.min_nodes or settings.nodes,
            host=host if settings.nodes > 1 else "127.0.0.1",
            port=int(port) if settings.nodes > 1 else settings.port,
            max_restarts=settings.max_restarts,
            timeout_s=settings.timeout_s,
            rejoin_s=settings.rejoin_s,
            logs=logs,
            secret=folder.secret(),
            is_complete=now_complete,
        )
        try:
            with handlers_kept():
                run_agent(start, worker_main, (run_dir, os.getpid(), to_json(config)), events)
        except ChildFailedError as error:
            if all(failure.exitcode == STOPPED_EXIT_CODE for failure in error.failures.values()):
                why = Counter(ended_launchers(folder.events)) - ended_before
                return "; ".join([*why, _interrupted(run_dir)])
            if now_complete():  # it ended in what comes after the last save
                text = f"{first_failure(error.failures)}; the run was complete by then"
                events.record(Event(kind="failure", message=text))
                return ""
            raise _failure(error) from None
        except SignalException as told:  # the ranks were told too
            signal.signal(told.sigval, _leave_now)
            return _interrupted(run_dir)
    return ""


def is_complete(folder: RunFolder, config: JobConfig) -> bool:
    """Return whether the last step of a run is trained, logged and saved."""
    saved = latest_checkpoint(folder.checkpoints)
    try:
        rows = folder.metric_rows()
        return bool(
            saved and rows and read_manifest(saved).facts.step == config.train.steps == int(rows[-1]["step"]) + 1
        )
    except (InputError, KeyError):
        return False


def _leave_now(signum: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt


def _interrupted(run_dir: str) -> str:
    """Return how to go on after an interrupt; KeyboardInterrupt if nothing had been saved."""
    saved = latest_checkpoint(RunFolder(Path(run_dir)).checkpoints)
    if saved is None:
        raise KeyboardInterrupt
    return f"interrupted; --resume {run_dir} goes on from {saved.name}"


def _failure(error: ChildFailedError) -> MeshwrightError:
    """Return the first rank's failure as an error of ours."""
    first = min(error.failures.values(), key=lambda failure: failure.timestamp)
    kind, _, rest = failure_text(first).partition(": ")
    if kind == "InputError":
        return InputError(rest)
    if kind in {"MeshwrightError", "NotFinite", "CorruptionError", "CorruptionRestart"}:
        return MeshwrightError(rest)
    return MeshwrightError(first_failure(error.failures))
