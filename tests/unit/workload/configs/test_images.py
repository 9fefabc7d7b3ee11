"""Encoders of images, videos, sound and series by the class that a file names, against the library's own classes."""

from random import Random

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from meshwright.workload.configs.classes import FURTHER, OWN
from tests.unit.workload.configs import library

CLASSES = [(kind, named) for table in (OWN, FURTHER) for kind, classes in table.items() for named in classes]
FEW = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
SIGHT = FEW | {"hidden_size": 48, "image_size": 60, "patch_size": 14}
MAE = FEW | {"image_size": 64, "patch_size": 16, "decoder_hidden_size": 32, "decoder_num_attention_heads": 2}


PARTS = dict.fromkeys(("clip", "siglip", "siglip2", "chinese_clip"), ("text_config", "vision_config"))
PARTS["parakeet_ctc"] = ("encoder_config",)


def library_count(config):
    return library.parameters(library.model(config))


@pytest.mark.parametrize(("kind", "named"), CLASSES)
def test_a_class_has_the_parameters_of_the_library_whatever_its_file_says(kind, named):
    pytest.importorskip("transformers")
    base = {"model_type": kind, "architectures": [named]}
    usual = architecture_of(base).architecture.parameters
    assert usual == library_count(base)

    others = list(library.changed(base | {part: {} for part in PARTS.get(kind, ())}))
    for config in Random(named).sample(others, min(12, len(others))):
        try:
            wanted = library_count(config)
        except Exception:  # a size that the class cannot be made of
            continue
        try:
            found = architecture_of(config).architecture.parameters
        except InputError:
            continue  # refused by name
        assert found == wanted, config


@pytest.mark.parametrize(
    ("kind", "named", "beside"),
    [
        ("clip", "CLIPModel", {"projection_dim": 24}),
        ("siglip", "SiglipModel", {}),
        ("chinese_clip", "ChineseCLIPModel", {"projection_dim": 24}),
    ],
)
def test_two_encoders_that_are_compared_may_be_of_two_widths(kind, named, beside):
    pytest.importorskip("transformers")
    text = FEW | {"vocab_size": 500} | ({"projection_size": 48} if kind == "siglip" else {})
    config = {"model_type": kind, "architectures": [named], "text_config": text, "vision_config": SIGHT, **beside}
    found = architecture_of(config)

    assert found.architecture.parameters == library_count(config)
    assert found.architecture.fixed_length == (60 // 14) ** 2 + (kind != "siglip")
    assert any("each text goes with an image of" in told for told in found.assumed)


def test_an_older_file_says_the_sizes_of_clips_text_a_second_time_and_those_hold():
    pytest.importorskip("transformers")
    config = {"model_type": "clip", "architectures": ["CLIPModel"], "vision_config": SIGHT, "text_config": {}}
    config |= {"text_config_dict": FEW | {"vocab_size": 500}}

    assert architecture_of(config).architecture.parameters == library_count(config)


def test_a_key_of_one_encoder_that_is_not_understood_is_refused_with_the_name_of_its_part():
    with pytest.raises(InputError, match=r"vision_config\.num_registers: not understood for model_type siglip"):
        architecture_of({"model_type": "siglip", "vision_config": {"num_registers": 4}})


def test_the_encoder_of_mae_meets_the_patches_that_are_left_and_its_decoder_all():
    pytest.importorskip("transformers")
    config = {"model_type": "vit_mae", "architectures": ["ViTMAEForPreTraining"], "mask_ratio": 0.5, **MAE}
    found, module = architecture_of(config).architecture, library.model(config)
    patches = module.vit.embeddings.patch_embeddings.projection.weight.numel()

    assert found.matmul_parameters() == library.multiplied(module) + patches
    assert (found.fixed_length, found.max_position_embeddings) == (8 + 1, 16 + 1)
    fixed = library.multiplied(module.vit) + patches + module.decoder.decoder_embed.weight.numel()
    assert found.products_per_token(17) == pytest.approx(found.matmul_parameters() - fixed * (1 - 9 / 17))


def test_a_class_that_is_not_counted_is_refused_with_the_ones_that_are():
    with pytest.raises(InputError, match="ViTMAEForSomething is not counted; expected ViTMAEModel, ViTMAEForPre"):
        architecture_of({"model_type": "vit_mae", "architectures": ["ViTMAEForSomething"]})


def test_a_file_that_names_no_class_says_which_it_is_read_as():
    assert (
        "the file names no class (architectures): read as CLIPModel" in architecture_of({"model_type": "clip"}).assumed
    )
