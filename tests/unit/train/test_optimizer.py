from meshwright.train.job.config import OptimizerConfig
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import learning_rate, make_optimizer
from meshwright.workload.transformer import ModelConfig


def test_the_learning_rate_warms_up_linearly_and_ends_at_its_share():
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4, final_share=0.1)
    rates = [learning_rate(config, step, 104) for step in range(105)]

    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert abs(rates[54] - 0.55) < 1e-12
    assert abs(rates[104] - 0.1) < 1e-12
    assert sorted(rates[4:], reverse=True) == rates[4:]


def test_norms_are_not_decayed():
    model = Decoder(ModelConfig())
    decayed, kept = make_optimizer(model, OptimizerConfig(weight_decay=0.3)).param_groups

    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in kept["params"]} == {1}
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))
