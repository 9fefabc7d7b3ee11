"""Jobs on meshes of ranks with a planted fault, files missing, clocks that drift: shares, steps and culprit."""

import statistics

import pytest

from meshwright.traces.reading import read_traces
from meshwright.traces.summary import summarized
from testkit.traced_meshes import FAMILIES, FAULTS, GUILTY, Mesh

PARTS = ("compute", "exposed_comm", "hidden_comm", "idle", "data")
EVERY = range(len(FAMILIES) * len(FAULTS))  # each fault in each family
FEW = [seed for seed in EVERY if (seed + seed // len(FAMILIES)) % 4 == 0]  # of every family and fault
LEAST_COST = 0.03  # of a step: a pipeline hides what its stages do while they wait for each other


def checked(seed, folder):
    mesh = Mesh(seed)
    mesh.write(folder)
    about = (mesh.family, mesh.fault, mesh.act, mesh.culprit, sorted(mesh.missing))

    summary = summarized(read_traces([folder]))

    for own in summary.ranks:
        steps = mesh.truth(own.rank)
        step_us = statistics.median(one["step"] for one in steps)
        assert own.step_s * 1e6 == pytest.approx(step_us, rel=0.05), about
        for part in PARTS:
            true = 100 * statistics.median(one[part] for one in steps) / step_us
            assert 100 * getattr(own, f"{part}_s") / own.step_s == pytest.approx(true, abs=2.0), (part, about)
    named = None if summary.culprit is None else summary.culprit.rank
    hidden = mesh.culprit is not None and mesh.cost_us() < LEAST_COST * mesh.step_us()
    right = mesh.culprit if mesh.told else None
    assert named == right or (hidden and named is None), (about, summary.finding)
    if summary.culprit is not None:
        assert GUILTY[mesh.act] in summary.culprit.because, (about, summary.culprit)
    return named


@pytest.mark.parametrize("seed", FEW)
def test_the_culprit_of_a_mesh_is_named_and_nobody_else(seed, tmp_path):
    checked(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [*(seed for seed in EVERY if seed not in FEW), *(pytest.param(n, marks=pytest.mark.soak) for n in range(200, 344))],
)
def test_the_culprit_of_many_meshes_is_named_and_nobody_else(seed, tmp_path):
    checked(seed, tmp_path)


def test_most_faults_of_meshes_cost_a_step_and_are_told():
    guilty = [mesh for seed in FEW if (mesh := Mesh(seed)).fault in GUILTY]

    costly = [mesh.cost_us() > LEAST_COST * mesh.step_us() for mesh in guilty]

    assert sum(costly) >= 0.8 * len(costly)
