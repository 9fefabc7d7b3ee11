"""Hydra's trees: groups, words of the command line and interpolations of a program that trains with Hugging Face."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.files.hydra import compose
from meshwright.jobs.job import Job
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import job

PROGRAM = """import hydra
from hydra.utils import instantiate
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer


@hydra.main(version_base=None, config_path="settings", config_name="main")
def run(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.net.name)
    tok = AutoTokenizer.from_pretrained(cfg.net.name, model_max_length=cfg["length"])
    Trainer(model=model, args=instantiate(cfg.how, logging_steps=5), tokenizer=tok).train()


run()
"""
TREE = {
    "settings/main.yaml": "defaults:\n  - net: qwen\n  - how: plain\n  - _self_\n\nlength: 2048\nmicro: 2\n",
    "settings/net/qwen.yaml": "name: Qwen/Qwen3-8B\n",
    "settings/how/plain.yaml": "_target_: transformers.TrainingArguments\noutput_dir: out\n"
    "per_device_train_batch_size: ${micro}\ngradient_accumulation_steps: ${oc.env:STEPS,3}\nbf16: true\n",
    "settings/how/sharded.yaml": "defaults: [plain]\nfsdp: full_shard auto_wrap\ngradient_checkpointing: true\n",
}


def run(folder: Path, words: str = "", **other: str) -> Job:
    script = f"torchrun --nnodes 2 --nproc_per_node 4 tune.py {words}\n"
    return job(folder, {"run.sh": script, "tune.py": PROGRAM, **TREE, **other}, str(folder / "run.sh"))


def test_a_program_gets_the_defaults_of_its_tree(tmp_path):
    found = run(tmp_path)

    assert (found.world, found.layout.mbs, found.layout.zero, found.seq_len) == (8, 2, 0, 2048)
    assert found.global_batch == 2 * 3 * 8
    assert "STEPS=3 (its default in main.yaml)" in found.assumed


def test_words_of_the_command_choose_groups_and_set_values(tmp_path):
    found = run(tmp_path, "how=sharded micro=1 ++how.gradient_accumulation_steps=4 length=512")

    assert (found.layout.mbs, found.layout.zero, found.layout.recompute) == (1, 3, "full")
    assert (found.global_batch, found.seq_len) == (1 * 4 * 8, 512)


def test_the_one_length_of_a_tree_is_that_of_a_sequence_where_the_program_hands_it_on(tmp_path):
    program = PROGRAM.replace(', model_max_length=cfg["length"]', "")
    main = TREE["settings/main.yaml"].replace("length: 2048", "data: {block_size: 1536}")

    found = run(tmp_path, **{"tune.py": program, "settings/main.yaml": main})

    assert found.seq_len == 1536
    assert "sequences of 1536: a length in Hydra's tree in tune.py" in found.assumed
    two = main.replace("block_size: 1536", "block_size: 1536, max_length: 512")
    assert run(tmp_path, **{"tune.py": program, "settings/main.yaml": two}).seq_len is None


NEMO = """trainer: {devices: 8, num_nodes: 1, precision: bf16}
model: {micro_batch_size: 1, global_batch_size: 8, encoder_seq_length: 512, tensor_model_parallel_size: 1}
"""
BASE = "model: {optim: {name: distributed_fused_adam}, sequence_parallel: true}\n"
START = (
    "python /opt/NeMo/examples/megatron_gpt_pretraining.py {flags} trainer.num_nodes=2 model.global_batch_size=64 "
    "model.tensor_model_parallel_size=4\n"
)


@pytest.mark.parametrize(
    ("flags", "file"),
    [
        ("--config-path=settings --config-name=gpt", "settings/gpt.yaml"),
        ("--config-path /job/settings --config-name gpt.yaml", "settings/gpt.yaml"),
        ("-cp settings -cn gpt", "settings/gpt.yaml"),
        ("--config-name=gpt", "conf/gpt.yaml"),  # where NeMo's programs have it
        ("--config-name=gpt", "gpt.yaml"),
    ],
)
def test_the_yaml_that_a_command_of_nemo_chooses_is_taken_from_beside_the_script(tmp_path, flags, file):
    found = job(tmp_path, {"run.sh": START.format(flags=flags), file: NEMO}, str(tmp_path / "run.sh"))

    assert (found.engine, found.world, found.layout.tp, found.global_batch) == ("nemo", 16, 4, 64)


def test_what_a_yaml_of_nemo_builds_on_is_read_beneath_it(tmp_path):
    files = {"run.sh": START.format(flags="--config-name=gpt"), "conf/base.yaml": BASE}
    files |= {"conf/gpt.yaml": f"defaults:\n  - base\n  - optional override table@model.table: none\n{NEMO}"}

    found = job(tmp_path, files, str(tmp_path / "run.sh"))
    given = job(tmp_path, files)

    assert (found.layout.zero, found.layout.sp, found.layout.tp) == (1, 1, 4)
    assert given.layout == found.layout
    (tmp_path / "conf" / "base.yaml").unlink()
    with pytest.raises(InputError, match=r"base\.yaml: is not here: give the files of Hydra's tree too"):
        read_job([str(tmp_path / "conf" / "gpt.yaml")])


def test_a_command_chooses_another_configuration_than_its_program_does(tmp_path):
    other = {"settings/other.yaml": TREE["settings/main.yaml"].replace("2048", "1024")}
    script = "torchrun --nnodes 2 --nproc_per_node 4 tune.py --config-name other\n"

    found = job(tmp_path, {"run.sh": script, "tune.py": PROGRAM, **TREE, **other}, str(tmp_path / "run.sh"))

    assert found.seq_len == 1024


def test_files_of_the_tree_that_are_given_are_no_configurations_of_their_own(tmp_path):
    script = "torchrun --nnodes 1 --nproc_per_node 4 tune.py\n"

    assert job(tmp_path, {"run.sh": script, "tune.py": PROGRAM, **TREE}).world == 4


def test_arguments_that_a_program_spreads_are_those_of_its_tree(tmp_path):
    program = PROGRAM.replace("instantiate(cfg.how, logging_steps=5)", "TrainingArguments(**cfg.how)")

    found = run(tmp_path, **{"tune.py": program})

    assert (found.layout.mbs, found.global_batch, found.ignored) == (2, 48, ())


def test_a_variable_of_the_script_counts_before_its_default(tmp_path):
    script = "export STEPS=7\ntorchrun --nnodes 1 --nproc_per_node 4 tune.py\n"

    assert job(tmp_path, {"run.sh": script, "tune.py": PROGRAM, **TREE}).global_batch == 2 * 7 * 4


def test_an_option_that_is_not_here_is_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"how/offloaded\.yaml: is not here: give the files of Hydra's tree too"):
        run(tmp_path, "how=offloaded")


def test_a_word_that_only_the_machine_knows_is_no_guess(tmp_path):
    with pytest.raises(InputError, match="is not set in the files"):
        run(tmp_path, "micro=$SIZE")


def composed(words: str = "", **files: str) -> dict[str, object]:
    import yaml

    tree = {name.replace("__", "/"): (text, yaml.safe_load(text)) for name, text in files.items()}
    return compose("main", words.split(), tree.get, {})[0].fields


EXPERIMENT = {
    "g__a": "# @package _global_\nx: 5\n",
    "g__b": "# @package _global_\nx: 6\n",
    "e__one": "# @package _global_\ndefaults: [override /g: b]\ny: 1\n",
}


@pytest.mark.parametrize(
    ("files", "words", "value"),
    [
        ({"main": "defaults: [g: a]\nx: 1\n", "g__a": "# @package _global_\nx: 2\n"}, "", 1),  # _self_ is last
        ({"main": "defaults: [_self_, g: a]\nx: 1\n", "g__a": "# @package _global_\nx: 2\n"}, "", 2),
        ({"main": "defaults: [optional g: a]\nx: 3\n"}, "", 3),
        ({"main": "defaults: [g: null]\nx: 4\n", "g__a": "# @package _global_\ny: 2\n"}, "", 4),
        ({"main": "defaults: [base]\ny: 1\n", "base": "x: 5\ny: 2\n"}, "", 5),
        ({"main": "defaults: [g: a, override g: b]\n", "g__a": "q: 1\n", "g__b": "# @package _global_\nx: 6\n"}, "", 6),
        ({"main": "defaults: []\nx: 1\n", "g__a": "# @package _global_\nx: 7\n"}, "+g=a", 7),
        ({**EXPERIMENT, "main": "defaults: [g: a, e: one]\n"}, "", 6),  # the group stands before the override
        ({**EXPERIMENT, "main": "defaults: [g: a, optional e: null]\n"}, "e=one", 6),
        ({**EXPERIMENT, "main": "defaults: [g: a]\n"}, "+e=one", 6),
        ({"main": "x: 1\n"}, "x=8", 8),
        ({"main": "x: ${y.z}\ny: {z: 1}\n"}, "y.z=9", 9),
        ({"main": "defaults: [/g@_global_: a]\n", "g__a": "x: 10\n"}, "", 10),
    ],
)
def test_files_of_a_tree_lie_over_each_other_in_the_order_of_hydra(files, words, value):
    assert composed(words, **files)["x"] == value


def test_a_value_that_is_taken_away_is_gone():
    assert "x" not in composed("~x", main="x: 1\ny: 2\n")


def test_a_tree_that_names_itself_ends():
    with pytest.raises(InputError, match="is not here"):
        composed(main="defaults: [main]\n")
