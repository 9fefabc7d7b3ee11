"""Python programs that start a training themselves, and the commands and scripts that start them."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import job

RECIPE = """from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.pretrain import pretrain


def small() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider()
    cfg.model.tensor_model_parallel_size = 2
    cfg.train.global_batch_size = 96
    return cfg
"""
OVER = """

if __name__ == "__main__":
    pretrain(process_config_with_overrides(small(), cli_overrides=sys.argv[1:]), step)
"""
STARTS = "WORDS=(\n  train.global_batch_size=48\n  # model.tensor_model_parallel_size=8\n"
STARTS += "  model.recompute_granularity=full\n)\n"
STARTS += 'srun torchrun --nnodes=2 --nproc_per_node=8 conf/small.py "${WORDS[@]}"\n'

# --- Megatron-Bridge and torchtitan


@pytest.mark.parametrize("items", [("go.sh", "small.py"), ("small.py", "go.sh"), ("go.sh",)])
def test_words_of_a_launch_script_take_precedence_over_the_recipe_that_it_starts(tmp_path, items):
    (tmp_path / "go.sh").write_text(STARTS)
    (tmp_path / "small.py").write_text(RECIPE + OVER)

    found = read_job([str(tmp_path / name) for name in items])

    assert (found.engine, found.world, found.global_batch) == ("bridge", 16, 48)
    assert (found.layout.tp, found.layout.recompute) == (2, "full")


def test_a_program_beside_a_recipe_that_all_ranks_run_is_taken_for_what_trains_with_it(tmp_path):
    script = "python fetch.py\ntorchrun --nnodes=2 --nproc_per_node=8 start.py train.global_batch_size=32\n"

    found = job(tmp_path, {"small.py": RECIPE, "go.sh": script})

    assert (found.world, found.global_batch) == (16, 32)
    assert any("start.py, which go.sh starts, is taken for what trains with small.py" in said for said in found.assumed)


TITAN = """from torchtitan.models.llama3 import model_registry

def own() -> Trainer.Config:
    return Trainer.Config(model_spec=model_registry("8B"), training=TrainingConfig(local_batch_size=1, seq_len=2048))
"""
NEMO = """from nemo.collections import llm
import nemo_run as run
run.run(llm.llama3_8b.pretrain_recipe(num_nodes=2))
"""


@pytest.mark.parametrize(
    ("program", "words", "batch"),
    [
        (TITAN, "--training.local_batch_size 3 --parallelism.tensor_parallel_degree=2", 24),
        (NEMO, "trainer.strategy.tensor_model_parallel_size=2 data.global_batch_size=72 data.micro_batch_size=2", 72),
    ],
)
def test_words_of_a_launch_count_before_those_of_any_engine_s_program(tmp_path, program, words, batch):
    script = f"srun -N 2 torchrun --nnodes 2 --nproc_per_node 8 own.py {words}\n"

    found = job(tmp_path, {"own.py": program, "go.sh": script})

    assert (found.world, found.layout.tp, found.global_batch) == (16, 2, batch)


def test_programs_of_which_none_is_the_training_are_named(tmp_path):
    script = "torchrun --nproc_per_node=8 one.py\ntorchrun --nproc_per_node=8 two.py\n"

    found = job(tmp_path, {"small.py": RECIPE, "go.sh": script}, gpus=8)

    assert any("one.py, two.py: started beside the configuration" in said for said in found.assumed)


def test_a_program_that_changes_its_recipe_trains_with_the_changed_one(tmp_path):
    main = "cfg = small()\nmodel = cfg.model\nmodel.pipeline_model_parallel_size = 4\npretrain(config=cfg, step=None)\n"

    found = job(tmp_path, {"small.py": RECIPE + main}, gpus=16)

    assert (found.layout.tp, found.layout.pp, found.layout.dp) == (2, 4, 2)


def test_a_program_takes_its_flags_and_the_environment_from_the_script(tmp_path):
    main = """import argparse, os

def words():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--batch", "-b", type=int, required=True)
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()

def main():
    args, cfg = words(), small()
    cfg.model.tensor_model_parallel_size = args.tp * 2
    cfg.model.context_parallel_size = int(os.environ.get("CP", 1))
    cfg.train.global_batch_size = args.batch
    if args.again:
        cfg.model.recompute_granularity = "full"
    pretrain(cfg, None)

main()
"""
    script = "export CP=2\nTP=9\ntorchrun --nnodes 2 --nproc-per-node 8 small.py --tp 2 --again --batch=64\n"

    started = job(tmp_path, {"small.py": RECIPE + main, "go.sh": script})

    assert (started.layout.tp, started.layout.cp, started.layout.recompute) == (4, 2, "full")
    assert started.global_batch == 64
    assert not started.ignored


def test_a_batch_that_a_program_is_not_started_with_is_left_open(tmp_path):
    main = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch', required=True)\n"
    main += "cfg = small()\ncfg.train.global_batch_size = parser.parse_args().batch\npretrain(cfg, None)\n"

    found = job(tmp_path, {"small.py": RECIPE + main}, gpus=8)

    assert (found.global_batch, found.asked) == (None, ("--global-batch",))
    assert any("--batch) is known only where the job runs" in said for said in found.notes)


def test_a_degree_that_only_the_environment_knows_is_asked_for(tmp_path):
    main = (
        'import os\ncfg = small()\ncfg.model.tensor_model_parallel_size = int(os.environ["TP"])\npretrain(cfg, None)\n'
    )

    with pytest.raises(InputError, match=r"TP.*is not set in the files"):
        job(tmp_path, {"small.py": RECIPE + main}, gpus=16)


def test_a_loop_over_a_list_is_followed_and_another_is_said_to_be_passed_over(tmp_path):
    main = "cfg = small()\nfor part in [cfg.model]:\n    part.context_parallel_size = 2\n"
    main += "while waits():\n    cfg.model.pipeline_model_parallel_size = 2\npretrain(cfg, None)\n"

    found = job(tmp_path, {"small.py": RECIPE + main}, gpus=16)

    assert (found.layout.cp, found.layout.pp) == (2, 1)
    assert any("what is set there, again and again, is passed over" in said for said in found.assumed)


def test_a_function_of_a_registry_is_chosen_by_the_flag_of_its_launch(tmp_path):
    one = "def {name}() -> Trainer.Config:\n    return Trainer.Config(model_spec=model_registry('8B'), "
    one += "training=TrainingConfig(local_batch_size={batch}, seq_len=2048))\n"
    registry = "from torchtitan.models.llama3 import model_registry\n"
    registry += one.format(name="few", batch=1) + one.format(name="many", batch=4)
    script = "torchrun --nnodes 1 --nproc_per_node=8 -m torchtitan.train --module llama3 --config many\n"

    assert job(tmp_path, {"config_registry.py": registry, "go.sh": script}).global_batch == 32


# --- NeMo

INLINE = """from nemo import lightning as nl
from nemo.collections import llm

if __name__ == "__main__":
    strategy = nl.MegatronStrategy(
        tensor_model_parallel_size=2, pipeline_model_parallel_size={pp}, sequence_parallel=True
    )
    precision = nl.MegatronMixedPrecision(precision="bf16-mixed", fp8="hybrid")
    trainer = nl.Trainer(devices=8, num_nodes=2, strategy=strategy, plugins=[precision])
    data = llm.MockDataModule(seq_length=2048, global_batch_size=32, micro_batch_size=2)
    llm.train(llm.LlamaModel(llm.Llama3Config8B()), data, trainer, tokenizer="data")
"""
NAMED = """import nemo_run as run
from nemo.collections import llm


def tuned(strategy):
    strategy.tensor_model_parallel_size = 8
    strategy.virtual_pipeline_model_parallel_size = None


def recipe():
    made = llm.{name}(name="mine", num_nodes=4, num_gpus_per_node=8)
    parts = made.trainer.strategy
    parts.pipeline_model_parallel_size = 2
    tuned(made.trainer.strategy)
    made.data.global_batch_size = 4 * 16
    return made


with run.Experiment("mine") as exp:
    exp.add(recipe(), executor=run.LocalExecutor(ntasks_per_node=8))
"""


def test_a_nemo_program_is_read_from_the_call_that_trains(tmp_path):
    found = job(tmp_path, {"train.py": INLINE.format(pp=2)})

    assert (found.engine, found.world, found.global_batch, found.seq_len) == ("nemo", 16, 32, 2048)
    assert (found.layout.tp, found.layout.pp, found.layout.sp, found.layout.mbs) == (2, 2, 1, 2)
    assert (found.precision, found.model_name) == ("fp8", "llama3-8b")


def test_degrees_of_a_nemo_program_that_do_not_divide_the_ranks_are_a_contradiction(tmp_path):
    with pytest.raises(InputError, match=r"= 6 on .* = 16: the degrees do not divide the ranks"):
        job(tmp_path, {"train.py": INLINE.format(pp=3)})


def test_what_is_set_on_a_part_of_a_recipe_is_set_on_the_recipe(tmp_path):
    found = job(tmp_path, {"train.py": NAMED.format(name="llama3_70b.pretrain_recipe")})

    assert (found.world, found.global_batch, found.seq_len) == (32, 64, 8192)
    assert (found.layout.tp, found.layout.pp, found.layout.cp, found.layout.vpp) == (8, 2, 2, None)
    assert any("context_parallel_size 2" in said and "of NeMo" in said for said in found.assumed)


@pytest.mark.parametrize(
    "call",
    [
        'partial(llm.{name}, name="mine")(num_nodes=4, num_gpus_per_node=8)',
        'functools.partial(partial(llm.{name}, "mine"), num_nodes=9)(num_gpus_per_node=8, num_nodes=4)',
    ],
)
def test_a_function_with_some_of_its_arguments_is_called_with_the_others(tmp_path, call):
    plain = 'llm.{name}(name="mine", num_nodes=4, num_gpus_per_node=8)'
    assert plain in NAMED
    found = job(tmp_path, {"train.py": NAMED.replace(plain, call).format(name="llama3_70b.pretrain_recipe")})

    assert (found.world, found.model_name, found.layout.cp) == (32, "llama3-70b", 2)


def test_a_recipe_that_nobody_knows_must_be_given_where_the_file_leaves_degrees_to_it(tmp_path):
    with pytest.raises(InputError, match=r"takes trainer\.strategy\.context_parallel_size, .* from llm\.mine_3b\."):
        job(tmp_path, {"train.py": NAMED.format(name="mine_3b.pretrain_recipe")})


def test_a_recipe_on_the_command_line_is_read_with_its_words(tmp_path):
    line = 'nemo llm pretrain --factory "llama3_8b(num_nodes=2)" trainer.strategy.context_parallel_size=4 -y\n'

    found = job(tmp_path, {"go.sh": line})

    assert (found.world, found.layout.cp, found.layout.dp, found.global_batch) == (16, 4, 4, 512)


# --- Hugging Face and DeepSpeed

TRAINER = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

SIZE = 1024
tok = AutoTokenizer.from_pretrained("Qwen/Qwen3-8B")


def main():
    model = AutoModelForCausalLM.from_pretrained(f"Qwen/Qwen3-{8}B")
    model.gradient_checkpointing_enable()
    rows = data.map(lambda row: tok(row["text"], max_length=SIZE, truncation=True))
    args = TrainingArguments(
        "out",
        per_device_train_batch_size=2,
        # gradient_accumulation_steps=16,
        gradient_accumulation_steps=4,
        bf16=torch.cuda.is_bf16_supported(),
        fsdp="shard_grad_op auto_wrap",
    )
    Trainer(model=model, args=args, train_dataset=rows).train()


if __name__ == "__main__":
    main()
"""


def test_training_arguments_in_a_program_are_read_with_model_and_length(tmp_path):
    found = job(tmp_path, {"train.py": TRAINER, "go.sh": "torchrun --nnodes 2 --nproc_per_node 4 train.py\n"})

    assert (found.world, found.global_batch, found.seq_len, found.precision) == (8, 64, 1024, "bf16")
    assert (found.layout.zero, found.layout.recompute, found.layout.mbs) == (2, "full", 2)
    assert found.model_name == "Qwen/Qwen3-8B"  # the parts of whose name the program joins
    assert any(
        "is_bf16_supported() is known only where the job runs" in said.replace(")) ", ") ") for said in found.assumed
    )


def test_a_batch_that_only_the_running_program_knows_is_asked_for(tmp_path):
    text = TRAINER.replace("batch_size=2", "batch_size=best_size()")

    with pytest.raises(InputError, match=r"per_device_train_batch_size \(best_size\(\)\): is not set in the files"):
        job(tmp_path, {"train.py": text}, gpus=8)


def test_adapters_of_a_program_are_read_with_their_rank(tmp_path):
    program = "from trl import SFTConfig, SFTTrainer\nfrom peft import LoraConfig\n"
    program += "args = SFTConfig(per_device_train_batch_size=1, max_length=512, bf16=True)\n"
    program += (
        'SFTTrainer("Qwen/Qwen3-8B", args=args, peft_config=LoraConfig(r=24, target_modules="all-linear")).train()\n'
    )

    assert job(tmp_path, {"sft.py": program}, gpus=8).lora_rank == 24


def test_settings_that_a_program_loads_from_elsewhere_are_asked_for(tmp_path):
    text = TRAINER.replace('"out",', '"out", **yaml.safe_load(open(path)),')

    with pytest.raises(InputError, match=r"TrainingArguments takes \*\*yaml\.safe_load.*give these settings"):
        job(tmp_path, {"train.py": text}, gpus=8)


def test_members_of_enumerations_are_the_words_that_they_stand_for(tmp_path):
    text = TRAINER.replace('"shard_grad_op auto_wrap"', "[FSDPOption.SHARD_GRAD_OP, FSDPOption.AUTO_WRAP]")

    assert job(tmp_path, {"train.py": text}, gpus=8).layout.zero == 2


def test_adapters_of_a_nemo_program_are_said(tmp_path):
    text = (
        INLINE.format(pp=1)
        .replace('tokenizer="data"', "peft=llm.peft.LoRA(dim=12)")
        .replace("llm.train", "llm.finetune")
    )

    assert job(tmp_path, {"train.py": text}).lora_rank == 12


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from trl import GRPOConfig\nargs = GRPOConfig(per_device_train_batch_size=1)\n", "TRL beyond its SFTTrainer"),
        ("from trl import OnlineDPOConfig\nargs = OnlineDPOConfig(output_dir='o')\n", "TRL beyond its SFTTrainer"),
        ("import lightning as L\nL.Trainer(devices=8).fit(model)\n", "Lightning"),
    ],
)
def test_a_program_of_a_trainer_that_is_not_read_is_refused_by_its_name(tmp_path, line, name):
    with pytest.raises(InputError, match=f"starts {name}, which is not read"):
        job(tmp_path, {"own.py": line})


def test_settings_that_a_program_hands_to_deepspeed_are_read(tmp_path):
    program = 'import deepspeed\nsettings = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8}\n'
    program += 'settings.update({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})\n'
    program += "engine, *_ = deepspeed.initialize(model=model, config=settings)\n"

    found = job(tmp_path, {"own.py": program, "go.sh": "deepspeed --num_gpus 4 own.py\n"})

    assert (found.engine, found.world, found.global_batch) == ("deepspeed", 4, 64)
    assert (found.layout.zero, found.precision) == (2, "bf16")


SETTINGS = '{"train_batch_size": %d, "train_micro_batch_size_per_gpu": $MICRO, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    "write",
    [
        "cat <<END > ds_$SLURM_JOB_ID.json\n{text}\nEND\n",
        "cat <<END | tee ds_$SLURM_JOB_ID.json\n{text}\nEND\n",
        "tee ds_$SLURM_JOB_ID.json <<END > /dev/null\n{text}\nEND\n",
        "echo '{text}' > ds_$SLURM_JOB_ID.json\n".replace("'{text}'", '"{quoted}"'),
        "echo '{{' > ds_$SLURM_JOB_ID.json\necho \"{rest}\" >> ds_$SLURM_JOB_ID.json\n",
    ],
)
@pytest.mark.parametrize("total", [96, 100])
def test_a_deepspeed_file_that_a_script_writes_is_held_against_its_launch(tmp_path, write, total):
    text = SETTINGS % total
    quoted = text.replace('"', '\\"')
    script = "MICRO=2\n" + write.format(text=text, quoted=quoted, rest=quoted[1:])
    script += (
        "srun bash -c 'deepspeed --num_nodes 3 --num_gpus 8 pretrain_own.py --deepspeed_config ds_$SLURM_JOB_ID.json'\n"
    )

    if total == 96:
        assert (job(tmp_path, {"run.sh": script}).world, job(tmp_path, {"run.sh": script}).layout.mbs) == (24, 2)
    else:
        with pytest.raises(InputError, match=r"train_batch_size 100 .* is not a multiple of .* 2 .* x dp 24 = 48"):
            job(tmp_path, {"run.sh": script})


def test_a_file_that_a_program_writes_is_not_taken_for_the_text_of_the_program(tmp_path):
    script = "python - <<END > ds.json\nprint(1)\nEND\ndeepspeed --num_gpus 8 own.py --deepspeed ds.json\n"

    with pytest.raises(InputError, match=r"names ds\.json, which is not here"):
        job(tmp_path, {"run.sh": script})


FACTORY = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ntemplate: qwen\nfinetuning_type: full\ncutoff_len: 2048\n"
FACTORY += "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\ndeepspeed: conf/auto.json\n"
AUTO = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
AUTO += '"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}'


@pytest.mark.parametrize(
    ("line", "world", "batch"),
    [
        ("NNODES=3 NPROC_PER_NODE=4 llamafactory-cli train full.yaml", 12, 48),
        ("export NPROC_PER_NODE=8\nllamafactory-cli train full.yaml gradient_accumulation_steps=2", 8, 16),
        ("torchrun --nnodes 2 --nproc_per_node 8 src/train.py full.yaml", 16, 64),
        ("NNODES=2 llamafactory-cli train full.yaml", None, None),
    ],
)
def test_ranks_of_llama_factory_are_those_of_its_launch(tmp_path, line, world, batch):
    found = job(tmp_path, {"run.sh": f"{line}\n", "full.yaml": FACTORY, "auto.json": AUTO})

    assert (found.world, found.global_batch) == (world, batch)
    assert (found.layout.zero, found.layout.recompute) == (3, "full")


def test_arguments_of_a_recipe_of_nemo_count_before_what_it_sets_by_itself(tmp_path):
    text = "from nemo.collections import llm\nimport nemo_run as run\n"
    text += "run.run(llm.qwen25_7b.pretrain_recipe(num_nodes=2, tensor_parallelism=4, seq_length=2048{more}))\n"

    plain = job(tmp_path, {"train.py": text.format(more="")})
    batch = job(tmp_path, {"train.py": text.format(more=", global_batch_size=96, micro_batch_size=3")})

    assert (plain.world, plain.layout.tp, plain.layout.cp, plain.seq_len) == (16, 4, 1, 2048)
    assert (plain.global_batch, plain.layout.mbs) == (32, 2)
    assert (batch.global_batch, batch.layout.mbs) == (96, 3)


# --- Megatron-Bridge's recipes that are not at hand

CHANGED = """from megatron.bridge.recipes.qwen.qwen3_moe import qwen3_235b_a22b_pretrain_config
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.mixed_precision import bf16_with_mxfp8_mixed


def ours() -> ConfigContainer:
    cfg = qwen3_235b_a22b_pretrain_config()
    cfg.mixed_precision = bf16_with_mxfp8_mixed()
    cfg.model.tensor_model_parallel_size = 1
    cfg.model.num_layers = 46
    cfg.train.global_batch_size = 64
    cfg.train.micro_batch_size = 1
    return cfg
"""


def test_the_precision_of_a_recipe_is_that_of_the_function_that_makes_it(tmp_path):
    (tmp_path / "conf.py").write_text(CHANGED)

    found = job(tmp_path, {}, f"{tmp_path}/conf.py:ours", gpus=16)

    assert found.precision == "mxfp8"
    assert not any("precision" in text for text in found.assumed)


def test_a_recipe_that_another_starts_from_names_the_model_whose_sizes_it_changes(tmp_path):
    (tmp_path / "conf.py").write_text(CHANGED)

    found = job(tmp_path, {}, f"{tmp_path}/conf.py:ours", gpus=16)

    assert (found.model_name, found.architecture.num_hidden_layers) == ("qwen3-235b-a22b", 46)


@pytest.mark.parametrize(
    ("lines", "half", "said"),
    [
        ("", None, False),
        ("cfg.mixed_precision.grad_reduce_in_fp32 = False; cfg.ddp.grad_reduce_in_fp32 = False", True, False),
        ("cfg.mixed_precision.grad_reduce_in_fp32 = True; cfg.ddp.grad_reduce_in_fp32 = False", False, True),
        ("cfg.ddp.grad_reduce_in_fp32 = False", None, True),
    ],
)
def test_gradients_of_a_recipe_add_up_in_the_type_that_its_precision_says(tmp_path, lines, half, said):
    more = "".join(f"    {line.strip()}\n" for line in lines.split(";") if line)
    (tmp_path / "conf.py").write_text(CHANGED.replace("    return cfg\n", more + "    return cfg\n"))

    found = job(tmp_path, {}, f"{tmp_path}/conf.py:ours", gpus=16)

    assert found.half_sums is half
    assert any("the precision, which has it on, comes before it" in text for text in found.notes) is said


def test_gradients_of_a_nemo_program_add_up_in_the_type_that_its_precision_says(tmp_path):
    changed = NAMED.format(name="llama3_8b.pretrain_recipe").replace(
        "    return made\n", "    made.trainer.plugins.grad_reduce_in_fp32 = False\n    return made\n"
    )

    assert job(tmp_path, {"train.py": changed}).half_sums is True


# --- Accelerate's mesh in a program

MESHED = """from accelerate.utils import ParallelismConfig
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
mesh = MESH
args = TrainingArguments(output_dir="o", per_device_train_batch_size=2, bf16=True, fsdp="full_shard",
                         parallelism_config=mesh)
trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B"), args=args)
trainer.train()
"""


def test_the_mesh_that_a_program_hands_to_its_arguments_splits_the_ranks(tmp_path):
    mesh = "ParallelismConfig(dp_replicate_size=2, dp_shard_size=2, tp_size=2, cp_size=2)"

    found = job(tmp_path, {"own.py": MESHED.replace("MESH", mesh, 1)}, gpus=16)

    layout = found.layout
    assert (layout.tp, layout.cp, layout.dp, layout.replicas, found.global_batch) == (2, 2, 4, 2, 8)


def test_a_mesh_that_only_the_running_program_knows_is_no_mesh_of_one(tmp_path):
    with pytest.raises(InputError, match="its degrees are known only where the job runs"):
        job(tmp_path, {"own.py": MESHED.replace("MESH", "ParallelismConfig(**given())", 1)}, gpus=16)
