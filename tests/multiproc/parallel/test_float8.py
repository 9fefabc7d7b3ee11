"""Linear layers in fp8, emulated by torchao on a CPU: every layout that offers them trains as one process does."""

import pytest
import torch
import torch.distributed as dist

from meshwright.device import CPU
from meshwright.layout import Layout
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.recorder import Recorder
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, batches, small_model, small_plan, summed

pytest.importorskip("torchao")
pytestmark = pytest.mark.timeout(280)

STEPS = 3
ROUNDINGS = 2e-3  # a sum in another order moves a few elements to the neighbouring number of eight bits


def losses(rank, world_size, store, text, float8, compiled=False):
    """Return the losses of some steps under bf16 autocast, with or without fp8 beside it."""
    if world_size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    layout = Layout.parse(text)
    torch.manual_seed(0)
    config = OptimizerConfig()
    settings = Settings(
        device=CPU,
        optimizer=lambda part: make_optimizer(part, config),
        notes=Recorder(rank, keep_steps=1, device=CPU),
        autocast=torch.bfloat16,
        float8=float8,
        compiled=compiled,
    )
    model = Decoder(small_model(intermediate_size=64, num_attention_heads=4), recompute=layout.recompute)
    engine = build_engine(model, small_plan(layout), settings)
    found = []
    for step in range(STEPS):
        loss, _ = engine.step(
            batches(step, layout, engine.data_rank, engine.data_ranks), GLOBAL_BATCH * SEQ_LEN, number=step
        )
        found.append(summed(loss, CPU) / (GLOBAL_BATCH * SEQ_LEN))
    return found


@pytest.fixture(scope="module")
def alone(_pools):
    from meshwright.bench.ranks.pool import RankPool

    with RankPool(1) as pool:
        return {kind: pool.run(losses, "dp=1,mbs=4", kind)[0] for kind in ("", "fp8-emulated")}


@pytest.mark.parametrize(
    "text",
    [
        *("dp=2,mbs=4", "dp=2,mbs=4,zero=1", "dp=2,mbs=4,zero=2", "dp=2,mbs=4,zero=3"),
        *("dp=2,mbs=4,recompute=full", "pp=2,mbs=4", "pp=2,mbs=4,zero=3,schedule=gpipe"),
        "pp=2,vpp=2,mbs=4,schedule=interleaved",
    ],
)
def test_layouts_in_fp8_train_as_one_process_does(text, alone, rank_pool):
    for found in rank_pool(2).run(losses, text, "fp8-emulated", timeout_s=240):
        assert found[0] == pytest.approx(alone["fp8-emulated"][0], rel=1e-6)
        assert found == pytest.approx(alone["fp8-emulated"], rel=ROUNDINGS)


def test_a_part_of_a_sequence_is_scaled_by_its_own_largest_value(alone, rank_pool):
    for found in rank_pool(2).run(losses, "cp=2,mbs=4", "fp8-emulated", timeout_s=240):
        assert found == pytest.approx(alone["fp8-emulated"], rel=0.02)  # as far as eight bits are from sixteen


@pytest.mark.slow
def test_compiled_layers_in_fp8_train_as_others_do(alone):
    from meshwright.bench.ranks.pool import RankPool

    with RankPool(1) as pool:
        found = pool.run(losses, "dp=1,mbs=4", "fp8-emulated", True, timeout_s=240)[0]

    assert found == pytest.approx(alone["fp8-emulated"], rel=ROUNDINGS)


def test_eight_bits_round_more_than_sixteen_but_learn_the_same(alone):
    narrow, half = alone["fp8-emulated"], alone[""]

    assert narrow[0] != pytest.approx(half[0], rel=1e-6)
    assert narrow == pytest.approx(half, rel=0.02)
