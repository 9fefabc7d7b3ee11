"""Networks between nodes that are slow beside what a step computes, or beside those of every run that was fitted to."""

import pytest
from msgspec.structs import replace
from rich.console import Console

from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, performance, price_layouts
from meshwright.plan.request import priced_layout
from meshwright.plan.search.reasons import waiting_text
from meshwright.report.planning import show_row
from tests.unit.plan.test_explore import setting


def test_a_network_far_slower_than_that_of_any_run_of_a_stack_is_said_and_widens_the_band():
    layout = Layout(dp=16, zero=3)

    def answer(gpus, inter):
        case = setting("llama3-8b", "dgx-h100", gpus=gpus, global_batch=16, stack="torchtitan")
        case = replace(case, inter_bytes_per_s=inter)
        own = replace(layout, dp=gpus)
        return performance(case, price_layouts(case, Grid.of([own])), 0, own)

    usual, half, slow, inside = answer(16, None), answer(16, 200e9), answer(16, 25e9), answer(8, 25e9)

    assert slow.error_band == pytest.approx(usual.error_band + 0.1)
    assert any(text.startswith("a network of 25 Gb/s a GPU: in no measured run") for text in slow.not_modelled)
    assert half.error_band == usual.error_band
    assert not any("network of" in text for text in (*half.not_modelled, *inside.not_modelled))


def test_a_step_that_is_mostly_one_wait_says_so_and_others_do_not(capsys):
    layout = "dp=16,mbs=1,zero=3"
    slow, usual = (
        replace(setting("llama3-8b", "dgx-h100", gpus=16, global_batch=16, stack="torchtitan"), inter_bytes_per_s=rate)
        for rate in (1e9, 400e9)
    )
    found = priced_layout(slow, layout)
    show_row(Console(width=200), "", found)
    share = found.terms["data_comm_s"] / found.terms["step_time_s"]

    assert f"{share:.0%} of the step is exposed gradient and parameter traffic" in capsys.readouterr().out
    assert waiting_text(priced_layout(usual, layout).terms) == ""
