"""Good files that must be made: exports of profilers, reports of NCCL's own tool, what a run keeps, foreign weights."""

import functools
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save

from meshwright.backend.hosts.links import _StoredLinks
from meshwright.files import read_struct
from meshwright.layout import Layout
from meshwright.timeline import STEP_PARTS
from meshwright.traces.formats.chakra_write import write_chakra
from meshwright.traces.reading import read_traces
from meshwright.train.asynchronous.meeting import Address, find_servers
from meshwright.train.checkpoint.llama import look_at_folder, names_of, rows_of, theirs_of
from meshwright.train.data.token_file import read_tokens, write_tokens
from meshwright.train.planned import planned_job
from meshwright.train.run.run_folder import FirstStart, RankParts, RankPlace, RunFolder
from meshwright.train.run.run_lock import _owner, this_process
from meshwright.workload.transformer import ModelConfig, parameter_shapes
from testkit.small_checkpoints import HUGGING_FACE
from testkit.train_jobs import small_job, write_run
from tests.faults.hostile.formats import MATRIX
from tests.fuzz.kept import Seed
from tests.fuzz.texts import LEAST_CHARACTERS, UNIT
from tests.unit.cluster.machines import as_amd_smi, as_xgmi, machine
from tests.unit.postmortem import (
    test_device_monitors,
    test_faults,
    test_file_servers,
    test_kept,
    test_launchers,
    test_logs,
    test_newest_first,
    test_ras,
    test_said_waits,
    test_slow_links,
    test_vendors,
)
from tests.unit.traces.test_labelled import gpu, queues, tpu, written
from tests.unit.traces.test_nsys import export
from tests.unit.traces.test_rocprof import process

DATA = UNIT / "traces" / "data"
READ_BY_RUN = ("rank.json", "rank_parts.json", "rank_memory.json", "start.json")
MODEL = ModelConfig(
    vocab_size=97, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip


def in_a_folder(make: Callable[[Path], Sequence[Path]]) -> Callable[[], Sequence[Seed]]:
    """Return the files that `make` makes in a folder, which is gone afterwards."""

    def found() -> list[Seed]:
        with tempfile.TemporaryDirectory() as folder:
            return [(path.name, path.read_bytes()) for path in make(Path(folder))]

    return found


def _nsys(folder: Path) -> list[Path]:
    return [export(folder / "rank0.sqlite"), export(folder / "all.sqlite", [(90, 1, 3), (80, 0, 3)], steps=2)]


def _chakra(folder: Path) -> list[Path]:
    return write_chakra(folder, read_traces([DATA / "t07_culprit"]))


def _linked(folder: Path) -> list[Path]:
    """Return a trace of Chakra in JSON, host and device linked."""
    values = {"inputs": {"values": [[1, 1, 0, 1000, 2, "cuda:0"]]}, "attrs": [{"name": "tid", "value": 1}]}
    nodes = [
        {"id": 1, "name": "aten::mm", "ctrl_deps": None, "ts": 0, "inclusive_dur": 20, **values},
        {"id": 2, "name": "gemm", "ctrl_deps": 1, "ts": 20, "inclusive_dur": 300, "cat": "kernel", "stream": 7},
        {
            "id": 3,
            "name": "ncclDevKernel_AllReduce",
            "ctrl_deps": 1,
            "ts": 420,
            "cat": "kernel",
            "stream": 20,
            **values,
        },
    ]
    nodes[2]["inclusive_dur"] = 300
    path = folder / "linked.json"
    path.write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    return [path]


def _others(folder: Path) -> list[Path]:
    rocprof = folder / "rank3_results.json"
    rocprof.write_text(json.dumps({"rocprofiler-sdk-tool": [process(100), process(101)]}))
    events = {"gpu": gpu(1, 0), "tpu": tpu(), "queues": queues()}
    return [rocprof, *(written(folder / f"{name}.json", each) for name, each in events.items())]


def _zipped(folder: Path) -> list[Path]:
    path = folder / "traces.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for rank in (0, 1):
            archive.write(DATA / "t07_culprit" / f"rank{rank}.json", f"rank{rank}.json")
    return [path]


def dumps() -> list[Seed]:
    """Return a matrix with states of peer-to-peer in one file; what AMD's links carry, alone and below a topology."""
    states = (UNIT / "cluster" / "data" / "topologies" / "smi_p2p.txt").read_text()
    amd, links = as_amd_smi(machine("mi300x-8")), as_xgmi(8)
    texts = {"both": f"{MATRIX}\n{states}", "amd_both": amd + links, "amd_links": links}
    return [(f"{name}.txt", text.encode()) for name, text in texts.items()]


@functools.cache
def traces() -> list[Seed]:
    """Return a trace of every format that the tests have no file of."""
    return [seed for make in (_nsys, _chakra, _linked, _others, _zipped) for seed in in_a_folder(make)()]


@functools.cache
def logs() -> list[Seed]:
    """Return the logs and records that the tests of the postmortem are made of, each as one file."""
    modules = (
        *(test_faults, test_kept, test_launchers, test_logs, test_vendors, test_ras),
        *(test_newest_first, test_file_servers, test_said_waits, test_device_monitors, test_slow_links),
    )
    tables = [module.CASES for module in modules] + [test_ras.JSON_CASES]
    return [
        (f"{at}_{number}{suffix}", data)
        for at, table in enumerate(tables)
        for number, (data, suffix) in enumerate(_files_in(list(table.values())))
    ]


def _files_in(value: Any) -> Iterator[tuple[bytes, str]]:
    """Yield the files in the values of a table of tests: texts, lines, and bytes under their names."""
    if isinstance(value, bytes):
        yield value, ".json" if value[:1] == b"{" else ".log"
    elif isinstance(value, str):
        if len(value) >= LEAST_CHARACTERS:
            yield value.encode(), ".log"
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _files_in(inner)
    elif isinstance(value, list | tuple):
        if value and all(isinstance(line, str) for line in value):
            yield "\n".join([*value, ""]).encode(), ".log"
        else:
            for inner in value:
                yield from _files_in(inner)


def foreign_weights() -> list[Seed]:
    """Return the weights of a Llama as `save_pretrained` writes them."""
    tensors = {}
    for name, (rows, *rest) in zip(names_of(MODEL), parameter_shapes(MODEL), strict=True):
        parts = rows_of(name, MODEL) or [rows]
        for theirs, part in zip(theirs_of(name), parts, strict=True):
            tensors[theirs] = np.full((part, *rest), 0.5, np.float32)
    return [("model.safetensors", save(tensors))]


def read_foreign_weights(path: Path) -> Any:
    """Look at a folder of `save_pretrained` whose weights are damaged."""
    (path.parent / "config.json").write_text(json.dumps(HUGGING_FACE | {"num_hidden_layers": 1}))
    return look_at_folder(path.parent, path.parent / "new")


@functools.cache
def _run_files() -> dict[str, bytes]:
    """Return what ranks and launchers write into a run folder, by its name there."""
    kept = {
        "rank.json": RankPlace(1, "node-a", 4242, 1.25e9, ("spine", "leaf-1")),
        "rank_parts.json": [RankParts(rank, dict.fromkeys(STEP_PARTS, 0.25)) for rank in (0, 1)],
        "rank_memory.json": [2**30, 2**31],
        "start.json": FirstStart(1.7e9, ["meshwright", "train"]),
        "lock.json": this_process(),
        "links.json": _StoredLinks(alpha_s=1e-5, beta_s_per_byte=1e-9, unix_s=1.7e9),
        "0.json": Address("127.0.0.1:4000", "word", "0" * 32),
    }
    found = {name: msgspec.json.encode(value) for name, value in kept.items()}
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", small_job("corpus"), Layout(dp=2, mbs=2))
        return found | {name: (run.path / name).read_bytes() for name in ("config.toml", "plan.json")}


def run_files(*names: str) -> Callable[[], Sequence[Seed]]:
    """Return files of a run folder."""
    return lambda: [(name, _run_files()[name]) for name in names]


def read_run_file(path: Path) -> Any:
    """Read a file that ranks write into the run folder, by its name."""
    run = RunFolder(path.parent)
    if path.name == "rank.json":
        run.ranks.mkdir()
        (run.ranks / "1.json").write_bytes(path.read_bytes())
        return run.hosts(), run.networks(), run.switches()
    return {"rank_parts.json": run.rank_parts, "rank_memory.json": run.rank_memory, "start.json": run.start}[
        path.name
    ]()


def read_lock(path: Path) -> Any:
    """Read who has a run folder."""
    return _owner(path.read_bytes())


def read_links(path: Path) -> Any:
    """Read the links that a job keeps."""
    return read_struct(path, _StoredLinks)


def read_servers(path: Path) -> Any:
    """Read where the server of an asynchronous run listens."""
    path.chmod(0o600)
    return find_servers(path.parent, 1, 0.1)


def read_job_of_plan(path: Path) -> Any:
    """Read the job that a plan is for."""
    return planned_job(path, {}, replan=True)


def tokens() -> list[Seed]:
    """Return the tokens of a corpus, as they are kept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.bin"
        write_tokens(path, [bytes(range(200))], np.dtype("u1"))
        return [(path.name, path.read_bytes())]


def read_kept_tokens(path: Path) -> Any:
    """Read the kept tokens of a corpus."""
    return read_tokens(path, np.dtype("u1"))
