"""Published rates against what the catalogue's figures alone let them reach."""

import csv

import pytest

from benchmarks.published_sweeps import collective_tables
from meshwright.bench.judgement.explain import (
    attainable_bytes_per_s,
    in_switch_busbw_bytes_per_s,
    multi_node_busbw_bytes_per_s,
    network_bytes_per_s,
    ring_busbw_bytes_per_s,
    tree_all_reduce_s,
)
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
RING = {
    **{"gtc-001": "pcie-4", "gtc-002": "pcie-5", "gtc-003": "nvlink-2", "gtc-004": "nvlink-3", "gtc-005": "nvlink-4"},
    **{"gtc-013": "nvlink-5", "gtc-019": "nvlink-5"},
}
IN_SWITCH = {"gtc-006": ("nvlink-4", "nvswitch-3", 8), "gtc-014": ("nvlink-5", "nvswitch-4", 8)}
IN_SWITCH |= {"gtc-012": ("nvlink-4", "nvswitch-3", 8), "gtc-018": ("nvlink-4", "nvswitch-3", 32)}
IN_SWITCH |= {"gtc-020": ("nvlink-5", "nvswitch-4", 32)}
NETWORK = {"gtc-007": ("tcp-100", 1), "gtc-008": ("hdr-200", 1), "gtc-009": ("ndr-400", 1), "gtc-015": ("hdr-200", 2)}
NODES = {"gtc-010": "dgx-a100-80g", "gtc-011": "dgx-h100", "gtc-016": "dgx-a100-80g", "gtc-017": "dgx-h100"}


def published() -> dict[str, dict[str, str]]:
    with collective_tables().open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def explained(name: str) -> float:
    """Return the bus bandwidth that the catalogue gives for a row of the two GTC slides."""
    if name in RING:
        return ring_busbw_bytes_per_s(CATALOGUE.interconnect(RING[name]))
    if name in IN_SWITCH:
        link, switch, ranks = IN_SWITCH[name]
        return in_switch_busbw_bytes_per_s(CATALOGUE.interconnect(link), CATALOGUE.switches[switch], ranks)
    if name in NETWORK:
        network, nics = NETWORK[name]
        return network_bytes_per_s(CATALOGUE.network(network), nics)
    return multi_node_busbw_bytes_per_s(CATALOGUE, CATALOGUE.node(NODES[name]))


@pytest.mark.parametrize("name", sorted({*RING, *IN_SWITCH, *NETWORK, *NODES}))
def test_the_peaks_of_the_gtc_slides(name):
    assert explained(name) == pytest.approx(float(published()[name]["busbw_GBps"]) * 1e9, rel=0.15)


def test_every_gtc_row_is_explained():
    assert {name for name in published() if name.startswith("gtc")} == {*RING, *IN_SWITCH, *NETWORK, *NODES}


def test_sixteen_dgx_2_follow_a_pipelined_tree_at_every_size():
    rows = [row for row in published().values() if row["prefix"] == "dgx2_256"]

    assert len(rows) == 6
    for row in rows:
        time_s = tree_all_reduce_s(CATALOGUE, CATALOGUE.node("dgx-2"), 16, int(row["size_bytes"]))
        assert time_s == pytest.approx(float(row["time_us"]) / 1e6, rel=0.15)


@pytest.mark.parametrize("prefix", ["h100x8_dgxc", "p5_1n", "mle_h200x8", "mle_h200_nranks", "mle_h200_coll"])
def test_rows_reduced_in_the_switch(prefix):
    """Peaks of 8 GiB and more where NVLS was on, at 5 to 8 ranks."""
    link, switch = CATALOGUE.interconnect("nvlink-4"), CATALOGUE.switches["nvswitch-3"]
    rows = [r for r in published().values() if r["prefix"] == prefix and int(r["size_bytes"] or 0) >= 8 * 2**30]
    on = [r for r in rows if r["collective"] == "all_reduce" and float(r["busbw_GBps"]) > 400]

    assert on
    for row in on:
        expected = in_switch_busbw_bytes_per_s(link, switch, int(row["ranks"]))
        assert expected == pytest.approx(float(row["busbw_GBps"]) * 1e9, rel=0.15)


@pytest.mark.parametrize("prefix", ["mle_h200_nranks", "mle_h200_coll"])
def test_rows_of_the_ring_on_the_same_node(prefix):
    rows = [r for r in published().values() if r["prefix"] == prefix and float(r["busbw_GBps"]) < 400]

    assert rows
    for row in rows:
        assert ring_busbw_bytes_per_s(CATALOGUE.interconnect("nvlink-4")) == pytest.approx(
            float(row["busbw_GBps"]) * 1e9, rel=0.15
        )


def test_without_a_known_share_the_middle_of_80_to_90_percent_is_expected():
    assert attainable_bytes_per_s(CATALOGUE.network("efa-v2")) == pytest.approx(0.85 * 12.5e9)
