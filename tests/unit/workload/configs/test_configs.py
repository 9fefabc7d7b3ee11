"""config.json files against the library's own classes: parameters, and the weights that a token is multiplied with."""

import csv
import json
import logging
from pathlib import Path
from random import Random

import pytest

from meshwright.errors import InputError
from meshwright.workload.attention_kinds import Compressed
from meshwright.workload.configs import architecture_of, model_types
from meshwright.workload.kinds import Experts
from tests.unit.workload.configs import library

CASES = Path(__file__).with_name("cases")
EXPECTED = {row["model"]: row for row in csv.DictReader((CASES / "expected.csv").read_text("utf-8").splitlines())}
LLAMA = json.loads((CASES / "llama31-70b.json").read_text("utf-8"))
# the library builds them from defaults that are refused: a size is missing, or heads do not divide
NOT_ENOUGH = ("glm4v_moe", "vit")
FAST = ("llama", "deepseek_v4", "flint", "gemma3_text", "gpt_neo", "gpt_oss", "nemotron_h", "qwen3_5", "t5")

# every tenth type, and in the soak set all: each counts models of the library for every key that it has
OTHERS = [
    pytest.param(kind, marks=[pytest.mark.soak] * bool(index % 10))
    for index, kind in enumerate(kind for kind in model_types() if kind not in {*library.ALIKE, *library.STRANGERS})
]


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
            found = library.allocated(architecture_of(config).architecture)
        except InputError:  # a size that must be given, or that would not be counted rightly
            continue
        compared += 1
        assert found == pytest.approx(true, rel=1e-3), config
    logging.disable(logging.NOTSET)
    if not compared:
        pytest.skip("the library builds no model of this type from defaults, or sizes must be given")


@pytest.mark.parametrize("kind", FAST)
@pytest.mark.timeout(400)
def test_a_few_model_types_have_the_parameters_of_the_library(kind):
    pytest.importorskip("transformers")
    assert_alike(sized(kind))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("minicpm3", ["v_head_dim = 64"]),
        (
            "olmo_hybrid",
            [
                *("linear_num_key_heads = 30", "linear_key_head_dim = 96", "linear_num_value_heads = 30"),
                "linear_value_head_dim = 192",
            ],
        ),
    ],
)
def test_a_size_that_a_class_works_out_from_others_is_worked_out_as_it_does_and_said(kind, told):
    pytest.importorskip("transformers")
    config = library.base(kind)
    found = architecture_of(config)

    assert found.architecture.parameters == library.parameters(library.model(config))
    assert [text.split(",")[0] for text in found.assumed if "works it out" in text] == told


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", OTHERS)
def test_every_key_of_every_model_type_changes_the_parameters_as_in_the_library_or_is_refused(kind):
    pytest.importorskip("transformers")
    base = library.base(kind)
    assert_alike([base, *library.changed(base)])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", OTHERS)
def test_several_keys_at_once_change_the_parameters_as_in_the_library_or_are_refused(kind):
    pytest.importorskip("transformers")
    base = library.base(kind)
    assert_alike(library.joined(base, Random(f"{kind} {seed}")) for seed in range(8))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_defaults_of_keys_are_those_of_the_library():
    pytest.importorskip("transformers")
    assert json.loads(library.FILE.read_text("utf-8")) == json.loads(json.dumps(library.read_defaults()))


@pytest.mark.slow
@pytest.mark.slow
def test_longcats_attention_is_latent_and_its_scales_change_no_size():
    plain = architecture_of({"model_type": "longcat_flash"}).architecture
    told = {"model_type": "longcat_flash", "attention_method": "MLA", "mla_scale_q_lora": True}

    assert architecture_of(told).architecture == plain
    with pytest.raises(InputError, match="attention_method: expected MLA, got 'MHA'"):
        architecture_of(told | {"attention_method": "MHA"})


def test_mimos_pattern_of_windows_is_read_and_held_to_its_layers():
    short = {"model_type": "mimo_v2_flash", "num_hidden_layers": 3}
    found = architecture_of(short | {"hybrid_layer_pattern": [0, 1, 1], "swa_num_key_value_heads": 8}).architecture

    assert [bool(run.layer.mixer.window) for run in found.runs for _ in range(run.count)] == [False, True, True]
    for wrong in ({"hybrid_layer_pattern": [0, 1]}, {"swa_head_dim": 64}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))}: expected"):
            architecture_of(short | wrong)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "kind", [kind for kind in model_types() if kind not in {*library.ALIKE, *library.STRANGERS, *NOT_ENOUGH}]
)
def test_the_layers_in_windows_are_those_of_the_library(kind):
    pytest.importorskip("transformers")
    config = library.base(kind)
    made = library.configuration(config)
    text = getattr(made, "text_config", None) or made
    words, window = getattr(text, "layer_types", None), getattr(text, "sliding_window", None)
    stack = architecture_of(config).architecture.runs
    mixers = [run.layer.mixer for run in stack for _ in range(run.count)]
    if not words or len(words) != len(mixers):
        pytest.skip("the library does not list the layers of this type")

    sliding = {"sliding_attention", "hybrid_sliding"} if window else set()
    # compressed attention sees a window beside what it compressed, whatever the word of its layer
    expected = [
        word in {"chunked_attention", *sliding} or isinstance(m, Compressed)
        for word, m in zip(words, mixers, strict=True)
    ]
    # a recurrence is computed in chunks too, of which nobody attends to one alone
    assert [bool(m.window or getattr(m, "chunk", 0)) if hasattr(m, "window") else False for m in mixers] == expected


def test_there_are_more_than_two_hundred_and_sixty_model_types():
    assert len(model_types()) > 260


TEXT = {"model_type": "qwen2", "hidden_size": 1024, "num_hidden_layers": 2, "vocab_size": 1000}
STRANGE = {"model_type": "house_vl", "text_config": TEXT, "vision_config": {"width": 7}, "tie_word_embeddings": True}


def test_the_text_model_of_a_type_that_is_not_known_is_planned_alone_where_that_is_asked_for():
    with pytest.raises(InputError, match="house_vl is not known, but text_config is a qwen2: --allow-unknown"):
        architecture_of(STRANGE)

    found = architecture_of(STRANGE, allow_unknown=True)
    alone = architecture_of(TEXT | {"tie_word_embeddings": True}).architecture
    assert found.architecture.parameters == alone.parameters
    assert {"model_type house_vl", "vision_config"} <= set(found.ignored)
    assert any("encoders, are not counted" in told for told in found.assumed)


def test_a_type_without_a_text_model_that_is_known_is_refused_whatever_is_allowed():
    for config in ({"model_type": "house"}, STRANGE | {"text_config": {"model_type": "house_text"}}):
        with pytest.raises(InputError, match="is not known"):
            architecture_of(config, allow_unknown=True)


GPT_NEO = {"model_type": "gpt_neo", "num_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 256}
INDEXED = {"model_type": "glm_moe_dsa", "num_hidden_layers": 4}
NEMOTRON = {"layers_block_type": ["mamba", "moe", "attention", "moe"], "n_routed_experts": 4, "num_experts_per_tok": 2}


def test_every_second_layer_of_gpt_neo_attends_in_a_window():
    model = architecture_of(GPT_NEO).architecture

    assert [run.layer.mixer.window for run in model.runs] == [0, 256, 0, 256]
    assert model.parameters == architecture_of(GPT_NEO | {"attention_types": [[["global"], 4]]}).architecture.parameters


def test_llama_4_attends_in_chunks_in_all_but_every_fourth_layer_unless_a_list_says_which():
    config = {"model_type": "llama4_text", "num_hidden_layers": 8}
    chunks = [
        [run.layer.mixer.chunk for run in architecture_of(config | said).architecture.runs for _ in range(run.count)]
        for said in ({}, {"no_rope_layers": []}, {"no_rope_layers": [0, 1] * 4})
    ]

    assert chunks == [[8192, 8192, 8192, 0] * 2] * 2 + [[0, 8192] * 4]


def test_llama_4_has_no_experts_where_the_list_of_their_layers_is_empty():
    found = {
        moe: architecture_of({"model_type": "llama4_text", "num_hidden_layers": 4, "moe_layers": listed}).architecture
        for moe, listed in ((0, []), (1, [2]), (4, None))
    }

    assert {moe: model.moe_layers for moe, model in found.items()} == {0: 0, 1: 1, 4: 4}


def test_a_layer_that_takes_another_layers_keys_has_no_indexer_and_meets_as_few():
    all_pick, shared = (
        architecture_of(INDEXED | {"indexer_types": ["full", *words]}).architecture
        for words in (["full"] * 3, ["shared"] * 3)
    )
    of_first, of_last = shared.runs[0].layer.mixer, shared.runs[-1].layer.mixer
    index = of_first.weights(shared.hidden_size) - of_last.weights(shared.hidden_size)

    assert of_last.attended(32768, causal=True) == of_first.attended(32768, causal=True)
    assert all_pick.parameters - shared.parameters == 3 * (index + 2 * of_first.index_dim)


def test_a_token_visits_the_real_experts_of_longcat_flash_alone_eight_of_twelve_on_average():
    model = architecture_of({"model_type": "longcat_flash"}).architecture

    assert model.runs[0].layer.network.top == 8  # 12 x 512 / (512 + 256)
    assert model.active_parameters == pytest.approx(27e9, rel=0.04)  # published: 18.6 to 31.3 B, 27 B on average


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "changed",
    [
        {"num_attention_heads_per_layer": [48, 32, 64, 48], "attention_bias": True},
        {"gating": "per-element"},
        {"layer_types": ["full_attention", "sliding_attention"] * 2, "mlp_layer_types": ["dense", "sparse"] * 2},
    ],
)
def test_laguna_s_heads_and_gates_differ_by_layer(changed):
    pytest.importorskip("transformers")
    assert_alike([{"model_type": "laguna", "num_hidden_layers": 4, "vocab_size": 1000, **changed}])


TINY = {"vocab_size": 5000, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
TINY |= {"num_hidden_layers": 4, "intermediate_size": 128, "moe_intermediate_size": 64}


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *(("ernie4_5_moe", "use_bias"), ("hy_v3", "mlp_bias"), ("aria_text", "mlp_bias")),
        *(("phimoe", "lm_head_bias"), ("phimoe", "attention_bias")),
    ],
)
def test_biases_of_shared_networks_and_of_the_output_are_counted_where_a_key_says_so(kind, key):
    pytest.importorskip("transformers")
    logging.disable(logging.WARNING)
    known = library.configuration({"model_type": kind}).to_dict()
    small = {name: size for name, size in TINY.items() if name in known}
    for said in (True, False):
        config = {"model_type": kind, **small, key: said}
        true = library.parameters(library.model(config))
        assert architecture_of(config).architecture.parameters == pytest.approx(true, rel=5e-5)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("kind", "key"), [("hy_v3", "num_shared_experts"), ("nemotron_h", "moe_shared_expert_intermediate_size")]
)
def test_no_shared_network_is_refused_where_the_class_builds_a_dense_one_for_it(kind, key):
    with pytest.raises(InputError, match=f"{key}: expected 1 or more"):
        architecture_of({"model_type": kind, **TINY, key: 0} | ({} if kind == "hy_v3" else NEMOTRON))


def test_flint_attends_in_windows_but_in_the_first_two_every_fourth_and_the_last_layer():
    model = architecture_of({"model_type": "flint", "num_hidden_layers": 8}).architecture
    windows = [run.layer.mixer.window > 0 for run in model.runs for _ in range(run.count)]

    assert windows == [False, False, True, True, True, False, True, False]


def test_experts_are_where_a_list_of_zeros_and_ones_says():
    base = {"model_type": "mimo_v2_flash", "num_hidden_layers": 4, "moe_layer_freq": [0, 1, 0, 1]}

    networks = [run.layer.network for run in architecture_of(base).architecture.runs for _ in range(run.count)]
    assert [isinstance(network, Experts) for network in networks] == [False, True, False, True]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "lama"}, "model_type: lama is not known"),
        ({"model_type": None}, "model_type: missing"),
        ({"moe_intermediate_size": 1408}, "moe_intermediate_size: not understood for model_type llama"),
        ({"mlp_expansion": {"a": 1}}, "mlp_expansion: not understood"),
        ({"architectures": ["LlamaForDepthEstimation"]}, "architectures"),
        ({"hidden_size": None}, "hidden_size: expected a whole number, got null"),
        ({"model_type": "xglm", "hidden_size": 4096, "d_model": 2048}, "hidden_size and d_model: expected one value"),
        ({"layer_types": ["linear_attention"] * 80}, "layer_types: expected .* got 'linear_attention'"),
        ({"model_type": "qwen3_moe", "moe_intermediate_size": 0}, "moe_intermediate_size: expected 1 or more"),
        ({"head_dim": 0}, "head_dim: expected 1 or more"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_name(change, named):
    with pytest.raises(InputError, match=named):
        architecture_of(LLAMA | change)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "bart", "architectures": ["BartForCausalLM"]}, "the decoder of a pair alone"),
        ({"model_type": "gpt_bigcode", "n_head": 0}, "num_attention_heads: 0 does not divide"),
        ({"model_type": "falcon", "num_attention_heads": 0}, "num_attention_heads: 0 does not divide"),
        ({"model_type": "qwen3_next", "layer_types": ["conv"] * 48}, "layer_types: expected .* got 'conv'"),
        (GPT_NEO | {"attention_types": [[["global"], 10**12]]}, "attention_types: expected global or local"),
        (GPT_NEO | {"attention_types": [[[["a"]], 4]]}, "attention_types: expected global or local"),
        (GPT_NEO | {"attention_types": [[["global"], 3]]}, "attention_types: expected global or local"),
        ({"model_type": "phimoe", "num_experts_per_tok": 3}, "num_experts_per_tok: expected 2"),
        (INDEXED | {"indexer_types": ["shared"] * 4}, "indexer_types: expected full for the first layer"),
    ],
)
def test_a_config_that_would_be_counted_wrongly_is_refused(config, named):
    with pytest.raises(InputError, match=named):
        architecture_of(config)


@pytest.mark.parametrize("heads", [0, 7])
@pytest.mark.parametrize("kind", ["falcon", "mpt", "gpt_bigcode", "dbrx", "bart", "opt"])
def test_heads_that_do_not_divide_the_hidden_size_are_refused_by_name(kind, heads):
    keys = dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "encoder_attention_heads"), heads)
    sizes = dict.fromkeys(("hidden_size", "d_model", "n_embd"), 64)
    base = library.configuration({"model_type": kind, **library.FILLED.get(kind, {})}).to_dict()
    given = base | {key: value for key, value in (keys | sizes).items() if key in base or key.startswith("num")}

    with pytest.raises((InputError, ValueError), match=rf"heads?: {heads} does not divide"):
        architecture_of(given)


def test_more_experts_than_any_model_has_are_refused_by_name():
    base = library.configuration({"model_type": "dbrx", **library.FILLED.get("dbrx", {})}).to_dict()
    base["ffn_config"] = {**base["ffn_config"], "moe_num_experts": 10**40}

    with pytest.raises(InputError, match="moe_num_experts: expected a whole number of 1 or more"):
        architecture_of(base)


def test_a_product_of_sizes_that_no_model_has_is_refused_by_name():
    config = json.loads((CASES / "llava15-sparse.json").read_text("utf-8"))
    config["vision_config"]["image_size"] = 2**31

    with pytest.raises(InputError, match="tower_parameters: 2.41e.19 follow from these sizes"):
        architecture_of(config)


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


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [("ling-mini-2", 16.26, 1.43), ("minimax-m1", 456.0, 45.9 + 2 * 200_064 * 6144 / 1e9)],  # M1 counts no embedding
)
def test_models_that_the_library_has_no_code_for_have_their_published_parameters(name, billions, active):
    found = described(name)

    assert found.parameters / 1e9 == pytest.approx(billions, rel=1e-3)
    assert found.active_parameters / 1e9 == pytest.approx(active, rel=5e-3)


def test_groups_of_experts_are_no_layers_of_another_kind():
    found = described("ling-mini-2")

    assert found.stack == ()
    assert (found.expert_groups, found.top_groups) == (8, 4)


def test_the_first_layers_of_coheres_mixture_have_networks_and_windows_of_their_own():
    config = {"model_type": "cohere2_moe", "num_hidden_layers": 8, "hidden_size": 512, "intermediate_size": 128}
    config |= {"num_attention_heads": 8, "head_dim": 64, "vocab_size": 1000, "sliding_window": 64}
    config |= {"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 1024}
    config |= {"prefix_dense_sliding_window_pattern": 2, "shared_expert_combination_strategy": "sum"}
    layers = [run.layer for run in architecture_of(config).architecture.runs for _ in range(run.count)]

    assert [layer.network.width for layer in layers] == [1024] * 2 + [128] * 6
    assert [layer.mixer.window for layer in layers] == [64, 0, 64, 64, 64, 0, 64, 64]
    told = config | {"layer_types": ["full_attention"] * 8}  # beside which the patterns say nothing
    assert {run.layer.mixer.window for run in architecture_of(told).architecture.runs} == {0}


def test_biases_of_experts_that_a_token_does_not_visit_are_not_active():
    sizes = {"hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 1000}
    model = architecture_of({"model_type": "gpt_oss", **sizes, "num_local_experts": 8}).architecture

    one = 3 * 64 * 32 + 2 * 32 + 64  # gate, up and down, and their biases
    assert model.parameters - model.active_parameters == 2 * (8 - model.experts_per_token) * one


@pytest.mark.parametrize("outside", [True, False])
def test_weights_that_a_checkpoint_stores_in_few_bits_are_counted_whole_and_said(outside):
    stored = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    text = {"model_type": "qwen3", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1000}
    plain = {"model_type": "house_vl", "text_config": text}
    config = plain | stored if outside else {"model_type": "house_vl", "text_config": text | stored}
    found, whole = (architecture_of(one, allow_unknown=True) for one in (config, plain))

    assert found.architecture == whole.architecture
    assert [told for told in found.assumed if told not in whole.assumed] == [
        "quantization_config (fp8): how the checkpoint stores its weights is passed over; they are counted whole, and "
        "trained in the plan's precision; frozen ones under adapters are held in few bits where --weights says so"
    ]


@pytest.mark.parametrize(
    "layers", [{"num_layers": 3}, {"num_hidden_layers": 6}, {"num_layers": 2, "num_hidden_layers": 6}]
)
def test_longcats_layers_count_twice_among_the_hidden_ones(layers):
    config = {"model_type": "longcat_flash", "hidden_size": 256, "vocab_size": 1000, **layers}

    assert architecture_of(config).architecture.num_hidden_layers == 3


def test_networks_of_gemma_3n_have_the_width_of_its_class_where_none_is_said():
    config = {"model_type": "gemma3n_text", "num_hidden_layers": 10, "num_kv_shared_layers": 0}
    found, said = architecture_of(config), architecture_of(config | {"intermediate_size": 16384})

    assert found.architecture.parameters == said.architecture.parameters
    assert any(told.startswith("intermediate_size = 16384") for told in found.assumed)


PARALLEL = {"use_parallel_block": True, "use_embedding_sharing": True, "layer_switch": 4, "use_gated_activation": True}
SHARED_KEYS = {"cla_share_factor": 2, "use_cla": False, "n_group": False, "dense_list": [512, 0]}
HUNYUAN = {"num_experts": 4, "moe_topk": [2] * 4, "intermediate_size": 256, "moe_intermediate_size": [256] * 4}


@pytest.mark.parametrize(
    ("config", "passed"),
    [
        ({"model_type": "cohere2", "hidden_size": 512, "intermediate_size": 1024}, PARALLEL),
        ({"model_type": "hunyuan_v1_moe", **HUNYUAN}, SHARED_KEYS),
        ({"model_type": "hunyuan_v1_dense", "hidden_size": 512}, {"cla_share_factor": 2, "use_cla": False}),
    ],
)
def test_keys_that_hold_what_a_class_does_anyway_change_nothing(config, passed):
    plain = config | {"num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 64}

    assert architecture_of(plain | passed).architecture == architecture_of(plain).architecture


def test_keys_and_values_that_layers_share_are_refused_where_they_are_switched_on():
    config = {"model_type": "hunyuan_v1_dense", "num_hidden_layers": 4, "use_cla": True, "cla_share_factor": 2}

    with pytest.raises(InputError, match="use_cla"):
        architecture_of(config)
