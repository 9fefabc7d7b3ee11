"""Accelerators on which no training run was measured, and whose products were timed alone."""

import pytest

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, book, price_layouts
from meshwright.plan.analytic.cautions import cautions
from meshwright.plan.analytic.coefficients import coefficients
from meshwright.plan.analytic.fitted_range import origin
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.workload.models import load_model

CATALOGUE = load_catalogue()
MODEL = load_model("llama3-8b").architecture


def step_s(cluster, gpus=8, stack="since-2024", **layout):
    given = Setting(
        architecture=MODEL,
        cluster=cluster_by_name(CATALOGUE, cluster, gpus),
        gpus=gpus,
        global_batch=64,
        seq_len=4096,
        stack=stack,
    )
    grid = Grid.of([Layout(dp=gpus, mbs=2, zero=3, recompute="full", **layout)])
    return float(price_layouts(given, grid).step_time_s[0])


@pytest.mark.parametrize("node", ["mi300x-8", "mi325x-8"])
def test_a_higher_peak_that_products_do_not_reach_makes_no_faster_step(node):
    assert step_s(node) > step_s("dgx-h200")


def test_a_step_on_mi300x_is_near_a_published_one():
    published_s = 8192 / 5376  # torchtitan, Llama 3 8B on eight MI300X: pytorch/ao, torchao/float8/README.md
    given = Setting(
        architecture=MODEL, cluster=cluster_by_name(CATALOGUE, "mi300x-8", 8), gpus=8, global_batch=8, seq_len=8192,
        stack="titan",
    )  # fmt: skip
    grid = Grid.of([Layout(dp=8, mbs=1, zero=3, recompute="selective")])

    assert float(price_layouts(given, grid).step_time_s[0]) == pytest.approx(published_s, rel=0.25)


def test_what_was_timed_alone_is_named_and_stays_a_doubt():
    doubts = cautions(MODEL, Layout(dp=8), stack="since-2024", accelerator="rtx-4090", known=book())

    assert any("rtx-4090: no run on it was measured" in text and "mma-matmul" in text for text in doubts)
    assert not book().trained_on("rtx-4090")
    assert origin(book(), "since-2024", "rtx-4090") == "prior"


def test_products_alone_never_pass_the_peak():
    values = {name: one.value for name, one in book().constants.items()}
    for device in book().devices.values():
        name, factor = device.uses["product"] if device.alone else ("", 0.0)
        assert not device.alone or values[name] * factor < 1.0


def test_gpus_with_the_a100s_instructions_run_its_attention():
    """Hopper has other instructions, which FlashAttention-2 does not use (arXiv 2407.08608)."""
    older = ("sm80", "sm86", "sm89", "sm120", "sm121")
    found = [key for key, one in CATALOGUE.accelerators.items() if one.architecture in older]

    assert len(found) > 40
    for accelerator in found:
        c = coefficients(book(), "since-2024", accelerator, "bf16")
        assert (c.attention, c.exponentials) == (book().constants["flash_a100"].value, 0.0), accelerator
    assert coefficients(book(), "since-2024", "h100-pcie", "bf16").attention != c.attention


def test_whose_attention_it_is_is_named_and_stays_a_doubt():
    doubts = cautions(MODEL, Layout(dp=8), stack="since-2024", accelerator="l40s", known=book())

    assert any("l40s: no run on it was measured; attention as on the A100" in text for text in doubts)
    assert not book().trained_on("l40s")
    assert origin(book(), "since-2024", "l40s") == "prior"


def test_a_hopper_with_fewer_products_a_clock_reaches_a_larger_share_of_its_peak():
    """An H20 has the exponentials and the memory of an H100 beside a seventh of its products."""
    flops = MODEL.model_flops_per_token(4096) * 64 * 4096 / 8
    shares = {node: flops / step_s(node) / peak for node, peak in (("dgx-h100", 989e12), ("hgx-h20", 148e12))}
    forward = {name: coefficients(book(), "since-2024", name, "bf16").attention for name in ("h100", "h20", "h20-3e")}

    assert 1.15 < shares["hgx-h20"] / shares["dgx-h100"] < 1.5
    assert shares["hgx-h20"] < 0.75
    assert forward["h20"] / forward["h100"] == pytest.approx(126.2 / 148 / (617.8 / 989), rel=0.01)
    assert forward["h20-3e"] == forward["h20"]


def test_what_attention_alone_was_timed_on_is_named():
    doubts = cautions(MODEL, Layout(dp=8), stack="since-2024", accelerator="h20", known=book())

    assert any("h20: no run on it was measured; attention by kernels timed alone" in text for text in doubts)
    assert not book().trained_on("h20")
