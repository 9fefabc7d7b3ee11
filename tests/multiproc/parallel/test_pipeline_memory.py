"""A pipeline's memory is what its schedule promises: live tensors counted in a real step, beside the plan's figure."""

import pytest
import torch
import torch.distributed as dist

from meshwright.layout import Layout, Plan
from meshwright.parallel.api import Silent
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.memory import PeakMemory
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.holdings import peak_memory_bytes
from meshwright.workload.transformer import ModelConfig, describe_workload
from testkit.train_jobs import UNMEASURED

MODEL = ModelConfig(
    hidden_size=128, intermediate_size=384, num_hidden_layers=4, vocab_size=512,
    num_attention_heads=8, num_key_value_heads=4,
)  # fmt: skip
MICRO_BATCHES, SEQ_LEN = 8, 64
LAYOUTS = [
    "dp=1,pp=2,mbs=4,schedule=gpipe",
    "dp=1,pp=2,mbs=4",
    "dp=1,pp=2,mbs=4,vpp=2,schedule=interleaved",
    "dp=1,pp=2,mbs=4,schedule=zb",
    "dp=1,pp=2,mbs=4,recompute=full",
]
SHARDED = [
    "dp=2,pp=2,mbs=2,zero=1",
    "dp=2,pp=2,mbs=2,zero=2",
    "dp=2,pp=2,mbs=2,zero=3",
    "dp=2,pp=2,mbs=2,zero=3,schedule=zb",
]


def peak(rank: int, world_size: int, store: dist.Store, text: str) -> int:
    """Return the peak bytes of the third step on this rank."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    layout = Layout.parse(text)
    settings = Settings(torch.device("cpu"), lambda part: make_optimizer(part, OptimizerConfig()), Silent(), 1.0)
    sequences = layout.dp * layout.mbs * MICRO_BATCHES
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=sequences, seq_len=SEQ_LEN, bucket_bytes=2**20
    )
    engine = build_engine(Decoder(MODEL, recompute=layout.recompute), plan, settings)
    tokens = torch.zeros(layout.mbs, SEQ_LEN + 1, dtype=torch.int64)
    batches = [(tokens[:, :-1], tokens[:, 1:])] * MICRO_BATCHES
    for _ in range(2):
        engine.step(batches, sequences * SEQ_LEN)
    with PeakMemory(engine.tensors()) as memory:
        engine.step(batches, sequences * SEQ_LEN)
    return memory.peak_bytes


@pytest.mark.parametrize("text", [*LAYOUTS, *(pytest.param(text, marks=pytest.mark.slow) for text in SHARDED)])
def test_the_plan_says_within_ten_percent_how_much_the_fullest_rank_holds(text, rank_pool):
    layout = Layout.parse(text)
    workload = describe_workload(MODEL, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout)

    counted = rank_pool(layout.world_size).run(peak, text)

    planned = peak_memory_bytes(workload, layout, micro_batches=MICRO_BATCHES)
    assert planned == pytest.approx(max(counted), rel=0.10)


def test_one_f_one_b_holds_less_than_gpipe(rank_pool):
    gpipe, one_f_one_b = (max(rank_pool(2).run(peak, text)) for text in LAYOUTS[:2])

    assert one_f_one_b < 0.7 * gpipe
