"""Emulated hosts stand on this machine: their run says its processor and versions, and keeps their cores and links."""

from meshwright.cluster.discovery.local import discover_host
from meshwright.cluster.emulation.inside import VARIABLE
from meshwright.cluster.graph import Cluster, Host
from meshwright.files import write_struct
from meshwright.train.prepare import _cluster_here


def test_an_emulated_host_has_the_processor_and_the_versions_of_the_machine_below(tmp_path, monkeypatch):
    hosts = tuple(Host(name=f"node{i}", cores=1, memory_bytes=2**30) for i in range(2))
    write_struct(tmp_path / "cluster.json", Cluster(name="box", hosts=hosts))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cluster.json"))
    here = discover_host()

    found = _cluster_here("").hosts

    assert [(host.name, host.cores) for host in found] == [("node0", 1), ("node1", 1)]
    assert all((host.cpu_model, host.software) == (here.cpu_model, here.software) for host in found)
