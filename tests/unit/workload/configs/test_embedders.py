"""Encoders and a decoder of their authors' own code, by hand: GTE, Jina's XLM-RoBERTa, Molmo's text model."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from tests.unit.workload.configs.test_published_files import parameters

SIZES = {"hidden_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 192}
SIZES |= {"vocab_size": 1000, "max_position_embeddings": 514}
GTE = {"model_type": "new", "architectures": ["NewModel"], "position_embedding_type": "rope", "type_vocab_size": 2}
GTE |= {"pack_qkv": True, "layer_norm_type": "layer_norm", **SIZES}


def test_a_gte_encoder_has_a_gate_and_no_table_of_positions():
    layer = 4 * 96 * 96 + 4 * 96 + 3 * 96 * 192 + 96 + 4 * 96

    assert parameters(GTE) == (1000 + 2 + 2) * 96 + 3 * layer
    assert parameters(GTE | {"model_type": "gte", "architectures": ["GteModel"]}) == parameters(GTE)


def test_gte_large_has_its_published_size():
    large = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24, "intermediate_size": 4096}

    assert parameters(GTE | large | {"vocab_size": 30528}) == pytest.approx(434.1e6, rel=1e-3)


XLM = {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "type_vocab_size": 1, **SIZES}
ROTATED = XLM | {"position_embedding_type": "rotary"}
ADAPTED = {"lora_adaptations": ["one", "two"], "lora_rank": 4, "lora_alpha": 1}
OF_JINA = {"auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"}}


def test_a_rotated_xlm_roberta_has_no_table_of_positions():
    assert parameters(XLM) - parameters(ROTATED) == 514 * 96
    assert architecture_of(ROTATED).architecture.max_position_embeddings == 512


def test_adapters_of_each_task_are_counted_on_every_matrix_and_table_and_said():
    found = architecture_of(ROTATED | ADAPTED | OF_JINA)
    layer = (96 + 288) + (96 + 96) + 2 * (96 + 192)
    tables, pooler = (1000 + 96) + (1 + 96), 96 + 96

    assert found.architecture.parameters - parameters(ROTATED) == 2 * 4 * (3 * layer + tables + pooler)
    assert any("adapters of rank 4 for 2 tasks are counted" in told for told in found.assumed)


MOLMO = {"model_type": "molmo", "embedding_size": 1024, "num_key_value_heads": 2, "qkv_bias": True, **SIZES}
MOLMO |= {"weight_tying": False, "layer_norm_type": "rms", "max_position_embeddings": 4096}


def test_the_text_model_of_molmo_has_half_its_intermediate_size_and_says_what_is_left_out():
    found = architecture_of(MOLMO)
    layer = 2 * 96 * 96 + 2 * 96 * 48 + (96 + 2 * 48) + 3 * 96 * 96 + 2 * 96

    assert found.architecture.parameters == 2 * 1024 * 96 + 3 * layer + 96
    assert any("the text model alone is counted" in told for told in found.assumed)
    assert parameters(MOLMO | {"attention_layer_norm": True}) - parameters(MOLMO) == 3 * (96 + 48)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (GTE | {"position_embedding_type": "absolute"}, "position_embedding_type: expected 'rope'"),
        (GTE | {"layer_norm_type": "rms_norm"}, "layer_norm_type: expected 'layer_norm'"),
        (ROTATED | ADAPTED, "not understood .*lora_adaptations"),
        (ROTATED | ADAPTED | OF_JINA | {"lora_adaptations": "one"}, "lora_adaptations: expected a list of tasks"),
        (XLM | {"position_embedding_type": "alibi"}, "position_embedding_type: expected 'absolute'"),
        (MOLMO | {"intermediate_size": 191}, "191: expected an even number"),
        (MOLMO | {"tie_word_embeddings": True}, "expected both to say the same"),
        (MOLMO | {"layer_norm_type": "default"}, "layer_norm_type: expected 'rms'"),
    ],
)
def test_own_code_with_other_sizes_than_are_counted_is_refused(config, told):
    with pytest.raises(InputError, match=told):
        architecture_of(config)
