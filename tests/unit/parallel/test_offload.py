"""Offload on a machine without GPUs: refused in one line."""

import pytest
import torch

from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.parallel.spmd.offload import check_offloadable


def test_offload_is_refused_on_cpus_unless_there_is_a_second_store():
    layout = Layout(offload="optimizer")

    with pytest.raises(InputError, match="on CPUs it is there already; leave it out"):
        check_offloadable(layout, torch.device("cpu"))
    check_offloadable(layout, torch.device("cpu"), torch.clone)
    check_offloadable(Layout(), torch.device("cpu"))
