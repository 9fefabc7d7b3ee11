"""Optimiser states of which a part alone is offloaded: the part is read, priced and emitted again."""

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.jobs.emit.config import emitted
from meshwright.jobs.emit.target import EmitTarget
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.workload.models import load_model
from tests.unit.jobs.test_strangers import MEGATRON, job

RUN = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON} --use-distributed-optimizer --optimizer-cpu-offload"
MORE = "--use-precision-aware-optimizer"
AWAY = Layout.parse("tp=2,dp=4,mbs=1,zero=1,offload=optimizer")


@pytest.mark.parametrize(
    ("fraction", "offload", "share"),
    [
        ("", "optimizer", 1.0),
        ("--optimizer-offload-fraction 1.0", "optimizer", 1.0),
        ("--optimizer-offload-fraction 0.5", "optimizer", 0.5),
        ("--optimizer-offload-fraction 0.0", None, 1.0),
    ],
)
def test_the_part_of_the_states_that_leaves_the_gpu_is_read(tmp_path, fraction, offload, share):
    found = job(tmp_path, {"run.sh": f"{RUN} {MORE} {fraction}\n"})

    assert (found.layout.offload, found.offload_share) == (offload, share)
    assert not [text for text in found.ignored if "offload" in text]


@pytest.mark.parametrize("fraction", ["1.5", "half"])
def test_a_part_that_there_is_not_is_refused(tmp_path, fraction):
    with pytest.raises(InputError, match="optimizer-offload-fraction = .*: expected a number from 0 to 1"):
        job(tmp_path, {"run.sh": f"{RUN} {MORE} --optimizer-offload-fraction {fraction}\n"})


def priced(layout, share):
    given = Setting(
        architecture=load_model("llama3-8b").architecture,
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8), gpus=8, global_batch=32, seq_len=4096,
        stack="megatron", offload_share=share,
    )  # fmt: skip
    return price_layouts(given, Grid.of([layout])).terms(0)


def test_what_stays_on_the_gpu_is_held_and_updated_there_and_the_rest_on_the_host():
    here, half, away = (
        priced(layout, share)
        for layout, share in ((msgspec.structs.replace(AWAY, offload="none"), 1.0), (AWAY, 0.5), (AWAY, 1.0))
    )

    for name in ("optimizer_bytes", "host_bytes", "pinned_bytes"):
        assert half[name] == pytest.approx((here[name] + away[name]) / 2), name
    assert here["optimizer_s"] < half["optimizer_s"] < away["optimizer_s"]
    assert half["optimizer_s"] == pytest.approx(away["optimizer_s"] / 2)  # the GPU's part goes on beside the host's
    assert priced(msgspec.structs.replace(AWAY, offload="none"), 0.5) == here


@pytest.mark.parametrize("engine", ["megatron", "bridge"])
def test_a_part_is_emitted_where_it_is_not_all(engine):
    target = EmitTarget(
        layout=AWAY, architecture=load_model("llama3-8b").architecture, model="llama3-8b", global_batch=32,
        seq_len=4096, offload_share=0.25,
    )  # fmt: skip

    assert "0.25" in emitted(engine, target)
    assert "fraction" not in emitted(engine, msgspec.structs.replace(target, offload_share=1.0))
