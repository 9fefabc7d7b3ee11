"""`amd-smi xgmi`: peers and rates by its counters, links that are down, and what it leaves to the topology."""

import json

import pytest

from meshwright.cluster.dumps import load_dump
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from tests.unit.cluster.machines import as_amd_smi, as_xgmi, machine

CATALOGUE = load_catalogue()
OF_PAIRS = (
    "XGMI LINK STATUS:\n       bdf           GPU0   GPU1   GPU2\nGPU0   0000:05:00.0  SELF   U      D\n"
    "GPU1   0000:15:00.0  U      SELF   U\nGPU2   0000:25:00.0  D      U      SELF\n\nLegend:\n  SELF = Current GPU\n"
)
OF_PORTS = (
    "XGMI LINK STATUS:\n       bdf           link_status\nGPU0   0000:05:00.0  U  U  D  X\n"
    "GPU1   0000:15:00.0  U  U  U  X\nGPU2   0000:25:00.0  U  D  D  X\n\n* U:Up D:Down X:Disabled\n"
)


def read(text, gpu=None):
    return parse_dump(text, "dump", CATALOGUE, gpu)


@pytest.mark.parametrize(("gbits", "rate"), [("512 Gb/s", 64e9), ("608 Gb/s", 76e9), ("N/A", None)])
def test_gpus_with_counters_towards_each_other_are_peers_at_a_links_rate(gbits, rate):
    cluster = read(as_xgmi(8, gbits=gbits))

    assert len(cluster.devices) == 8
    assert {(link.kind, link.bandwidth_bytes_per_s) for link in cluster.links} == {("xGMI", rate)}
    assert len(cluster.links) == 28
    assert "GPU7 is 0000:75:00.0" in cluster.warnings[-1]
    assert not any("lower bound" in warning for warning in cluster.warnings)  # each has a link for each peer


@pytest.mark.parametrize("mark", ["> ", "node7: "])
def test_its_lines_may_be_quoted_or_behind_the_name_of_a_host(mark):
    text = "".join(f"{mark}{line}\n" for line in as_xgmi(4).splitlines())

    assert len(read(text).links) == 6


def test_a_pair_without_counters_has_no_link_and_fewer_peers_may_have_several():
    cluster = read(as_xgmi(4, apart=[(0, 3)]))

    assert ("GPU0", "GPU3") not in {(link.a, link.b) for link in cluster.links}
    assert any("1 pair of GPUs without xGMI" in warning for warning in cluster.warnings)
    assert any("lower bound" in warning for warning in cluster.warnings)


def test_a_link_that_is_down_has_no_rate_and_is_named():
    cluster = read(as_xgmi(3, states=OF_PAIRS))

    rates = {(link.a, link.b): link.bandwidth_bytes_per_s for link in cluster.links}
    assert rates == {("GPU0", "GPU1"): 64e9, ("GPU0", "GPU2"): None, ("GPU1", "GPU2"): 64e9}
    assert "xGMI is down between GPU0-GPU2" in cluster.warnings[0]


def test_ports_that_are_down_are_counted_where_no_peer_is_named():
    cluster = read(as_xgmi(3, states=OF_PORTS))

    assert cluster.warnings[:2] == ("GPU0: 1 of its 4 xGMI links is down", "GPU2: 2 of its 4 xGMI links are down")


def test_below_a_topology_it_names_a_link_that_is_down():
    topology = as_amd_smi(machine("mi300x-8"))
    names = [f"GPU{i}" for i in range(8)]
    rows = "".join(
        f"{a}   0000:{i}5:00.0  "
        + "  ".join("SELF" if a == b else "D" if {a, b} == {"GPU2", "GPU6"} else "U" for b in names)
        + "\n"
        for i, a in enumerate(names)
    )
    states = f"XGMI LINK STATUS:\n   bdf   {'  '.join(names)}\n{rows}"
    cluster = read(topology + as_xgmi(8, states=states))

    assert len(cluster.devices) == 8
    assert len(cluster.links) == 28
    assert any("xGMI is down between GPU2-GPU6" in warning for warning in cluster.warnings)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (as_xgmi(2, gbits="N/A", apart=[(0, 1)]), "no xGMI between 2 GPUs; expected amd-smi topology"),
        (as_xgmi(3).replace(" Read        N/A         ", " Read        ", 1), "expected 3 counters"),
        (as_xgmi(3).replace("32 Gb/s", "fast", 1), "expected bit_rate and max_bandwidth"),
        (as_xgmi(3, states=OF_PAIRS.replace("  SELF   U      D", "  SELF   U", 1)), "expected a state of each link"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(text, why):
    with pytest.raises(InputError, match=why):
        read(text)


def test_where_an_old_version_prints_its_largest_numbers_there_is_no_rate():
    text = as_xgmi(2, gbits="4294967295 Gb/s").replace("32 Gb/s   ", "65535 Gb/s").replace("XGMI", "N/A")

    assert read(text).links[0].bandwidth_bytes_per_s is None


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"xgmi_metric": [data], "cpu_data": []}])
def test_its_json_says_the_same(wrap, tmp_path):
    entries = [
        {
            "gpu": i,
            "bdf": f"0000:{i}5:00.0",
            "link_metrics": {
                "max_bandwidth": {"value": 512, "unit": "Gb/s"},
                "link_type": "XGMI",
                "links": [{"gpu": j, "read": "N/A" if i == j else {"value": 7, "unit": "KB"}} for j in range(3)],
            },
        }
        for i in range(3)
    ]
    path = tmp_path / "xgmi.json"
    path.write_text(json.dumps(wrap(entries)))
    cluster = load_dump(path, CATALOGUE)

    assert [link.bandwidth_bytes_per_s for link in cluster.links] == [64e9] * 3
