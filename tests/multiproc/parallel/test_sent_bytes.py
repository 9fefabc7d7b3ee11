"""What a step sends, as its engine notes it, is what the plan says, collective by collective."""

from collections.abc import Iterable

import pytest
import torch
import torch.distributed as dist

from meshwright.cluster.graph import CollectiveFit, Measurements, OperatorTime, blocking
from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.plan.split_step import beside, largest_bytes, operators_of, predict_split_step, waited_for
from meshwright.plan.step import StepInputs
from meshwright.timeline import Span
from meshwright.train.config import OptimizerConfig
from meshwright.train.decoder import Decoder
from meshwright.train.optimizer import make_optimizer
from meshwright.train.recorder import Recorder
from meshwright.workload.transformer import ModelConfig, describe
from tests.multiproc.train.jobs import UNMEASURED

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


def planned(text: str) -> tuple[Span, ...]:
    """Return the spans of the predicted step, at times that do not matter here."""
    layout = Layout.parse(text)
    workload = describe(MODEL, seq_len=SEQ_LEN, micro_batch=layout.mbs, layout=layout)
    measured = Measurements(
        fingerprint="test",
        operators=tuple(
            OperatorTime(operator=op.key, ranks=layout.world_size, threads=1, forward_s=1e-3, backward_s=1e-3)
            for op in operators_of(workload, layout)
        ),
        collectives=tuple(
            CollectiveFit(
                collective=name, backend="meshwright", ranks=ranks, alpha_s=1e-3, beta_s_per_byte=0.0,
                min_bytes=1, max_bytes=2**30, busy_share=0.0,
            )
            for ranks in largest_bytes(layout, workload)
            for name in (*beside(layout), *map(blocking, waited_for(layout, workload)[ranks]))
        ),
    )  # fmt: skip
    inputs = StepInputs(
        workload=workload,
        global_batch=layout.dp * layout.mbs * MICRO_BATCHES,
        measured=measured,
        backend="meshwright",
        peak_flops_per_s=None,
    )
    return predict_split_step(layout, inputs, BUCKET_BYTES).spans


def bytes_by_name(spans: Iterable[Span]) -> dict[str, int]:
    """Return the bytes of each kind of collective, but for those of single numbers."""
    found: dict[str, int] = {}
    for span in spans:
        if span.lane == "comm" and span.bytes > 64:
            found[span.name] = found.get(span.name, 0) + span.bytes
    return found


@pytest.mark.parametrize(
    "text",
    [
        *("dp=2,mbs=2,zero=1", "dp=2,mbs=2,zero=2", "dp=2,mbs=2,zero=3"),
        *("dp=1,tp=2,mbs=2", "dp=1,tp=2,mbs=2,sp=1", "dp=1,cp=2,mbs=2"),
    ],
)
def test_a_step_sends_the_bytes_that_the_plan_says(text, rank_pool):
    for spans in rank_pool(2).run(sent, text):
        assert bytes_by_name(spans) == pytest.approx(bytes_by_name(planned(text)), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["dp=4,mbs=1,zero=3,replicas=2", "dp=4,mbs=1,zero=2,replicas=2"])
def test_copies_of_a_sharded_model_send_the_bytes_that_the_plan_says(text, rank_pool):
    for spans in rank_pool(4).run(sent, text):
        assert bytes_by_name(spans) == pytest.approx(bytes_by_name(planned(text)), rel=0.01)


@pytest.mark.parametrize("backend", ["meshwright", "gloo"])
def test_a_rank_computes_nothing_while_it_waits_for_what_zero_sends(backend, rank_pool):
    for spans in rank_pool(2).run(sent, "dp=2,mbs=2,zero=3", backend):
        compute = [span for span in spans if span.lane == "compute"]
        scattered = [span for span in spans if span.name == "reduce_scatter"]

        assert len(scattered) == MICRO_BATCHES * (MODEL.num_hidden_layers + 1)
        for span in scattered:
            assert not any(one.start_s < span.end_s and span.start_s < one.end_s for one in compute)
