"""Encoders close to BERT, older pairs, and decoders with a part of their own, against the library's classes."""

import logging

import pytest

from meshwright.errors import InputError
from meshwright.workload.configs import architecture_of
from meshwright.workload.kinds import Attention
from tests.unit.workload.configs import library

ENCODERS = (
    *("ibert", "xmod", "yoso", "mra", "nystromformer", "squeezebert", "rembert", "fnet", "jina_embeddings_v3"),
    *("esmc", "mobilebert", "xlm", "flaubert"),
)
PAIRS = ("bigbird_pegasus", "pegasus_x", "fsmt", "speech_to_text")
DECODERS = ("diffllama", "cpmant", "hrm_text")
# whose matrices are none of torch's linear layers, are multiplied once for a sequence, or more than once
OTHERWISE = {"ibert", "squeezebert", "fnet", "speech_to_text", "hrm_text"}


def own(kind, **sizes):
    return architecture_of({"model_type": kind, **sizes}).architecture


@pytest.mark.parametrize("kind", [*ENCODERS, *PAIRS, *DECODERS])
@pytest.mark.timeout(400)
def test_kin_of_bert_older_pairs_and_decoders_of_their_own_have_the_parameters_of_the_library(kind):
    pytest.importorskip("transformers")
    logging.disable(logging.WARNING)
    config = library.base(kind)
    module, found = library.model(config), architecture_of(config).architecture
    logging.disable(logging.NOTSET)

    assert found.parameters == library.parameters(module)
    if kind not in OTHERWISE:
        assert found.matmul_parameters() == library.multiplied(module)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        *((kind, stem) for kind, stem in (("ibert", "IBert"), ("xmod", "Xmod"), ("yoso", "Yoso"), ("mra", "Mra"))),
        *(("nystromformer", "Nystromformer"), ("fnet", "FNet"), ("squeezebert", "SqueezeBert")),
    ],
)
@pytest.mark.parametrize("end", ["Model", "ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice"])
@pytest.mark.timeout(400)
def test_their_classes_of_other_outputs_have_the_parameters_of_the_library(kind, named, end):
    pytest.importorskip("transformers")
    logging.disable(logging.WARNING)
    config = library.base(kind) | {"architectures": [named + end]}
    true = library.parameters(library.model(config))
    logging.disable(logging.NOTSET)

    assert architecture_of(config).architecture.parameters == true


@pytest.mark.parametrize("named", ["RemBertModel", "MobileBertForTokenClassification", "XLMModel", "FlaubertModel"])
def test_an_output_that_is_not_that_over_words_is_refused_where_the_rest_of_the_class_differs(named):
    kind = {"Rem": "rembert", "Mob": "mobilebert", "XLM": "xlm", "Fla": "flaubert"}[named[:3]]
    for causal in ({}, {"causal": True} if kind in ("xlm", "flaubert") else {}):
        with pytest.raises(InputError, match=f"architectures: {named}: its output is not counted"):
            architecture_of({"model_type": kind, "architectures": [named]} | causal)


def test_a_token_meets_few_keys_where_attention_is_not_computed_whole():
    marks = own("nystromformer", num_landmarks=32, segment_means_seq_len=64)
    blocks = own("pegasus_x", block_size=128, num_global_tokens=16)

    assert marks.runs[0].layer.mixer.attended(4096, causal=True) == 64  # twice as many landmarks
    assert own("nystromformer").runs[0].layer.mixer.attended(4096, causal=True) == 4096  # as many as tokens: plain
    assert blocks.runs[0].layer.mixer.attended(4096, causal=True) == 144
    assert blocks.runs[-1].layer.mixer.masked


def test_an_adapter_of_another_language_is_held_and_not_passed():
    one, three = own("xmod"), own("xmod", languages=["en_XX", "de_DE", "fr_XX"])
    adapter = 2 * 768 * 384 + 384 + 768

    assert three.parameters - one.parameters == 12 * 2 * adapter
    assert three.matmul_parameters() == one.matmul_parameters()


def test_a_stack_that_runs_again_is_multiplied_again_and_held_once():
    once, often = own("hrm_text", H_cycles=1, L_cycles=1), own("hrm_text", H_cycles=2, L_cycles=3)
    output = 151808 * 1536

    assert once.parameters == often.parameters
    assert (often.matmul_parameters() - output) == 4 * (once.matmul_parameters() - output)
    # as the library writes it: all passes under the one name, the layers of a stack under the other
    written = {"num_hidden_layers": 128, "num_layers_per_stack": 16}
    assert own("hrm_text", **written) == own("hrm_text", num_hidden_layers=16) == own("hrm_text")


def test_flaubert_base_has_its_published_size_under_its_former_name_of_the_vocabulary():
    sizes = {"emb_dim": 768, "n_layers": 12, "n_heads": 12, "n_words": 68729}

    assert own("flaubert", **sizes, architectures=["FlaubertWithLMHeadModel"]).parameters == pytest.approx(
        138e6, rel=0.01
    )


def test_an_encoder_of_sound_has_a_length_of_its_own_that_its_decoder_reads():
    model = own("speech_to_text", max_source_positions=6000)
    hears, writes = model.runs[1].layer, model.runs[-1].layer

    assert hears.length == writes.beside.reads == 1500  # two convolutions, each halves
    assert isinstance(writes.mixer, Attention)
    assert model.max_position_embeddings == 1024


@pytest.mark.parametrize(
    ("kind", "changed", "told"),
    [
        ("xmod", {"languages": []}, "languages: expected a list of one or more"),
        ("xmod", {"adapter_reduction_factor": 0}, "adapter_reduction_factor: expected a number"),
        ("squeezebert", {"q_groups": 5}, "q_groups: 5 does not divide"),
        ("xlm", {"asm": True}, "asm: expected False"),
        ("mobilebert", {"use_bottleneck": False}, "use_bottleneck: expected True"),
        ("diffllama", {"num_key_value_heads": 1}, "num_key_value_heads: expected an even number"),
        ("speech_to_text", {"num_conv_layers": 3}, "conv_kernel_sizes: expected one for each of 3"),
        ("fsmt", {"tie_word_embeddings": True}, "tie_word_embeddings: expected False"),
    ],
)
def test_what_their_classes_refuse_or_what_is_not_counted_is_refused_by_its_key(kind, changed, told):
    with pytest.raises(InputError, match=told):
        own(kind, **changed)
