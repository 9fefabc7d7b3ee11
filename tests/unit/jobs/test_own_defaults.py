"""Trainers whose defaults are not TrainingArguments' (TRL, Unsloth), and commands that start a launcher themselves."""

import pytest

from meshwright.cli.job import JobQuestion, priced_job, setting_of_job
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.jobs.hosts import chosen_hosts, read_hosts
from tests.unit.jobs.test_strangers import job

UNSLOTH = """from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel

model, words = FastLanguageModel.from_pretrained(model_name="Qwen/Qwen3-8B", max_seq_length=3072, dtype=None)
model = FastLanguageModel.get_peft_model(model, r=12, target_modules=["q_proj"]{again})
SFTTrainer(model=model, args={arguments}(per_device_train_batch_size=3, optim="adamw_8bit")).train()
"""
SFT = """from trl import SFTConfig, SFTTrainer
args = SFTConfig(per_device_train_batch_size=3{more})
SFTTrainer("Qwen/Qwen3-8B", args=args).train()
"""
AXOLOTL = """base_model: Qwen/Qwen3-8B
datasets: [{path: own.jsonl, type: alpaca}]
sequence_len: 2048
micro_batch_size: 1
gradient_accumulation_steps: 4
optimizer: adamw_torch
"""
ZERO = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 2, offload_optimizer_device: none}
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""
STATES = '{"zero_optimization": {"stage": 2, "overlap_comm": true}, "bf16": {"enabled": true}}'
HOSTS = "left slots=8\nright slots=4\nlast slots=4\n"


@pytest.mark.parametrize("arguments", ["SFTConfig", "TrainingArguments"])
def test_a_program_of_unsloths_repeats_activations_in_half_precision_without_being_told(tmp_path, arguments):
    found = job(tmp_path, {"tune.py": UNSLOTH.format(again="", arguments=arguments)}, gpus=1)

    assert (found.precision, found.layout.recompute, found.loss, found.seq_len) == ("bf16", "full", "fused", 3072)
    assert (found.weights, found.lora_rank, found.optimizer) == ("nf4-nested", 12, "adam8bit")
    assert found.away == ("input",)  # what enters a layer goes to the host
    assert not any("gradient_checkpointing" in told for told in found.ignored)


@pytest.mark.parametrize(("again", "recompute"), [("False", "none"), ("True", "full"), ('"unsloth"', "full")])
def test_what_unsloth_is_told_of_checkpointing_counts(tmp_path, again, recompute):
    text = UNSLOTH.format(again=f", use_gradient_checkpointing={again}", arguments="SFTConfig")

    found = job(tmp_path, {"tune.py": text}, gpus=1)

    assert found.layout.recompute == recompute
    assert found.away == (("input",) if again == '"unsloth"' else ())


@pytest.mark.parametrize(
    ("loader", "more", "stack"),
    [
        ("FastLanguageModel", "", "unsloth"),
        ("FastLanguageModel", ", lora_dropout=0, bias='none'", "unsloth"),
        ("FastLanguageModel", ", lora_dropout=0.1", ""),
        ("FastLanguageModel", ", lora_dropout=share", ""),
        ("FastLanguageModel", ", bias='all'", ""),
        ("FastModel", "", ""),  # of any model, by transformers' own layers
    ],
)
def test_the_kernels_of_unsloth_are_those_of_its_language_models_without_dropout_and_biases(
    tmp_path, loader, more, stack
):
    text = UNSLOTH.format(again=more, arguments="SFTConfig").replace("FastLanguageModel", loader)

    found = job(tmp_path, {"tune.py": text}, gpus=1)

    assert found.stack == stack
    assert not any("unsloth_kernels" in told for told in found.ignored)


@pytest.mark.parametrize(("again", "asked", "stack", "away"), [
    ("", None, "unsloth", ("input",)),
    (", use_gradient_checkpointing=True", None, "unsloth", ()),
    ("", "trl", "trl", ("input",)),
])  # fmt: skip
def test_a_program_of_unsloth_is_priced_by_its_facts_and_by_what_it_says(tmp_path, again, asked, stack, away):
    text = UNSLOTH.format(again=again, arguments="SFTConfig")
    question = JobQuestion(files=[], cluster="dgx-h100", stack=asked)

    found = setting_of_job(job(tmp_path, {"tune.py": text}, gpus=1), question, load_catalogue())

    assert (found.stack, found.away) == (stack, away)


@pytest.mark.parametrize(("more", "away"), [(", activation_offloading=True", ("input",)), ("", ())])
def test_trls_activation_offloading_is_said_by_what_lies_on_the_host(tmp_path, more, away):
    assert job(tmp_path, {"sft.py": SFT.format(more=more)}, gpus=2).away == away


def test_what_trls_configuration_leaves_out_has_trls_defaults(tmp_path):
    found = job(tmp_path, {"sft.py": SFT.format(more="")}, gpus=2)

    assert (found.precision, found.layout.recompute, found.loss, found.seq_len) == ("bf16", "full", "fused", 1024)
    assert sum("the default of TRL's SFTConfig" in told for told in found.assumed) == 4


def test_what_trls_configuration_says_is_not_replaced_by_its_defaults(tmp_path):
    said = ", fp16=True, gradient_checkpointing=False, max_length=512, loss_type='nll'"

    found = job(tmp_path, {"sft.py": SFT.format(more=said)}, gpus=2)

    assert (found.precision, found.layout.recompute, found.loss, found.seq_len) == ("fp16", "none", "whole", 512)
    assert not any("SFTConfig" in told for told in found.assumed)


def test_trls_command_is_read_with_its_yaml_and_the_options_of_accelerate(tmp_path):
    own = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 3\n"
    command = "trl sft --config own.yaml --num_processes 8 --accelerate_config zero.yaml --max_length 4096\n"
    (tmp_path / "own.yaml").write_text(own)
    (tmp_path / "zero.yaml").write_text(ZERO)

    found = job(tmp_path, {"go.sh": command})

    assert (found.world, found.global_batch, found.seq_len) == (8, 48, 4096)
    assert (found.layout.zero, found.layout.recompute, found.precision) == (2, "full", "bf16")


TRLS = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 3\n"


@pytest.mark.parametrize(
    ("said", "layout"),
    [
        ("num_processes: 4\naccelerate_config: zero2\n", (4, 24, 2, "none")),
        ("accelerate_config: fsdp2\n", (8, 48, 3, None)),
        ("accelerate_config: multi_gpu\nnum_processes: 2\n", (2, 12, 0, None)),
        ("accelerate_config: own.yaml\nnum_processes: 8\n", (8, 48, 2, "none")),
    ],
)
def test_trls_yaml_holds_options_of_accelerate_and_a_configuration_by_its_name(tmp_path, said, layout):
    (tmp_path / "own.yaml").write_text(ZERO)

    found = job(tmp_path, {"sft.yaml": TRLS + said}, str(tmp_path / "sft.yaml"))

    assert (found.world, found.global_batch, found.layout.zero, found.layout.offload) == layout
    assert (found.seq_len, found.loss) == (1024, "fused")  # TRL's defaults: no other trainer has these words
    assert not any("num_processes" in line or "accelerate_config" in line for line in found.ignored)


FSDP = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true, fsdp_reshard_after_forward: true}
"""


def test_trls_default_does_not_contradict_the_recomputation_that_fsdp_is_told(tmp_path):
    run = "accelerate launch --config_file two.yaml tune.py\n"
    files = {"go.sh": run, "two.yaml": FSDP, "tune.py": SFT.format(more=", max_length=512")}
    found = job(tmp_path, files)

    assert (found.layout.recompute, found.layout.zero, found.world) == ("full", 3, 8)
    assert any("fsdp_activation_checkpointing True" in told and "has to be False" in told for told in found.assumed)
    with pytest.raises(InputError, match="contradicts gradient_checkpointing True"):
        job(tmp_path, {**files, "tune.py": SFT.format(more=", max_length=512, gradient_checkpointing=True")})


def test_a_configuration_of_accelerate_that_trl_has_not_is_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"names ours\.yaml, which is not here"):
        job(tmp_path, {"sft.yaml": TRLS + "accelerate_config: configs/ours.yaml\n"})


def test_sequences_that_axolotl_splits_alone_leave_the_model_whole_on_each_rank(tmp_path):
    split = job(tmp_path, {"a.yaml": AXOLOTL + "sequence_parallel_degree: 4\n"}, gpus=8)
    shared = job(tmp_path, {"b.yaml": AXOLOTL + "context_parallel_size: 4\nfsdp_config: {fsdp_version: 2}\n"}, gpus=8)

    assert (split.layout.cp, split.layout.dp, split.layout.zero) == (4, 2, 0)
    assert (shared.layout.cp, shared.layout.dp, shared.layout.zero) == (4, 2, 3)


@pytest.mark.parametrize(
    "command",
    [
        "axolotl train own.yml --num-processes 4 --micro-batch-size 2",
        "axolotl train own.yml --micro-batch-size=2 --launcher accelerate -- --num_processes=4",
        "axolotl train own.yml --micro-batch-size=2 --launcher torchrun -- --nnodes=2 --nproc_per_node=2",
        "accelerate launch --num_processes 4 -m axolotl.cli.train own.yml --micro_batch_size 2",
    ],
)
def test_words_of_axolotls_command_are_its_launchers_options_or_keys_of_its_yaml(tmp_path, command):
    found = job(tmp_path, {"go.sh": command + "\n", "own.yml": AXOLOTL})

    assert (found.world, found.layout.mbs, found.global_batch, found.seq_len) == (4, 2, 32, 2048)


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        ("", 16),
        ("--include left@last:0,3", 10),
        ("--exclude=right", 12),
        ("--num_nodes 2", 12),
        ("--num_nodes 2 --num_gpus 2", 4),
    ],
)
def test_deepspeeds_ranks_are_the_slots_that_its_flags_leave_of_the_hostfile(tmp_path, flags, ranks):
    words = "--deepspeed states.json --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --bf16"
    command = f"deepspeed --hostfile hosts {flags} run.py {words} --max_length 2048\n"

    found = job(tmp_path, {"go.sh": command, "states.json": STATES, "hosts": HOSTS})

    assert (found.world, found.global_batch) == (ranks, ranks)


@pytest.mark.parametrize("flags", [{"include": "left,right"}, {"exclude": "left:9"}, {"num_nodes": "$NODES"}])
def test_hosts_that_the_hostfile_has_not_are_never_guessed(flags):
    assert chosen_hosts(read_hosts(HOSTS), flags) is None


def test_states_of_deepspeed_under_accelerate_are_priced_as_deepspeeds(tmp_path):
    words = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --max_length 2048"
    files = {"go.sh": f"accelerate launch --config_file zero.yaml run.py {words}\n", "zero.yaml": ZERO}

    found = job(tmp_path, files)

    assert (found.engine, found.engine_version) == ("accelerate", "DeepSpeed")
    assert setting_of_job(found, JobQuestion(cluster="dgx-h100"), load_catalogue()).stack == "deepspeed"


MEGATRON = """torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py --num-layers 16 \\
  --hidden-size 2048 --num-attention-heads 16 \\
  --ffn-hidden-size 8192 --swiglu --normalization RMSNorm --disable-bias-linear --micro-batch-size 1 \\
  --global-batch-size 64 --seq-length 1024 --vocab-size 32000 --use-distributed-optimizer --bf16 {more}
"""


@pytest.mark.parametrize("precision", ["", "--fp8-format hybrid"])
@pytest.mark.parametrize(
    ("flag", "each"),
    [
        ("", 4),
        ("--grad-reduce-in-bf16", 2),
        ("--use-precision-aware-optimizer --main-grads-dtype fp32", 4),
        ("--use-precision-aware-optimizer --main-grads-dtype bf16", 2),
    ],
)
def test_megatrons_gradients_add_up_in_the_type_that_its_flags_say_in_fp8_too(tmp_path, precision, flag, each):
    found = job(tmp_path, {"go.sh": MEGATRON.format(more=f"{precision} {flag}")})

    setting = setting_of_job(found, JobQuestion(cluster="dgx-h100"), load_catalogue())

    held = priced_job(found, setting).terms["gradients_bytes"]
    assert held == pytest.approx(each * setting.architecture.parameters, rel=0.01)
    assert not any("grad" in told for told in found.ignored)


def test_arguments_alone_say_that_no_file_shares_the_states(tmp_path):
    text = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\nmax_length: 1024\nbf16: true\n"

    found = job(tmp_path, {"sft.yaml": text}, gpus=8)

    assert found.layout.zero == 0
    assert any(text.startswith("plain data parallelism: the arguments say no other") for text in found.assumed)


def test_axolotl_splits_packed_sequences_one_at_a_time(tmp_path):
    split = AXOLOTL.replace("micro_batch_size: 1\n", "") + "micro_batch_size: 2\ncontext_parallel_size: 4\n"

    assert job(tmp_path, {"a.yaml": split}, gpus=8).layout.mbs == 2
    with pytest.raises(InputError, match=r"a\.yaml: micro_batch_size 2 contradicts context_parallel_size 4"):
        job(tmp_path, {"a.yaml": f"{split}sample_packing: true\n"}, gpus=8)


@pytest.mark.parametrize(("start", "world"), [("python tune.py", 1), ("torchrun --nproc_per_node 4 tune.py", 4)])
def test_unsloth_trains_on_one_gpu_unless_a_launcher_starts_more(tmp_path, start, world):
    program = UNSLOTH.format(again="", arguments="SFTConfig")

    found = job(tmp_path, {"run.sh": f"{start}\n", "tune.py": program})

    assert found.world == world
    assert any(text.startswith("one GPU: no launcher") for text in found.assumed) == (world == 1)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("", "", True), ("sequence_len", "sample_packing: true\nsequence_len", False)],
)
def test_rows_that_nothing_packs_are_said_to_be_shorter_perhaps(tmp_path, old, new, told):
    found = job(tmp_path, {"own.yml": AXOLOTL.replace(old, new, 1) if old else AXOLOTL}, gpus=4)

    assert any("nothing packs samples, so rows may be shorter" in text for text in found.assumed) == told


@pytest.mark.parametrize(("length", "loss"), [("max_length", "fused"), ("max_seq_length", "whole")])
def test_the_loss_of_trl_is_in_chunks_by_default_in_the_releases_that_have_no_max_seq_length(tmp_path, length, loss):
    assert job(tmp_path, {"sft.py": SFT.format(more=f", {length}=512")}).loss == loss
