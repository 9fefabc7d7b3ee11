"""Encoders of text: keys of their first files, how long a sequence may be, which keys a token meets."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from meshwright.workload.models.catalogue import load_model
from tests.unit.workload.configs import library
from tests.unit.workload.configs.test_published_files import parameters

SMALL = {"hidden_size": 96, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 192}
FIRST = {"directionality": "bidi", "pooler_type": "first_token_transform", "pooler_num_fc_layers": 3} | {
    "pooler_fc_size": 96,
    "pooler_num_attention_heads": 4,
    "pooler_size_per_head": 32,
}
LAYERS = {"n_embd": 96, "n_head": 4, "n_layer": 3, "n_inner": 192, "n_positions": 1024, "vocab_size": 1000}
NOMIC = {"model_type": "nomic_bert", "activation_function": "swiglu", "qkv_proj_bias": False, **LAYERS}
HEARING = {"encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 192}


def mixers(config):
    return [mixer for run in architecture_of(config).architecture.runs for mixer in run.layer.mixers]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("bert", FIRST),
        ("roc_bert", FIRST),
        ("roberta", {"adapters": {"adapters": {}, "config_map": {}, "fusions": {}}}),
        ("distilbert", {"tie_weights_": True}),
        ("eurobert", {"clf_pooling": "late"}),
        ("bart", {"force_bos_token_to_be_generated": True, "student_encoder_layers": [0, 2, 4], "save_step": 9}),
        ("hubert", {"feature_projection_input_dim": 512, "mask_time_min_space": 1, "pooling_mode": "mean"}),
        ("wavlm", {"gru_rel_pos": True, "freeze_feat_extract_train": True, "mask_channel_selection": "static"}),
        ("switch_transformers", {"num_selected_experts": 1}),
    ],
)
def test_keys_of_the_first_files_of_a_type_change_nothing(kind, keys):
    assert parameters(library.base(kind) | keys) == parameters(library.base(kind))


@pytest.mark.parametrize(
    ("kind", "keys", "told"),
    [
        ("bert", {"position_embedding_type": "alibi"}, "position_embedding_type: expected 'absolute'"),
        ("bert", {"adapters": {"adapters": {"first": {"reduction": 16}}}}, "adapters: not understood"),
        ("hubert", {"feature_projection_input_dim": 256}, "feature_projection_input_dim: expected 512"),
        ("wavlm", {"gru_rel_pos": False}, "gru_rel_pos: expected True"),
        ("nomic_bert", {"activation_function": "relu"}, "activation_function: expected one of glu"),
        ("nomic_bert", {"use_rms_norm": True}, "use_rms_norm: expected False"),
        ("nomic_bert", {"rotary_emb_fraction": 0.0}, "rotary_emb_fraction: expected more than 0"),
        ("nomic_bert", {"n_inner": None}, "intermediate_size: expected a whole number, got null"),
        ("longformer", {"attention_window": [8, 8]}, "attention_window: expected a number, or one for each of the 4"),
        ("big_bird", {"attention_type": "dense"}, "attention_type: expected block_sparse or original_full"),
        ("t5", {"chronos_config": {"n_tokens": 9, "context_length": 0, "prediction_length": 3}}, "expected whole numb"),
    ],
)
def test_such_a_key_that_says_another_size_is_refused(kind, keys, told):
    with pytest.raises(InputError, match=told):
        architecture_of(library.base(kind) | keys)


def test_the_sizes_of_nomics_own_code_are_those_of_its_class():
    pytest.importorskip("transformers")
    own = {"model_type": "nomic_bert", **SMALL, "vocab_size": 1024}

    assert parameters(NOMIC | {"pad_vocab_size_multiple": 64}) == parameters(own)
    assert parameters(own) == library.parameters(library.model(own))
    assert architecture_of(NOMIC).architecture.max_position_embeddings == 1024


@pytest.mark.parametrize("kind", ["qwen2_audio", "qwen3_asr"])
def test_sizes_of_an_encoder_of_sound_may_stand_under_the_names_of_other_encoders(kind):
    config = library.base(kind)
    named = dict(zip(("num_hidden_layers", "num_attention_heads", "intermediate_size"), HEARING.values(), strict=True))
    sound = {key: value for key, value in config["audio_config"].items() if key not in {*HEARING, *named}}

    said, again = ({**config, "audio_config": sound | keys} for keys in (HEARING, named))
    assert parameters(said) == parameters(again)


@pytest.mark.parametrize("kind", ["longformer", "big_bird", "deberta"])
@pytest.mark.parametrize("what", ["ForMaskedLM", "Model", "ForSequenceClassification", "ForTokenClassification"])
def test_encoders_of_long_texts_and_the_first_deberta_have_the_parameters_of_the_library(kind, what):
    pytest.importorskip("transformers")
    named = {"longformer": "Longformer", "big_bird": "BigBird", "deberta": "Deberta"}[kind] + what
    config = library.base(kind) | SMALL | {"architectures": [named], "id2label": {str(i): f"{i}" for i in range(3)}}

    assert parameters(config) == library.parameters(library.model(config))


@pytest.mark.parametrize(
    "changed",
    [
        {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False},
        {"relative_attention": True, "pos_att_type": ["p2c"], "max_relative_positions": 40, "talking_head": True},
        {"embedding_size": 48, "type_vocab_size": 2},
    ],
)
def test_tables_and_projections_of_the_first_deberta_are_those_of_the_library(changed):
    pytest.importorskip("transformers")
    config = library.base("deberta") | SMALL | changed

    assert parameters(config) == library.parameters(library.model(config))


def test_a_discriminator_puts_out_one_number_a_token_and_no_words():
    pytest.importorskip("transformers")
    config = library.base("electra") | SMALL | {"architectures": ["ElectraForPreTraining"]}
    found = architecture_of(config)

    assert found.architecture.parameters == library.parameters(library.model(config))
    assert found.architecture.vocab_size == 1
    assert [text for text in found.assumed if "whether it was replaced" in text]


@pytest.mark.parametrize(
    ("kind", "rows", "longest"),
    [("roberta", 514, 512), ("xlm-roberta", 8194, 8192), ("esm", 1026, 1024), ("longformer", 98, 96), ("bert", 77, 77)],
)
def test_a_sequence_is_no_longer_than_the_rows_of_positions_behind_that_of_padding(kind, rows, longest):
    config = library.base(kind) | {"max_position_embeddings": rows, "pad_token_id": 1}

    assert architecture_of(config).architecture.max_position_embeddings == longest


def test_a_token_meets_a_window_or_a_few_blocks_of_keys_before_and_behind_it():
    blocks = library.base("big_bird") | {"block_size": 16, "num_random_blocks": 2}

    assert {(m.window, m.masked) for m in mixers(library.base("longformer") | {"attention_window": 64})} == {
        (65, False)
    }
    assert {m.window for m in mixers(blocks | {"attention_type": "block_sparse"})} == {7 * 16}
    assert {m.window for m in mixers(blocks | {"attention_type": "original_full"})} == {0}


def test_values_that_a_model_of_series_reads_and_forecasts_are_those_of_its_file():
    series = {"n_tokens": 100, "context_length": 40, "prediction_length": 8, "use_eos_token": True}
    config = library.base("t5") | {"chronos_config": series}
    found = architecture_of(config).architecture

    assert {run.layer.length for run in found.runs if run.layer.beside is None} == {41}
    assert {run.layer.beside.reads for run in found.runs if run.layer.beside is not None} == {41}
    assert found.max_position_embeddings == 9
    assert found.parameters == parameters(library.base("t5"))


@pytest.mark.parametrize("kind", ["t5", "longt5", "switch_transformers", "nllb-moe", "led", "t5gemma", "bart"])
def test_of_a_pair_it_is_said_that_a_token_is_one_of_each_side(kind):
    assert [
        text for text in architecture_of(library.base(kind)).token if "as long in the encoder as in the dec" in text
    ]


def test_where_no_length_is_said_it_is_said_what_a_token_is(tmp_path):
    file = tmp_path / "hearing.json"
    file.write_text(json.dumps(library.base("wav2vec2")))
    model = load_model(str(file))

    assert model.seq_len is None
    assert "320 samples of sound: 50 a second at 16 kHz" in model.seq_len_from
