"""The memory model against live tensors counted during a real step."""

import msgspec
import pytest
import torch

from meshwright.layout import Layout
from meshwright.parallel.engine import live_tensors
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.memory import PeakMemory
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.holdings import kept_activation_bytes, peak_memory_bytes
from meshwright.workload.transformer import ModelConfig, describe_workload

SMALL = ModelConfig(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4)
CASES = {
    "default sizes": (ModelConfig(), 128, 4),
    "grouped queries": (SMALL, 64, 2),
    "every head its own": (ModelConfig(hidden_size=64, num_attention_heads=2, num_key_value_heads=2), 64, 4),
    "large vocabulary": (ModelConfig(hidden_size=64, num_attention_heads=2, vocab_size=4096), 64, 2),
    "untied, wide": (ModelConfig(intermediate_size=1024, tie_word_embeddings=False), 64, 4),
    "one sequence": (SMALL, 32, 1),
}


def counted(model, seq_len, micro_batch, recompute, autocast=""):
    """Return (activations kept by forward, peak of the second step) of a real step."""
    module = Decoder(model, recompute=recompute)
    optimizer = make_optimizer(module, OptimizerConfig())
    for _ in range(2):
        tokens = torch.randint(0, model.vocab_size, (micro_batch, seq_len + 1))
        with PeakMemory(live_tensors(module, optimizer)) as memory:
            before = memory.live_bytes
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(autocast)):
                loss = module(tokens[:, :-1], tokens[:, 1:])
            kept = memory.live_bytes - before
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return kept, memory.peak_bytes


@pytest.mark.parametrize("autocast", ["", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("case", CASES)
def test_predicted_memory_is_within_ten_percent_of_what_lives(case, recompute, autocast):
    model, seq_len, micro_batch = CASES[case]
    workload = describe_workload(model, seq_len=seq_len, micro_batch=micro_batch, autocast=autocast)
    layout = Layout(mbs=micro_batch, recompute=recompute)

    kept, peak = counted(model, seq_len, micro_batch, recompute, autocast)

    assert kept_activation_bytes(workload, layout) == pytest.approx(kept, rel=0.02)
    assert peak_memory_bytes(workload, layout) == pytest.approx(peak, rel=0.10)


@pytest.mark.parametrize("autocast", ["", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_weights_of_all_experts_of_a_rank_are_cast(recompute, autocast):
    model = msgspec.structs.replace(SMALL, num_local_experts=4)
    workload = describe_workload(model, seq_len=64, micro_batch=2, autocast=autocast)

    kept, peak = counted(model, 64, 2, recompute, autocast)

    assert kept_activation_bytes(workload, Layout(mbs=2, recompute=recompute)) == pytest.approx(kept, rel=0.12)
    assert peak_memory_bytes(workload, Layout(mbs=2, recompute=recompute)) == pytest.approx(peak, rel=0.10)
