"""Links that run below their like: NICs on slow slots, dead NVLinks by number, rings that leave the GPUs' own links."""

import pytest

from meshwright.cli import run_command
from meshwright.cluster.analysis import analyse
from meshwright.cluster.drawing.draw import draw
from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.hardware import load_catalogue

CATALOGUE = load_catalogue()


def function(place, what, speed, lanes=16, most=32, numa=0):
    return (
        f"{place} {what} (rev a1)\n\tNUMA node: {numa}\n"
        f"\t\tLnkCap:\tPort #0, Speed {most}GT/s, Width x16, ASPM not supported\n"
        f"\t\tLnkSta:\tSpeed {speed}GT/s, Width x{lanes}\n"
    )


GPU = "3D controller [0302]: NVIDIA Corporation GH100 [H100 PCIe] [10de:2331]"
NIC = "Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]"


def test_a_nic_has_the_speed_that_its_link_was_trained_to_and_an_idle_gpu_its_highest():
    text = function("21:00.0", GPU, 2.5) + function("31:00.0", NIC, 16) + function("41:00.0", NIC, 32, numa=1)
    cluster = parse_dump(text, "t", CATALOGUE)
    rates = {(link.a, link.b): link.bandwidth_bytes_per_s for link in cluster.links}

    assert rates["GPU0", "NIC0"] == pytest.approx(31.5e9, rel=0.01)
    assert rates["GPU0", "NIC1"] == pytest.approx(63e9, rel=0.01)
    (slow,) = (said for said in cluster.warnings if "GT/s" in said)
    assert slow.startswith("NIC0: its PCIe link runs at 16 GT/s of 32 (31.5 GB/s of 63): a slower slot")
    assert any(said.startswith("GPU0: the PCIe link runs below") for said in cluster.warnings)
    assert "GPU0 is 0000:21:00.0, NIC0 is 0000:31:00.0, NIC1 is 0000:41:00.0" in cluster.warnings


def test_a_slot_that_has_no_more_than_its_card_runs_at_is_named_as_the_cause():
    bridge = function("30:01.0", "PCI bridge [0604]: Intel Corporation Device [8086:352a]", 16, most=16)
    bridge += "\tBus: primary=30, secondary=31, subordinate=31, sec-latency=0\n"
    ports = "".join(function(f"31:00.{n}", NIC, 16) for n in range(2))
    cluster = parse_dump(bridge + ports, "t", CATALOGUE)

    assert [said for said in cluster.warnings if "GT/s" in said] == [
        "NIC0: its PCIe link runs at 16 GT/s of 32 (31.5 GB/s of 63): its slot has no more than 16; "
        "NICs do not slow down when idle"
    ]


def test_a_copy_of_sysfs_says_the_same_of_a_nic(tmp_path):
    folder = tmp_path / "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    port = folder / "infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    state = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "current_link_speed": "8.0 GT/s PCIe"}
    for name, value in (state | {"max_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}).items():
        (folder / name).write_text(f"{value}\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (folder / "infiniband/mlx5_0/device").symlink_to(folder)
    for shelf, target in (("bus/pci/devices", folder), ("class/infiniband", folder / "infiniband/mlx5_0")):
        (tmp_path / shelf).mkdir(parents=True, exist_ok=True)
        (tmp_path / shelf / target.name).symlink_to(target)

    said = load_dump(tmp_path, CATALOGUE).warnings

    assert any(line.startswith("mlx5_0: its PCIe link runs at 8.0 GT/s of 32.0 (15.8 GB/s of 63)") for line in said)


def nvlinks(dead):
    lines = []
    for gpu in range(4):
        lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})")
        lines += [f"\t Link {k}: {'<inactive>' if (gpu, k) in dead else '26.562 GB/s'}" for k in range(18)]
    return "\n".join(lines) + "\n"


def test_dead_nvlinks_are_named_by_number_with_the_rate_that_is_left():
    said = parse_dump(nvlinks({(2, 7), (2, 15)}), "t", CATALOGUE).warnings

    assert said[:3] == (
        "GPU2 has 16 of 18 NVLinks up: 2 down (links 7, 15)",
        "18 NVLinks of 25 GB/s on each of 3 GPUs: 450 GB/s per direction",
        "16 NVLinks of 25 GB/s on GPU2: 400 GB/s per direction",
    )


def matrix(own, model=""):
    names = [f"GPU{n}" for n in range(4)]
    rows = [
        "\t".join([a, *("X" if a == b else "NV18" if frozenset((a, b)) <= own else "NODE" for b in names)])
        for a in names
    ]
    listed = "".join(f"GPU {n}: {model} (UUID: GPU-{n})\n" for n in range(4)) if model else ""
    return listed + "\t".join(["", *names]) + "\n" + "\n".join(rows) + "\n"


def rings(text):
    return [line for line in analyse(parse_dump(text, "t", CATALOGUE)).advice if line.startswith("a ring")]


def test_a_ring_that_must_leave_nvlink_is_bound_by_pcie():
    three = frozenset({"GPU0", "GPU1", "GPU3"})

    assert rings(matrix(three, "NVIDIA H100 80GB HBM3")) == [
        "a ring over all 4 GPUs leaves their own links for PCIe, at most 63 GB/s per direction: it bounds collectives "
        "of them all"
    ]
    assert "at most" not in rings(matrix(three))[0]
    assert rings(matrix(frozenset({"GPU0", "GPU1", "GPU2", "GPU3"}))) == rings(matrix(frozenset())) == []


def test_one_pair_over_pcie_is_named_and_not_counted_as_several():
    names = [f"0000:0{n}:00.0" for n in range(1, 5)]
    pcie = {frozenset(names[:2])}
    rows = [
        " ".join([a, *("SELF" if a == b else "PCIE" if frozenset((a, b)) in pcie else "XGMI" for b in names)])
        for a in names
    ]
    text = "LINK TYPE TABLE:\n" + " ".join(["            ", *names]) + "\n" + "\n".join(rows) + "\n"

    assert "GPU0-GPU1 is PCIe: slow" in parse_dump(text, "t", CATALOGUE).warnings


def test_a_tray_of_a_domain_shows_the_gpus_of_all_trays(tmp_path, capsys):
    (tmp_path / "t.txt").write_text(matrix(frozenset({"GPU0", "GPU1", "GPU2", "GPU3"})))

    assert run_command(["topo", "--from", str(tmp_path / "t.txt"), "--gpu", "gb200", "--domain", "9"]) == 0
    assert "9 nodes such as this one share a domain of GPU links: 36 GPUs" in capsys.readouterr().out


def test_active_ports_are_summed_by_their_layer():
    port = "CA 'mlx5_{n}'\n\tPort 1:\n\t\tState: {state}\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
    ports = [("Active", 200, "InfiniBand"), ("Active", 200, "InfiniBand"), ("Down", 40, "InfiniBand"),
             ("Active", 100, "Ethernet")]  # fmt: skip
    text = "".join(port.format(n=n, state=s, rate=r, layer=layer) for n, (s, r, layer) in enumerate(ports))

    assert (
        "active: 2 InfiniBand ports 400 Gb/s (50 GB/s), 1 Ethernet port 100 Gb/s (12.5 GB/s) per direction together"
        in parse_dump(text, "t", CATALOGUE).warnings
    )


def test_places_without_devices_say_that_they_have_no_rates():
    cluster = parse_dump("SwitchName=s0 Nodes=n[1-4]\n", "t", CATALOGUE)

    assert "places alone: neither GPUs nor the rates of links are said" in draw(cluster, analyse(cluster))


def switch(*, speed=32, lanes=16, below):
    port = "\tCapabilities: [68] Express (v2) {} Port, MSI 00\n\tBus: primary={}, secondary={}, subordinate=45\n"
    name = "PCI bridge [0604]: Broadcom / LSI PEX890xx PCIe Gen 5 Switch [1000:c030]"
    return (
        function("00:01.0", "PCI bridge [0604]: Intel Corporation Device [8086:352a]", speed, lanes)
        + port.format("Root", "00", "40")
        + function("40:00.0", name, speed, lanes)
        + port.format("Upstream", "40", "41")
        + function("41:00.0", name, 32)
        + port.format("Downstream", "41", "42")
        + function("42:00.0", below, 32)
    )


def test_the_link_above_a_switch_with_a_nic_is_held_to_both_of_its_ends():
    (slow,) = (said for said in parse_dump(switch(speed=16, below=NIC), "t", CATALOGUE).warnings if "GT/s" in said)

    assert slow == ("the switch 0000:40:00.0 (NIC0) is linked upwards at 16 GT/s x16 of 32 GT/s x16 (31.5 GB/s of 63)")
    assert not any("GT/s" in said for said in parse_dump(switch(below=NIC), "t", CATALOGUE).warnings)


def test_the_link_above_a_switch_of_gpus_alone_may_idle_and_may_not_lose_lanes():
    idle, narrow = (switch(speed=s, lanes=n, below=GPU) for s, n in ((2.5, 16), (32, 8)))

    assert not any("linked upwards" in said for said in parse_dump(idle, "t", CATALOGUE).warnings)
    assert any("at 32 GT/s x8 of 32 GT/s x16" in said for said in parse_dump(narrow, "t", CATALOGUE).warnings)
