"""Switches that a layout leaves out are as most runs of its stack have them, and the answer says so."""

import json

import pytest
from msgspec.structs import replace

from meshwright.cli import run_command
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Setting
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.layouts.filters import notes_of_stack
from meshwright.plan.layouts.stacks import default_stack
from meshwright.plan.layouts.stated import stack_defaults, stated, written_out
from meshwright.workload.conventions import OWN
from meshwright.workload.models import load_model

QUESTION = "--model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096"
BOTH = ("sp=1", "zero=1")
UNKNOWN = "is not known; maxtext is usual there (--stack)"


def setting(stack):
    return Setting(
        architecture=load_model("llama3-8b").architecture, stack=stack, gpus=16, global_batch=64, seq_len=4096,
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 16),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "text", "added"),
    [
        ("bridge", "tp=4", BOTH),
        ("nemo", "TP4 PP2", BOTH),
        ("bridge", "tensor-model-parallel-size=4,sequence-parallel=false", ("zero=1",)),
        ("bridge", "tp=4,zero-stage=0", ("sp=1",)),
        ("bridge", "tp=4,zero=0,sp=0", ()),
        ("bridge", "fsdp=16", ()),
        ("bridge", "tp=8,pp=2", ("sp=1",)),  # nobody to share with
        ("bridge", "tp=8,dp=1,cp=2", BOTH),
        ("torchtitan", "dp=16", ()),  # FSDP is a split that a layout names
        ("torchtitan", "tp=2", ("sp=1",)),
        ("deepspeed", "dp=16", ()),
        ("meshwright", "tp=4", ()),
    ],
)
def test_a_layout_has_the_switches_of_its_stack_where_it_does_not_say(stack, text, added):
    given = setting(stack)

    assert stack_defaults(text, given) == added
    whole = Layout.parse(stated(text, given), world_size=16)
    assert all(part in str(whole).split(",") for part in added)
    assert Layout.parse(stated(written_out(whole, given), given)) == whole  # what is printed is the same layout again


def test_an_answer_says_which_switches_it_added_and_how_to_have_none(capsys):
    assert run_command(f"plan {QUESTION} --stack bridge --layout tp=4,pp=2 --json".split()) == 0
    found = capsys.readouterr()

    assert "--layout is priced with sp=1,zero=1, as is usual of stack bridge; sp=0,zero=0 says no" in found.err
    assert json.loads(found.out)["layout"]["zero"] == 1


def test_sequence_parallelism_that_a_stack_has_and_a_length_does_not_allow_is_said_to_be_off(capsys):
    words = f"plan {QUESTION} --stack bridge --layout tp=4,pp=2".replace("4096", "4098")

    assert run_command(words.split()) == 0
    found = capsys.readouterr()
    assert "with zero=1, as is usual" in found.err
    assert "with sp=0, although" in found.err
    assert "sp=1" not in found.out


@pytest.mark.parametrize("command", ["plan {} --compare dgx-h100,dgx-h200", "simulate {} --cluster dgx-h100"])
def test_the_same_layout_is_asked_of_one_cluster_of_several_and_of_the_simulator(command, capsys):
    words = command.format(QUESTION.replace(" --cluster dgx-h100", ""))

    assert run_command(f"{words} --stack bridge --layout tp=4,pp=2".split()) == 0
    found = capsys.readouterr()
    assert "priced with sp=1,zero=1" in found.err
    if "--compare" in command:
        assert "tp=4, pp=2, dp=2, mbs=1, zero=1, sp=1" in " ".join(found.out.split())


def test_a_layout_that_a_search_prints_is_the_same_when_it_is_typed(capsys):
    assert run_command(f"plan {QUESTION} --stack bridge --only zero=0 --only tp=4 --only pp=1 --only dp=4".split()) == 0
    first = next(line for line in capsys.readouterr().out.splitlines() if " tp=4, dp=4, " in line)
    printed = first.strip().split("  ")[0].replace(" ", "")

    assert "zero=0" in printed
    assert run_command(f"plan {QUESTION} --stack bridge --json --layout {printed}".split()) == 0
    assert json.loads(capsys.readouterr().out)["layout"]["zero"] == 0


@pytest.mark.parametrize(
    ("accelerator", "stack"), [("tpu-v5p", "maxtext"), ("trainium2", "since-2024"), ("gaudi2", OWN), ("mi300x", OWN)]
)
def test_accelerators_that_pytorch_reaches_through_xla_alone_are_not_priced_as_our_own_engine(accelerator, stack):
    assert default_stack("bf16", accelerator=accelerator) == stack


@pytest.mark.parametrize(
    ("cluster", "stack", "told"),
    [
        ("tpu-v5e", "torchtitan", [f"whether stack torchtitan runs on TPUs {UNKNOWN}"]),
        ("tpu-v5e", "maxtext", []), ("aws-trn2", "since-2024", []), ("dgx-h100", "torchtitan", []),
    ],
)  # fmt: skip
def test_an_engine_that_nobody_saw_on_an_accelerator_is_said_to_be_one(cluster, stack, told):
    machines = cluster_by_name(load_catalogue(), cluster, 16)

    assert notes_of_stack(replace(setting(stack), cluster=machines), Layout(dp=16)) == told
