"""One rank of a training job: joins the others, trains, and hands in what it recorded.

Called on every rank with the run folder, by torchrun's API or by an external launcher that has set the standard
environment variables.
"""

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist

from ..backend.faults.failures import CollectiveError
from ..backend.faults.flight import FLIGHT_VARIABLE
from ..backend.group.base import GroupBase
from ..backend.hosts.links import LINKS_VARIABLE
from ..backend.hosts.placement import switches_above
from ..bench.pace import pace
from ..bench.ranks.pool import let_fork_server_end
from ..bench.ranks.process import prepare_process
from ..cluster.discovery.binding import bind, binding, binding_of_gpu
from ..cluster.discovery.local import local_cluster, threads_per_rank
from ..cluster.discovery.sysfs import network_bytes_per_s
from ..cluster.doctor.stacks import listen
from ..cluster.emulation.linux import go_on_without_parent
from ..device import bus_id, is_accelerator, of_rank, set_current
from ..errors import InputError
from ..files import convert
from ..layout import Plan
from ..machine_load import Load, LoadCounters
from ..parallel.device_mesh import KEEPS_ORDER
from ..temporary import remove_inherited, remove_inherited_at_end
from ..timeline import typical_step
from ..units import counted
from .data.corpus import check_same_text, load_corpus
from .elastic.agent import STOPPED_EXIT_CODE
from .elastic.meeting import host_store, join_torchruns
from .elastic.store import SealedStore
from .elastic.surroundings import ignoring_stderr_errors
from .elastic.watch import Watch
from .integrity.corruption import CorruptionError
from .job.config import JobConfig
from .job.environment import Place, choose_backend, place
from .job.topology_file import export_switches
from .loop import Trainer
from .measure.measured import write_measured
from .measure.recorder import measured_steps
from .measure.records import RankRecord, agreed_steps, gathered_records
from .replan import ensure_planned
from .run.events import EventLog, launcher_ended
from .run.log import RunLog
from .run.run_folder import RunFolder, how_to_go_on

START_S = 60.0  # the least that ranks wait for each other to start
SAVE_PATIENCE_S = 1.0  # for the checkpoint under way when another rank has died
CORPUS_READ = "meshwright/corpus"  # in the store: the checksum of what rank 0 has read
PACED_S = 10.0  # a run that took longer is worth half a second to see whether its machine is as fast as it was
GRACE_S = 20.0  # for a rank to save after the launcher has died
FAREWELL_S = 5.0  # for the others to read from the store whom rank 0 blames, before the store ends with rank 0


class Member(msgspec.Struct, frozen=True):
    """A rank that has joined the others."""

    place: Place
    device: torch.device


def main(run_dir: str, launcher_pid: int, config_json: str) -> None:
    """Train as this process's environment says. Raises what went wrong, SystemExit(130) where a signal stopped it.

    A rank does not outlive the launcher: it saves and leaves, or is ended after `GRACE_S`.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores them; the loop sets its own
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    let_fork_server_end()
    go_on_without_parent()
    threading.Thread(target=_leave_with, args=(launcher_pid, run_dir), daemon=True).start()
    folder = RunFolder(Path(run_dir))
    config = convert(json.loads(config_json), JobConfig, where="config")
    with joined_ranks(config, folder) as member:
        ensure_planned(config, folder, rank=member.place.rank, ranks=member.place.world_size)
        stopped = train_rank(folder, member)
    if stopped:  # a rank that returned would wait for the launcher, which is leaving
        sys.exit(STOPPED_EXIT_CODE)


@contextlib.contextmanager
def joined_ranks(config: JobConfig, folder: RunFolder) -> Iterator[Member]:
    """Join the other ranks for the body of a `with`, as the environment says; InputError where that cannot be."""
    here = place(os.environ)
    os.environ.setdefault(FLIGHT_VARIABLE, str(folder.flight))
    os.environ.setdefault(LINKS_VARIABLE, str(folder.links))
    export_switches(config.launch.topology, os.environ)
    threads = threads_per_rank(here.local_world_size)  # a share of the host's cores, so before this rank is bound
    backend = choose_backend(config.launch.backend, here.local_world_size)
    device = of_rank(here.local_rank, backend)
    _bind(here, device)
    prepare_process(threads)
    set_current(device)
    store = _join(backend, config, folder, device, here) if here.world_size > 1 else None
    try:
        with ignoring_stderr_errors():
            yield Member(here, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        if isinstance(store, SealedStore):
            store.close(FAREWELL_S)


def _bind(here: Place, device: torch.device) -> None:
    """Bind this rank to the NUMA node of its device, where there is a choice."""
    cluster, bus = local_cluster(), bus_id(device.index) if is_accelerator(device) else None
    where = binding_of_gpu(bus, cluster) if bus else binding(cluster, here.local_rank, here.local_world_size)
    if where is not None:
        bind(where)


def train_rank(folder: RunFolder, member: Member) -> str:
    """Run the planned job of a run folder on this rank; return "" or what stopped it."""
    config, plan = folder.whole_config(), folder.plan()
    if member.place.world_size != plan.layout.world_size:
        raise InputError(
            f"{folder.path}: planned for {counted(plan.layout.world_size, 'rank')}, started with "
            f"{member.place.world_size}"
        )
    return _train(config, plan, folder, member.place, member.device)


def _leave_with(launcher_pid: int, run_dir: str) -> None:
    """Wait for the launcher to end; then record that, clean up after it, ask this process to stop, and end it."""
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        select.select([os.pidfd_open(launcher_pid)], [], [])
    EventLog(RunFolder(Path(run_dir)).events, int(os.environ["RANK"])).record(launcher_ended(launcher_pid))
    remove_inherited_at_end()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    remove_inherited()
    os._exit(1)


def _join(backend: str, config: JobConfig, folder: RunFolder, device: torch.device, here: Place) -> dist.Store:
    """Meet the other ranks and return the job's store.

    Rank 0 hosts it on the interface of MASTER_ADDR, unless torchrun's agent does.
    """
    timeout_s = config.launch.timeout_s
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0"))
    store: dist.Store
    start_s = max(timeout_s, START_S)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # the same store at every attempt
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt {attempt}", join_torchruns(address, port, start_s))
    else:  # a new one: machines may have counted different numbers of attempts
        store = (SealedStore if here.rank else host_store)(address, port, start_s, folder.secret())
    dist.init_process_group(
        backend,
        store=store,
        rank=here.rank,
        world_size=here.world_size,
        timeout=timedelta(seconds=start_s),
        device_id=device if is_accelerator(device) else None,
    )
    return store


def _all_ready(timeout_s: float) -> None:
    """Return once all ranks are ready to train; from then on they wait for each other for `timeout_s` alone.

    Until then each reads the corpus and the checkpoint in its own time, and that is no reason to blame one: they have
    `START_S` at least.
    """
    dist.barrier()
    group = dist.distributed_c10d._get_default_group()
    if isinstance(group, GroupBase):
        group.set_timeout(timedelta(seconds=timeout_s))
    else:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)


def _train(config: JobConfig, plan: Plan, folder: RunFolder, here: Place, device: torch.device) -> str:
    rank, ranks = here.rank, here.world_size
    corpus = load_corpus(config.data)
    if ranks > 1:
        _check_same_text(corpus.content, rank)
    trainer = Trainer(config, plan, corpus, folder, rank=rank, device=device)
    with _written(folder):
        listen(folder.path, rank)
        folder.write_rank(rank, _network_bytes_per_s(here), switches_above(os.environ) if KEEPS_ORDER else ())
    with _written(folder), Watch(trainer.events, lambda: trainer.current_step, rank=rank, ranks=ranks) as watch:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(signum, trainer.request_stop)
        try:
            if ranks > 1:
                _all_ready(config.launch.timeout_s)
            begun = LoadCounters()
            stopped = _logged_run(trainer, folder, first=rank == 0)
            watch.end()  # from here on the others may leave
            if trainer.recorder.parts:
                _hand_in(trainer, folder, begun.until_now(), rank=rank, ranks=ranks)
        except CorruptionError:  # on all ranks at once: that they leave now is no failure of theirs
            watch.end()
            if ranks > 1:
                dist.barrier()
            trainer.saver.finish(SAVE_PATIENCE_S)
            raise
        except (RuntimeError, CollectiveError) as error:
            watch.failed(error)
            trainer.saver.finish(SAVE_PATIENCE_S)  # a checkpoint that all ranks have written still counts
            raise
    return stopped


@contextlib.contextmanager
def _written(folder: RunFolder) -> Iterator[None]:
    """Say in one line, in the body of a `with`, what of the run folder cannot be written (any more)."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder.path
        raise InputError(how_to_go_on(f"{where}: {error.strerror or error}", folder.path)) from None


def _check_same_text(content: str, rank: int) -> None:
    """Raise InputError where this rank has read other text than rank 0; called on all ranks."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set(CORPUS_READ, content)
    else:
        check_same_text(content, store.get(CORPUS_READ).decode(), who=f"rank {rank}", other="rank 0")


def _network_bytes_per_s(here: Place) -> float | None:
    """Return what this host's network can, on one rank of each host of a job of several: the report holds use to it."""
    one_host = here.local_world_size == here.world_size
    return None if here.local_rank or one_host else network_bytes_per_s()


def _logged_run(trainer: Trainer, folder: RunFolder, *, first: bool) -> str:
    """Run the loop, with a log on the first rank; return "" or what stopped it."""
    if not first:
        return trainer.run(None)
    lost = folder.keep_metrics_before(trainer.first_step)
    log = RunLog(folder, trainer.first_step, trainer.config.train.steps)
    try:
        if lost:
            log.say(f"warning: {folder.metrics}: {lost} of the {trainer.first_step} earlier steps have no row")
        return trainer.run(log)
    finally:
        lenient = trainer.config.train.on_storage_error == "warn"
        with contextlib.suppress(OSError) if lenient else contextlib.nullcontext():
            log.close()


def _hand_in(trainer: Trainer, folder: RunFolder, load: Load | None, *, rank: int, ranks: int) -> None:
    """Collect the records of all ranks at rank 0, which writes what was measured."""
    steps, spans = measured_steps(trainer.recorder), trainer.recorder.spans()
    chosen = agreed_steps(steps, rank, dist.distributed_c10d._get_default_store() if ranks > 1 else None)
    record = RankRecord(
        rank=rank,
        parts=typical_step(list(steps.values()), parts_of=[steps[step] for step in chosen]),
        parts_of=tuple(sorted({span.step for span in spans}.intersection(chosen))),
        spans=spans,
        peak_memory_bytes=trainer.peak_memory_bytes,
        load=load,
    )
    records = gathered_records(record, rank, ranks)
    if records:
        folder.write_loads([record.load for record in records if record.load is not None])
        write_measured(folder, trainer.config, trainer.plan, records)
        if load is not None and load.wall_s > PACED_S and not is_accelerator(trainer.device):
            folder.write_pace(pace())
