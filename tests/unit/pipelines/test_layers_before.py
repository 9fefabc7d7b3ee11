"""Where stages of equal layers are cut by cost: the closed form, beside the exact search."""

import random

import numpy as np
import pytest

from meshwright.pipelines import SLACK, ChainUnit, StageTarget, best_cut, layers_before, schedule


@pytest.mark.parametrize("vpp", [1, 2, 3])
def test_the_closed_form_is_the_best_cut_of_equal_layers(vpp):
    rng = random.Random(vpp)
    for _ in range(300 if vpp == 1 else 60):
        layers = rng.randint(vpp, 60)
        ranks = rng.randint(2 if vpp == 1 else 1, max(2 if vpp == 1 else 1, min(layers + 2, 24) // vpp))
        stages = ranks * vpp
        output = rng.choice([rng.random(), rng.uniform(0, 6), rng.uniform(0, 20)])
        each = [ChainUnit("layer", 1.0, 0.0, output_bytes=1)] * layers
        chain = [ChainUnit("embedding", 0.0, 0.0, output_bytes=1), *each, ChainUnit("output", output, 0.0)]

        grid = schedule("1f1b" if vpp == 1 else "interleaved", ranks, vpp, ranks)
        exact = best_cut(chain, StageTarget.of(grid), slack=SLACK).bounds
        found = layers_before(float(layers), float(stages), np.arange(stages + 1.0), output, vpp=vpp)

        assert found.tolist() == [0, *(bound - 1 for bound in exact[1:-1]), layers], (layers, stages, output)
