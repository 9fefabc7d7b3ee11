"""A rank's address: of the interface that was named, or on the way to the store; never loopback for another host."""

import socket
from types import SimpleNamespace

import psutil
import pytest
import torch.distributed as dist

from meshwright.backend.hosts import addresses
from meshwright.backend.hosts.addresses import common_address, from_here, host_of_store, is_loopback, network_address
from meshwright.errors import InputError


def interface(*found):
    families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in found]
    return [SimpleNamespace(family=family, address=address) for family, address in zip(families, found, strict=True)]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Put up a machine with these interfaces, and a way to nowhere."""
    for name in (*addresses.VARIABLES, "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    there = {
        "lo": interface("127.0.0.1", "::1"),
        "eth0": interface("fe80::1%eth0", "10.0.0.5", "fd00::5"),
        "ib0": interface("fe80::2%ib0", "fd00:1::7"),
    }
    up = {name: SimpleNamespace(isup=True) for name in there}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: there)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: up)
    monkeypatch.setattr(addresses, "_way_to", ways({}))
    return SimpleNamespace(there=there, up=up)


def ways(known):
    return lambda host: known.get(host, "")


@pytest.mark.parametrize(
    ("names", "store", "address"),
    [
        ("eth0", "", "10.0.0.5"),
        ("eth0", "fd00::1", "fd00::5"),
        ("ib0", "", "fd00:1::7"),
        ("none, ib0", "10.0.0.1", "fd00:1::7"),
    ],
)
@pytest.mark.parametrize("variable", addresses.VARIABLES)
def test_a_named_interface_gives_an_address_of_the_stores_family(monkeypatch, variable, names, store, address):
    monkeypatch.setenv(variable, names)
    monkeypatch.setattr(addresses, "_way_to", ways({store: store}))

    assert network_address(store) == address


@pytest.mark.parametrize("variable", addresses.VARIABLES)
def test_the_variable_that_was_set_is_named(monkeypatch, variable):
    monkeypatch.setenv(variable, "eth9")

    with pytest.raises(InputError, match=rf"^{variable}=eth9: no such interface .*\(there are eth0, ib0, lo\)"):
        network_address("10.0.0.1")


def test_without_a_name_it_is_the_address_on_the_way_to_the_store(monkeypatch):
    monkeypatch.setattr(addresses, "_way_to", ways({"store": "10.0.0.5", "master": "10.9.9.9"}))
    monkeypatch.setenv("MASTER_ADDR", "master")

    assert network_address("store") == "10.0.0.5"
    assert network_address() == "10.9.9.9"
    assert network_address("nowhere") == ""


def test_an_address_that_leads_out_stays_and_loopback_gives_way_to_that_towards_the_others(monkeypatch):
    monkeypatch.setattr(addresses, "_way_to", ways({"10.0.0.9": "10.0.0.5"}))

    assert common_address("10.1.1.1", []) == "10.1.1.1"
    for mine in ("127.0.0.1", "127.0.1.1", "::1", ""):
        assert common_address(mine, ["127.0.0.1", "", "10.0.0.9"]) == "10.0.0.5"


def test_where_nobody_knows_better_it_is_the_default_route(monkeypatch):
    monkeypatch.setattr(addresses, "_way_to", ways({addresses.FAR[1]: "fd00::5"}))

    assert common_address("127.0.0.1", ["127.0.0.1"]) == "fd00::5"


def test_and_else_the_only_interface_that_is_up_or_an_error_that_lists_them(machine):
    with pytest.raises(InputError, match=r"set MESHWRIGHT_INTERFACE to an interface: eth0 \(10.0.0.5\), ib0 \(fd00:1"):
        common_address("127.0.0.1", [])
    machine.up["eth0"].isup = False
    assert common_address("127.0.0.1", []) == "fd00:1::7"
    machine.up["ib0"].isup = False
    with pytest.raises(InputError, match="there is none beside loopback"):
        common_address("127.0.0.1", [])


def test_loopback_that_was_named_is_no_address_for_othermachines(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")

    with pytest.raises(InputError, match="GLOO_SOCKET_IFNAME=lo: its address 127.0.0.1 leads to no other machine"):
        common_address(network_address("x"), ["10.0.0.9"])


def test_link_local_addresses_count_on_ones_own_link():
    assert from_here("fe80::9%eth3", "fe80::1%eth0") == "fe80::9%eth0"
    assert from_here("fd00::9", "fe80::1%eth0") == "fd00::9"
    assert from_here("10.0.0.9", "10.0.0.5") == "10.0.0.9"


@pytest.mark.parametrize(
    ("address", "is_it"), [("127.0.1.1", True), ("::1", True), ("10.0.0.1", False), ("name", False)]
)
def test_loopback_is_known(address, is_it):
    assert is_loopback(address) == is_it


def test_a_store_tells_its_host_through_all_prefixes(tmp_path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "master")
    store = dist.TCPStore("127.0.0.1", 0, 1, True)

    assert host_of_store(dist.PrefixStore("a", dist.PrefixStore("b", store))) == "127.0.0.1"
    assert host_of_store(dist.FileStore(str(tmp_path / "store"), 1)) == "master"
