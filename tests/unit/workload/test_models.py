"""The catalogue of models against published figures, and configs that are broken or hostile."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.workload.architecture import Architecture
from meshwright.workload.models import Convolution, load_model, model_names, resolve_model
from meshwright.workload.models.catalogue import entry
from meshwright.workload.models.spelling import plain_name

EXPECTED = {
    *("gpt2", "gpt3-175b", "megatron-22b", "megatron-530b", "megatron-1t", "bloom-176b", "llama2-7b", "llama2-70b"),
    *("llama3-8b", "llama3-70b", "llama3-405b", "mixtral-8x7b", "resnet50"),
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}


def saved(folder, config):
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


def test_the_catalogue_holds_the_models_that_people_compare():
    assert set(model_names()) >= EXPECTED
    assert len(model_names()) >= 70


@pytest.mark.parametrize("name", model_names())
def test_a_model_has_its_published_parameters_and_says_where_they_come_from(name):
    published = entry(name)

    assert load_model(name).description.parameters == pytest.approx(
        published.parameters, rel=published.parameters_within, abs=0
    )
    assert published.parameters_source
    assert published.source.startswith("https://")


WRITTEN = {
    "Nemotron_3_Nano": "nemotron3-nano-30b-a3b",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron3-nano-30b-a3b",
    "llama3.1-70b": "llama3-70b",
    "meta-llama/Llama-3.1-70B-Instruct": "llama3-70b",
    "LLAMA3.1_405B": "llama3-405b",
    "Qwen2.5-72B": "qwen2.5-72b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b",
    "DeepSeekV3 (w/o MTP)": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3.2",
    "GPT OSS 120B": "gpt-oss-120b",
    "google/gemma-3-27b-it": "gemma3-27b",
    "Llama-2-70b-hf": "llama2-70b",
    "facebook/opt-1.3b": "opt-1.3b",
    "OPT-13B": "opt-13b",
    "qwen2_5_0_5b": "qwen2.5-0.5b",
    "llama3_2_1b": "llama3.2-1b",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mixtral-8x22b",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
}
TRAINED_ON = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "qwen2.5-32b",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": "llama3-70b",
    "Qwen/Qwen2.5-Coder-7B-Instruct": "qwen2.5-7b",
    "lmsys/vicuna-13b-v1.5": "llama2-13b",
    "zephyr-7b-beta": "mistral-7b",
}


@pytest.mark.parametrize("written", WRITTEN)
def test_a_model_is_found_by_its_name_as_people_write_it(written):
    assert resolve_model(written) == WRITTEN[written]
    assert load_model(written).name == WRITTEN[written]


@pytest.mark.parametrize(("written", "near"), [("Nemotron_3_Ultra", "nemotron"), ("Qwen/Qwen2-72B", "qwen2.5-72b")])
def test_a_name_that_is_not_there_is_refused_with_the_nearest(written, near):
    with pytest.raises(InputError, match=f"not in the catalogue.*did you mean {near}"):
        load_model(written)


@pytest.mark.parametrize("written", TRAINED_ON)
def test_a_model_that_was_trained_on_from_another_is_counted_as_that_one_and_it_is_said(written):
    found = load_model(written)

    assert found.name == TRAINED_ON[written]
    assert found.assumed[0] == f"{written} is counted as {found.name}, from which it was trained on with the same sizes"


@pytest.mark.parametrize(
    "written",
    [
        "DeepSeek-R1-Distill-Qwen-1.5B",  # its output has weights of its own
        "mistralai/Mistral-7B-Instruct-v0.3",  # more words than the first version
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "vicuna-7b-draft",
        "vicuna-7b.gguf",
    ],
)
def test_a_name_that_means_other_sizes_than_a_model_like_it_is_refused(written):
    with pytest.raises(InputError, match="not in the catalogue and not a file"):
        load_model(written)


@pytest.mark.parametrize(
    ("config", "library"),
    [
        ({"module": "keras", "class_name": "Sequential", "config": {"name": "mine", "layers": []}}, "Keras"),
        ({"architecture": "vit_tiny_patch16_224", "num_classes": 4, "pretrained_cfg": {"tag": "in1k"}}, "timm"),
        ({"model_cfg": {"embed_dim": 64, "vision_cfg": {}, "text_cfg": {}}, "preprocess_cfg": {}}, "OpenCLIP"),
    ],
)
def test_a_file_of_another_library_is_refused_by_the_name_of_that(tmp_path, config, library):
    with pytest.raises(InputError, match=f"config.json: model_type: missing .this is a model's file of {library}"):
        load_model(saved(tmp_path, config))


def test_a_size_with_a_point_is_another_size_than_its_digits():
    with pytest.raises(InputError, match=r"did you mean opt-6\.7b"):
        load_model("opt-67b")


def test_no_two_models_of_the_catalogue_answer_to_one_name():
    spelt = [
        word
        for name in model_names()
        for word in {plain_name(name), *(plain_name(other) for other in entry(name).names)}
    ]

    assert len(spelt) == len(set(spelt))


def test_a_token_of_a_mixture_of_experts_passes_through_a_part():
    assert load_model("mixtral-8x7b").architecture.active_parameters == pytest.approx(
        entry("mixtral-8x7b").active_parameters, rel=0.005
    )


def test_resnet_50_is_102_megabytes_of_gradients_and_8_gflop_an_image():
    network = load_model("resnet50").description

    assert 4 * network.parameters == pytest.approx(102.2e6, rel=0.001)
    assert 4 * network.parameters / 2**20 == pytest.approx(97.5, abs=0.01)
    assert network.forward_flops == pytest.approx(entry("resnet50").forward_flops, rel=0.001)
    assert network.forward_flops == 2 * 4_089_184_256  # multiply-adds that counters of operators agree on
    assert network.sample_bytes == 150_528


@pytest.mark.parametrize(
    ("kind", "depths", "sizes", "parameters"),
    [
        ("basic", [2, 2, 2, 2], [64, 128, 256, 512], 11_689_512),
        ("basic", [3, 4, 6, 3], [64, 128, 256, 512], 21_797_672),
        ("bottleneck", [3, 4, 23, 3], [256, 512, 1024, 2048], 44_549_160),
        ("bottleneck", [3, 8, 36, 3], [256, 512, 1024, 2048], 60_192_808),
    ],
)
def test_the_other_residual_networks_count_right_too(kind, depths, sizes, parameters):
    config = {"layer_type": kind, "depths": depths, "hidden_sizes": sizes}

    assert Convolution.from_config(config).parameters == parameters


def test_a_config_of_hugging_face_is_read_from_a_file_a_folder_and_toml(tmp_path):
    path = saved(tmp_path, LLAMA)
    toml = tmp_path / "mine.toml"
    toml.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in LLAMA.items()))

    models = [load_model(path), load_model(str(tmp_path)), load_model(str(toml))]

    assert len({model.architecture.parameters for model in models}) == 1
    assert models[0].architecture.parameters == 6_738_415_616
    assert (models[0].name, models[2].name, models[0].seq_len) == (tmp_path.name, "mine", 2048)


@pytest.mark.parametrize("text", ["config.json", ".", "./config.json", "below/../config.json"])
def test_a_config_in_the_present_folder_has_the_name_of_the_folder(tmp_path, monkeypatch, text):
    folder = tmp_path / "my-model"
    (folder / "below").mkdir(parents=True)
    saved(folder, LLAMA)
    monkeypatch.chdir(folder)

    assert load_model(text).name == "my-model"


def test_a_config_that_is_a_link_has_the_name_of_the_folder_of_the_link(tmp_path):
    for name in ("blobs", "my-model"):
        (tmp_path / name).mkdir()
    saved(tmp_path / "blobs", LLAMA)
    (tmp_path / "my-model" / "config.json").symlink_to(tmp_path / "blobs" / "config.json")

    assert load_model(str(tmp_path / "my-model" / "config.json")).name == "my-model"


def test_a_file_in_the_form_of_the_catalogue_is_read_too(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "Mine"\nsource = "here"\nseq_len = 512\n[config]\n' + 'model_type = "resnet"\n')

    model = load_model(str(path))

    assert (model.title, model.seq_len) == ("Mine", 512)
    assert isinstance(model.description, Convolution)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[1, 2]", "expected an object"),
        ("{", "config.json: Expecting"),
        ("[" * 100_000, "config.json"),
        ({}, "missing"),
        (LLAMA | {"hidden_size": "big"}, "hidden_size: expected a whole number"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads"),
        (LLAMA | {"model_type": ["llama"]}, "model_type: expected a word"),
        (LLAMA | {"model_type": "lama"}, "model_type: lama is not known .did you mean llama"),
        (LLAMA | {"num_local_experts": 8}, "num_local_experts: not understood for model_type llama"),
        (LLAMA | {"architectures": ["LlamaForDepthEstimation"]}, "architectures: LlamaForDepthEstimation"),
        ({"model_type": "resnet", "depths": [3]}, "depths: expected one number for each of the 4"),
        ({"model_type": "resnet", "depths": "3"}, "depths"),
        ({"model_type": "resnet", "depths": [10**9, 1, 1, 1]}, "sizes: expected"),
        ({"model_type": "resnet", "layer_type": "wide"}, "layer_type"),
    ],
)
def test_a_bad_config_says_what_is_wrong_and_where(config, message, tmp_path):
    with pytest.raises(InputError, match=message) as raised:
        load_model(saved(tmp_path, config))

    assert "config.json" in str(raised.value)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(InputError, match="did you mean llama3-405b"):
        load_model("llama-405b")


def test_a_missing_file_is_named():
    with pytest.raises(InputError, match=r"nowhere\.json: no such file"):
        load_model("nowhere.json")


def test_a_folder_of_an_adapter_is_named_as_one_with_the_model_beneath_it(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "gpt2", "r": 4}')

    with pytest.raises(InputError, match="this is an adapter, peft_type LORA; give --model gpt2, .* --lora-rank 4"):
        load_model(str(tmp_path))
    with pytest.raises(InputError, match=r"config\.json: no such file"):
        load_model(str(tmp_path.parent))


def test_a_convolutional_model_has_no_layouts_to_plan_and_its_size_is_said():
    with pytest.raises(InputError, match=r"0.02556 B parameters, 8.178 GFLOP forward .*give --mfu"):
        _ = load_model("resnet50").architecture
    assert isinstance(load_model("gpt2").architecture, Architecture)


def test_a_pair_says_that_a_token_is_one_of_each_side():
    pair, alone = load_model("t5-11b"), load_model("bert-large")

    assert any("as long in the encoder as in the decoder" in told for told in pair.assumed)
    assert not any("encoder" in told for told in alone.assumed)


@pytest.mark.parametrize("name", ["metadata.txt", "model.gguf", "config"])
def test_a_file_that_is_no_config_is_not_taken_for_a_name_of_the_catalogue(tmp_path, name):
    file = tmp_path / name
    file.write_text("llama_model_loader: loaded meta data with 26 key-value pairs")

    with pytest.raises(InputError, match=f"{name}: expected the model's config.json.*logs are not read") as told:
        load_model(str(file))
    assert "known:" not in str(told.value)


def test_a_file_that_begins_with_the_mark_of_its_byte_order_is_read(tmp_path):
    plain, marked = (load_model(saved(tmp_path, mark + json.dumps(LLAMA))) for mark in ("", "\ufeff"))

    assert marked == plain


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"model_type": "llama"}\nmine@host:~$ ls\n',
            r"Extra data: line 2 .*, 'mine@host:~. ls' behind the end of the",
        ),
        ("<!DOCTYPE html>\n<html>", "line 1 column 1 .*, '<!DOCTYPE html>' stands there"),
        ("", "line 1 column 1 .*, nothing stands there"),
    ],
)
def test_of_a_file_that_is_no_json_the_place_and_what_stands_there_are_said(tmp_path, text, told):
    with pytest.raises(InputError, match=told):
        load_model(saved(tmp_path, text))


def test_a_key_that_stands_twice_is_refused_with_both_values_unless_they_are_one(tmp_path):
    text = json.dumps(LLAMA)

    with pytest.raises(InputError, match="hidden_size: stands twice, with 8192 and 4096; expected one value"):
        load_model(saved(tmp_path, '{"hidden_size": 8192, ' + text[1:]))
    assert load_model(saved(tmp_path, '{"hidden_size": 4096, ' + text[1:])) == load_model(saved(tmp_path, text))


BLOOM = {"model_type": "bloom", "n_embed": 64, "n_layer": 2, "num_attention_heads": 4, "vocab_size": 512}
T5 = {"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 512}


@pytest.mark.parametrize(("config", "key"), [(BLOOM, "seq_length"), (T5, "n_positions"), (BLOOM, "n_positions")])
def test_a_length_that_the_class_has_no_use_for_is_still_the_one_that_the_file_says(tmp_path, config, key):
    said, silent = (load_model(saved(tmp_path, config | more)) for more in ({key: 768}, {}))

    assert (said.seq_len, silent.seq_len) == (768, None)
    assert said.seq_len_from.startswith(f"{key} of ")
    assert said.architecture.parameters == silent.architecture.parameters
    long = load_model(saved(tmp_path, config | {key: 100_000}))
    assert (long.seq_len, "allows up to 100000 tokens" in long.seq_len_from) == (None, True)


def test_a_length_that_only_the_model_type_says_is_not_told_as_one_of_the_file(tmp_path):
    given = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    said, silent = (load_model(saved(tmp_path, config)) for config in (LLAMA, given))

    assert said.seq_len == silent.seq_len == 2048
    assert said.seq_len_from == f"the longest that {tmp_path / 'config.json'} allows"
    assert "its model type allows by default" in silent.seq_len_from
    usual = load_model(saved(tmp_path, given | {"model_type": "mistral"}))
    assert (usual.seq_len, "by default, and" in usual.seq_len_from) == (None, True)
