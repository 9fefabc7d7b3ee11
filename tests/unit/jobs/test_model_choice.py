"""The model of a job whose config.json is among its files."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.workload.models import load_model
from tests.unit.jobs.test_adapters import AXOLOTL, TRL
from tests.unit.jobs.test_strangers import MEGATRON, job

SMALL = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 12},
    **{"num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 3072, "vocab_size": 20000},
    **{"max_position_embeddings": 4096, "tie_word_embeddings": False},
}
OWN = TRL.replace("meta-llama/Llama-3.1-8B", "/data/our-model")
TUNED = f"{OWN} --use_peft --lora_r 8"


def config(**more) -> str:
    return json.dumps(SMALL | more)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sft.sh", OWN),
        ("axolotl.yaml", AXOLOTL.replace("Qwen/Qwen3-8B", "us/our-model")),
        (
            "titan.toml",
            '[model]\nname = "ours"\nflavor = "1B"\n[training]\nlocal_batch_size = 1\nseq_len = 512\n',
        ),
    ],
)
def test_a_model_that_is_named_but_not_known_is_that_of_the_config_beside(tmp_path, name, text):
    found = job(tmp_path, {name: text, "config.json": config()}, gpus=8)

    assert found.architecture.parameters == load_model(str(tmp_path / "config.json")).architecture.parameters
    assert found.asked == ()


def test_a_config_of_another_size_than_the_published_model_counts_and_is_said(tmp_path):
    small = config(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8)
    found = job(tmp_path, {"sft.sh": TRL, "config.json": small}, gpus=8)

    assert found.architecture.vocab_size == 20000
    assert any(text.startswith("config.json: vocab_size is 20000; the published llama3-8b") for text in found.notes)


def test_sizes_that_a_script_gives_itself_count_and_the_config_is_said_to_be_passed_over(tmp_path):
    script = f"torchrun --nproc-per-node 8 pretrain_gpt.py {MEGATRON}"

    found = job(tmp_path, {"own.sh": script, "config.json": config()})

    assert found.architecture.num_hidden_layers == 16
    assert not [text for text in found.ignored if "hidden" in text]
    assert [text for text in found.notes if text.startswith("config.json: own.sh has the sizes of its model itself")]


def test_a_dense_model_is_no_published_one_with_experts_of_its_layers_and_width(tmp_path):
    found = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON}\n"})

    assert found.architecture.name == ""


def test_a_second_model_is_refused_and_one_by_option_is_taken_in_place_of_the_file(tmp_path):
    files = {"sft.sh": OWN, "config.json": config(), "other.json": config(num_hidden_layers=4)}

    with pytest.raises(InputError, match=r"other\.json: a second model beside config\.json"):
        job(tmp_path, files)

    model = load_model("qwen3-8b")
    asked = JobOptions(gpus=8, model="qwen3-8b", architecture=model.architecture)
    found = read_job([str(tmp_path / name) for name in ("sft.sh", "config.json")], asked)
    assert (found.architecture, found.model_name) == (model.architecture, "qwen3-8b")
    assert "--model qwen3-8b in place of config.json" in found.assumed


@pytest.mark.parametrize(
    ("said", "weights"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4-nested"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 3}, ""),
        ({"quant_method": ["gptq"], "bits": [4]}, ""),
        ({}, ""),
    ],
)
def test_weights_in_few_bits_are_as_the_config_says(tmp_path, said, weights):
    found = job(tmp_path, {"sft.sh": TUNED, "config.json": config(quantization_config=said)}, gpus=8)

    assert (found.weights, found.lora_rank) == (weights, 8)


def test_a_model_that_is_asked_for_in_place_of_the_files_sizes_is_said(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON}\n")
    own = read_job([str(file)]).architecture
    asked = JobOptions(model="qwen3-8b", architecture=load_model("qwen3-8b").architecture)

    found = read_job([str(file)], asked)

    assert found.architecture.num_hidden_layers == 36 != own.num_hidden_layers
    told = f"--model qwen3-8b in place of the files' num_hidden_layers {own.num_hidden_layers}"
    assert any(text.startswith(told) for text in found.assumed)


SHAPED = "--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --micro-batch-size 1 --seq-length 1024 --bf16"


@pytest.mark.parametrize(("more", "name"), [("", "opt-13b"), ("--ffn-hidden-size 9216 --swiglu", "")])
def test_a_model_of_the_layers_width_and_heads_of_a_published_one_has_its_name_unless_more_differs(
    tmp_path, more, name
):
    grouped = "--group-query-attention --num-query-groups 5" if more else ""
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPED} {more} {grouped} --max-position-embeddings 2048\n"

    found = job(tmp_path, {"run.sh": command})

    assert found.architecture.name == name


@pytest.mark.parametrize("named", ["./our-model", "our-model", "./our-model/config.json", "models/../our-model/"])
def test_a_model_in_a_folder_that_the_script_names_is_read_from_there(tmp_path, named):
    script = tmp_path / "sft.sh"
    script.write_text(OWN.replace("/data/our-model", named))
    (tmp_path / "our-model").mkdir()
    (tmp_path / "our-model/config.json").write_text(config())

    found = read_job([str(script)], JobOptions(gpus=8)).architecture

    assert (found.num_hidden_layers, found.hidden_size) == (12, 1024)


def test_the_folder_of_a_model_may_be_named_from_the_root(tmp_path):
    script = tmp_path / "job" / "sft.sh"
    script.parent.mkdir()
    script.write_text(OWN.replace("/data/our-model", f"{tmp_path}/elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/config.json").write_text(config())

    assert read_job([str(script)], JobOptions(gpus=8)).architecture.num_hidden_layers == 12


def test_a_model_whose_path_hangs_on_a_variable_is_not_taken_from_beside_the_script(tmp_path):
    script = tmp_path / "sft.sh"
    script.write_text(OWN.replace("/data/our-model", "$MODEL_DIR"))
    (tmp_path / "config.json").write_text(config())

    assert read_job([str(script)], JobOptions(gpus=8)).architecture is None


@pytest.mark.parametrize("said", ["512", "${.encoder_seq_length}"])
def test_a_table_of_positions_is_as_long_as_the_file_says_whatever_the_published_model_has(tmp_path, said):
    text = f"""trainer: {{devices: 1, num_nodes: 1, precision: bf16}}
model:
  micro_batch_size: 1
  global_batch_size: 8
  tensor_model_parallel_size: 1
  encoder_seq_length: 512
  max_position_embeddings: {said}
  num_layers: 12
  hidden_size: 768
  ffn_hidden_size: 3072
  num_attention_heads: 12
  tokenizer: {{type: GPT2BPETokenizer}}
"""
    found = job(tmp_path, {"gpt.yaml": text})

    assert found.architecture.parameters == load_model("gpt2").architecture.parameters - 512 * 768


@pytest.mark.parametrize(
    ("name", "listed"),
    [("/data/models/llama-7b", True), ("../llama-7b", True), ("huggyllama/llama-7b", False)],
)
def test_a_model_by_the_name_of_a_folder_that_is_not_here_is_listed_as_assumed(tmp_path, name, listed):
    found = job(tmp_path, {"sft.sh": TRL.replace("meta-llama/Llama-3.1-8B", name)}, gpus=8)

    assert found.architecture == load_model("llama-7b").architecture
    assert any("the model is llama-7b: by the name of" in text for text in found.assumed) is listed


def test_sizes_of_a_published_model_that_is_larger_have_not_its_name(tmp_path):
    flags = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --micro-batch-size 1 --global-batch-size 64"
    more = "--seq-length 1024 --max-position-embeddings 1024 --position-embedding-type rope --bf16 --vocab-size 50304"
    start = f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags} {more}"

    tied = job(tmp_path, {"a.sh": f"{start}\n"})
    untied = job(tmp_path, {"a.sh": f"{start} --untie-embeddings-and-output-weights\n"})

    assert (tied.architecture.name, untied.architecture.name) == ("", "pythia-1.4b")
