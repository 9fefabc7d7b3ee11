"""Collectives that `bench --save` measured on a cluster's own links set the rates that its plans are priced with."""

import pytest
from msgspec.structs import replace

from meshwright.bench.fit import fit_sweep
from meshwright.bench.save_fits import with_fits
from meshwright.bench.table import Row
from meshwright.cluster.builders import catalogue_cluster
from meshwright.files import write_struct
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.collective import all_reduce_s, gather_s, span
from meshwright.plan.analytic.measured import IDLE_SHARE
from meshwright.plan.analytic.price import coefficients_of, machine_of, origins
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.workload.models import load_model

SIZES = [2**k for k in range(12, 33)]


def sweep(ranks: int, busbw_bytes_per_s: float, collective: str = "all_reduce", backend: str = "nccl"):
    """Return the fit of a link with this bus bandwidth and a start of 30 us."""
    factor = (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks
    return fit_sweep(
        [
            Row(
                collective=collective,
                backend=backend,
                ranks=ranks,
                bytes=n,
                time_s=30e-6 + n * factor / busbw_bytes_per_s,
            )
            for n in SIZES
        ]
    )


def setting(*fits, node: str = "dgx-a100-80g", gpus: int = 16, **changes) -> Setting:
    cluster = catalogue_cluster(load_catalogue(), node, gpus=gpus)
    model = load_model("llama3-8b").architecture
    cluster = with_fits(cluster, fits) if fits else cluster
    return Setting(architecture=model, cluster=cluster, gpus=gpus, global_batch=64, seq_len=2048, **changes)


def time_s(given: Setting, ranks: int, collective=all_reduce_s, size: float = 2.0**32) -> float:
    c = coefficients_of(given)
    return float(collective(c, span(machine_of(given), c, float(ranks), 1.0), size))


@pytest.mark.parametrize("node", ["dgx-a100-80g", "dgx-h100"])  # without and with sums in the switch
@pytest.mark.parametrize("rate", [100e9, 250e9])
def test_an_all_reduce_in_a_node_is_priced_as_it_was_measured(node, rate):
    fit = sweep(8, rate)

    assert time_s(setting(fit, node=node), 8) == pytest.approx(fit.time_s(2**32), rel=0.05)


def test_a_measured_all_gather_is_told_from_sums_in_the_switch():
    gathered, reduced = sweep(8, 330e9, "all_gather"), sweep(8, 470e9)
    given = setting(gathered, reduced, node="dgx-h100")

    assert time_s(given, 8, gather_s) == pytest.approx(gathered.time_s(2**32), rel=0.05)
    assert time_s(given, 8) == pytest.approx(reduced.time_s(2**32), rel=0.05)


def test_a_network_at_half_the_rate_of_others_takes_twice_as_long():
    usual, half, quarter = (time_s(setting(sweep(16, share * IDLE_SHARE * 200e9)), 16) for share in (1.0, 0.5, 0.25))

    assert usual == pytest.approx(time_s(setting(), 16), rel=0.05)
    assert half > 1.4 * usual  # a tree moves less between two nodes than a ring
    assert quarter == pytest.approx(2 * half, rel=0.05)


def test_sends_between_stages_are_as_much_slower_as_rings_on_a_slow_network():
    slow, plain = (coefficients_of(given) for given in (setting(sweep(16, 0.5 * IDLE_SHARE * 200e9)), setting()))

    assert slow.sends / plain.sends == pytest.approx(0.5, rel=0.05)
    assert slow.sends / plain.sends == pytest.approx(slow.network / plain.network)


def test_a_plan_on_slower_links_takes_longer():
    layout = Grid.of([Layout(tp=8, dp=2)])
    slow, plain = (price_layouts(given, layout).step_time_s[0] for given in (setting(sweep(8, 50e9)), setting()))

    assert slow > 1.2 * plain


@pytest.mark.parametrize(
    "fit",
    [sweep(8, 50e9, backend="gloo"), replace(sweep(8, 50e9), max_bytes=2**20), sweep(8, 50e9, "broadcast")],
    ids=["another backend", "small messages", "another collective"],
)
def test_what_says_nothing_of_the_links_changes_nothing(fit):
    assert coefficients_of(setting(fit)) == coefficients_of(setting())


def test_rates_that_were_given_stand_beside_what_was_measured():
    given = {"intra_bytes_per_s": 600e9, "inter_bytes_per_s": 400e9}

    assert coefficients_of(setting(sweep(8, 50e9), sweep(16, 20e9), **given)) == coefficients_of(setting(**given))


def exposed_s(path, **rates: float) -> float:
    """Return the exposed communication of a step on a cluster file, with rates given beside it."""
    cluster = cluster_by_name(load_catalogue(), str(path), 16, **rates)
    model = load_model("llama3-8b").architecture
    given = Setting(architecture=model, cluster=cluster, gpus=16, global_batch=64, seq_len=2048)
    return float(price_layouts(given, Grid.of([Layout(dp=16, zero=3)])).exposed_comm_s[0])


@pytest.fixture
def files(tmp_path):
    """Two files of one cluster: with an all-reduce of 180 GB/s over two nodes, and without."""
    plain = catalogue_cluster(load_catalogue(), "dgx-a100-80g", gpus=16)
    for name, cluster in (("plain", plain), ("measured", with_fits(plain, [sweep(16, 180e9)]))):
        write_struct(tmp_path / f"{name}.json", cluster)
    return tmp_path


@pytest.mark.parametrize("rate", [12.5e9, 50e9, 800e9])
def test_a_network_of_another_rate_is_priced_by_that_rate_whatever_was_measured(files, rate):
    plain, measured = (exposed_s(files / f"{name}.json", inter_bytes_per_s=rate) for name in ("plain", "measured"))

    assert measured == pytest.approx(plain)


def test_what_was_measured_of_the_network_holds_beside_another_rate_inside_the_nodes(files):
    cluster = cluster_by_name(load_catalogue(), str(files / "measured.json"), 16, intra_bytes_per_s=100e9)

    assert [fit.ranks for fit in cluster.measured.collectives] == [16]


def test_a_plan_says_which_measured_collectives_it_takes_and_which_it_leaves_out(files):
    path = str(files / "measured.json")
    request = PlanRequest(model=load_model("llama3-8b"), cluster=path, gpus=16, global_batch=64, seq_len=2048)
    own, other = (setting_of(replace(request, inter_bytes_per_s=rate), load_catalogue()) for rate in (None, 50e9))

    assert any(text.startswith("links as measured") and "16 ranks" in text for text in origins(own))
    assert not any("as measured" in text for text in (*own.assumed, *origins(other)))
    assert any("all_reduce on 16 ranks as measured" in text for text in other.assumed)


def test_a_plan_says_that_an_all_reduce_bound_inside_a_node_told_nothing_of_the_network():
    said = origins(setting(sweep(16, 230e9)))
    slow = origins(setting(sweep(16, 90e9)))

    assert any("is as fast as the links inside a node let it be, says nothing of the network" in line for line in said)
    assert not any("says nothing of the network" in line for line in slow)
