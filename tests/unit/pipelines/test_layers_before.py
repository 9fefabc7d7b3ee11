"""Where stages of equal layers are cut by cost: the closed form, beside the exact search."""

import random

import numpy as np

from meshwright.pipelines import SLACK, ChainUnit, StageTarget, best_cut, layers_before, schedule


def test_the_closed_form_is_the_best_cut_of_equal_layers():
    rng = random.Random(1)
    for _ in range(300):
        layers = rng.randint(1, 60)
        stages = rng.randint(2, min(layers + 2, 24))
        output = rng.choice([rng.random(), rng.uniform(0, 6), rng.uniform(0, 20)])
        each = [ChainUnit("layer", 1.0, 0.0, output_bytes=1)] * layers
        chain = [ChainUnit("embedding", 0.0, 0.0, output_bytes=1), *each, ChainUnit("output", output, 0.0)]

        exact = best_cut(chain, StageTarget.of(schedule("1f1b", stages, 1, stages)), slack=SLACK).bounds
        found = layers_before(float(layers), float(stages), np.arange(stages + 1.0), output)

        assert found.tolist() == [0, *(bound - 1 for bound in exact[1:-1]), layers], (layers, stages, output)
