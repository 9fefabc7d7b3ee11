"""How jobs hold weights, moments and logits: read from each trainer's own words, and priced or named as ignored."""

import json

import pytest

from meshwright.cli import main
from meshwright.errors import InputError
from meshwright.jobs.optimizers import BY_BITS, NAMES, optimizer_named
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.plan.analytic.optimizers import MOMENTS
from tests.unit.jobs.test_adapters import AUTOMODEL, AXOLOTL, FACTORY, TRL, read

# --- weights in few bits, beside adapters

TUNED = TRL + "--use_peft --lora_r 8 "
QLORA = AXOLOTL + "lora_r: 8\nadapter: qlora\nload_in_4bit: true\n"
LORA = AUTOMODEL + "  dim: 8\n  match_all_linear: true\n"
PROGRAM = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
import torch

bits = BitsAndBytesConfig({bits})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", quantization_config=bits, torch_dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
Trainer(model=model, args=TrainingArguments(per_device_train_batch_size=1, max_length=1024, bf16=True)).train()
"""
UNSLOTH = """from trl import SFTConfig, SFTTrainer
from unsloth import FastLanguageModel

model, words = FastLanguageModel.from_pretrained(model_name="Qwen/Qwen3-8B", max_seq_length=1024{bits})
model = FastLanguageModel.get_peft_model(model, r=8, target_modules=["q_proj", "gate_proj"])
SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=1, max_length=1024, bf16=True)).train()
"""


def checkpoint(name: str) -> str:
    return TUNED.replace("meta-llama/Llama-3.1-8B", name)


@pytest.mark.parametrize(
    ("name", "text", "weights"),
    [
        ("trl.sh", TUNED + "--load_in_4bit", "nf4"),
        ("trl.sh", TUNED + "--load_in_4bit --use_bnb_nested_quant", "nf4-nested"),
        ("trl.sh", TUNED + "--load_in_4bit --bnb_4bit_quant_type fp4", "nf4"),
        ("trl.sh", TUNED + "--load_in_8bit", "int8"),
        ("trl.sh", TUNED + "--load_in_4bit false", ""),
        ("peft.sh", TUNED + "--use_4bit_quantization true --use_nested_quant true", "nf4-nested"),
        ("factory.yaml", FACTORY + "lora_rank: 8\nquantization_bit: 4\n", "nf4-nested"),  # its default
        ("factory.yaml", FACTORY + "lora_rank: 8\nquantization_bit: 4\ndouble_quantization: false\n", "nf4"),
        ("factory.yaml", FACTORY + "lora_rank: 8\nquantization_bit: 8\n", "int8"),
        ("axolotl.yaml", QLORA, "nf4-nested"),  # its default
        ("axolotl.yaml", QLORA + "bnb_config_kwargs: {bnb_4bit_use_double_quant: false}\n", "nf4"),
        ("axolotl.yaml", AXOLOTL + "lora_r: 8\nadapter: lora\nload_in_8bit: true\n", "int8"),
        ("automodel.yaml", LORA + "quantization: {load_in_4bit: true}\n", "nf4-nested"),  # its default
        ("automodel.yaml", LORA + "quantization: {load_in_8bit: true}\n", "int8"),
        ("trl.sh", checkpoint("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"), "int4"),
        ("trl.sh", checkpoint("Qwen/Qwen2.5-7B-Instruct-AWQ"), "int4"),
        ("trl.sh", checkpoint("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8"), "int8"),
        ("trl.sh", checkpoint("unsloth/Llama-3.1-8B-bnb-4bit"), "nf4"),
        ("sft.py", PROGRAM.format(bits="load_in_4bit=True"), "nf4"),
        (
            "sft.py",
            PROGRAM.format(bits="load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_quant_type='nf4'"),
            "nf4-nested",
        ),
        ("sft.py", PROGRAM.format(bits="load_in_8bit=True"), "int8"),
        ("sft.py", UNSLOTH.format(bits=""), "nf4-nested"),  # its default
        ("sft.py", UNSLOTH.format(bits=", load_in_4bit=False"), ""),
    ],
)
def test_the_bits_of_frozen_weights_are_read(tmp_path, name, text, weights):
    job = read(tmp_path, name, text)

    assert (job.weights, job.lora_rank) == (weights, 8)
    assert not [said for said in job.ignored if "bit" in said or "bf16" in said or "adapter" in said]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trl.sh", TUNED + "--load_in_4bit --bnb_4bit_quant_type fp4"),
        ("sft.py", PROGRAM.format(bits="load_in_4bit=True")),  # the default of BitsAndBytesConfig
    ],
)
def test_another_code_of_four_bits_is_priced_as_nf4_and_said(tmp_path, name, text):
    job = read(tmp_path, name, text)

    assert any("fp4 is as large as nf4" in said for said in job.assumed)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("trl.sh", TRL + "--load_in_4bit", "load_in_4bit"),
        ("trl.sh", TRL.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-AWQ"), "Qwen/Qwen2.5-7B-AWQ"),
        ("trl.sh", TUNED.replace("meta-llama/Llama-3.1-8B", "mamba2-2.7b") + "--load_in_4bit", "load_in_4bit"),
        ("factory.yaml", FACTORY + "lora_rank: 8\nquantization_bit: 4\nquantization_method: hqq\n", "quantization_bit"),
        ("sft.py", "import config\n" + PROGRAM.format(bits="load_in_4bit=config.few"), "load_in_4bit (config.few)"),
    ],
)
def test_bits_that_are_not_priced_are_named_with_the_reason(tmp_path, name, text, told):
    job = read(tmp_path, name, text)

    assert job.weights == ""
    assert [said for said in job.ignored if said.startswith(told) and "priced in the precision of the job" in said]


# --- optimisers

TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n'
REGISTRY = """from torchtitan.models.llama3 import model_registry


def own() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"), training=TrainingConfig(local_batch_size=1, seq_len=2048), {more}
    )
"""
FOUNDRY = "max_seq_len: 2048\nglobal_train_batch_size: 8\ndevice_train_microbatch_size: 1\nfsdp_config: {}\n"
FOUNDRY += "model: {name: hf_causal_lm, pretrained_model_name_or_path: Qwen/Qwen3-8B}\nprecision: amp_bf16\n"
MEGATRON = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 "
MEGATRON += "--seq-length 1024 --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --bf16 "
NEMO = "trainer: {num_nodes: 1, devices: 8, precision: bf16}\nmodel:\n  micro_batch_size: 1\n  global_batch_size: 8\n"
NEMO += (
    "  encoder_seq_length: 1024\n  num_layers: 4\n  hidden_size: 512\n  num_attention_heads: 8\n  vocab_size: 32000\n"
)
BRIDGE = """from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _pretrain_common


def own() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider()
    {more}
    return cfg
"""
HALVES = "cfg.optimizer.use_precision_aware_optimizer = True; cfg.optimizer.exp_avg_dtype = torch.bfloat16; "
ZERO = '{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 2}}, "optimizer": {own}}}'


@pytest.mark.parametrize(
    ("name", "text", "optimizer"),
    [
        *[("trl.sh", f"{TRL} --optim {named}", "") for named in ("adamw_torch", "paged_adamw_32bit", "adamw_hf")],
        ("trl.sh", f"{TRL} --optim adamw_torch_fused", "adamw-fused"),
        ("trl.sh", f"{TRL} --optim adamw_8bit", "adam8bit"),
        ("trl.sh", f"{TRL} --optim paged_adamw_8bit", "paged-adam8bit"),
        ("trl.sh", f"{TRL} --optim paged_lion_32bit", "paged-lion"),
        *[("trl.sh", f"{TRL} --optim {named}", "adam8bit") for named in ("adamw_bnb_8bit", "adamw_torch_8bit")],
        *[("trl.sh", f"{TRL} --optim {named}", named) for named in ("adafactor", "sgd")],
        ("trl.sh", TRL + "--optim lion_32bit", "lion"),
        ("trl.sh", TRL + "--adafactor", "adafactor"),
        ("factory.yaml", FACTORY + "finetuning_type: full\nuse_muon: true\n", "muon"),
        ("axolotl.yaml", AXOLOTL + "optimizer: muon\n", "muon"),
        ("titan.toml", TITAN + '[optimizer]\nname = "Muon"\n', "muon"),
        ("titan.toml", TITAN + '[optimizer]\nname = "AdamW"\nimplementation = "fused_opt_states_bf16"\n', "adamw-bf16"),
        ("titan.py:own", REGISTRY.format(more="optimizer=default_adamw(lr=8e-4)"), ""),
        (
            "titan.py:own",
            REGISTRY.format(
                more="optimizer=OptimizersContainer.Config(param_groups=[ParamGroupConfig(pattern='.*', "
                "optimizer_name='Muon')])"
            ),
            "muon",
        ),
        ("foundry.yaml", FOUNDRY + "optimizer: {name: decoupled_lionw}\n", "lion"),
        ("foundry.yaml", FOUNDRY + "optimizer: {name: decoupled_adamw}\n", ""),
        ("meg.sh", MEGATRON + "--optimizer sgd", "sgd-momentum"),  # its default is 0.9
        ("meg.sh", MEGATRON + "--optimizer sgd --sgd-momentum 0.0", "sgd"),
        ("meg.sh", MEGATRON + "--optimizer dist_muon", "muon"),
        (
            "meg.sh",
            MEGATRON + "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
            "adamw-bf16",
        ),
        (
            "meg.sh",
            MEGATRON + "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8",
            "adam8bit",
        ),
        ("nemo.yaml", NEMO + "  optim: {name: distributed_fused_adam}\n", ""),
        ("nemo.yaml", NEMO + "  optim: {name: adafactor}\n", "adafactor"),
        ("bridge.py:own", BRIDGE.format(more=f"{HALVES}cfg.optimizer.exp_avg_sq_dtype = torch.bfloat16"), "adamw-bf16"),
        ("bridge.py:own", BRIDGE.format(more="cfg.optimizer.optimizer = 'dist_muon'"), "muon"),
        ("automodel.yaml", LORA + "optimizer: {_target_: bitsandbytes.optim.AdamW8bit}\n", "adam8bit"),
        ("automodel.yaml", LORA + "optimizer: {_target_: torch.optim.AdamW}\n", ""),
    ],
)
def test_the_optimiser_is_read(tmp_path, name, text, optimizer):
    (tmp_path / name.partition(":")[0]).write_text(text)

    job = read_job([str(tmp_path / name)], JobOptions(gpus=8))

    assert job.optimizer == optimizer
    assert not [said for said in job.ignored if "priced as AdamW" in said]


def test_deepspeeds_own_optimiser_takes_the_place_of_the_arguments(tmp_path):
    (tmp_path / "zero.json").write_text(ZERO.format(own='{"type": "SGD", "params": {"momentum": 0.9}}'))

    job = read(tmp_path, "trl.sh", TRL.replace("--per_device_train_batch_size 4", "") + "--deepspeed zero.json")

    assert job.optimizer == "sgd-momentum"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trl.sh", TRL + "--optim galore_adamw"),
        ("trl.sh", TRL + "--optim lion_8bit"),
        ("trl.sh", TRL + "--optim adamw_torch_4bit"),
        ("foundry.yaml", FOUNDRY + "optimizer: {name: decoupled_lionw_8b}\n"),
        ("meg.sh", MEGATRON + "--optimizer soap"),
    ],
)
def test_an_optimiser_that_the_planner_has_not_is_said_to_be_priced_as_adamw(tmp_path, name, text):
    job = read(tmp_path, name, text)

    assert job.optimizer == ""
    assert [said for said in job.ignored if "priced as AdamW with states in fp32" in said]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--optim paged_adamw_32bit", "moments that leave the GPU"),
        ("--optim adamw_bnb_8bit", "moments of the embedding stay in 32 bits"),
        ("--optim lion_32bit --torch_dtype bfloat16", "moments in single precision beside weights in half"),
    ],
)
def test_moments_that_are_held_otherwise_than_priced_are_named_but_not_those_of_adapters(tmp_path, words, told):
    whole, adapted = (read(tmp_path, "trl.sh", f"{text} {words}") for text in (TRL, TUNED))

    assert [said for said in whole.ignored if told in said]
    assert not [said for said in adapted.ignored if told in said]


FUSED = "optimizer: {{_target_: {name}}}\n"
WHOLE = LORA.partition("peft:")[0]


@pytest.mark.parametrize(
    ("name", "text", "optimizer"),
    [
        ("trl.sh", f"{TRL} --optim paged_adamw_32bit --torch_dtype bfloat16", "adamw-fp32"),
        ("trl.sh", f"{TRL} --optim paged_adamw_32bit", ""),  # as beside weights in single precision
        ("trl.sh", f"{TUNED} --optim paged_adamw_32bit --torch_dtype bfloat16", ""),  # adapters are in single precision
        ("automodel.yaml", WHOLE + FUSED.format(name="transformer_engine.pytorch.optimizers.FusedAdam"), "adamw-fp32"),
        ("automodel.yaml", WHOLE + FUSED.format(name="torch.optim.AdamW"), ""),
    ],
)
def test_moments_in_single_precision_beside_weights_in_half_are_priced_as_they_are(tmp_path, name, text, optimizer):
    job = read(tmp_path, name, text)

    assert job.optimizer == optimizer
    assert not [said for said in job.ignored if "priced in half" in said]


MAXTEXT = "model_name: llama3-8b\nper_device_batch_size: 1\nmax_target_length: 2048\nici_fsdp_parallelism: 8\n"


@pytest.mark.parametrize(
    ("more", "held", "ignored"),
    [
        ("weight_dtype: float32\ngrad_dtype: float32\nmu_dtype: float32\nopt_type: adamw\n", ("", ""), []),
        ("weight_dtype: bfloat16\ngrad_dtype: bfloat16\n", ("bf16", ""), []),
        ("weight_dtype: bfloat16\nmu_dtype: float32\n", ("bf16", "adamw-fp32"), ["mu_dtype float32"]),
        ("mu_dtype: bfloat16\n", ("", ""), ["mu_dtype bfloat16"]),
        ("opt_type: adam_pax\nmu_dtype: bfloat16\n", ("", ""), []),  # it has no such type
        ("grad_dtype: bfloat16\n", ("", ""), ["grad_dtype bfloat16"]),
        ("opt_type: muon\n", ("", "muon"), []),
        ("opt_type: sgd\n", ("", "sgd"), []),
    ],
)
def test_types_of_weights_and_moments_are_maxtexts(tmp_path, more, held, ignored):
    job = read(tmp_path, "maxtext.yml", MAXTEXT + more)

    assert (job.weights, job.optimizer) == held
    assert [said.partition(":")[0].partition(" (")[0] for said in job.ignored] == ignored


def test_an_optimiser_that_only_the_running_job_knows_is_assumed(tmp_path):
    job = read(tmp_path, "trl.sh", f"{TRL} --optim $(cat optimizer.txt)")

    assert job.optimizer == ""
    assert [said for said in job.assumed if said.startswith("AdamW: optim (")]


def test_moments_of_two_types_are_named(tmp_path):
    job = read(tmp_path, "meg.sh", MEGATRON + "--use-precision-aware-optimizer --exp-avg-dtype bf16")

    assert job.optimizer == ""
    assert any("exp-avg-dtype bf16" in said and "priced in fp32" in said for said in job.ignored)


# --- the type of weights that are all trained

FULL = FACTORY.replace("bf16: true\n", "") + "finetuning_type: full\n"
FSDP = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nnum_processes: 8\nnum_machines: 1\n"
BY_DEEPSPEED = '{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 2}}, "bf16": {bf16}}}'
BOTH = '{"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}'
LOADED = TRL.replace("--per_device_train_batch_size 4", "--per_device_train_batch_size 1") + "--torch_dtype bfloat16 "


@pytest.mark.parametrize(
    ("files", "weights"),
    [
        ({"trl.sh": TRL}, ""),
        ({"trl.sh": LOADED}, "bf16"),  # Trainer trains what was loaded
        ({"trl.sh": LOADED + "--use_peft"}, ""),
        ({"trl.sh": LOADED, "fsdp.yaml": FSDP + "mixed_precision: bf16\n"}, "fp32"),  # lifted to single precision
        (
            {"trl.sh": LOADED.replace("--bf16 true", ""), "fsdp.yaml": FSDP + "mixed_precision: 'no'\n"},
            "bf16",
        ),
        ({"trl.sh": LOADED + "--deepspeed d.json", "d.json": BY_DEEPSPEED.format(bf16='{"enabled": true}')}, ""),
        ({"trl.sh": LOADED + "--deepspeed d.json", "d.json": BY_DEEPSPEED.format(bf16=BOTH)}, "bf16"),
        ({"factory.yaml": FULL + "pure_bf16: true\n"}, "bf16"),
        ({"factory.yaml": FULL + "bf16: true\n"}, ""),  # lifted to single precision
        ({"axolotl.yaml": AXOLOTL + "bf16: full\n"}, "bf16"),
        ({"axolotl.yaml": AXOLOTL + "bf16: auto\n"}, "bf16"),
        ({"axolotl.yaml": AXOLOTL + "bf16: auto\nfsdp_config: {fsdp_version: 2}\n"}, "fp32"),
        ({"axolotl.yaml": AXOLOTL + "bf16: full\nfsdp_config: {fsdp_version: 2}\n"}, "bf16"),
        ({"titan.toml": TITAN + 'dtype = "bfloat16"\n'}, "bf16"),
        ({"titan.toml": TITAN + 'dtype = "float32"\n'}, ""),
        ({"automodel.yaml": LORA.partition("peft:")[0].replace("model:\n", "model:\n  dtype: float32\n")}, "fp32"),
        ({"sft.py": PROGRAM.format(bits="").replace("model = get_peft_model", "other = keep")}, ""),
    ],
)
def test_the_type_of_the_weights_is_read_where_the_files_settle_it(tmp_path, files, weights):
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    job = read_job([str(tmp_path / name) for name in files], JobOptions(gpus=8))

    assert job.weights == weights
    assert job.precision == "bf16"


def test_what_deepspeed_holds_beside_a_trainers_own_type_is_named(tmp_path):
    (tmp_path / "d.json").write_text(BY_DEEPSPEED.format(bf16='{"enabled": "auto"}'))

    job = read(tmp_path, "factory.yaml", FULL + "pure_bf16: true\ndeepspeed: d.json\n")

    assert job.weights == ""
    assert [said for said in job.ignored if said.startswith("pure_bf16") and "master copies" in said]


# --- the way to the loss

LIGER = "axolotl.integrations.liger.LigerPlugin"
CUT = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
LOSS = "nemo_automodel.components.loss."
MASKED = f"loss_fn:\n  _target_: {LOSS}masked_ce.MaskedCrossEntropy\n"


@pytest.mark.parametrize(
    ("name", "text", "loss"),
    [
        ("trl.sh", TRL, ""),
        ("trl.sh", TRL + "--use_liger_kernel", "fused"),
        ("trl.sh", TRL + "--use_liger", "fused"),
        ("trl.sh", TRL + """--use_liger_kernel --liger_kernel_config '{"fused_linear_cross_entropy": false}'""", ""),
        ("trl.sh", TRL + "--loss_type chunked_nll", "fused"),
        ("trl.sh", TRL + "--loss_type nll", "whole"),
        ("factory.yaml", FACTORY + "enable_liger_kernel: true\n", "fused"),
        ("factory.yaml", FACTORY.replace("sft", "dpo") + "enable_liger_kernel: true\n", ""),
        ("axolotl.yaml", AXOLOTL + f"plugins: [{LIGER}]\nliger_fused_linear_cross_entropy: true\n", "fused"),
        ("axolotl.yaml", AXOLOTL + f"plugins: [{LIGER}]\nliger_rms_norm: true\n", ""),
        ("axolotl.yaml", AXOLOTL + f"plugins:\n  - {CUT}\n", "fused"),
        ("axolotl.yaml", AXOLOTL + f"plugins:\n  - {CUT}\ncut_cross_entropy: false\n", ""),
        ("automodel.yaml", LORA + f"loss_fn: {{_target_: {LOSS}linear_ce.FusedLinearCrossEntropy}}\n", "fused"),
        ("automodel.yaml", LORA + f"loss_fn: {{_target_: {LOSS}chunked_ce.ChunkedCrossEntropy}}\n", "compiled"),
        ("automodel.yaml", LORA + f"loss_fn: {{_target_: {LOSS}masked_ce.MaskedCrossEntropy}}\n", ""),
        ("automodel.yaml", LORA + MASKED + "  fp32_upcast: false\n", "half"),
        ("automodel.yaml", LORA + MASKED + "  fp32_upcast: true\n", ""),
        ("titan.py:own", REGISTRY.format(more="loss=ChunkedCELoss.Config()"), "chunked"),
        ("titan.py:own", REGISTRY.format(more="loss=CrossEntropyLoss.Config()"), "whole"),
        ("titan.py:own", REGISTRY.format(more=""), ""),
        ("titan.toml", TITAN, "whole"),  # of releases before losses in parts
        ("titan.toml", TITAN + "compile = true\n", "compiled"),
        ("titan.toml", TITAN + "[compile]\nenable = true\n", "compiled"),
        ("titan.toml", TITAN + "[compile]\nenable = true\ncomponents = ['model']\n", "whole"),
        (
            "titan.py:own",
            REGISTRY.format(more="loss=CrossEntropyLoss.Config(), compile=CompileConfig(enable=True)"),
            "compiled",
        ),
    ],
)
def test_the_way_to_the_loss_is_read(tmp_path, name, text, loss):
    (tmp_path / name.partition(":")[0]).write_text(text)

    job = read_job([str(tmp_path / name)], JobOptions(gpus=8))

    assert job.loss == loss
    assert not [said for said in job.ignored if "liger" in said and loss]


def test_a_loss_that_is_compiled_is_not_called_whole_in_what_is_assumed(tmp_path):
    (tmp_path / "titan.toml").write_text(TITAN + "[compile]\nenable = true\n")

    job = read_job([str(tmp_path / "titan.toml")], JobOptions(gpus=8))

    assert job.loss == "compiled"
    (said,) = [text for text in job.assumed if "logits" in text]
    assert said.startswith("logits are made all at once, not in chunks")


# --- what is made of it

LARGE = TUNED.replace("Llama-3.1-8B", "Llama-3.1-70B").replace("batch_size 4", "batch_size 1")
LARGE += "--gradient_checkpointing --use_liger_kernel "


def planned(folder, capsys, name, *more):
    with pytest.raises(SystemExit) as leave:
        main(["plan", "--job", str(folder / name), "--gpus", "8", "--cluster", "dgx-h100", "--json", *more])
    said = capsys.readouterr()
    return json.loads(said.out) if leave.value.code == 0 else (leave.value.code, said.err)


LONG = TRL.replace("Llama-3.1-8B", "Llama-3.1-70B").replace("batch_size 4", "batch_size 1") + "--max_length 32768 "


def test_states_that_fsdp_holds_in_single_precision_are_no_doubt_of_what_does_not_fit(tmp_path, capsys):
    # 8.8 billion parameters a rank of 16 bytes each are 131 GiB, of which half would have lain within 80 GB
    (tmp_path / "sft.sh").write_text(LONG + "--gradient_checkpointing --fsdp full_shard")

    found = planned(tmp_path, capsys, "sft.sh")

    assert found["job"]["weights"] == "fp32"
    assert found["fits"] == "does not fit"


@pytest.mark.parametrize(("engine", "code"), [("accelerate", 0), ("megatron", 0), ("automodel", 2)])
def test_weights_in_single_precision_are_written_for_engines_that_hold_them_so(tmp_path, capsys, engine, code):
    (tmp_path / "sft.sh").write_text(TRL + "--fsdp full_shard")

    with pytest.raises(SystemExit) as leave:
        main(["plan", "--job", str(tmp_path / "sft.sh"), "--cluster", "dgx-h100", "--emit", engine])

    assert leave.value.code == code, capsys.readouterr().err


def test_a_model_of_70_billion_weights_is_tuned_in_four_bits_where_half_precision_does_not_fit(tmp_path, capsys):
    (tmp_path / "half.sh").write_text(LARGE)
    (tmp_path / "four.sh").write_text(LARGE + "--load_in_4bit")

    half, four = (planned(tmp_path, capsys, name) for name in ("half.sh", "four.sh"))

    assert (half["fits"], four["fits"]) == ("does not fit", "fits")
    assert "weights" not in half["job"]  # as before for a job that says nothing of it
    assert four["job"]["weights"] == "nf4"
    need = [each["predicted"]["peak_memory_bytes_per_gpu"] for each in (half, four)]
    assert 0.3 < need[1] / need[0] < 0.4  # 4.5 bits of 16, and what is not in few bits


def test_what_files_say_costs_what_options_of_the_same_name_cost_and_options_win(tmp_path, capsys):
    (tmp_path / "said.sh").write_text(TUNED + "--load_in_4bit --use_liger_kernel")
    (tmp_path / "plain.sh").write_text(TUNED)
    options = ("--weights", "nf4", "--loss", "fused")

    said, asked = planned(tmp_path, capsys, "said.sh"), planned(tmp_path, capsys, "plain.sh", *options)
    other = planned(tmp_path, capsys, "said.sh", "--weights", "INT8", "--loss", "whole")

    assert said["predicted"] == asked["predicted"]
    assert (other["job"]["weights"], other["job"]["loss"]) == ("int8", "whole")
    assert [line.partition(" in place of ")[0] for line in other["job"]["assumed"] if line.startswith("--")] == [
        "--weights INT8",
        "--loss whole",
    ]


def test_smaller_moments_and_weights_without_copies_take_less_memory(tmp_path, capsys):
    words = {"plain": "", "moments": "--optim adamw_8bit", "both": "--optim adamw_8bit --torch_dtype bfloat16"}
    need = {}
    for name, more in words.items():
        (tmp_path / f"{name}.sh").write_text(TRL + more)
        need[name] = planned(tmp_path, capsys, f"{name}.sh")["predicted"]["peak_memory_bytes_per_gpu"]

    assert need["both"] < need["moments"] < need["plain"]


@pytest.mark.parametrize(
    ("name", "text", "words", "told"),
    [
        ("trl.sh", TRL + "--use_liger_kernel", ("--emit", "accelerate"), "--emit: the job has --loss fused"),
        ("trl.sh", TRL + "--torch_dtype bfloat16", ("--output", "plan.json"), "--output: the job has --weights bf16"),
        ("trl.sh", TRL + "--optim adamw_8bit", ("--emit", "accelerate"), "--emit: the job has the optimiser adam8bit"),
        ("trl.sh", TRL, ("--weights", "bf16", "--emit", "accelerate"), "--emit: the job has --weights bf16"),
    ],
)
def test_nothing_is_written_of_a_job_that_holds_less_than_a_plan(tmp_path, capsys, name, text, words, told):
    (tmp_path / name).write_text(text)

    code, said = planned(tmp_path, capsys, name, *words, *(("--emit-to", "x") if "--emit" in words else ()))

    assert code == InputError.exit_code
    assert told in said


def test_a_loss_in_parts_is_torchtitans_own_and_is_emitted(tmp_path, capsys):
    (tmp_path / "titan.py").write_text(REGISTRY.format(more="loss=ChunkedCELoss.Config()"))

    found = planned(tmp_path, capsys, "titan.py:own", "--emit", "torchtitan", "--emit-to", str(tmp_path / "out.py"))

    assert found["job"]["loss"] == "chunked"
    assert (tmp_path / "out.py").exists()


def test_a_fused_adamw_is_what_is_written_of_a_job_anyway(tmp_path, capsys):
    (tmp_path / "trl.sh").write_text(TRL + "--optim adamw_torch_fused")

    found = planned(tmp_path, capsys, "trl.sh", "--emit", "accelerate", "--emit-to", str(tmp_path / "out.yaml"))

    assert found["job"]["optimizer"] == "adamw-fused"
    assert (tmp_path / "out.yaml").exists()


def test_the_planner_knows_every_name_that_readers_give():
    assert {ours for _, ours in NAMES} | set(BY_BITS.values()) - {""} <= set(MOMENTS)
    assert optimizer_named("SGD", momentum=0.9) in MOMENTS


def test_the_second_copy_of_weights_of_zero_plus_plus_is_said_not_to_be_priced(tmp_path):
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}}'

    (tmp_path / "ds.json").write_text(text)

    found = read_job([str(tmp_path / "ds.json")], JobOptions(gpus=16))

    assert any("zero_hpz_partition_size = 4: a second copy of the weights" in line for line in found.ignored)
