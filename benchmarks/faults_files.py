"""Faults of files: bits flipped, files cut short, writers killed, disks full or gone, hostile files."""

import multiprocessing
import os
import pickle
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from benchmarks.faults_rig import Row
from meshwright.errors import InputError
from meshwright.train.checkpoint.folder import checkpoints
from meshwright.train.checkpoint.manifest import CheckpointFacts, read_manifest
from meshwright.train.checkpoint.pieces import Piece, read_pieces
from meshwright.train.checkpoint.saver import Saver
from testkit.pickles import Payload

REPOSITORY = Path(__file__).parents[1]
MOST_WRITES = 10  # for one that is killed before its end
WRITTEN_SIDE = 1024  # of the tensors of one write: long enough for a kill to strike within it
Trained = dict[str, Any]
Save = Callable[[Path, Trained], None]


def _tensors(side: int = 256) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {f"w{i}": torch.randn(side, side, generator=generator) for i in range(8)}


def _pieces(tensors: dict[str, Any]) -> list[Piece]:
    return [Piece(name, tuple(tensor.shape), (0, 0), tensor) for name, tensor in tensors.items()]


def _save(folder: Path, tensors: dict[str, Any], step: int = 1) -> None:
    saver = Saver(folder, keep_last=2)
    saver.save(CheckpointFacts(step=step), _pieces(tensors))
    saver.finish()


def damage(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Flip single bits and cut files short (a tenth as often); count what is refused, and what loads without a word."""
    tensors = _tensors()
    (place / "ours").mkdir()
    _save(place / "ours", tensors)
    ours, theirs = place / "ours" / "step-00000001", place / "theirs"
    dcp.save(tensors, checkpoint_id=theirs, no_dist=True)

    def load_ours() -> str:
        state = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
        try:
            read_pieces(ours, read_manifest(ours), _pieces(state))
        except InputError as error:
            return "refused, file named" if any(f.name in str(error) for f in ours.iterdir()) else "refused"
        return "loaded" if all(torch.equal(state[n], tensors[n]) for n in tensors) else "loaded wrong"

    def load_theirs() -> str:
        state = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
        try:
            dcp.load(state, checkpoint_id=theirs, no_dist=True)
        except (Exception, CheckpointException) as error:
            return "refused, file named" if any(f.name in str(error) for f in theirs.iterdir()) else "refused"
        return "loaded" if all(torch.equal(state[n], tensors[n]) for n in tensors) else "loaded wrong"

    rows = []
    for system, folder, load in (("meshwright", ours, load_ours), ("DCP", theirs, load_theirs)):
        for fault, times in (("a bit flipped", count), ("a file cut short", count // 10)):
            outcomes = [_damaged(folder, load, rng, cut=fault != "a bit flipped") for _ in range(times)]
            counted = {name: outcomes.count(name) for name in ("refused, file named", "refused", "loaded wrong")}
            rows.append({"fault": fault, "system": system, "times": times} | counted | {"loaded": _loaded(outcomes)})
    return rows


def _loaded(outcomes: list[str]) -> int:
    return outcomes.count("loaded")


def _damaged(folder: Path, load: Callable[[], str], rng: random.Random, *, cut: bool) -> str:
    file = rng.choices(files := sorted(folder.iterdir()), [f.stat().st_size for f in files])[0]
    whole = file.read_bytes()
    at = rng.randrange(len(whole))
    file.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
    found = load()
    file.write_bytes(whole)
    return found


def writer_kills(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Kill a process that saves over the newest checkpoint of a run, at instants spread over the write."""
    context = multiprocessing.get_context("forkserver")  # a process that has threads must not be forked
    context.set_forkserver_preload(["benchmarks.faults_files"])
    rows = []
    for system, save, good in (
        ("meshwright", save_ours, _is_good_ours),
        ("DCP, same folder", save_theirs, _is_good_theirs),
    ):
        folder = place / system.split(",")[0]
        folder.mkdir()
        tensors = _tensors(WRITTEN_SIDE)
        save(folder, tensors)
        whole_s = statistics.median(_in_a_child(context, save, folder, None) or 0.0 for _ in range(9))
        left_good = begun = 0
        quarters = [0, 0, 0, 0]  # of the write, in which it was killed
        while sum(quarters) < count and begun < MOST_WRITES * count:  # one that ended before its kill does not count
            share = rng.random()
            quarters[int(4 * share)] += _in_a_child(context, save, folder, share * whole_s) is None
            begun += 1
            left_good += (fine := good(folder, tensors))
            if not fine:
                save(folder, tensors)
        rows.append(
            {
                "fault": "writer killed",
                "system": system,
                "times": sum(quarters),
                "in each quarter of a write": quarters,
                "write_s": round(whole_s, 3),
                "writes that ended before their kill": begun - sum(quarters),
                "after which the last one did not load": begun - left_good,
            }
        )
    return rows


def save_ours(folder: Path, tensors: Trained) -> None:
    """Save the next checkpoint of a run."""
    steps = [int(path.name[5:]) for path in checkpoints(folder)]
    _save(folder, tensors, max(steps, default=0) + 1)


def save_theirs(folder: Path, tensors: Trained) -> None:
    """Save with DCP, over what is there."""
    dcp.save(tensors, checkpoint_id=folder, no_dist=True)


def _is_good_ours(folder: Path, tensors: Trained) -> bool:
    return all(_loads_ours(path, tensors) for path in checkpoints(folder)) and bool(checkpoints(folder))


def _loads_ours(path: Path, tensors: Trained) -> bool:
    state = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    try:
        read_pieces(path, read_manifest(path), _pieces(state))
    except InputError:
        return False
    return all(torch.equal(state[n], tensors[n]) for n in tensors)


def _is_good_theirs(folder: Path, tensors: Trained) -> bool:
    state = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    try:
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    except (Exception, CheckpointException):  # the latter is no Exception
        return False
    return all(torch.equal(state[n], tensors[n]) for n in tensors)


def _in_a_child(context: Any, save: Save, folder: Path, kill_after_s: float | None) -> float | None:
    """Save in a process of its own; return how long it took, None if it was killed before its end."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_saving, args=(save, folder, theirs))
    process.start()
    theirs.close()
    ours.recv()  # it begins
    start = time.monotonic()
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        process.kill()
    process.join()
    return time.monotonic() - start if process.exitcode == 0 else None


def _saving(save: Save, folder: Path, begins: Any) -> None:
    torch.set_num_threads(1)
    tensors = _tensors(WRITTEN_SIDE)
    begins.send(True)
    save(folder, tensors)
    os._exit(0)


class _Counter:
    """A plugin of pytest that counts how its tests ended."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            self.outcomes.append(report.outcome)


def _tests(*arguments: str) -> dict[str, int]:
    """Run tests and return how many ended in which way."""
    counter = _Counter()
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", f"--rootdir={REPOSITORY}", *arguments], [counter])
    return {name: counter.outcomes.count(name) for name in ("passed", "failed", "skipped")}


def storage(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Fill the disk, make it read-only, remove the folder, during runs that go on or end as configured."""
    file = str(REPOSITORY / "tests/faults/test_train_storage.py")
    counted = _tests(file, "-k", "disk or folder", "-m", "slow or not slow")
    row = {"fault": "disk full, read-only, folder removed", "system": "meshwright", "times": sum(counted.values())}
    return [row | {f"tests {name}": number for name, number in counted.items()}]


def hostile(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Read malformed and hostile files of every format, and give DCP a pickle where it expects its own."""
    folder = REPOSITORY / "tests/faults/hostile"
    rows = []
    for fault, name in (("malformed files of a format", "test_malformed.py"), ("hostile file", "test_hostile.py")):
        counted = _tests(str(folder / name))
        row = {"fault": fault, "system": "meshwright", "times": sum(counted.values())}
        rows.append(row | {f"tests {outcome}": number for outcome, number in counted.items()})
    with tempfile.TemporaryDirectory(dir=place) as name:
        mark = Path(name) / "mark"
        (Path(name) / ".metadata").write_bytes(pickle.dumps(Payload(mark)))
        try:
            dcp.load({"w": torch.zeros(1)}, checkpoint_id=name, no_dist=True)
        except (Exception, CheckpointException) as error:
            said = type(error).__name__
        else:
            said = "nothing"
        rows.append(
            {
                "fault": "a pickle as checkpoint metadata",
                "system": "DCP",
                "times": 1,
                "payload ran": mark.exists(),
                "said": said,
            }
        )
    return rows
