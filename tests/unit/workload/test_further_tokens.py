"""Modules that predict further tokens: what they hold and multiply, beside published counts of whole checkpoints."""

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.workload.architecture import Architecture
from meshwright.workload.configs import architecture_of
from meshwright.workload.kinds import Attention, Experts
from meshwright.workload.models import load_model

# Elements of all tensors of a checkpoint on Hugging Face (safetensors of the hub's API), those in float32 left out,
# which are scales and the router's corrections; and how often embedding and output are stored again in it.
# DeepSeek-V3: BF16 3,918,786,560 and F8_E4M3 680,571,043,840; its README calls the whole "685B, which includes 671B of
# the Main Model weights and 14B of the Multi-Token Prediction (MTP) Module weights".
DEEPSEEK = 3_918_786_560 + 680_571_043_840
QWEN3_NEXT = 81_324_862_720
GLM_AIR, CORRECTIONS_OF_AIR = 110_468_824_832, 46 * 128


def trained(name: str, count: int = 1) -> Architecture:
    """Return a model of the catalogue with modules that predict further tokens trained."""
    return load_model(name).training(count).architecture


@pytest.mark.parametrize(
    ("name", "stored", "copies"),
    [
        ("deepseek-v3", DEEPSEEK, 2),
        ("qwen3-next-80b-a3b", QWEN3_NEXT, 0),
        ("glm-4.5-air", GLM_AIR - CORRECTIONS_OF_AIR, 2),
    ],
)
def test_a_model_with_its_module_has_as_many_parameters_as_its_checkpoint(name, stored, copies):
    model = trained(name)

    assert model.parameters + copies * model.vocab_size * model.hidden_size == stored


def test_deepseeks_own_counts_are_met_within_what_they_leave_out():
    """README_WEIGHTS.md: "11.5B unique parameters, excluding the shared 0.9B Embedding and 0.9B output Head"; active
    "2.4B (including the shared 0.9B Embedding and 0.9B output Head)". Both are met without the projection of 0.1 B.
    """
    model, module = load_model("deepseek-v3").architecture, trained("deepseek-v3")
    projection, table = 2 * model.hidden_size**2, model.vocab_size * model.hidden_size
    more = module.parameters - model.parameters
    active = module.active_parameters - model.active_parameters + 2 * table

    assert more + 2 * table == pytest.approx(14e9, rel=0.04)  # as its README rounds
    assert (more - projection) / 1e9 == pytest.approx(11.5, abs=0.05)
    assert (active - projection) / 1e9 == pytest.approx(2.4, abs=0.05)
    assert projection / 1e9 == pytest.approx(0.1, abs=0.01)


def test_counts_without_training_are_those_of_the_model_alone():
    model = load_model("deepseek-v3")

    assert model.training(0) is model
    assert model.architecture.mtp_layers == 1
    assert model.architecture.parameters == 671_026_404_352


def test_flops_are_those_of_megatrons_formula():
    """num_floating_point_operations of Megatron-LM: a layer more, 2h x h of the projection, the output once more."""
    model, two = load_model("deepseek-v3").architecture, trained("deepseek-v3", 2)
    layer, hidden = model.runs[-1].layer, model.hidden_size
    one = 6.0 * (layer.weights(hidden) + 2 * hidden**2 + hidden * model.vocab_size)
    one += 3.0 * layer.flops(4096, causal=False)

    found = two.model_flops_per_token(4096, causal=False) - model.model_flops_per_token(4096, causal=False)

    assert found == pytest.approx(2 * one, rel=1e-9)
    assert two.matmul_parameters() - model.matmul_parameters() == 2 * (
        layer.weights(hidden) + 2 * hidden**2 + hidden * model.vocab_size
    )


def test_a_hybrids_module_has_the_layers_that_its_config_names():
    config = {
        **{"model_type": "nemotron_h", "hybrid_override_pattern": "M*E", "mtp_hybrid_override_pattern": "*E"},
        **{"num_nextn_predict_layers": 1, "hidden_size": 64, "vocab_size": 256, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "head_dim": 16, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2},
        **{"ssm_state_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        **{"n_shared_experts": 1, "moe_shared_expert_intermediate_size": 32, "intermediate_size": 64},
    }
    model = architecture_of(config).architecture

    attention, experts = (run.layer for run in model.mtp_runs)
    assert model.mtp_layers == 1
    assert isinstance(attention.mixer, Attention)
    assert isinstance(experts.network, Experts)
    assert model.mtp_parameters == 2 * 64 * 64 + 3 * 64 + sum(one.parameters(64) for one in (attention, experts))


def test_an_unknown_kind_of_a_hybrids_module_is_refused_by_its_key():
    config = {"model_type": "nemotron_h", "hybrid_override_pattern": "*", "num_nextn_predict_layers": 1}

    with pytest.raises(InputError, match="mtp_hybrid_override_pattern: expected a letter"):
        architecture_of({**config, "mtp_hybrid_override_pattern": "*Q", "hidden_size": 64})


def test_minimaxs_modules_are_named_where_they_are_switched_on():
    base = load_model("minimax-m2").architecture
    config = {
        **{"model_type": "minimax_m2", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256},
        **{"num_local_experts": 4, "num_experts_per_tok": 2, "num_mtp_modules": 3, "mtp_transformer_layers": 2},
    }

    on, off = (architecture_of({**config, "use_mtp": switch}).architecture for switch in (True, False))

    assert base.mtp_layers == 0
    assert (on.mtp_layers, sum(run.count for run in on.mtp_runs)) == (3, 2)
    assert (off.mtp_layers, off.mtp_stack) == (0, ())


def test_too_many_modules_are_refused():
    with pytest.raises(InputError, match="--mtp-layers 20000: mtp_trained: expected at most"):
        load_model("llama3-8b").training(20_000)


def test_plain_values_for_a_digest_name_modules_only_where_they_are_trained():
    model = load_model("llama3-8b").architecture

    assert model.told().keys() == msgspec.to_builtins(model).keys() - {"mtp_trained", "mtp_stack"}
    assert trained("llama3-8b").told()["mtp_trained"] == 1
