"""The choices of ZeRO 2 and 3 that the engine takes from the facts of our stack."""

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from meshwright.layout import Layout
from meshwright.parallel.spmd import fsdp
from meshwright.workload.conventions import ENGINE


@pytest.mark.parametrize(
    ("text", "facts", "layers", "root"),
    [
        ("dp=2,zero=3", {}, True, False),
        ("dp=2,zero=3", {"root_stays": 0}, True, True),
        ("dp=2,zero=2", {"root_stays": 0}, False, False),
        ("dp=2,pp=2,zero=3", {}, True, False),
        ("dp=2,pp=2,zero=3", {"reshards": 0}, False, False),
    ],
)
def test_the_engine_drops_weights_after_their_forward_where_the_facts_say_so(text, facts, layers, root, monkeypatch):
    dropped = []
    monkeypatch.setattr(fsdp, "ENGINE", replace(ENGINE, **facts))
    monkeypatch.setattr(fsdp, "fully_shard", lambda _, **how: dropped.append(how["reshard_after_forward"]))
    monkeypatch.setattr(fsdp, "_prefetch", lambda _: None)
    module = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), "output": nn.Linear(2, 2)})

    fsdp.shard(module, SimpleNamespace(device_mesh=lambda *_: None), Layout.parse(text), None, torch.device("cpu"))

    assert dropped == [layers, layers, root]
