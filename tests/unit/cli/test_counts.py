"""Counts that commands print: one of a thing is in the singular, on the terminal, in JSON and on pages."""

import csv
import io
import re

import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.units import counted
from testkit.runs import fake_run

NOUNS = (
    *("GPU", "node", "layout", "rank", "row", "run", "step", "layer", "stage", "expert", "file", "link", "device"),
    *("NIC", "micro-batche", "sequence", "token", "sample", "span", "chunk", "round", "worker", "group", "price"),
    *("way", "machine", "core", "thread", "host", "processe", "transfer", "schedule", "check", "collective", "day"),
    "legal layout",
)
ONES = re.compile(rf"(?<![\d.,x=/] )(?<![\d.,=-])\b1 (?:{'|'.join(NOUNS)})s\b|\(s\)")
SCRIPT, TAG = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL), re.compile(r"<[^>]*>")
ONE = "plan --model llama3-8b --cluster dgx-h100 --gpus 1 --seq-len 512"
COMMANDS = [
    f"{ONE} --global-batch 1 --lora-rank 8",
    f"{ONE} --global-batch 1 --optimizer adam8bit --json",
    f"{ONE} --global-batch 1 --layout dp=1,mbs=1",
    f"{ONE} --global-batch 1 --scaling fixed --lora-rank 8",
    f"{ONE} --global-batch 1 --target-mfu 0.2 --lora-rank 8",
    f"{ONE} --global-batch 1 --only mbs=1 --only recompute=full --only zero=0 --lora-rank 8",
    "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 1 --seq-len 512",
    "plan --model gpt2 --cluster dgx-h100 --gpus 1 --global-batch 1 --html plan.html",
    "plan --model deepseek-v3 --cluster dgx-h100 --gpus 256 --global-batch 256 --seq-len 512 --layout pp=16,ep=16",
    "plan --params 1e9 --gpus 1 --cluster dgx-h100 --global-batch 1 --seq-len 512",
    "plan --params 1e9 --gpus 1 --cluster dgx-h100 --global-batch 1 --seq-len 512 --mfu 0.5 --tokens 1B --layers 1",
    "validate runs.csv",
    "validate runs.csv --json",
    "simulate --model llama3-8b --cluster dgx-h100 --gpus 1 --global-batch 1 --seq-len 512 --layout dp=1,mbs=1",
    "collectives verify ring --collective all_reduce --ranks 1",
    "collectives show ring --collective all_reduce --ranks 1",
    "topo --catalogue h100",
    "report run",
    "report run --output run.html",
]
ROW = {
    **{"id": "one", "family": "brigde", "gpu": "H100", "num_gpus": "1", "layers": "1", "hidden": "1024"},
    **{"heads": "8", "seq_len": "512", "global_batch_sequences": "1", "step_time_s": "1"},
}


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (1, "GPU", "", "1 GPU"),
        (16384, "GPU", "", "16,384 GPUs"),
        (0, "layout", "", "0 layouts"),
        (1, "micro-batch", "", "1 micro-batch"),
        (2, "micro-batch", "", "2 micro-batches"),
        (3, "pass", "", "3 passes"),
        (2, "copy", "copies", "2 copies"),
        (2.0, "day", "", "2 days"),
        (1.5, "day", "", "1.5 days"),
    ],
)
def test_a_number_stands_with_its_noun(number, noun, plural, text):
    assert counted(number, noun, plural) == text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a run and a table of one row."""
    path = tmp_path_factory.mktemp("ones")
    fake_run(path / "run")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROW))
    writer.writeheader()
    writer.writerow(ROW)
    (path / "runs.csv").write_text(text.getvalue())
    return path


@pytest.mark.parametrize("words", COMMANDS)
def test_one_of_a_thing_is_named_in_the_singular(words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for page in folder.rglob("*.html"):  # of another command
        page.unlink()
    result = CliRunner().invoke(cli.group, words.split())
    pages = "".join(SCRIPT.sub("", page.read_text()) for page in folder.rglob("*.html"))
    said = " ".join((result.stdout + result.stderr + TAG.sub(" ", pages)).split())

    assert result.exit_code == 0, result.output
    assert [said[max(0, one.start() - 30) : one.end() + 20] for one in ONES.finditer(said)] == []
