"""The process of a server: its pieces of the weights; in the first one also the coordinator, log and checkpoints."""

import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...bench.ranks.process import prepare_process
from ...device import CPU
from ...errors import InputError
from ...layout import Plan
from ...parallel.asynchronous.connection import connect
from ...parallel.asynchronous.coordinator import Coordinator
from ...parallel.asynchronous.members import MemberChange
from ...parallel.asynchronous.pieces import ServerPiece, cut_pieces
from ...parallel.asynchronous.server import Listener
from ...parallel.asynchronous.server_group import LocalServer, ServerGroup, ServerShard
from ...parallel.engine import Shard
from ..checkpoint.pieces import Piece as StoredPiece
from ..checkpoint.resume import ResumeCheck, checkpoint_facts
from ..checkpoint.saver import Saver
from ..checkpoint.state import load_weights, restore
from ..data.corpus import Corpus, check_same_text, load_corpus
from ..integrity.finite import NotFinite, all_finite, not_finite
from ..job.config import JobConfig
from ..job.precision import product_type
from ..measure.measured import write_measured
from ..model.decoder import Decoder
from ..run.events import Event, EventLog
from ..run.log import RunLog
from ..run.run_folder import RunFolder, how_to_go_on
from .meeting import Address, announce, find_servers
from .task import WorkerRecord, parse_record
from .terms import coordinator_terms, server_optimizer, server_rate

TICK_S = 0.1
LAST_WORDS_S = 10.0  # for workers to hand in what they recorded


def serve_run(
    run_dir: str, server: int, host: str, word: str, notify: Callable[[MemberChange], None], stop: threading.Event
) -> str:
    """Be server number `server` of a run; return "" or what stopped it once the run is over (or `stop` is set).

    `word` is the run's, "" to make one on the first server and read it on the others.
    """
    folder = RunFolder(Path(run_dir))
    config, plan = folder.config(), folder.plan()
    prepare_process(1)
    word = word or (
        secrets.token_hex(16) if server == 0 else find_servers(folder.servers, 1, config.launch.timeout_s)[0].word
    )
    corpus = load_corpus(config.data)
    if server:
        first = find_servers(folder.servers, 1, config.launch.timeout_s)[0]
        check_same_text(corpus.content, first.corpus, who=f"server {server}", other="server 0")
    pieces, first_step = _pieces(config, plan, folder, server, corpus)
    listener = Listener(host, word, ServerShard(pieces))
    try:
        if server:
            listener.start()
            announce(folder.servers, server, Address(listener.address, word, corpus.content))
            while not stop.wait(TICK_S):
                pass
            return ""
        announce(folder.servers, 0, Address(listener.address, word, corpus.content))
        others = find_servers(folder.servers, config.data_parallel.servers, config.launch.timeout_s)[1:]
        connections = [connect(other.address, word) for other in others]
        bank = ServerGroup([LocalServer(listener.vault), *connections], config.data_parallel.fragments, torch.float32)
        return _coordinate(config, plan, corpus, folder, listener, bank, first_step, notify, stop)
    finally:
        listener.close()


def _pieces(
    config: JobConfig, plan: Plan, folder: RunFolder, server: int, corpus: Corpus
) -> tuple[dict[int, ServerPiece], int]:
    """Return this server's pieces, from the newest checkpoint if there is one, and the first step to run."""
    settings = config.data_parallel
    torch.manual_seed(config.train.seed)  # the same weights on every server
    names, tensors = zip(*Decoder(config.model).named_parameters(), strict=True)
    pieces: dict[int, ServerPiece] = {}
    for number, which in enumerate(cut_pieces([t.numel() for t in tensors], settings.fragments, settings.servers)):
        if number % settings.servers == server:
            pieces[number] = ServerPiece(
                [names[i] for i in which],
                [tensors[i] for i in which],
                server_optimizer(config),
                wire=settings.wire,
                published=settings.is_local,
            )
    shards = [shard for piece in pieces.values() for shard in piece.shards()]
    first_step = _restore(config, plan, folder, shards, corpus)
    for piece in pieces.values():
        piece.reloaded()
    return pieces, first_step


def _restore(config: JobConfig, plan: Plan, folder: RunFolder, shards: list[Shard], corpus: Corpus) -> int:
    resumed = ResumeCheck(config, plan, corpus, folder, precision=product_type(config.train.precision, CPU))
    facts = restore(folder.checkpoints, shards, 0, total=int, warn=_say, accept=resumed.check)
    if facts is not None:
        return facts.step
    resumed.from_nothing(_say)
    if config.train.start_from:
        load_weights(Path(config.train.start_from), shards)
    return 0


def _coordinate(
    config: JobConfig,
    plan: Plan,
    corpus: Corpus,
    folder: RunFolder,
    listener: Listener,
    bank: ServerGroup,
    first_step: int,
    notify: Callable[[MemberChange], None],
    stop: threading.Event,
) -> str:
    events = EventLog(folder.events, 0)
    events.keep_room()
    saver = Saver(
        folder.checkpoints,
        keep_last=config.train.keep_last,
        keep_every=config.train.keep_every,
        marker=folder.saved,
    )
    precision = product_type(config.train.precision, CPU)
    folder.keep_metrics_before(first_step)
    log = RunLog(folder, first_step, config.train.steps)

    def changed(change: MemberChange) -> None:
        what = "joined" if change.joined else f"left: {change.reason}"
        event = Event(
            kind="joined" if change.joined else "left",
            message=f"worker {change.rank} (pid {change.pid}) {what}; {change.members} are in",
            culprit=change.rank,
            step=coordinator.ledger.step,
        )
        events.record(event)
        log.say(event.message)
        notify(change)

    def save(step: int) -> None:
        stored = [StoredPiece(name, tuple(t.shape), (0,) * t.dim(), t) for name, t in bank.state().items()]
        if not all_finite(piece.tensor for piece in stored):
            raise stopped_at(step, "weights or moments")
        saver.save(checkpoint_facts(config, plan, step, corpus, precision=precision), stored)

    def stopped_at(step: int, what: str) -> NotFinite:
        error = NotFinite(f"step {step}: not finite: {what}")
        events.record(Event(kind="not_finite", message=str(error), step=step))
        return error

    def write(row: dict[str, Any]) -> None:
        what = not_finite(**{name: row[name] for name in ("loss", "grad_norm", "validation_loss") if name in row})
        if what:
            raise stopped_at(row["step"], what)
        problem = saver.take_problem()
        if problem:
            raise InputError(how_to_go_on(problem, folder.path))
        log.step(row)

    coordinator = Coordinator(
        coordinator_terms(config, plan),
        bank,
        first_step=first_step,
        rate=server_rate(config),
        write=write,
        save=save,
        changed=changed,
    )
    listener.coordinator = coordinator
    listener.start()
    try:
        _wait(coordinator, stop)
        saver.finish()
        problem = saver.take_problem()
        if problem:
            raise InputError(how_to_go_on(problem, folder.path))
    finally:
        log.close()
    if config.train.record:
        _write_measured(config, plan, folder, [parse_record(text) for text in coordinator.records])
    if coordinator.stopped:
        return f"stopped after step {coordinator.ledger.step}; --resume {folder.path} goes on"
    return ""


def _wait(coordinator: Coordinator, stop: threading.Event) -> None:
    """Wait until the run is over and its workers have had their last word. Raises what went wrong meanwhile."""
    while not coordinator.wait(lambda: coordinator.finished or coordinator.problem is not None, TICK_S):
        coordinator.tick()
        if stop.is_set():
            coordinator.stop()
    if coordinator.problem is not None:
        raise coordinator.problem
    coordinator.wait(lambda: all(member.finished for member in coordinator.members), LAST_WORDS_S)


def _write_measured(config: JobConfig, plan: Plan, folder: RunFolder, records: list[WorkerRecord]) -> None:
    """Write what was measured: the parts of a step by the workers' records, its time by the rows of the run."""
    records = sorted((record for record in records if record.parts), key=lambda record: record.rank)
    rows = folder.metric_rows()
    if not records or not rows:  # stopped before the first step was done
        return
    measured_rows = rows[len(rows) // 10 :]
    step_time_s = sum(row["step_time_s"] for row in measured_rows) / len(measured_rows)
    write_measured(folder, config, plan, records, step_time_s=step_time_s)


def _say(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")
