"""A saved dump as messages meet it: switches once, and the latency of the catalogue's links."""

import pytest

from meshwright.cli import run_command
from meshwright.cluster.as_network import as_network
from meshwright.cluster.dumps.detect import parse_dump
from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.pricing.network import network_of
from meshwright.collectives.pricing.price import price_schedule
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()
SIZE = 2**30


def matrix(code, gpus=8):
    names = [f"GPU{i}" for i in range(gpus)]
    rows = [[a, *("X" if a == b else code for b in names)] for a in names]
    return "\n".join("\t".join(row) for row in [["", *names], *rows]) + "\n"


def busbw(code, gpu, latency_s=None):
    """Return the GB/s of bus bandwidth of an all-to-all in which every GPU sends to all others at once."""
    cluster, _ = as_network(parse_dump(matrix(code), "t", CATALOGUE, gpu), CATALOGUE)
    schedule = build_schedule("all_to_all", "linear", 8)
    return 7 / 8 * SIZE / price_schedule(schedule, network_of(cluster, 8, latency_s=latency_s), SIZE).time_s / 1e9


@pytest.mark.parametrize(("code", "gpu", "rate"), [("NV18", "h100", 450), ("NV12", "a100-80g", 300)])
def test_a_gpu_behind_a_switch_sends_to_all_its_peers_at_the_rate_of_its_own_links(code, gpu, rate):
    assert rate * 0.95 < busbw(code, gpu) < rate


def test_a_mesh_keeps_its_links():
    cluster, _ = as_network(parse_dump(matrix("NV4", 4), "t", CATALOGUE, "a100-80g"), CATALOGUE)

    assert not cluster.of_kind("switch")
    assert len(cluster.links) == 6


def test_the_latency_of_links_is_the_catalogue_s_and_that_is_said():
    cluster, notes = as_network(parse_dump(matrix("NV18"), "t", CATALOGUE, "h100"), CATALOGUE)
    network = network_of(cluster, 8)

    assert network.route(0, 1).latency_s == pytest.approx(3.4e-6)
    assert notes == ("latency of a message by the catalogue: NV18 3.4 us; --alpha says another",)


def test_links_of_gpus_that_nobody_named_have_no_latency():
    cluster, notes = as_network(parse_dump(matrix("NV12"), "t", CATALOGUE), CATALOGUE)

    assert notes == ()
    with pytest.raises(InputError, match="give one for all messages"):
        network_of(cluster, 8).route(0, 1)


@pytest.mark.parametrize("command", [
    ["simulate", "--collective", "all_reduce", "--algorithm", "ring"], ["collectives", "price", "ring"],
])  # fmt: skip
def test_a_saved_dump_is_simulated_and_priced(command, tmp_path, capsys):
    (tmp_path / "t.txt").write_text(matrix("NV18"))
    saved = str(tmp_path / "node.json")

    assert run_command(["topo", "--from", str(tmp_path / "t.txt"), "--gpu", "h100", "--save", saved]) == 0
    assert run_command([*command, "--ranks", "8", "--bytes", "1GiB", "--cluster", saved]) == 0
    assert "NV18 3.4 us" in capsys.readouterr().err
