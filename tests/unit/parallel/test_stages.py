"""Pieces of one model that a pipeline rank holds."""

import copy

from torch import nn

from meshwright.parallel.pipeline.stages import with_own_hooks


def test_a_hook_of_one_piece_is_not_called_when_another_runs():
    whole = nn.Identity()
    first, second = (with_own_hooks(copy.copy(whole)) for _ in range(2))
    called = []
    first.register_forward_pre_hook(lambda *_: called.append("first"))

    second(1)
    assert called == []

    first(1)
    assert called == ["first"]
