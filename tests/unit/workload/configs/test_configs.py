"""config.json files against the library's own classes: parameters, and the weights that a token is multiplied with."""

import csv
import json
import logging
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of, model_types
from tests.unit.workload.configs import library

CASES = Path(__file__).with_name("cases")
EXPECTED = {row["model"]: row for row in csv.DictReader((CASES / "expected.csv").read_text("utf-8").splitlines())}
LLAMA = json.loads((CASES / "llama31-70b.json").read_text("utf-8"))
FAST = ("llama", "gemma3_text", "gpt_oss", "nemotron_h", "qwen3_5", "t5")


def described(name):
    return architecture_of(json.loads((CASES / f"{name}.json").read_text("utf-8"))).architecture


@pytest.mark.parametrize("name", EXPECTED)
def test_published_configurations_have_the_parameters_of_the_library(name):
    found, expected = described(name), EXPECTED[name]

    assert found.parameters == pytest.approx(int(expected["parameters_all"]), rel=1e-3)
    assert found.text_parameters == pytest.approx(int(expected["parameters_text_tower"]), rel=1e-3)
    if expected["weights_multiplied_a_token"]:
        assert found.matmul_parameters() == pytest.approx(float(expected["weights_multiplied_a_token"]), rel=5e-3)


def sized(kind):
    """Return configurations of one model type: its defaults, and others in which one size is changed."""
    base = {"model_type": kind, **library.FILLED.get(kind, {})}
    sizes = library.configuration(base).to_dict()
    yield base
    for key in ("vocab_size", "num_hidden_layers", "n_layer", "intermediate_size"):
        if isinstance(sizes.get(key), int) and kind not in {"nemotron_h", "mamba", "falcon_mamba"}:
            yield base | {key: sizes[key] * 2 if key != "num_hidden_layers" else max(2, sizes[key] // 2)}


def assert_alike(configs):
    """Hold every configuration that both accept to the library's count; skip where there is none."""
    logging.disable(logging.WARNING)
    compared = 0
    for config in configs:
        try:
            true = library.parameters(library.model(config))
        except Exception:  # the library itself refuses these sizes, or builds this type as a part of others alone
            continue
        try:
            found = architecture_of(config).architecture.parameters
        except InputError:  # a size that must be given, or that would not be counted rightly
            continue
        compared += 1
        assert found == pytest.approx(true, rel=1e-3), config
    logging.disable(logging.NOTSET)
    if not compared:
        pytest.skip("the library builds no model of this type from defaults, or sizes must be given")


@pytest.mark.parametrize("kind", FAST)
@pytest.mark.timeout(120)
def test_a_few_model_types_have_the_parameters_of_the_library(kind):
    pytest.importorskip("transformers")
    assert_alike(sized(kind))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in model_types() if kind not in library.ALIKE])
def test_every_key_of_every_model_type_changes_the_parameters_as_in_the_library_or_is_refused(kind):
    pytest.importorskip("transformers")
    base = library.base(kind)
    assert_alike([base, *library.changed(base)])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_defaults_of_keys_are_those_of_the_library():
    pytest.importorskip("transformers")
    assert json.loads(library.FILE.read_text("utf-8")) == json.loads(json.dumps(library.read_defaults()))


def test_there_are_more_than_sixty_model_types():
    assert len(model_types()) > 60


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "lama"}, "model_type: lama is not known"),
        ({"model_type": None}, "model_type: missing"),
        ({"moe_intermediate_size": 1408}, "moe_intermediate_size: not understood for model_type llama"),
        ({"mlp_expansion": {"a": 1}}, "mlp_expansion: not understood"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
        ({"hidden_size": None}, "hidden_size: expected a whole number, got null"),
        ({"n_embd": 4096}, "hidden_size and n_embd: expected one value"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(change, named):
    with pytest.raises(InputError, match=named):
        architecture_of(LLAMA | change)


@pytest.mark.parametrize("heads", [0, 7])
@pytest.mark.parametrize("kind", ["falcon", "mpt", "gpt_bigcode", "dbrx", "bart", "opt"])
def test_heads_that_do_not_divide_the_hidden_size_are_refused_by_name(kind, heads):
    keys = dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "encoder_attention_heads"), heads)
    sizes = dict.fromkeys(("hidden_size", "d_model", "n_embd"), 64)
    base = library.configuration({"model_type": kind, **library.FILLED.get(kind, {})}).to_dict()
    given = base | {key: value for key, value in (keys | sizes).items() if key in base or key.startswith("num")}

    with pytest.raises((InputError, ValueError), match=rf"heads?: {heads} does not divide"):
        architecture_of(given)


def test_a_vision_model_that_does_not_say_its_text_models_sizes_is_refused():
    with pytest.raises(InputError, match="text_config: missing"):
        architecture_of({"model_type": "mistral3"})


def test_unknown_keys_are_passed_over_where_that_is_asked_for():
    found = architecture_of(LLAMA | {"mlp_expansion": 3}, allow_unknown=True)

    assert found.ignored == ("mlp_expansion",)
    assert found.architecture.parameters == described("llama31-70b").parameters


def test_a_default_of_a_size_is_said():
    assert any(
        "hidden_size = 4096" in text
        for text in architecture_of(json.loads((CASES / "llava15-sparse.json").read_text("utf-8"))).assumed
    )


def test_windows_and_recurrences_cost_less_than_full_attention_at_long_sequences():
    gemma, nemotron = described("gemma3-27b"), described("nemotron3-nano-hybrid")
    far, near = 131072, 4096

    for model in (gemma, nemotron):
        whole = 6 * model.num_hidden_layers * far * model.num_attention_heads * model.head_dim
        assert model.model_flops_per_token(far) - 6 * model.matmul_parameters() < 0.3 * whole
        assert model.model_flops_per_token(far) > model.model_flops_per_token(near)
