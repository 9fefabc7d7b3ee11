"""The documentation is true: its commands run, its generated pages are current, its site builds without a warning."""

import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

import meshwright
from docsite import tutorials
from docsite.benchmarks import MAX_ROWS, benchmarks_page, heading
from docsite.box import box_page, output_of, samples
from meshwright import cli

pytestmark = pytest.mark.timeout(400)  # on a busy machine the first import of torch alone takes most of a minute
ROOT = Path(__file__).parents[2]
PROGRAMS = ("meshwright", "python", "python3", "pip", "pipx", "make", "torchrun", "srun", "sbatch", "kubectl")
RUN = {"topo", "collectives", "report", "plan", "simulate", "validate", "checkpoint"}  # in seconds, writing only files
REFUSED = {"meshwright plan --model llama3-70b --cluster dgx-h100 --gpus 256 --global-batch 512 --layout tp=16,pp=4"}
SOURCES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


def commands(path: Path) -> list[str]:
    """Return the command lines of a page: in its code blocks, what begins with a program that we know.

    Blocks of "text" are what programs printed, below their command where it stands after a "$".
    """
    found, fenced, printed, text = [], False, False, path.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("```"):
            fenced, printed = not fenced, line == "```text"
        elif printed and not line.startswith("$ "):
            continue
        elif fenced or line.startswith("    "):
            words = re.sub(r"\s#\s.*$", "", line.strip().removeprefix("$ ")).strip()
            if words.split(" ")[0] in PROGRAMS and not re.match(r"\w+ =", words):
                found.append(words)
    return found


def examples(command: click.Command = cli.group, name: str = "meshwright") -> list[tuple[str, str]]:
    """Return the example of the help of each command, with that command."""
    found = []
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found += examples(command.get_command(context, part), f"{name} {part}")
    text = re.sub(r"\\\n\s*", "", f"{command.help}\n{command.epilog}")
    lines = [line.strip().removeprefix("Example:").strip() for line in text.splitlines()]
    shown = [re.split(r"\s{2,}", line)[0] for line in lines if line.startswith("meshwright ")]
    return [*found, *((words, f"{name} --help") for words in shown)]


EVERY = sorted(
    {(words, path.relative_to(ROOT).as_posix()) for path in SOURCES for words in commands(path)} | {*examples()}
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("docs")
    samples(made)
    return made


def command_of(words: list[str]) -> tuple[click.Command, list[str], click.Context]:
    """Return the command of ours that words call, and the words left for it."""
    command, context = cli.group, click.Context(cli.group, info_name="meshwright")
    while isinstance(command, click.Group) and words and command.get_command(context, words[0]):
        command = command.get_command(context, words[0])
        context = click.Context(command, info_name=words[0], parent=context)
        words = words[1:]
    return command, words, context


@pytest.mark.parametrize(("words", "page"), EVERY, ids=lambda value: value)
def test_a_command_of_the_documentation_is_understood(words, page, folder, monkeypatch):
    """Options and files exist; examples that take seconds are run in the next test."""
    monkeypatch.chdir(folder)
    parts = shlex.split(words.partition(" | ")[0].partition(" > ")[0].removeprefix("srun "))
    if parts[0] == "meshwright":
        command, left, _ = command_of(parts[1:])
        command.make_context(command.name, list(left), resilient_parsing=False)
    elif parts[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(parts[1:]) <= set(targets)
    elif parts[0] in {"pip", "pipx"}:
        assert parts[1:] == ["install", "."]
    elif parts[1] == "-c":
        compile(parts[2], page, "exec")  # the page of mechanisms runs it
    elif "-m" in parts:
        name = parts[parts.index("-m") + 1]
        assert name in {"venv", "torch"} or importlib.util.find_spec(name) is not None
        if name == "benchmarks" and parts[-1].islower():
            assert (ROOT / "benchmarks" / f"{parts[parts.index(name) + 1]}.py").exists()
    else:
        files = [part for part in parts[1:] if re.fullmatch(r"[\w/.-]+\.(?:py|sbatch|yaml|toml)", part)]
        assert files
        assert [file for file in files if not (folder / file).exists()] == []


MEASURED = "--cluster this"  # for a minute; tests/multiproc/train/test_prepare.py does it
RUNNABLE = sorted({w for w, _ in EVERY if w.split()[0] == "meshwright" and w.split()[1] in RUN and MEASURED not in w})


@pytest.mark.slow
@pytest.mark.parametrize("words", RUNNABLE, ids=str)
def test_a_command_of_the_documentation_runs(words, folder, monkeypatch):
    opened = []
    monkeypatch.setattr("click.launch", opened.append)
    plain = words.partition(" | ")[0].partition(" > ")[0]

    if plain == "meshwright topo --from dump.txt --gpu b200 --svg out.svg":
        plain = plain.replace("dump.txt", "8_h100.txt")  # whose links a B200 may have

    if plain in REFUSED:
        with pytest.raises(RuntimeError, match="exit code 2"):
            output_of(plain, folder)
        return
    output_of(plain, folder)  # or say what it printed and its exit code
    assert len(opened) == plain.endswith(" --open")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_in_the_box_is_what_the_commands_print():
    page = (ROOT / "docs" / "generated" / "box.md").read_text()
    made = box_page(kept=page)  # what lasts is run by tests/multiproc/test_examples.py

    assert without_predictions(page) == without_predictions(made), "run `python -m docsite`"


FIGURE = r"[\d.,]+(?:e[+-]?\d+)?(?: ?(?:[num]?s|[KMGTP]?i?B(?:/s)?|[KMGTPE]?FLOP(?:/s)?|years|%))?"


def without_figures(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(FIGURE, "#", text))


def without_predictions(page: str) -> str:
    """Leave out the figures that the planner predicts: they move with its constants, their names and order do not.

    Nor does it matter whether the simulator found a compiler.
    """
    blocks = re.split(r"(?m)^(?=\$ )", re.sub(r"(?m)^method .*\n", "", page))
    return "".join(
        without_figures(block) if block.startswith(("$ meshwright plan", "$ python")) else block for block in blocks
    )


SHOWN = [(path.stem, shown) for path in tutorials.pages() for shown in tutorials.shown(path.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "shown"), [(page, shown) for page, shown in SHOWN if shown.repeats], ids=str)
def test_a_tutorial_shows_what_the_command_prints(page, shown, folder):
    made = tutorials.first_lines(output_of(shown.command, folder), shown.lines)
    predicted = shown.command.startswith(("meshwright plan", "python"))

    assert (without_figures(made) if predicted else made) == (
        without_figures(shown.output) if predicted else shown.output
    ), "run `python -m docsite --quick`"


def test_every_tutorial_shows_output_and_what_differs_each_time_is_run_by_its_own_test():
    assert {page for page, _ in SHOWN} == {path.stem for path in tutorials.pages()}
    assert [shown.command for _, shown in SHOWN if not shown.output] == []
    assert [shown.command for _, shown in SHOWN if not shown.repeats and "python examples/" not in shown.command] == []


def test_the_benchmarks_page_holds_every_result_as_written():
    page = benchmarks_page()

    results = ROOT / "benchmarks" / "results"
    for path in [*results.glob("*.json"), *results.glob("*/*.json")]:
        document = json.loads(path.read_text())
        part = page.partition(f"\n## {heading(document, path)}\n")[2].partition("\n## ")[0]
        assert document["machine"]["cpu"] in part
        assert part.count("\n| ") == 1 + min(len(document["rows"]), MAX_ROWS)


def test_the_box_names_every_mechanism_of_the_catalogues():
    from meshwright.collectives.catalogue import algorithm_names
    from meshwright.collectives.schedules.schedule import COLLECTIVES
    from meshwright.hardware.catalogue import shipped

    page = (ROOT / "docs" / "generated" / "box.md").read_text()
    shown = [f"--collective {kind}" for kind in COLLECTIVES if kind != "all_reduce"]
    shown += [f"show {name}" for name in algorithm_names("all_reduce")]
    shown += [f"interconnects {name}" for name in shipped().interconnects]
    assert [text for text in shown if text not in page] == []
    assert [name for name in shipped().networks if name not in page] == []


# every mechanism of the field that the system claims to know, by kind, as the page writes it
MECHANISMS = {
    "links inside a node": (
        "PCIe 3, PCIe 4, PCIe 5, PCIe 6, PCIe 7, NVLink 1, NVLink 2, NVLink 3, NVLink 3, cut, NVLink 4, "
        "NVLink 5, xGMI, MI250X, xGMI, MI300X, Gaudi2, NVSwitch, NVLS, NVLink-C2C, POWER8, POWER9, Grace"
    ),
    "links between nodes": (
        "EDR, HDR, NDR, XDR, GDR, EFA v1, EFA v2, GPUDirect-TCPX, Slingshot, Omni-Path, RoCE, TCP, Fat-tree, "
        "Rail-optimised, Dragonfly, Torus, oversubscri, bisection"
    ),
    "accelerators": (
        "V100 SXM, A100 40 GB SXM, A100 80 GB SXM, A100 80 GB PCIe, A800, H100 SXM, H200, B200, B300, GB200, "
        "GB300, MI250X, MI300X, fp8, fp4, int8, tf32, sparsity"
    ),
    "collectives": (
        "Send and receive, Copy, Barrier, Signal and wait, Broadcast, Scatter, Gather, Reduce, All-gather, "
        "Reduce-scatter, All-to-all, sum, average, minimum, maximum, product"
    ),
    "ways of all-reduce": (
        "Parameter server, Naive decentralised, Staggered decentralised, Partitioned, Ring, Recursive "
        "halving-doubling, Double binary tree, Hierarchical, busbw, alpha, beta, fused into buckets"
    ),
    "ways to parallelise": (
        "Data parallel, synchronous, BSP, Data parallel, asynchronous, staleness, local SGD, DiLoCo, PowerSGD, "
        "int8, ZeRO-1, ZeRO-2, ZeRO-3, GPipe, 1F1B, interleaved, zero-bubble, Tensor parallel, Sequence "
        "parallel, Context parallel, Expert parallel, Hybrid, Recomputation, Graph fusion, hidden comm, Linear "
        "scaling, micro-batches"
    ),
    "sizing": (
        "FLOPs of a step, MFU, bytes a parameter, gradients of 80 B, 1600 Gb/s, token budget, 2(P-1)/P, a layer"
    ),
    "discovery": (
        "nvidia-smi topo -m, NVML, sysfs, PCIe, NUMA, lstopo, NCCL's topology XML, InfiniBand, rocm-smi, "
        "scontrol, net plugins, NV2, PHB, NV12, NV18"
    ),
}


def test_the_box_names_every_mechanism_of_the_field():
    page = (ROOT / "docs" / "generated" / "box.md").read_text().lower()

    missing = [
        f"{kind}: {name}"
        for kind, names in MECHANISMS.items()
        for name in names.split(", ")
        if name.lower() not in page
    ]
    assert missing == []


def test_the_python_reference_names_what_there_is_and_every_public_call():
    page = (ROOT / "docs" / "reference.md").read_text()
    listed = re.findall(r"^::: ([\w.]+)\n(?:    options:\n      members: \[(.*)\]\n)?", page, re.MULTILINE)
    members = {module: [name for name in names.split(", ") if name] for module, names in listed}

    for module, names in members.items():
        assert [name for name in names if not hasattr(importlib.import_module(module), name)] == [], module
    assert set(meshwright.__all__) - {"__version__"} <= {*members["meshwright"], *members["meshwright.parallel.api"]}


def test_the_comparison_says_of_every_peer_when_to_take_it_and_where_we_fall_short():
    page = (ROOT / "docs" / "compared.md").read_text()
    taken, beside, rest = (part for part in re.split(r"(?m)^## |^\| you want to.*$", page)[1:4])
    names = ("torchtitan", "Megatron-Core", "DeepSpeed", "NCCL", "Gloo", "MSCCL", "Calculon", "ASTRA-sim", "Primus")

    for name in (*names, "nccl-tests"):
        assert re.search(rf"\| [^|]*{name}[^|]* \|$", taken, re.MULTILINE), name
        assert re.search(rf"^\| {name}\b", beside, re.MULTILINE), name
        assert re.search(rf"\*\*[^*]*{name}[^*]*\*\*", beside), name
    assert rest.startswith("Where Meshwright falls short")
    assert rest.count("\n- ") >= 5


def test_the_batch_script_is_one_that_bash_reads_and_slurm_knows():
    path = ROOT / "deploy" / "slurm.sbatch"
    text = path.read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))

    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    assert text.startswith("#!/bin/bash\n")
    assert options["ntasks-per-node"] == options["gpus-per-node"]  # a rank a GPU, and each sees all of its node
    assert options["signal"].startswith("USR1@")
    call = re.search(r"-m meshwright\.train (.*)$", text, re.MULTILINE)[1]
    assert_train_understands(shlex.split(call.replace("$SLURM_JOB_ID", "7")))


def test_the_manifest_is_yaml_whose_pods_find_each_other():
    service, job = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    words = container["command"]

    assert (service["kind"], service["apiVersion"]) == ("Service", "v1")
    assert (job["kind"], job["apiVersion"]) == ("Job", "batch/v1")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    assert f"--nnodes={spec['completions']}" in words
    assert f"--nproc-per-node={container['resources']['limits']['nvidia.com/gpu']}" in words
    assert f"--master-addr={job['metadata']['name']}-0.{pod['subdomain']}" in words
    assert pod["subdomain"] == service["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert_train_understands(words[words.index("meshwright.train") + 1 :])
    from torch.distributed.run import parse_args

    parsed = parse_args([word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in words[1:]])
    assert (parsed.nnodes, parsed.training_script) == ("2", "meshwright.train")


def assert_train_understands(words: list[str]) -> None:
    from meshwright.train.__main__ import command

    command.make_context("meshwright.train", words)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (`make docs` installs it)")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed (`make docs` installs it)")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    assert (site / "tutorials" / "slow.html").exists()
    assert (site / "algorithms" / "all_reduce-ring.svg").exists()
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]* (?:src|href)="([^"]*)"', page.read_text())
        assert [address for address in loaded if re.match(r"(?:https?:)?//", address)] == [], page.name
        assert loaded
