"""`launch.topology`: which switches are above this machine."""

import pytest

from meshwright.errors import InputError
from meshwright.train.job.topology_file import export_switches, placements

TREE = """SwitchName=leaf0 Nodes=n[0-1]
SwitchName=leaf1 Nodes=n[2-3]
SwitchName=core Switches=leaf[0-1]
"""


@pytest.fixture
def tree(tmp_path):
    path = tmp_path / "topology.txt"
    path.write_text(TREE)
    return str(path)


@pytest.mark.parametrize("name", ["n2", "n2.cluster.example"])
def test_ranks_are_told_the_switches_above_their_machine(tree, monkeypatch, name):
    monkeypatch.setenv("MESHWRIGHT_HOST", name)
    variables = {}

    export_switches(tree, variables)

    assert variables == {"MESHWRIGHT_SWITCHES": "core.leaf1"}


def test_without_a_file_nobody_is_told_anything():
    variables = {}

    export_switches("", variables)

    assert variables == {}
    assert placements("") == ()


def test_a_machine_that_the_file_lacks_is_named(tree, monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_HOST", "n9")

    with pytest.raises(InputError, match="this machine, n9, is not among its 4 nodes"):
        export_switches(tree, {})


def test_a_file_without_switches_is_refused(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('name = "flat"\n')

    with pytest.raises(InputError, match=r"launch\.topology: .*no switches and nodes"):
        placements(str(path))
