"""The modules that torch.compile is applied to, and the layouts that it is refused for."""

import pytest
from torch import nn

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.parallel.layers.compiled import compile_layers
from meshwright.plan.layouts.legality import check_runnable


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        ("dp=1,tp=2", "tp communicates inside layers"),
        ("dp=1,cp=2", "cp communicates inside layers"),
        ("dp=1,pp=2,schedule=zb", "schedule=zb splits the backward"),
        ("dp=2,recompute=selective", "recompute=selective selects single operators"),
    ],
)
def test_layouts_that_cannot_be_compiled_say_why(layout, reason):
    with pytest.raises(InputError, match=reason):
        check_runnable(Layout.parse(layout), compiled=True)


def test_data_parallelism_zero_and_a_plain_pipeline_can_be_compiled():
    for layout in ("dp=2", "dp=4,zero=3", "dp=1,pp=2,schedule=1f1b,recompute=full"):
        check_runnable(Layout.parse(layout), compiled=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of torch's own compiler
def test_layers_of_lists_are_compiled_each_by_itself_and_a_module_without_lists_as_a_whole():
    listed = nn.Module()
    listed.layers = nn.ModuleList([nn.Linear(2, 2), nn.Identity(), nn.Linear(2, 2)])
    plain = nn.Sequential(nn.Linear(2, 2))
    compile_layers(listed)
    compile_layers(plain)

    compiled = [part for part in (*listed.modules(), *plain.modules()) if part._compiled_call_impl is not None]
    assert compiled == [listed.layers[0], listed.layers[2], plain]
