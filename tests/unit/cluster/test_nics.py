"""NICs that carry the traffic of GPUs, told from those beside them that are for management."""

from pathlib import Path

import pytest

from meshwright.cluster.analysis import analyse
from meshwright.cluster.compact import compact
from meshwright.cluster.dumps import load_dump
from meshwright.cluster.graph import Cluster
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def machine(tmp_path: Path, nics: dict[str, tuple[int, int]], gpus: int = 1) -> Cluster:
    """A machine of PCIe switches, one a GPU, with NICs: the switch and the rate in Mb/s of each."""
    switches = []
    for switch in range(max(gpus, 1 + max(at for at, _ in nics.values()))):
        parts = [
            f'<pci busid="0000:{switch + 1}{n:x}:00.0" class="0x020700" vendor="0x15b3" device="0x1021" '
            f'link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="{name}" dev="{n}" speed="{rate}" port="1" '
            f'guid="0x{n + 1}" maxconn="1" gdr="1"/></nic></pci>'
            for n, (name, (at, rate)) in enumerate(nics.items())
            if at == switch
        ]
        if switch < gpus:
            parts.append(
                f'<pci busid="0000:{switch + 1}f:00.0" class="0x030200" vendor="0x10de" device="0x2330" '
                f'link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="{switch}" sm="90" rank="{switch}" gdr="1"/>'
                "</pci>"
            )
        switches.append(
            f'<pci busid="0000:f{switch}:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">'
            f"{''.join(parts)}</pci>"
        )
    path = tmp_path / "topo.xml"
    path.write_text(
        '<system version="1"><cpu numaid="0" affinity="ffffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" '
        f'modelid="143">{"".join(switches)}</cpu></system>'
    )
    return load_dump(path, CATALOGUE)


@pytest.mark.parametrize("management", [1_000, 25_000, 100_000])
def test_a_management_nic_on_the_same_switch_carries_no_gpu(tmp_path, management):
    cluster = machine(tmp_path, {"eno1": (0, management), "rail0": (0, 400_000)})

    assert analyse(cluster).nic_of_gpu == {"GPU0": ("rail0", "PIX")}


def test_a_fast_nic_further_off_carries_a_gpu_and_not_the_slow_one_beside_it(tmp_path):
    cluster = machine(tmp_path, {"eno1": (0, 25_000), "rail0": (1, 400_000)})

    assert analyse(cluster).nic_of_gpu == {"GPU0": ("rail0", "PHB")}
    assert any("reaches its NIC over PHB (GPU0 rail0)" in said for said in analyse(cluster).advice)


def test_of_nics_as_fast_the_nearest_carries_a_gpu(tmp_path):
    cluster = machine(tmp_path, {"rail1": (1, 400_000), "rail0": (0, 400_000)}, gpus=2)

    assert analyse(cluster).nic_of_gpu == {"GPU0": ("rail0", "PIX"), "GPU1": ("rail1", "PIX")}


def test_where_the_rate_of_a_nic_is_not_known_the_nearest_carries_a_gpu(tmp_path):
    (tmp_path / "topo.txt").write_text(
        "\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tPIX\tPHB\t0-7\nNIC0\tPIX\t X \tPHB\nNIC1\tPHB\tPHB\t X \n"
    )

    assert analyse(load_dump(tmp_path / "topo.txt", CATALOGUE)).nic_of_gpu == {"GPU0": ("NIC0", "PIX")}


def test_a_plan_counts_the_fast_nics_of_a_node_alone(tmp_path):
    rails = {"rail0": (0, 400_000), "rail1": (1, 400_000)}
    clean = compact(machine(tmp_path, rails, gpus=2), CATALOGUE)
    mixed = compact(machine(tmp_path, {"eno1": (0, 25_000), "eno2": (1, 25_000), **rails}, gpus=2), CATALOGUE)

    assert (mixed.groups[0].nics, mixed.groups[0].nic_bandwidth_bytes_per_s) == (2, 50e9)
    assert mixed.groups == clean.groups


def test_two_gpus_share_the_one_fast_nic_of_a_machine(tmp_path):
    shared = machine(tmp_path, {"rail0": (0, 400_000), "eno1": (1, 25_000)}, gpus=2)

    assert analyse(shared).nic_of_gpu == {"GPU0": ("rail0", "PIX"), "GPU1": ("rail0", "PHB")}
    assert compact(shared, CATALOGUE).groups[0].nics == 1


DUAL = """<system version="1"><cpu numaid="0" affinity="ffffffff" arch="x86_64" vendor="GenuineIntel">
<pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="80" rank="0" gdr="1"/></pci>
<pci busid="0000:3b:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="1" gdr="0"/></nic></pci>
<pci busid="0000:{}" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_1" dev="1" speed="200000" port="1" guid="0x2" maxconn="1" gdr="0"/></nic></pci>
</cpu></system>
"""


@pytest.mark.parametrize(("bus", "together"), [("3b:00.1", 31.5e9), ("5e:00.0", 50e9)])
def test_a_plan_gives_the_ports_of_one_card_what_its_slot_carries(bus, together, tmp_path):
    (tmp_path / "topo.xml").write_text(DUAL.format(bus))

    (group,) = compact(load_dump(tmp_path / "topo.xml", CATALOGUE, "a100-80g"), CATALOGUE).groups

    assert group.nics == 2
    assert group.nics * group.nic_bandwidth_bytes_per_s == pytest.approx(together, rel=0.01)
