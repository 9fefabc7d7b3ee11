"""Where a rank stands in the mesh of a job."""

from meshwright.layout import Layout
from meshwright.parallel import device_mesh as mesh_module
from meshwright.parallel.device_mesh import Mesh


def test_the_ranks_of_an_axis_are_worked_out_once_though_every_step_asks_for_every_parameter(monkeypatch):
    asked = []
    found = mesh_module.groups
    monkeypatch.setattr(mesh_module, "groups", lambda layout, axis: (asked.append(axis), found(layout, axis))[1])
    mesh = Mesh(Layout())

    for _ in range(3):
        assert mesh.ranks("data") == [0]
        assert mesh.index("pp") == 0

    assert asked == ["data", "pp"]
