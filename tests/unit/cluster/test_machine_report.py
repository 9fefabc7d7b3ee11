"""The file of `doctor --report`: what a machine is like, and nothing that names it."""

import json
import socket
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from meshwright.cli import group
from meshwright.cluster.discovery.nvml import gpu_state
from meshwright.cluster.doctor.facts import NetworkInterface, NodeFacts
from meshwright.cluster.doctor.report import encoded, machine_report

NODE = NodeFacts(
    node=0, nodes=1, host="login7.example.org", host_addresses=("10.1.2.3",), cores=(0, 1, 2),
    environment={
        "MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500", "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": "/home/ada/nccl.log",
        "NCCL_SOCKET_IFNAME": "ada0", "OMP_NUM_THREADS": "4", "TORCH_HOME": "/home/ada/torch",
    },
    interfaces=(NetworkInterface(name="ada0", up=True, mtu=9000, addresses=("10.1.2.3",)),),
    versions={"torch": "2.13.0"},
)  # fmt: skip


def test_a_report_names_no_host_user_folder_or_address():
    text = encoded(machine_report(NODE, [], [])).decode()

    assert not [word for word in ("login7", "example", "10.1.2.3", "ada", "/home") if word in text]


@pytest.mark.parametrize("name", ["7", "10", "ib0", "torch-ada", "NVIDIA", "eth.ada", "ÅDA 1", "ada/../x", 'a"da'])
def test_hosts_users_and_interfaces_of_odd_names_are_named_no_more_than_others(name):
    settings = ("MASTER_ADDR", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "TORCH_HOME", "NCCL_HOSTID")
    node = NodeFacts(
        node=0, nodes=1, host=name, host_addresses=(name,), cores=(0,),
        environment=dict.fromkeys(settings, name) | {"TORCH_ELASTIC_FILE": f"/home/{name}/run --user {name}"},
        interfaces=(NetworkInterface(name=name, up=True, mtu=9000, addresses=()),),
        versions={"torch": f"2.13.0+{name}.build"},
    )  # fmt: skip
    plain = NodeFacts(
        node=0, nodes=1, host="x", host_addresses=(), cores=(0,), environment=dict.fromkeys(node.environment, "x"),
        interfaces=(NetworkInterface(name="x", up=True, mtu=9000, addresses=()),), versions={"torch": "2.13.0+x"},
    )  # fmt: skip
    found, expected = (machine_report(each, [], []) for each in (node, plain))

    kind = found["interfaces"][0].pop("kind")
    assert kind in {"ib", "eth", "other"}
    assert {**expected["interfaces"][0]} == {**found["interfaces"][0], "kind": "other"}
    assert found["environment"] == expected["environment"]
    assert found["versions"] == expected["versions"] == {"torch": "2.13.0+local"}


@pytest.mark.parametrize(
    "version", ["2.13.0", "2.13.0+cpu", "2.11.0+cu130", "2.9.1+rocm6.4", "2.7.0a0+7c8ec84dab.nv25.03"]
)
def test_a_version_of_a_usual_build_is_told_whole(version):
    node = NodeFacts(node=0, nodes=1, host="x", host_addresses=(), cores=(0,), versions={"torch": version})

    assert machine_report(node, [], [])["versions"] == {"torch": version}


@pytest.mark.parametrize("name", ["ada", "abe", "fae.dad"])
def test_a_name_that_might_be_a_number_of_base_16_is_no_usual_build(name):
    node = NodeFacts(node=0, nodes=1, host="x", host_addresses=(), cores=(0,), versions={"torch": f"2.13.0+{name}"})

    assert machine_report(node, [], [])["versions"] == {"torch": "2.13.0+local"}


def test_a_long_commit_in_a_version_is_judged_at_once():
    node = NodeFacts(
        node=0, nodes=1, host="x", host_addresses=(), cores=(0,), versions={"torch": f"2+{'ab1' * 2000}-x"}
    )

    begun = time.process_time()

    assert machine_report(node, [], [])["versions"] == {"torch": "2+local"}
    assert time.process_time() - begun < 1.0


def test_a_report_says_how_things_are_set_up():
    report = json.loads(encoded(machine_report(NODE, [{"name": "NVIDIA H100"}], [])))

    assert report["environment"]["OMP_NUM_THREADS"] == "4"
    assert report["environment"]["NCCL_DEBUG"] == "INFO"
    assert report["environment"]["NCCL_SOCKET_IFNAME"] == "(set)"
    assert report["interfaces"] == [{"kind": "other", "up": True, "mtu": 9000}]
    assert report["accelerators"] == [{"name": "NVIDIA H100"}]


def test_the_command_writes_a_file_of_this_machine(tmp_path):
    path = tmp_path / "machine.json"
    CliRunner().invoke(group, ["doctor", "--report", str(path)])
    text = path.read_text()

    assert json.loads(text)["schema"] == "meshwright.machine/1"
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text


class Library:
    """NVML of a driver that knows one GPU and does not tell its power limit."""

    def nvmlInit_v2(self):
        return 0

    def nvmlShutdown(self):
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id, handle):
        return 0 if bus_id == b"0000:3b:00.0" else 6

    def nvmlDeviceGetClockInfo(self, handle, which, found):
        found._obj.value = 1755
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle, which, found):
        found._obj.value = 1980
        return 0

    def nvmlDeviceGetTemperature(self, handle, which, found):
        found._obj.value = 41
        return 0

    def nvmlDeviceGetPowerUsage(self, handle, found):
        found._obj.value = 312_500
        return 0

    def nvmlDeviceGetEnforcedPowerLimit(self, handle, found):
        return 3


def test_the_driver_tells_clocks_heat_and_power_and_what_it_does_not_tell_is_none():
    state = gpu_state("0000:3b:00.0", Library())

    assert (state.clock_hz, state.max_clock_hz) == (pytest.approx(1.755e9), pytest.approx(1.98e9))
    assert (state.temperature_c, state.power_w, state.power_limit_w) == (41, 312.5, None)


def test_a_gpu_that_the_driver_does_not_know_has_no_state():
    assert gpu_state("0000:00:00.0", Library()) is None


def test_a_library_without_its_driver_knows_no_gpu():
    class WithoutDriver:
        def nvmlInit_v2(self):
            return 9  # NVML_ERROR_DRIVER_NOT_LOADED

    assert gpu_state("0000:18:00.0", WithoutDriver()) is None
