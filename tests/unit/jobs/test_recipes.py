"""Makefiles, justfiles and commands in a README: the target or block that starts the training, with its variables."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.files.justfile import parse_justfile
from meshwright.jobs.files.makefile import parse_makefile
from meshwright.jobs.files.recipes import markdown_blocks
from tests.unit.jobs.test_strangers import MEGATRON, job

LINE = MEGATRON.replace("\\\n  ", "")
START = f"""#!/bin/bash
torchrun --nnodes ${{NODES:-1}} --nproc_per_node ${{RANKS:-2}} pretrain_gpt.py \\
  --tensor-model-parallel-size ${{TP:-1}} {LINE} $MORE
"""
MAKE = """# TP := 8
NODES ?= 2
TP := 4
WIDE = $(TP)
TP = 2
export RANKS := 8

.PHONY: help train long
help:
	@echo "make train"

train: check
	@TP=$(WIDE) NODES=$(NODES) MORE='' \\
	bash start.sh

check:
	-@test -d data && echo $$HOME
"""


# --- Makefiles


def test_the_target_that_trains_is_followed_with_the_variables_of_make(tmp_path):
    found = job(tmp_path, {"Makefile": MAKE, "start.sh": START})

    assert (found.world, found.layout.tp, found.layout.dp) == (16, 2, 8)
    assert "Makefile: its target train, the one that starts a training" in found.assumed


def test_a_variable_that_make_expanded_at_once_keeps_its_value(tmp_path):
    text = MAKE.replace("WIDE = $(TP)", "WIDE := $(TP)")

    assert job(tmp_path, {"Makefile": text, "start.sh": START}).layout.tp == 4


def test_variables_of_the_command_line_count_before_the_file(tmp_path):
    names = [str(tmp_path / "Makefile"), str(tmp_path / "start.sh"), "NODES=1"]

    assert job(tmp_path, {"Makefile": MAKE, "start.sh": START}, *names).world == 8


def test_two_targets_that_train_are_asked_for_and_one_is_chosen_by_name(tmp_path):
    text = MAKE + "\nlong: TP := 8\nlong:\n\tTP=$(TP) bash start.sh --train-iters 5\n"
    files = {"Makefile": text, "start.sh": START}

    with pytest.raises(
        InputError, match=r"Makefile: targets train, long start trainings: say which, as --job Makefile"
    ):
        job(tmp_path, files)
    assert job(tmp_path, files, f"{tmp_path / 'Makefile'}:long", str(tmp_path / "start.sh")).layout.tp == 8
    with pytest.raises(InputError, match=r"no target 'short' with commands \(there are: help, train"):
        job(tmp_path, files, f"{tmp_path / 'Makefile'}:short")


def test_a_goal_that_is_named_counts_before_the_first(tmp_path):
    text = MAKE + "\nlong:\n\tTP=8 bash start.sh\n\n.DEFAULT_GOAL := long\n"

    assert job(tmp_path, {"Makefile": text, "start.sh": START}).layout.tp == 8


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ifeq ($(A),1)\nB := x\nelse ifneq ($(A),2)\nB := y\nelse\nB := z\nendif\nA := 3\n", "echo z"),
        ("A := 2\nifeq ($(A),2)\nB := z\nelse\nB := y\nendif\n", "echo z"),
        ("ifdef A\nB := x\nelse\nB := z\nendif\n", "echo z"),
        ("B := x\nB += y # more\n", "echo x y"),
        ("B := $(if $(A),x,z)\nA :=\n", "echo ${make_if}"),
        ("A := 1\nB := $(if $(A),x,z)\n", "echo x"),
        ("B := $(shell nproc)\n", "echo $(nproc)"),
        ("B = $(patsubst %,x,y)\n", "echo ${make_patsubst}"),
        ("B = $(B)\n", "echo ${make_recursion}"),
        ("define B\n1\nendef\n", "echo ${B}"),
        ("B := a\\\n   b\n", "echo a    b"),
    ],
)
def test_variables_of_make_are_what_make_makes_of_them(text, line):
    script = parse_makefile("Makefile", f"{text}all:\n\techo $(B)\n", given={}).scripts["all"]

    assert line in script


def test_a_value_that_only_the_machine_knows_is_no_guess(tmp_path):
    text = MAKE.replace("TP = 2", "TP = $(shell ./degree.sh)")

    with pytest.raises(InputError, match="tensor-model-parallel-size"):
        job(tmp_path, {"Makefile": text, "start.sh": START})


def test_an_included_file_sets_variables_and_a_missing_one_is_named(tmp_path):
    text = "include sizes.mk\n-include own.mk\n" + MAKE.replace("TP = 2", "TP = $(DEGREE)")
    (tmp_path / "sizes.mk").write_text("DEGREE := 8\n")

    found = job(tmp_path, {"Makefile": text, "start.sh": START})

    assert found.layout.tp == 8
    assert any("own.mk is included by Makefile but is not here" in told for told in found.assumed)


def test_the_output_of_a_script_that_is_not_here_is_not_known(tmp_path):
    with pytest.raises(InputError, match="tensor-model-parallel-size"):
        job(tmp_path, {"run.sh": "export TP=$(./degree.sh) MORE=\nbash start.sh\n", "start.sh": START})


# --- justfiles

JUST = """set shell := ["bash", "-c"]
ranks := env_var_or_default("RANKS_OF_NODE", "8")
half := if ranks == "8" { "4" } else { "2" }
nodes := "1" + "6"
export MORE := ""

[private]
default: (train "2")

# train degree="8": (older)
train degree nodes=half *FLAGS:
    @echo {{nodes}}
    NODES={{nodes}} RANKS={{ranks}} TP={{degree}} bash start.sh {{FLAGS}}
"""


def test_a_recipe_of_just_is_followed_with_its_parameters(tmp_path):
    text = JUST.replace("if ranks", 'if "8"')
    found = job(tmp_path, {"justfile": text, "start.sh": START})

    assert (found.world, found.layout.tp) == (32, 2)


def test_a_choice_of_just_by_the_environment_is_no_guess(tmp_path):
    found = job(tmp_path, {"justfile": JUST, "start.sh": START})

    assert found.world is None
    assert job(tmp_path, {}, str(tmp_path / "justfile"), str(tmp_path / "start.sh"), "RANKS_OF_NODE=4").world == 8


def test_a_recipe_with_a_shell_of_its_own_is_one_script():
    text = "x:\n    #!/usr/bin/env bash\n    A=3\n    echo $A {{{{ }}\n\ny:\n    A=3\n    echo $A\n"

    found = parse_justfile("justfile", text, given={})

    assert found.scripts["x"] == "A=3\necho $A {{ }}\n"
    assert found.scripts["y"] == "(\nA=3\n)\n(\necho $A\n)\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('\'a\' / "b\\"c"', 'a/b"c'),
        ("`nproc`", "$(nproc)"),
        ("env('N', '3')", "${N:-3}"),
        ("env_var('N')", "${N}"),
        ("uppercase('a')", "${just_uppercase}"),
        ("missing", "${just_missing}"),
        ("('a' + 'b') + 'c'", "abc"),
        ("'a' 'b'", "${just_expression}"),
        ("if 'a' != 'a' { '1' } else if 'b' == 'b' { '2' } else { '3' }", "2"),
        ("x", "${just_x}"),
    ],
)
def test_an_expression_of_just_has_its_value_or_none_that_is_known(text, value):
    recipes = parse_justfile("justfile", f"x := {text}\nall:\n    echo {{{{x}}}}\n", given={})

    assert recipes.scripts["all"] == f"(\necho {value}\n)\n"


# --- commands in a README

README = """# Tuning

A trial:

    torchrun --nproc_per_node 1 tune.py --config trial.yaml --per_device_train_batch_size 1

The run, on each node:

```console
$ export RANKS=8
$ torchrun --nnodes 2 --nproc_per_node $RANKS tune.py \\
    --deepspeed full.json --per_device_train_batch_size 4
step 1 of 10: loss 3.2
```

```python
torchrun = "no command"
```
"""
FULL = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 3, "train_micro_batch_size_per_gpu": "auto"}'


def test_the_command_of_a_readme_that_names_the_given_files_is_the_one(tmp_path):
    found = job(tmp_path, {"README.md": README, "full.json": FULL})

    assert (found.world, found.layout.zero, found.layout.mbs, found.global_batch) == (16, 2, 4, 192)
    assert any("README.md line 5: names files that are not given" in told for told in found.assumed)


def test_commands_of_a_readme_that_differ_in_given_files_are_no_guess(tmp_path):
    with pytest.raises(InputError, match="both start a training"):
        job(tmp_path, {"README.md": README, "full.json": FULL, "trial.yaml": "per_device_train_batch_size: 1\n"})


def test_one_command_on_other_numbers_of_ranks_is_another_training(tmp_path):
    again = README.replace("--nproc_per_node 1 tune.py --config trial.yaml --per_device_train_batch_size 1", "@")
    again = again.replace("@", "--nproc_per_node 1 tune.py --deepspeed full.json --per_device_train_batch_size 4")

    with pytest.raises(InputError, match="both start a training"):
        job(tmp_path, {"README.md": again, "full.json": FULL})


def test_the_blocks_of_a_markdown_text_are_its_commands_without_prompts_and_output():
    assert [script for _, script in markdown_blocks(README)] == [
        "torchrun --nproc_per_node 1 tune.py --config trial.yaml --per_device_train_batch_size 1\n",
        "export RANKS=8\ntorchrun --nnodes 2 --nproc_per_node $RANKS tune.py \\\n"
        "    --deepspeed full.json --per_device_train_batch_size 4\n",
    ]


def test_a_block_that_is_no_shell_does_not_hide_the_one_that_trains(tmp_path):
    broken = "```\nif you <see> this ( then\n```\n\n" + README.partition("A trial")[0]
    text = broken + README[README.index("The run") :]

    assert job(tmp_path, {"README.md": text, "full.json": FULL}).world == 16


def test_variables_before_llama_factory_s_command_are_its_ranks(tmp_path):
    readme = "```bash\nFORCE_TORCHRUN=1 NNODES=3 NODE_RANK=0 NPROC_PER_NODE=4 llamafactory-cli train own.yaml "
    readme += "per_device_train_batch_size=2\n```\n"
    own = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ntemplate: qwen\nfinetuning_type: full\ncutoff_len: 1024\n"
    own += "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\nbf16: true\n"

    found = job(tmp_path, {"README.md": readme, "own.yaml": own})

    assert (found.world, found.layout.mbs, found.global_batch) == (12, 2, 48)


def test_a_target_that_starts_a_trainer_that_is_not_read_is_refused_by_its_name(tmp_path):
    text = "data:\n\tpython prepare.py\n\nfit:\n\txtuner train own_config.py --deepspeed deepspeed_zero2\n"

    with pytest.raises(InputError, match="starts xtuner, which is not read"):
        job(tmp_path, {"Makefile": text})
