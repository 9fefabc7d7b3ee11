"""Classes with another output than words: their parameters against the library's, and what is said of them."""

import pytest

from meshwright.errors import InputError
from meshwright.workload.adapters import share_in_layers
from meshwright.workload.configs import architecture_of
from meshwright.workload.configs.outputs import NO_OUTPUT
from tests.unit.workload.configs import library

SMALL = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}
CLASSES = {
    "xlm-roberta": ("XLMRobertaModel", "XLMRobertaForSequenceClassification", "XLMRobertaForTokenClassification"),
    "distilbert": ("DistilBertModel", "DistilBertForQuestionAnswering", "DistilBertForMultipleChoice"),
    "deberta-v2": ("DebertaV2Model", "DebertaV2ForSequenceClassification"),
    "modernbert": ("ModernBertModel", "ModernBertForSequenceClassification", "ModernBertForTokenClassification"),
    "modernbert-decoder": ("ModernBertDecoderModel", "ModernBertDecoderForSequenceClassification"),
    "qwen3": ("Qwen3Model", "Qwen3ForSequenceClassification", "Qwen3ForTokenClassification"),
    "phi": ("PhiModel", "PhiForSequenceClassification"),
    "deepseek_v3": ("DeepseekV3Model",),
    "mamba": ("MambaModel",),
    "electra": ("ElectraModel", "ElectraForSequenceClassification"),
    "bart": ("BartModel", "BartForSequenceClassification", "BartForQuestionAnswering"),
    "t5": ("T5Model", "T5EncoderModel", "T5ForSequenceClassification"),
    "umt5": ("UMT5EncoderModel",),
    "vit": ("ViTModel",),
    "dinov2": ("Dinov2Model",),
    "wav2vec2": ("Wav2Vec2Model",),
}


@pytest.mark.parametrize(("kind", "named"), [(kind, name) for kind, names in CLASSES.items() for name in names])
def test_a_class_that_puts_out_vectors_or_classes_has_the_parameters_of_the_library(kind, named):
    pytest.importorskip("transformers")
    labels = {str(i): f"kind {i}" for i in range(2 if "Answering" in named else 5)}
    config = library.base(kind) | {"architectures": [named], "id2label": labels}

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


def bert(named):
    return architecture_of({"model_type": "bert", **SMALL, "num_hidden_layers": 2, "architectures": [named]})


def test_an_output_over_the_classes_of_a_sequence_is_multiplied_with_one_of_its_tokens():
    words, sequence, tokens = (
        bert(f"BertFor{what}").architecture.products_per_token(512)
        for what in ("MaskedLM", "SequenceClassification", "TokenClassification")
    )

    assert words > tokens > sequence
    assert tokens - sequence == pytest.approx(2 * 128 - (128 * 128 + 2 * 128) / 512)


def test_a_bare_model_keeps_its_table_of_words_outside_of_its_layers():
    model = bert("BertModel").architecture
    table = 30522 * 128

    assert share_in_layers(model) < 1 - table / model.parameters


def test_what_is_counted_in_place_of_words_is_said():
    assert bert("BertModel").assumed[-1] == (NO_OUTPUT.format(named="BertModel"))
    assert "over 2 classes of a sequence is counted" in bert("BertForSequenceClassification").assumed[-1]
    assert "the file names no labels" in bert("BertForSequenceClassification").assumed[-1]


def test_the_decoders_side_of_a_pair_and_classes_of_images_are_refused_by_their_class():
    for kind, named in (("bart", "BartEncoderModel"), ("vit", "ViTForTokenClassification")):
        with pytest.raises(InputError, match=f"{named}.* is not counted for model_type {kind}"):
            architecture_of({"model_type": kind, "architectures": [named]})


@pytest.mark.parametrize(("kind", "named"), [("gpt2", "GPT2DoubleHeadsModel"), ("qwen2", "Qwen2ForRewardModel")])
def test_a_name_that_ends_like_a_bare_model_and_is_another_class_is_refused(kind, named):
    with pytest.raises(InputError, match=f"{named} has another output"):
        architecture_of({"model_type": kind, "architectures": [named]})


def test_a_gated_network_of_dinov2_is_two_thirds_as_wide():
    pytest.importorskip("transformers")
    config = library.base("dinov2") | {"use_swiglu_ffn": True}

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


def test_keys_that_authors_leave_beside_the_sizes_are_understood_where_they_fit_them():
    mamba = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "d_inner": 128, "fused_add_norm": True}
    series = {"model_type": "t5", "chronos_config": {"n_tokens": 4096, "context_length": 512}}

    assert not architecture_of(mamba).ignored
    assert not architecture_of(series).ignored
    with pytest.raises(InputError, match="d_inner: expected 128"):
        architecture_of(mamba | {"d_inner": 256})
    with pytest.raises(InputError, match="chronos_config: not understood"):
        architecture_of(series | {"chronos_config": {"input_patch_size": 16}})


OTHERS_NAMES = {
    "gpt-sw3": "GPT2Model",
    "hunyuan_v1_moe": "HunYuanMoEV1Model",
    "internlm3": "LlamaModel",
    "qwen2_5_vl": "Qwen2_5_VLModel",
    "glmga": "Glm46VModel",
    "voxtral": "VoxtralModel",
    "gemma4": "Gemma4Model",
}


@pytest.mark.parametrize("kind", OTHERS_NAMES)
def test_bare_models_with_encoders_or_under_the_name_of_another_type_have_the_parameters_of_the_library(kind):
    pytest.importorskip("transformers")
    config = library.base(kind) | {"architectures": [OTHERS_NAMES[kind]]}
    found = architecture_of(config)

    assert found.architecture.parameters == library.parameters(library.model(config))
    assert any(f"{OTHERS_NAMES[kind]} puts out vectors" in told for told in found.assumed)
    assert not any("the output has the embedding's weights" in told for told in found.assumed)


OF_SOUND = {
    "wav2vec2": "Wav2Vec2ForSequenceClassification",
    "hubert": "HubertForSequenceClassification",
    "sew": "SEWForSequenceClassification",
    "sew-d": "SEWDForSequenceClassification",
    "wavlm": "WavLMForAudioFrameClassification",
    "data2vec-audio": "Data2VecAudioForSequenceClassification",
    "wav2vec2-bert": "Wav2Vec2BertForSequenceClassification",
}


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("kind", OF_SOUND)
def test_classes_of_sounds_have_the_parameters_of_the_library(kind, weighed):
    pytest.importorskip("transformers")
    config = library.base(kind) | {"architectures": [OF_SOUND[kind]], "classifier_proj_size": 96}
    config |= {"use_weighted_layer_sum": weighed, "id2label": {str(i): f"sound {i}" for i in range(7)}}

    assert architecture_of(config).architecture.parameters == library.parameters(library.model(config))


def test_the_classes_of_a_sound_are_multiplied_once_and_the_projection_before_them_with_each_frame():
    sizes = {"model_type": "hubert", **SMALL, "num_hidden_layers": 2, "classifier_proj_size": 96}
    bare, classes = (architecture_of(sizes | {"architectures": [f"Hubert{what}"]}).architecture for what in ENDS)

    more = 128 * 96 + 2 * 96 / 512 - 128 / 512  # without the column that stands for vectors
    assert classes.products_per_token(512) - bare.products_per_token(512) == pytest.approx(more, rel=1e-2)


ENDS = ("Model", "ForSequenceClassification")


def test_an_encoder_of_sound_that_learns_otherwise_than_wav2vec_is_refused_by_its_class():
    with pytest.raises(InputError, match="UniSpeechForPreTraining: its output is not counted"):
        architecture_of({"model_type": "unispeech", "architectures": ["UniSpeechForPreTraining"]})


def test_a_class_that_is_passed_over_is_listed_beside_the_keys():
    config = library.base("llama") | {"architectures": ["LlamaForDrafts"], "draft_words": 9}

    passed = architecture_of(config, allow_unknown=True).ignored
    assert passed == ("architectures: LlamaForDrafts, in whose place the output of a llama is counted", "draft_words")


@pytest.mark.parametrize("labels", [1, 3])
def test_classes_of_a_sequence_over_a_model_with_an_encoder_have_the_parameters_of_the_library(labels):
    pytest.importorskip("transformers")
    config = library.base("gemma3") | {"architectures": ["Gemma3ForSequenceClassification"]}
    config |= {"id2label": {str(i): f"kind {i}" for i in range(labels)}}
    found = architecture_of(config)

    assert found.architecture.parameters == library.parameters(library.model(config))
    assert [text for text in found.assumed if f"an output over {labels} class" in text]
