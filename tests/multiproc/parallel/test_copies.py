"""Copies of a sharded model: what they send each other, counted in a real step."""

import torch
import torch.distributed as dist

from meshwright.layout import Layout, Plan
from meshwright.parallel.api import Silent
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.transformer import ModelConfig
from testkit.train_jobs import UNMEASURED

MODEL = ModelConfig(num_hidden_layers=2)
SEQ_LEN = 16


def sums(rank: int, world_size: int, store: dist.Store, micro_batches: int) -> dict[str, int]:
    """Return how many collectives of each kind this rank's two small groups made in one step, by kind."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    layout = Layout.parse("dp=4,mbs=1,zero=3,replicas=2")
    sequences = layout.dp * micro_batches
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=sequences, seq_len=SEQ_LEN, bucket_bytes=2**20
    )
    settings = Settings(torch.device("cpu"), lambda part: make_optimizer(part, OptimizerConfig()), Silent())
    engine = build_engine(Decoder(MODEL), plan, settings)
    tokens = torch.zeros((1, SEQ_LEN + 1), dtype=torch.int64)
    engine.step([(tokens[:, :-1], tokens[:, 1:])] * micro_batches, sequences * SEQ_LEN)
    found: dict[str, int] = {}
    for group in {*dist.distributed_c10d._world.pg_map} - {dist.group.WORLD}:
        for call in group._engine.flight.flights():
            found[call.operation] = found.get(call.operation, 0) + 1
    return found


def test_copies_sum_their_gradients_once_a_step_and_shards_after_each_micro_batch(rank_pool):
    (one, *_), (three, *_) = (rank_pool(4).run(sums, count) for count in (1, 3))

    def calls(found, kind):
        return sum(number for name, number in found.items() if kind in name)

    parts = MODEL.num_hidden_layers + 1  # the layers, and what is outside of them
    assert calls(one, "reduce_scatter") == parts
    assert calls(three, "reduce_scatter") == 3 * parts
    assert calls(one, "all_reduce") == calls(three, "all_reduce") >= parts
