"""GPUs of a node that `--cluster` names."""

import pytest

from meshwright.cli.cluster_gpus import gpus_of_node


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("aws-p5", 8),
        ("p5.48xlarge", 8),
        ("lumi-g", 8),
        ("LUMI", 8),
        ("8xH100", None),
        ("cluster.json", None),
        (None, None),
    ],
)
def test_a_node_has_the_gpus_that_its_driver_lists_by_whatever_name(name, gpus):
    assert gpus_of_node(name) == gpus
