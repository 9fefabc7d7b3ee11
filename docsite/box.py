"""The page "What is in the box": every mechanism that Meshwright knows, the command that shows it, and what it prints.

The commands are run when the page is made, so the output is theirs; a test makes the page anew and compares.
"""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from benchmarks.result import banner

ROOT = Path(__file__).parents[1]
MAX_LINES = 60
# all-reduce on one node of 8 A100: size in bytes: time in us, algbw, busbw in GB/s
A100_TABLE = """all_reduce on 8 ranks
1048576: 101.9, 10.29, 18.00 | 4194304: 101.5, 41.33, 72.33 | 16777216: 276.6, 60.66, 106.16 |
67108864: 684.6, 98.02, 171.54 | 268435456: 2420.6, 110.90, 194.07 | 1073741824: 8203.9, 130.88, 229.04 |
4294967296: 32136, 133.65, 233.88 | 17179869184: 127997, 134.22, 234.89
"""


OWN_HARDWARE = """[sources]
lab = "measured in our lab"

[accelerators.own-x1]
title = "X1 of our own"
vendor = "us"
host_link = "pcie-5"
memory = { value = "48GB", source = "lab" }
memory_rate = { value = "1TB/s", source = "lab" }
flops = { bf16 = { value = "200TFLOP/s", source = "lab" } }
"""


class Entry(NamedTuple):
    """One mechanism."""

    name: str
    command: str  # as a person types it in the repository
    about: str = ""
    lasts: bool = False  # a minute or more: a test of its own runs it


class Chapter(NamedTuple):
    """Mechanisms of one kind."""

    heading: str
    entries: tuple[Entry, ...]
    about: str = ""


def box_page(kept: str = "") -> str:
    """Return the page as Markdown; what lasts is taken from the page `kept`, if one is given, and not run."""
    from docsite.mechanisms import CHAPTERS

    parts = [
        f"# What is in the box\n\n{banner('python -m docsite')}\n"
        "Every mechanism, the command that shows it, and what that prints; long outputs are cut. Rates are per "
        "direction."
    ]
    with tempfile.TemporaryDirectory() as folder:
        samples(Path(folder))
        for chapter in CHAPTERS:
            parts.append(f"## {chapter.heading}" + (f"\n\n{chapter.about}" if chapter.about else ""))
            parts += [_entry(entry, Path(folder), kept) for entry in chapter.entries]
    return "\n\n".join(parts) + "\n"


def _entry(entry: Entry, folder: Path, kept: str) -> str:
    about = f"\n\n{entry.about}" if entry.about else ""
    output = shown_output(kept, entry.command) if entry.lasts and kept else output_of(entry.command, folder)
    return f"### {entry.name}{about}\n\n```text\n$ {entry.command}\n{output}\n```"


def shown_output(page: str, command: str) -> str:
    """Return what a page says that a command prints; "" where it does not show the command."""
    return page.partition(f"$ {command}\n")[2].partition("\n```")[0]


def output_of(command: str, folder: Path) -> str:
    """Return what a command prints, run in `folder`, at most `MAX_LINES` lines; RuntimeError if it fails."""
    words = shlex.split(command)
    code, text = _called(words[1:], folder) if words[0] == "meshwright" else _started(words, folder)
    if code != 0:
        raise RuntimeError(f"{command}: exit code {code}\n{text}")
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    cut = [*lines[:MAX_LINES], f"... {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else lines
    return "\n".join(cut)


def _called(words: list[str], folder: Path) -> tuple[int, str]:
    """Run a command of ours in this process, its output no terminal."""
    from meshwright import cli

    out = io.StringIO()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(out):
            code = cli.run_command(words)
    finally:
        os.chdir(before)
    return code, out.getvalue()


def _started(words: list[str], folder: Path) -> tuple[int, str]:
    program = sys.executable if words[0] == "python" else words[0]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def samples(folder: Path) -> None:
    """Write the files that the commands of the documentation name: dumps, tables, schedules, runs, traces."""
    import gzip
    import json

    import msgspec

    from meshwright.backend.faults.flight import FlightEntry, FlightFile, GroupFlights
    from meshwright.collectives.catalogue import build_schedule
    from meshwright.collectives.msccl.exporter import to_msccl_xml
    from meshwright.timeline import Span, Timeline, chrome_trace
    from testkit.runs import fake_run
    from testkit.small_checkpoints import HUGGING_FACE, MODELS, saved
    from testkit.topology_dumps import SLURM, layouts, nccl, references, rocm

    for name in ("examples", "deploy", "docs", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    found = {sample.name: sample.text for sample in [*references(), *layouts()]}
    for name, text in found.items():
        (folder / f"{name}.txt").write_text(text)
    (folder / "dump.txt").write_text(next(iter(found.values())))
    (folder / "nvidia-smi.txt").write_text(next(iter(found.values())))
    (folder / "rocm-smi.txt").write_text(rocm())
    (folder / "nccl.xml").write_text(nccl())
    (folder / "slurm.txt").write_text(SLURM)
    (folder / "matrix.txt").write_text(found["8_h100"])
    links = "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
    (folder / "links.txt").write_text(
        "".join(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n{links}" for gpu in range(8))
    )
    for tray in ("tray", "tray1", "tray2"):
        (folder / f"{tray}.txt").write_text(found["no_legend"])
    leaves = "".join(f"SwitchName=leaf{i} Nodes=node[{6 * i}-{6 * i + 5}]\n" for i in range(2))
    (folder / "topology.txt").write_text(leaves + "SwitchName=spine Switches=leaf[0-1]\n")
    (folder / "saved.txt").write_text(A100_TABLE)
    (folder / "lstopo.xml").write_text((ROOT / "tests/unit/cluster/data/synthetic_2x4.xml").read_text())
    (folder / "ring.xml").write_text(to_msccl_xml(build_schedule("all_reduce", "ring", 8)))
    (folder / "job.toml").write_text("")
    shown = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "hardware.md").read_text(), re.DOTALL)
    (folder / "ours.toml").write_text(next(text for text in shown if "[nodes.our-box]" in text))
    published = (ROOT / "tests/external/published/training_runs.csv").read_text().splitlines(keepends=True)
    (folder / "runs.csv").write_text("".join(published[:6]))
    (folder / "more.csv").write_text("".join([published[0], *published[6:9]]))
    asked = ["plan", "--model", "llama3-70b", "--cluster", "dgx-a100-80g", "--gpus", "256", "--global-batch", "512"]
    _called([*asked, "--layout", "tp=8,pp=4", "--calibrate", "runs.csv", "--save", "mine.json"], folder)
    (folder / "own.toml").write_text(OWN_HARDWARE)
    (folder / "plugins").mkdir()
    (folder / "plugins" / "libnccl-net.so").write_bytes(b"NET/OFI Initializing aws-ofi-nccl")
    _sysfs(folder / "sysfs")
    (folder / "train.py").write_text("print('hello')\n")
    for index, name in enumerate(("20260101-120000", "20260102-090000", "X")):
        fake_run(folder / "runs" / name, seed=index, slow_rank=index)
        (folder / "runs" / name / "checkpoints").mkdir(exist_ok=True)
        saved(folder / "runs" / name / "checkpoints" / "step-00000003", MODELS["tied"])
        for rank in (0, 1):  # rank 1 has not arrived at the third all-reduce
            calls = [FlightEntry(sequence=n, operation="all_reduce", size_bytes=4096, started_s=float(n), ended=n < 3)
                     for n in range(1, 4 - rank)]  # fmt: skip
            world = GroupFlights(name="0", description="default_pg", arrivals={0: 3, 1: 2}, flights=tuple(calls))
            dump = FlightFile(rank=rank, pid=0, reason="timed out", written_s=9.0, groups=(world,))
            (folder / "runs" / name / f"flight-{rank}.json").write_bytes(msgspec.json.encode(dump))
    _called(["checkpoint", "convert", "runs/X", "exported"], folder)
    (folder / "tests" / "external").mkdir(parents=True)
    (folder / "tests" / "external" / "published").symlink_to(ROOT / "tests" / "external" / "published")
    (folder / "trace").mkdir()
    for rank in (0, 1):
        event = {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "ts": 0, "dur": 100}
        trace = {"distributedInfo": {"rank": rank}, "traceEvents": [event]}
        (folder / "trace" / f"rank{rank}.json").write_text(json.dumps(trace))
    (folder / "traces").mkdir()
    for rank, path in enumerate(sorted((ROOT / "tests/unit/traces/data/t07_culprit").iterdir())):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (folder / "traces" / f"rank{rank}.json").write_bytes(data)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(data))
    (folder / "launch.sh").write_text((ROOT / "examples/jobs/llama3_70b_megatron.sh").read_text())
    (folder / "model.json").write_text(json.dumps(HUGGING_FACE))
    spans = (Span(0, "compute", "forward", 0.0, 1.0),)
    (folder / "timeline.json").write_text(json.dumps(chrome_trace(Timeline(spans, "simulated"))))


def _sysfs(root: Path) -> None:
    """Write a folder like /sys: three GPUs and two NICs on two NUMA nodes."""
    from testkit.sysfs_folder import FakeSys

    machine = FakeSys(root)
    switch = "pci0000:00/0000:00:01.0/0000:01:00.0"
    machine.gpu(f"{switch}/0000:02:00.0/0000:03:00.0")
    machine.gpu(f"{switch}/0000:02:01.0/0000:04:00.0")
    machine.nic(f"{switch}/0000:02:02.0/0000:05:00.0", infiniband="mlx5_0", net="ib0")
    machine.gpu("pci0000:80/0000:80:01.0/0000:81:00.0", numa=1, cpus="4-7")
    machine.nic("pci0000:80/0000:80:02.0/0000:82:00.0", net="eth0", speed="25000", numa=1, cpus="4-7")
