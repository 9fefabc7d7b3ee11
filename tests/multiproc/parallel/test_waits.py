"""When a step computes and when it waits for what it sends; what it sends is held in `test_program`."""

import pytest
import torch
import torch.distributed as dist

from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.timeline import Span
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.recorder import Recorder
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.transformer import ModelConfig
from testkit.train_jobs import UNMEASURED

MODEL = ModelConfig(
    hidden_size=64, intermediate_size=192, num_hidden_layers=3, vocab_size=128,
    num_attention_heads=4, num_key_value_heads=4,
)  # fmt: skip
MICRO_BATCHES, SEQ_LEN, BUCKET_BYTES = 2, 32, 2**16


def sent(rank: int, world_size: int, store: dist.Store, text: str, backend: str = "meshwright") -> list[Span]:
    """Return the spans of the third step of this rank."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    layout = Layout.parse(text)
    recorder = Recorder(rank, keep_steps=1)
    settings = Settings(torch.device("cpu"), lambda part: make_optimizer(part, OptimizerConfig()), recorder, 1.0)
    sequences = layout.dp * layout.mbs * MICRO_BATCHES
    plan = Plan(
        layout=layout,
        predicted=UNMEASURED,
        global_batch_sequences=sequences,
        seq_len=SEQ_LEN,
        bucket_bytes=BUCKET_BYTES,
    )
    engine = build_engine(Decoder(MODEL), plan, settings)
    tokens = torch.zeros((layout.mbs, SEQ_LEN + 1), dtype=torch.int64)
    for step in range(3):
        engine.step([(tokens[:, :-1], tokens[:, 1:])] * MICRO_BATCHES, sequences * SEQ_LEN, number=step)
        recorder.end_step(step)
    return recorder.spans()


@pytest.mark.parametrize("backend", ["meshwright", "gloo"])
def test_a_rank_computes_nothing_while_it_waits_for_what_zero_sends(backend, rank_pool):
    for spans in rank_pool(2).run(sent, "dp=2,mbs=2,zero=3", backend):
        compute = [span for span in spans if span.lane == "compute"]
        scattered = [span for span in spans if span.name == "reduce_scatter"]

        assert len(scattered) == MICRO_BATCHES * (MODEL.num_hidden_layers + 1)
        for span in scattered:
            assert not any(one.start_s < span.end_s and span.start_s < one.end_s for one in compute)
