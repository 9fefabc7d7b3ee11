"""From a configuration to a run folder with a plan: discover, describe, calibrate, choose. No training yet."""

import contextlib
import os
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil
import torch

from .. import device
from ..bench.cache_pollution import compute_at_length
from ..cluster.discovery.discover import discover
from ..cluster.discovery.local import available_memory_bytes, discover_host, usable_cores
from ..cluster.emulation.inside import surrounding_cluster
from ..cluster.graph import Cluster, Device
from ..errors import InputError
from ..hardware import load_catalogue
from ..layout import OFFLOADS, Layout, Machines, Offload, Plan
from ..parallel.spmd.offload import check_offloadable
from ..parallel.spmd.overlapped import check_overlappable
from ..plan.layouts.legality import check_runnable, legal_layout, nearest_of
from ..plan.search.measured_search import (
    SearchProblem,
    candidate_layouts,
    shortlist,
    splits,
    too_large,
)
from ..timeline import Timeline
from ..units import counted
from ..workload.elements import STATES_BYTES
from ..workload.transformer import describe_workload
from .asynchronous.predict import island_of, repriced
from .asynchronous.terms import check_mode, workers
from .choice import Chosen, Measuring, Say, datasheet_flops_per_s
from .data.corpus import Corpus, Sampler, load_corpus, vocabulary_size
from .job.config import JobConfig
from .job.environment import choose_backend, ranks_on_this_host
from .job.precision import check_float8, narrow_type
from .job.topology_file import placements
from .run.run_folder import RunFolder, check_writable

RANKS_PER_CORE = 4  # more than one a core is slow but runs; more than this is a mistake
DRAWS, DRAWN = 7, 16  # micro-batches that are drawn to time it, and the sequences of the larger ones
MOST_NAMES = 4  # of files and folders, in the line of a part of the corpus
PAGE_BYTES = 8 * 2**20  # plotly itself is most of it
FIXED = {"float32": "fp32"}  # precisions of a job that a plan keeps; of the others the machine decides
BETWEEN_HOSTS = "the network between hosts: collectives were timed among ranks of one host"


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job before the first step."""

    config: JobConfig
    cluster: Cluster
    plan: Plan
    predicted_timeline: Timeline
    corpus: Corpus
    backend: str


def prepare(
    config: JobConfig, path: Path | None, *, ranks: int | None = None, recalibrate: bool = False, say: Say
) -> Prepared:
    """Discover the machine, check the job against it, measure what planning lacks, and choose the layout.

    The steps: this machine and its backend; the corpus; the layouts that fit (`_layouts`); their operators and
    collectives measured, and the fastest taken (`Measuring.fastest`); its price under the job's mode
    (`_under_mode`); what the price does not know (`_with_doubts`).

    `path` is the run folder to be (None: it is there already), `ranks` the number of ranks that an external launcher
    has started (None: the planner chooses). Every fault of the input is an InputError before anything is written.
    """
    if path is not None:
        check_writable(path, _written_bytes(config))
    wanted = wanted_layout(config, ranks)
    counts = _rank_counts(config, wanted, ranks)
    host, cluster = discover_host(), _cluster_here(config.launch.topology)
    backend = choose_backend(config.launch.backend, ranks_on_this_host(os.environ, max(counts)))
    _check_device(config, wanted or Layout(), backend)
    corpus = _corpus(config, say)
    autocast = _autocast(config, backend)
    problem = _problem(config, backend, corpus, autocast)
    plain, others = _layouts(config, problem, counts, wanted, say)

    measuring = Measuring(
        host=host, problem=problem, autocast=autocast, datasheet=datasheet_flops_per_s(autocast, backend, say),
        min_ranks=min(config.launch.min_ranks, max(counts)), say=say, island=island_of(config),
    )  # fmt: skip
    chosen = measuring.fastest(plain, others, recalibrate=recalibrate)
    check_mode(config, chosen.plan.layout)
    chosen = _under_mode(chosen, config, measuring, backend)
    plan = chosen.plan
    if config.train.compile:
        check_runnable(plan.layout, compiled=True, precision=config.train.precision)
    plan = _with_doubts(plan, config, problem, say)
    cluster = msgspec.structs.replace(cluster, measured=chosen.measured)
    plan = _complete(plan, config, cluster, autocast or FIXED.get(config.train.precision, ""))
    return Prepared(
        config=config, cluster=cluster, plan=plan, predicted_timeline=chosen.timeline, corpus=corpus, backend=backend
    )


def _check_device(config: JobConfig, layout: Layout, backend: str) -> None:
    """Raise InputError for what the device of a rank cannot do: overlap, offload, products in 8 bits."""
    where = device.of_rank(0, backend)
    if config.train.async_tensor_parallel:
        check_overlappable(layout, where)
    check_offloadable(layout, where)
    check_float8(config, where)


def _layouts(
    config: JobConfig, problem: SearchProblem, counts: Sequence[int], wanted: Layout | None, say: Say
) -> tuple[list[Layout], list[Layout]]:
    """Return the layouts that fit: plain data parallelism or what was `wanted`, and other splits.

    What the host's memory makes room for counts where nothing else fits; InputError where nothing does.
    """
    asked = candidate_layouts(counts, config.train.global_batch, wanted)
    plain = shortlist(asked, problem)
    others = [] if wanted else _splits(counts, config, problem)
    if not wanted and not plain and not others and problem.host_memory_bytes:
        others = _splits(counts, config, problem, offloads=OFFLOADS[1:])
        say(f"no layout fits in the GPUs' memory; {len(others)} that use their host's are looked at")
    if not plain and not others:
        instead = nearest_of(wanted, _fitting(counts, config, problem)) if wanted else []
        raise too_large(asked, problem, instead)
    return plain, others


def _under_mode(job: Chosen, config: JobConfig, measuring: Measuring, backend: str) -> Chosen:
    """Return a job as its mode runs it, with the price and the timeline of a worker; synchronous ones as they are."""
    if not island_of(config) or job.plan.layout.dp == 1:
        return job
    worker = measuring.worker(job, workers(config, job.plan))
    plan = repriced(job.plan, worker.plan, config, job.measured, backend)
    return msgspec.structs.replace(job, plan=plan, timeline=worker.timeline)


def _with_doubts(plan: Plan, config: JobConfig, problem: SearchProblem, say: Say) -> Plan:
    """Return the plan with what of a job its price does not know."""
    if config.train.compile:
        joined = any(layer.compiled for layer in problem.describe(plan.layout).layers)
        missing = "what compiled layers keep for backward" if joined else "operators are timed one by one"
        plan = _also_not_modelled(plan, f"torch.compile: {missing}")
    if config.train.async_tensor_parallel:
        plan = _also_not_modelled(plan, "asynchronous tensor parallelism: collectives count as exposed")
    if plan.layout.world_size > ranks_on_this_host(os.environ, plan.layout.world_size):
        say(f"warning: not in the prediction: {BETWEEN_HOSTS}")
        plan = _as_of_one_host(plan)
    return plan


def _as_of_one_host(plan: Plan) -> Plan:
    """Return a plan for ranks of several hosts without a band: its times hold among ranks of one host."""
    others = tuple(
        msgspec.structs.replace(each, predicted=msgspec.structs.replace(each.predicted, error_band=None))
        for each in plan.alternatives
    )
    predicted = msgspec.structs.replace(plan.predicted, error_band=None)
    plan = msgspec.structs.replace(plan, predicted=predicted, alternatives=others)
    return _also_not_modelled(plan, BETWEEN_HOSTS)


def _complete(plan: Plan, config: JobConfig, cluster: Cluster, precision: str) -> Plan:
    """Return the plan with what it is for: model, machines, precision."""
    gpus = cluster.of_kind("gpu")
    machines = Machines(
        name=cluster.name, accelerator=gpus[0].model if gpus else "", ranks=plan.layout.world_size,
        nodes=config.launch.nodes,
    )  # fmt: skip
    model = msgspec.to_builtins(config.model)
    return msgspec.structs.replace(plan, model=model, cluster=machines, precision=precision)


def _also_not_modelled(plan: Plan, what: str) -> Plan:
    """Return the plan with one more thing that its prediction leaves out."""
    missing = (*plan.predicted.not_modelled, what)
    return msgspec.structs.replace(plan, predicted=msgspec.structs.replace(plan.predicted, not_modelled=missing))


def _splits(
    counts: Sequence[int], config: JobConfig, problem: SearchProblem, offloads: Sequence[Offload] = ("none",)
) -> list[Layout]:
    """Return the splits beyond plain data parallelism that this job could run on that number of ranks."""
    if config.data_parallel.mode != "sync":
        return []
    found = []
    for layout in splits(counts, config.model, problem, offloads):
        with contextlib.suppress(InputError):  # no engine for it
            check_runnable(layout, compiled=config.train.compile, precision=config.train.precision)
            found.append(layout)
    return found


def _fitting(counts: Sequence[int], config: JobConfig, problem: SearchProblem) -> list[Layout]:
    """Return the layouts of these numbers of ranks that fit into memory."""
    found = _splits(counts, config, problem)
    with contextlib.suppress(InputError):  # the batch does not divide over the ranks
        found += shortlist(candidate_layouts(counts, config.train.global_batch), problem)
    return found


def write_run(prepared: Prepared, path: Path) -> None:
    """Write the run folder of a prepared job; InputError if it holds a run or cannot be written."""
    RunFolder(path).create(
        prepared.config,
        prepared.cluster,
        prepared.plan,
        prepared.predicted_timeline,
        prepared.corpus.listing(),
    )


def _written_bytes(config: JobConfig) -> int:
    """Return about how much a run holds at most: the checkpoints that it keeps, the one that it writes, and a page.

    What it logs a step is not counted: that is a matter of days, in which room can be made.
    """
    workload, train = describe_workload(config.model, seq_len=1, micro_batch=1), config.train
    saves = 1 + (train.steps // train.checkpoint_every if train.checkpoint_every else 0)
    for_good = train.steps // train.keep_every if train.keep_every else 0
    kept = min(saves, train.keep_last + for_good + 1) if train.keep_last else saves
    return kept * STATES_BYTES * workload.parameters + PAGE_BYTES


def wanted_layout(config: JobConfig, ranks: int | None) -> Layout | None:
    """Return the layout that the configuration fixes, None where the planner chooses it."""
    text = config.launch.layout
    if not text:
        return None
    layout = legal_layout(
        text,
        config.model,
        global_batch=config.train.global_batch,
        seq_len=config.data.seq_len,
        ranks=ranks or config.launch.ranks or None,
        whole_share=True,
    )
    check_runnable(layout, compiled=config.train.compile, precision=config.train.precision)
    return layout


def _rank_counts(config: JobConfig, wanted: Layout | None, ranks: int | None) -> list[int]:
    """Return the rank counts to consider; InputError where the machine cannot carry them."""
    fixed = ranks or (wanted.world_size if wanted else 0) or config.launch.ranks
    devices = device.count() or usable_cores()
    if not fixed:
        counts = [1]
        while counts[-1] * 2 <= devices:
            counts.append(counts[-1] * 2)
        return [count for count in counts if config.train.global_batch % count == 0] or [1]
    here = ranks_on_this_host(os.environ, fixed)
    if config.launch.backend != "nccl" and not device.count() and here > devices * RANKS_PER_CORE:
        raise InputError(
            f"{counted(here, 'rank')}: {counted(devices, 'core')} carry at most "
            f"{devices * RANKS_PER_CORE}; use {devices}"
        )
    return [fixed]


def _cluster_here(topology: str) -> Cluster:
    """Return the emulated cluster around this process, or this machine; with the GPUs that only torch sees."""
    emulated = surrounding_cluster()
    cluster = _of_this_machine(emulated) if emulated else discover(load_catalogue())
    gpus = () if cluster.of_kind("gpu") else _gpus()
    return msgspec.structs.replace(
        cluster, devices=cluster.devices + gpus, placements=placements(topology) or cluster.placements
    )


def _of_this_machine(emulated: Cluster) -> Cluster:
    """Return an emulated cluster with what its hosts have of the machine below: processor and versions."""
    here = discover_host()
    known = {"cpu_model": here.cpu_model, "software": here.software}
    return msgspec.structs.replace(emulated, hosts=tuple(msgspec.structs.replace(h, **known) for h in emulated.hosts))


def _gpus() -> tuple[Device, ...]:
    return tuple(
        Device(
            id=f"GPU{index}",
            kind="gpu",
            model=device.name(index),
            node=socket.gethostname(),
            memory_bytes=device.memory_bytes(index),
        )
        for index in range(device.count())
    )


def _corpus(config: JobConfig, say: Say) -> Corpus:
    data = config.data
    vocabulary = vocabulary_size(data.tokenizer)
    if vocabulary > config.model.vocab_size:
        raise InputError(
            f"model.vocab_size: {config.model.vocab_size} is less than the {vocabulary} tokens of {data.tokenizer}"
        )
    corpus = load_corpus(data)
    for line in corpus_lines(corpus):
        say(line)
    return corpus


def corpus_lines(corpus: Corpus) -> list[str]:
    """Return what a job trains on and what it holds out: whole files, or the end of a file alone."""
    split = corpus.split
    held_out = counted(len(split.validation), "file") if split.validation else "its end"
    return [
        f"corpus: {counted(len(split.train), 'file')}, {counted(len(corpus.train), 'token')}; "
        f"held out: {held_out}, {counted(len(corpus.validation), 'token')}",
        f"  trained on: {_names(split.train)}",
        f"  held out: {_names(split.validation) or f'the end of {_names(split.train)}'}",
    ]


def _names(files: tuple[tuple[Path, Path], ...]) -> str:
    """Return the first files by name, those of a folder counted together; corpus.txt of the run folder has all."""
    counts: dict[str, int] = {}
    for root, file in files:
        first, *rest = file.relative_to(root).parts
        counts[first + "/" if rest else first] = counts.get(first + "/" if rest else first, 0) + 1
    names = [f"{name} ({counted(count, 'file')})" if name.endswith("/") else name for name, count in counts.items()]
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (
        f" and {more} more (corpus.txt in the run folder lists all)" if more > 0 else ""
    )


def _autocast(config: JobConfig, backend: str) -> str:
    return narrow_type(config.train.precision, device.of_rank(0, backend))


def _problem(config: JobConfig, backend: str, corpus: Corpus, autocast: str) -> SearchProblem:
    return SearchProblem(
        describe=lambda layout: describe_workload(
            config.model,
            seq_len=config.data.seq_len,
            micro_batch=layout.mbs,
            layout=layout,
            autocast=autocast,
            compiled=config.train.compile,
        ),
        global_batch=config.train.global_batch,
        seq_len=config.data.seq_len,
        backend=backend,
        memory_bytes=_memory_bytes(),
        runtime_bytes=psutil.Process(os.getpid()).memory_info().rss,  # this process has loaded what a rank loads
        host_memory_bytes=available_memory_bytes() if device.uses_accelerators(backend) else 0,
        busy_ranks=None,
        **_drawing_s(config, corpus),
    )


def _memory_bytes() -> int:
    if device.count():
        return sum(device.memory_bytes(index) for index in range(device.count()))
    return available_memory_bytes()


def _drawing_s(config: JobConfig, corpus: Corpus) -> dict[str, float]:
    """Return the seconds of drawing a micro-batch after other work: of each draw, and besides of each sequence."""
    sampler = Sampler(corpus.train, seq_len=config.data.seq_len, seed=config.train.seed)

    def drawn_s(sequences: int) -> float:
        times = []
        for index in range(DRAWS):
            compute_at_length()
            start = time.perf_counter()
            torch.from_numpy(sampler.sequences(range(index * sequences, (index + 1) * sequences)))
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    one_s, many_s = drawn_s(1), drawn_s(DRAWN)
    each_s = max(0.0, many_s - one_s) / (DRAWN - 1)
    return {"data_s_per_draw": max(0.0, one_s - each_s), "data_s_per_sequence": each_s}
