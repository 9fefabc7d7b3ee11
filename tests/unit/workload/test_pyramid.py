"""Swin against the library's own classes: parameters, and torch's count of FLOPs of one image."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meshwright.errors import InputError
from meshwright.workload.models import Pyramid, load_model
from tests.unit.workload.configs import library

SMALL = {"image_size": 64, "embed_dim": 24, "depths": [2, 1, 2], "num_heads": [2, 4, 8], "window_size": 4}
CHANGES = {
    "as it is": {},
    "an output over 10": {"id2label": {str(place): f"word {place}" for place in range(10)}},
    "windows over the edge": {"image_size": 80},
    "positions": {"use_absolute_embeddings": True},
    "no biases": {"qkv_bias": False, "mlp_ratio": 3.0},
    "other patches": {"patch_size": 2, "num_channels": 1},
    "a high image": {"image_size": [96, 64], "use_absolute_embeddings": True},
}


def network(kind: str, changed: dict) -> Pyramid:
    return Pyramid.from_config({"model_type": kind, **SMALL, **changed})[0]


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", ["swin", "swinv2"])
def test_stages_have_the_parameters_of_the_library(kind, changed):
    pytest.importorskip("transformers")
    config = {"model_type": kind, "architectures": [f"{kind.capitalize()}ForImageClassification"], **SMALL, **changed}

    assert network(kind, changed).parameters == library.parameters(library.model(config))


@pytest.mark.parametrize("kind", ["Swin", "Swinv2", "DonutSwin"])
def test_stages_without_an_output_over_classes_have_the_parameters_of_the_library(kind):
    transformers = pytest.importorskip("transformers")
    named = {"DonutSwin": "donut-swin"}.get(kind, kind.lower())
    made = library.configuration({"model_type": named, **SMALL})
    with torch.device("meta"):
        module = getattr(transformers, f"{kind}Model")(made)

    assert network(named, {"architectures": [f"{kind}Model"]}).parameters == library.parameters(module)


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_the_encoder_of_donut_is_swin_without_its_last_norm(changed):
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        module = transformers.DonutSwinModel(library.configuration({"model_type": "donut-swin", **SMALL, **changed}))

    assert network("donut-swin", changed).parameters == library.parameters(module)


@pytest.mark.parametrize("changed", ["as it is", "windows over the edge", "other patches", "a high image"])
def test_an_image_takes_the_flops_that_torch_counts(changed):
    transformers = pytest.importorskip("transformers")
    made = library.configuration({"model_type": "swin", **SMALL, **CHANGES[changed]})
    module, found = transformers.SwinForImageClassification(made), network("swin", CHANGES[changed])
    module.set_attn_implementation("eager")

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(1, found.num_channels, *found.image))
    assert found.forward_flops == counter.get_total_flops()


def test_swin_b_has_its_published_size_and_work():
    config = {"model_type": "swin", "embed_dim": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]}
    found, assumed = Pyramid.from_config(config | {"num_labels": 1000, "hidden_size": 1024, "num_layers": 4})

    assert found.parameters == 87_768_224
    assert found.forward_flops == pytest.approx(2 * 15.4e9, rel=0.01)  # published: multiply-adds
    assert "window_size = 7, the default of the model type" in assumed


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"hidden_size": 768}, "hidden_size: expected 96, as the class has it, got 768"),
        ({"num_heads": [2, 4]}, "depths, num_heads: expected one number each"),
        ({"num_heads": [2, 5, 8]}, "num_heads: 5 does not divide the width 48"),
        ({"embed_dim": None}, "embed_dim: missing"),
        ({"towers": 2}, "towers: not understood"),
        ({"architectures": ["SwinForMaskedImageModeling"]}, "expected a name that ends in ForImageClassification"),
        ({"mlp_ratio": "4"}, "mlp_ratio: expected a number"),
        ({"image_size": [64, 32, 3]}, "image_size: expected a whole number"),
        ({"image_size": [64, 0]}, "image_size: expected numbers above 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(changed, told):
    with pytest.raises(InputError, match=told):
        network("swin", changed)


def test_a_pyramid_has_no_layouts_to_plan_and_says_its_size(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "swin", **SMALL}), "utf-8")

    with pytest.raises(InputError, match=r"B parameters, .* GFLOP forward an image; layouts .*; give --mfu"):
        _ = load_model(str(path)).architecture
