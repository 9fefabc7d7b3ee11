"""The decoder goes to Hugging Face's Llama and back: same logits, same bits."""

import json

import pytest
import torch
from torch import nn

from meshwright.errors import InputError
from meshwright.train.checkpoint import huggingface
from meshwright.train.checkpoint.huggingface import export, import_model
from meshwright.train.checkpoint.llama import names_of
from meshwright.train.checkpoint.manifest import read_manifest
from meshwright.train.checkpoint.pieces import read_whole
from meshwright.train.model.decoder import Decoder
from meshwright.workload.transformer import parameter_shapes
from testkit.small_checkpoints import MODELS, saved


def loss_of(logits, targets):
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


@pytest.mark.parametrize("name", MODELS)
def test_names_without_torch_are_those_of_the_module(name):
    with torch.device("meta"):
        module = Decoder(MODELS[name])

    shapes = dict(zip(names_of(MODELS[name]), parameter_shapes(MODELS[name]), strict=True))
    assert list(shapes.items()) == [(n, tuple(p.shape)) for n, p in module.named_parameters()]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("file_bytes", [2**30, 20_000])
def test_transformers_computes_the_same_from_an_export(tmp_path, monkeypatch, name, file_bytes):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(huggingface, "FILE_BYTES", file_bytes)
    module, path = saved(tmp_path / "ours", MODELS[name])
    files = export(path, read_manifest(path), tmp_path / "hf")
    assert (len(files) > 2) == (file_bytes < 2**30)

    model, report = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    tokens = torch.randint(0, 97, (3, 20), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    with torch.no_grad():
        torch.testing.assert_close(loss_of(model(inputs).logits, targets), module(inputs, targets), rtol=1e-6, atol=0)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))


@pytest.mark.parametrize("name", MODELS)
def test_what_transformers_saves_comes_back_bit_by_bit(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    module, path = saved(tmp_path / "ours", MODELS[name])
    export(path, read_manifest(path), tmp_path / "hf")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "hf")
    model.save_pretrained(tmp_path / "again", max_shard_size="20KB")

    manifest = import_model(tmp_path / "again", tmp_path / "back")

    assert manifest.facts.model == read_manifest(path).facts.model | {"initializer_range": 0.08}
    back = dict(read_whole(tmp_path / "back", manifest, manifest.tensors))
    for name, parameter in module.named_parameters():
        assert torch.equal(back[name], parameter), name


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention_bias", True, "attention_bias"),
        ("hidden_act", "gelu", "hidden_act"),
        ("architectures", ["GPT2LMHeadModel"], "LlamaForCausalLM"),
        ("head_dim", 7, "head_dim"),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}, "rope_scaling"),
        ("num_hidden_layers", 3, "lacks model.layers.2"),
        ("num_hidden_layers", 1, "has model.layers.1"),
        ("intermediate_size", 48, "config.json asks for"),
    ],
)
def test_a_model_that_is_not_ours_is_refused_with_the_key(tmp_path, key, value, message):
    _, path = saved(tmp_path / "ours", MODELS["untied"])
    export(path, read_manifest(path), tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {key: value}))

    with pytest.raises(InputError, match=message):
        import_model(tmp_path / "hf", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_an_index_that_leads_elsewhere_is_refused(tmp_path):
    _, path = saved(tmp_path / "ours", MODELS["tied"])
    export(path, read_manifest(path), tmp_path / "hf")
    index = {"weight_map": {"model.norm.weight": "../ours/rank-00000.safetensors"}}
    (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(InputError, match="is not the name of a safetensors file"):
        import_model(tmp_path / "hf", tmp_path / "back")


def rewritten(path, change):
    """Write a folder of save_pretrained with its first projection changed, and return that folder."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors[name] = change(tensors[name])
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def first_is(value):
    def change(tensor):
        tensor[0, 0] = value
        return tensor

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.to(torch.int32), "q_proj.weight is I32, expected weights as F32, BF16, F16, F64"),
        (lambda t: t.to(torch.int8), "is I8"),
        (lambda t: t > 0, "is BOOL"),
        (lambda t: t.to(torch.float8_e4m3fn), "is F8_E4M3"),
        (first_is(float("nan")), "1 of 1024 weights are NaN or infinite"),
        (first_is(float("-inf")), "1 of 1024 weights are NaN or infinite"),
    ],
)
def test_what_is_no_weight_is_refused_and_nothing_is_written(tmp_path, change, message):
    _, path = saved(tmp_path / "ours", MODELS["untied"])
    export(path, read_manifest(path), tmp_path / "hf")

    with pytest.raises(InputError, match=message):
        import_model(rewritten(tmp_path / "hf", change), tmp_path / "back")

    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_precision_are_read(tmp_path, dtype):
    _, path = saved(tmp_path / "ours", MODELS["untied"])
    export(path, read_manifest(path), tmp_path / "hf")

    import_model(rewritten(tmp_path / "hf", lambda t: t.to(dtype)), tmp_path / "back")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sliding_window", 4),
        ("partial_rotary_factor", 0.5),
        ("rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ("rope_parameters", 7),
        ("attention_bias", 1),
        ("quantization_config", {"bits": 4}),
        ("final_logit_softcapping", 30.0),
    ],
)
def test_a_configuration_that_the_decoder_does_not_have_is_refused(tmp_path, key, value):
    _, path = saved(tmp_path / "ours", MODELS["untied"])
    export(path, read_manifest(path), tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config | {key: value}))

    with pytest.raises(
        InputError, match="partial_rotary_factor" if isinstance(value, dict) and "rope_theta" in value else key
    ):
        import_model(tmp_path / "hf", tmp_path / "back")


def test_what_says_that_nothing_is_special_is_no_reason_to_refuse(tmp_path):
    _, path = saved(tmp_path / "ours", MODELS["untied"])
    export(path, read_manifest(path), tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    config |= {"sliding_window": None, "partial_rotary_factor": 1.0, "attention_dropout": 0.1, "rope_scaling": None}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))

    import_model(tmp_path / "hf", tmp_path / "back")
