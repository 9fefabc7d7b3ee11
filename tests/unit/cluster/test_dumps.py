import itertools
import json
import random
import time
from pathlib import Path

import pytest

from meshwright.cli import run_command
from meshwright.cluster.dumps.detect import load_dump, parse_dump
from meshwright.cluster.dumps.hostlist import expand_hosts
from meshwright.cluster.graph import Cluster
from meshwright.cluster.wire import read_cluster
from meshwright.errors import InputError
from meshwright.files import read_struct
from meshwright.hardware import load_catalogue
from testkit.topology_dumps import SLURM, layouts, nccl, references, rocm

CATALOGUE = load_catalogue()
DATA = Path(__file__).parent / "data"


HWLOC = """<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">
<object type="Machine" os_index="0" cpuset="0x000000ff" nodeset="0x00000003"><info name="HostName" value="n1"/>
{packages}</object></topology>"""
PACKAGE = """<object type="Package" os_index="{n}" cpuset="{mask}" nodeset="0x{node}">
<object type="NUMANode" os_index="{n}" cpuset="{mask}" nodeset="0x{node}" local_memory="68719476736"/>
{pus}
<object type="Bridge" gp_index="{n}1" bridge_type="0-1"><object type="Bridge" gp_index="{n}2" bridge_type="1-1">
<object type="Bridge" gp_index="{n}3" bridge_type="1-1">
<object type="Bridge" gp_index="{n}4" bridge_type="1-1"><object type="PCIDev" pci_busid="0000:{n}1:00.0"
 pci_type="0302 [10de:20b2] [10de:1463] a1" pci_link_speed="31.507692">
 <object type="OSDev" name="cuda{n}" osdev_type="5">
 <info name="GPUModel" value="NVIDIA A100-SXM4-80GB"/></object></object></object>
<object type="Bridge" gp_index="{n}5" bridge_type="1-1"><object type="PCIDev" pci_busid="0000:{n}2:00.0"
 pci_type="0207 [15b3:101b] [15b3:0007] 00" pci_link_speed="31.507692">
 <object type="OSDev" name="ib{n}" osdev_type="2"/>
 <object type="OSDev" name="mlx5_{n}" osdev_type="3"/></object></object>
</object></object>
<object type="PCIDev" pci_busid="0000:{n}9:00.0" pci_type="0300 [1a03:2000] [1a03:2000] 41" pci_link_speed="0"/>
</object></object>"""


def hwloc() -> str:
    packages = []
    for n, mask, node in ((0, "0x0000000f", "00000001"), (1, "0x000000f0", "00000002")):
        pus = "".join(f'<object type="PU" os_index="{p}"/>' for p in range(4 * n, 4 * n + 4))
        packages.append(PACKAGE.format(n=n, mask=mask, node=node, pus=pus))
    return HWLOC.format(packages="".join(packages))


def kinds(cluster: Cluster) -> dict[tuple[str, str], str]:
    return {tuple(sorted((link.a, link.b))): link.kind for link in cluster.links}  # type: ignore[misc]


def test_rocm_gives_links_and_numa_and_leaves_the_rate_to_the_name_of_the_device():
    unnamed = parse_dump(rocm(), "r", CATALOGUE)
    named = parse_dump(rocm(), "r", CATALOGUE, "mi300x")

    assert [d.numa for d in unnamed.devices] == [0, 0, 1, 1]
    assert {link.kind for link in unnamed.links} == {"xGMI"}
    assert len(unnamed.links) == 6
    assert {link.bandwidth_bytes_per_s for link in unnamed.links} == {None}
    assert "--gpu" in unnamed.warnings[0]
    assert {link.bandwidth_bytes_per_s for link in named.links} == {64e9}


def test_rocm_pairs_that_are_several_hops_apart_have_no_rate():
    cluster = parse_dump(rocm(hops="2"), "r", CATALOGUE, "mi250x")

    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {None}
    assert "hop" in cluster.warnings[0]


def test_rocm_over_pcie():
    assert {link.kind for link in parse_dump(rocm("PCIE"), "r", CATALOGUE).links} == {"PCIe"}


@pytest.mark.parametrize(
    ("sm", "count", "rate", "model"),
    # an A100 and an A800 have 40 or 80 GB: links do not tell which
    [(80, 12, 300, ""), (80, 8, 200, ""), (90, 18, 450, ""), (70, 6, 150, ""), (100, 18, 900, "")],
)
def test_nccl_says_which_generation_it_is(sm, count, rate, model):
    cluster = parse_dump(nccl(sm, count), "n", CATALOGUE)
    own = [link for link in cluster.links if link.kind.startswith("NV")]

    assert len(own) == 6
    assert {(link.kind, link.bandwidth_bytes_per_s) for link in own} == {(f"NV{count}", rate * 1e9)}
    assert {d.model for d in cluster.of_kind("gpu")} == {model}


def test_nccl_gives_places_nics_and_pcie_paths():
    cluster = parse_dump(nccl(), "n", CATALOGUE)
    by_id = {device.id: device for device in cluster.devices}
    paths = kinds(cluster)

    assert by_id["CPU0"].cpu_affinity == "0-15"
    assert by_id["CPU1"].cpu_affinity == "16-31"
    assert [by_id[f"GPU{i}"].numa for i in range(4)] == [0, 0, 1, 1]
    assert by_id["mlx5_1"].network_bandwidth_bytes_per_s == 25e9
    assert paths["GPU0", "mlx5_0"] == "PIX"
    assert paths["GPU0", "mlx5_1"] == "SYS"
    assert paths["CPU0", "GPU0"] == "PCIe"


def test_nccl_direct_links_go_to_the_gpu_of_that_bus():
    cluster = parse_dump(nccl(70, 2, switched=False), "n", CATALOGUE)
    own = {(link.a, link.b): link for link in cluster.links if link.kind == "NV2"}

    assert set(own) == set(itertools.combinations([f"GPU{i}" for i in range(4)], 2))
    assert {link.bandwidth_bytes_per_s for link in own.values()} == {50e9}


def test_hwloc_gives_numa_pcie_paths_and_models():
    cluster = parse_dump(hwloc(), "h", CATALOGUE)
    by_id = {device.id: device for device in cluster.devices}
    paths = kinds(cluster)

    assert set(by_id) == {"CPU0", "CPU1", "GPU0", "GPU1", "mlx5_0", "mlx5_1"}  # the console's display is no GPU
    assert [by_id[x].cpu_affinity for x in ("CPU0", "GPU0", "GPU1", "mlx5_1")] == ["0-3", "0-3", "4-7", "4-7"]
    assert by_id["CPU1"].memory_bytes == 64 * 2**30
    assert by_id["GPU0"].model == "a100-80g"
    assert paths["GPU0", "mlx5_0"] == "PIX"
    assert paths["GPU0", "GPU1"] == "SYS"
    assert next(k for k in cluster.links if k.a == "GPU0" and k.b == "CPU0").bandwidth_bytes_per_s == 31.507692e9


def test_what_lstopo_itself_wrote_of_a_synthetic_machine_is_read_back():
    cluster = load_dump(DATA / "synthetic_2x4.xml", CATALOGUE)

    assert [(d.id, d.numa, d.cores, d.threads, d.cpu_affinity) for d in cluster.of_kind("cpu")] == [
        ("CPU0", 0, 4, 8, "0-7"),
        ("CPU1", 1, 4, 8, "8-15"),
    ]
    assert cluster.hosts[0].cores == 8


def test_slurm_gives_the_switches_above_every_node():
    placements = {p.node: p.switches for p in parse_dump(SLURM, "s", CATALOGUE).placements}

    assert len(placements) == 37
    assert placements["gpu00"] == ("leaf0", "spine0", "core")
    assert placements["gpu31"] == ("leaf1", "spine0", "core")
    assert placements["cpu7"] == ("leaf2", "core")


def test_slurm_blocks_are_leaves():
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[01-18] BlockSize=18\nBlockName=b2 BlockIndex=1 Nodes=n[19-36] BlockSize=18\n"
    )
    placements = {p.node: p.switches for p in parse_dump(text, "s", CATALOGUE).placements}

    assert placements["n01"] == ("b1",)
    assert placements["n36"] == ("b2",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a[0-2,5],b", ["a0", "a1", "a2", "a5", "b"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
    ],
)
def test_host_lists(text, names):
    assert expand_hosts(text, "s") == names


BOMB = """<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<topology><object type="&b;"/></topology>"""
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><system>&x;</system>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "entity"),
        (OUTSIDE, "entity"),
        ("<topology>", "not well-formed"),
        ("<html></html>", "expected topology"),
        ("<topology/>", "no object of type Machine"),
        ('<topology><object type="Machine"/></topology>', "no processing unit"),
        ('<topology><object type="Machine"><object type="PU" os_index="x"/></object></topology>', "whole number"),
        ('<topology><object type="Machine" cpuset="0x1" nodeset="zz"/></topology>', "CPU mask"),
        ("<system/>", "no cpu"),
        ('<system><cpu numaid="x" affinity="1"/></system>', "numaid"),
        ("<object>" * 5000, "levels|well-formed"),
        (nccl().replace('sm="80"', 'sm="eighty"'), "sm="),
        (nccl().replace("16.0 GT/s", "warp")[:-30], "not well-formed"),
        (rocm().replace("XGMI", "WIFI", 1), "WIFI"),
        ("\n".join(rocm().splitlines()[:18]), "truncated|no table"),
        ("SwitchName=a Nodes=n[0-999999999]\n", "rising one of"),
        ("SwitchName=a Nodes=n[0-9999][0-9999]\n", "more than"),
        ("SwitchName=a Nodes=n[0-\n", "brackets"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=\n", "no nodes|above itself"),
        ("SwitchName=a Switches=leaf[0-3]\nSwitchName=leaf0 Nodes=n1\n", "not described"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "described twice"),
        ("GPU0 " * 300_000 + "\nGPU0 X\n", "twice|devices"),
        ("x\n" * 300_000, "lines"),
        ("\x00" * 100, "not a known dump"),
    ],
)
def test_hostile_and_broken_dumps_are_one_line_errors_within_two_seconds(text, message):
    start = time.process_time()
    with pytest.raises(InputError, match=message) as caught:
        parse_dump(text, "dump", CATALOGUE)

    assert time.process_time() - start < 2
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("make", [rocm, nccl, hwloc, lambda: SLURM], ids=["rocm", "nccl", "hwloc", "slurm"])
def test_damaged_dumps_are_one_line_errors_or_clusters(make):
    text = make()
    for seed in range(60):
        rng = random.Random(seed)
        broken = text
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(broken) + 1)
            cut = rng.choice([0, 1, 5, 40, len(broken)])
            broken = (
                broken[:at] + rng.choice(["", "<", "-1", '"', "\t", "99999999999999999999", "é"]) + broken[at + cut :]
            )
        message = outcome(broken)
        assert message is None or ("\n" not in message and message.startswith("dump")), seed


def outcome(text: str) -> str | None:
    """Return the error's message, or None if a cluster came out."""
    try:
        parse_dump(text, "dump", CATALOGUE)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"\x80abc"])
def test_bytes_that_are_no_text_are_refused(tmp_path, content):
    path = tmp_path / "dump.txt"
    path.write_bytes(content)

    with pytest.raises(InputError, match="dump.txt"):
        load_dump(path, CATALOGUE)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(2**40)

    with pytest.raises(InputError, match="larger than"):
        load_dump(path, CATALOGUE)


def test_the_command_prints_the_designs_json(tmp_path, capsys):
    path = tmp_path / "dump.txt"
    path.write_text(references()[2].text)

    assert run_command(["topo", "--from", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)

    assert set(data) == {"devices", "links", "warnings"}
    assert data["devices"][0] == {"id": "GPU0", "kind": "gpu", "numa": 0, "cpu_affinity": "0-23", "model": ""}
    assert data["links"][0] == {"a": "GPU0", "b": "GPU1", "kind": "NV12", "bandwidth_GBps": 300.0}
    assert len(data["links"]) == 28


def test_a_rate_that_is_open_is_null_with_a_warning_until_a_name_decides(tmp_path, capsys):
    path = tmp_path / "dump.txt"
    path.write_text(references()[3].text)

    assert run_command(["topo", "--from", str(path), "--json"]) == 0
    unnamed = json.loads(capsys.readouterr().out)
    assert run_command(["topo", "--from", str(path), "--json", "--gpu", "b200"]) == 0
    named = json.loads(capsys.readouterr().out)

    assert {link["bandwidth_GBps"] for link in unnamed["links"]} == {None}
    assert "NV18" in unnamed["warnings"][0]
    assert {link["bandwidth_GBps"] for link in named["links"]} == {900.0}


@pytest.mark.parametrize("sample", [*references(), *layouts()], ids=lambda s: s.name)
def test_every_sample_is_drawn_in_the_terminal_and_as_svg(sample, tmp_path, capsys):
    path, picture = tmp_path / "dump.txt", tmp_path / "out.svg"
    path.write_text(sample.text)

    assert run_command(["topo", "--from", str(path), "--svg", str(picture)]) == 0
    text = capsys.readouterr().out

    assert all(name in text for name in sample.names)
    assert picture.read_text().count("<g><title>") == len(sample.names)
    assert all(f"<g><title>{name} " in picture.read_text() for name in sample.names)


def test_names_in_the_svg_are_escaped(tmp_path):
    path, picture = tmp_path / "d.xml", tmp_path / "out.svg"
    path.write_text(nccl().replace('name="mlx5_0"', 'name="&lt;script>"'))

    assert run_command(["topo", "--from", str(path), "--svg", str(picture)]) == 0

    assert "<script" not in picture.read_text()


def test_a_saved_cluster_is_read_back_the_same(tmp_path, capsys):
    dump, saved = tmp_path / "dump.txt", tmp_path / "cluster.json"
    dump.write_text(references()[2].text)

    assert run_command(["topo", "--from", str(dump), "--save", str(saved), "--json"]) == 0
    first = capsys.readouterr().out
    assert run_command(["topo", "--from", str(saved), "--json"]) == 0

    assert capsys.readouterr().out == first
    assert len(read_struct(saved, Cluster).links) == 28


@pytest.mark.parametrize(
    "arguments", [["--from", "/no/such/file"], ["--gpu", "h1000"], ["--from", "{}", "--save", "/no/folder/x"]]
)
def test_bad_arguments_leave_with_two_and_one_line(arguments, tmp_path, capsys):
    path = tmp_path / "dump.txt"
    path.write_text(references()[0].text)

    assert run_command(["topo", *(a.format(path) for a in arguments)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("text", ["\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n", "torchrun train.py\n"])
def test_a_dump_in_place_of_a_cluster_file_is_told_how_one_is_made(tmp_path, text):
    path = tmp_path / "dump.txt"
    path.write_text(text)

    with pytest.raises(InputError, match="no cluster file; `topo --from .*dump.txt --save FILE` makes one"):
        read_cluster(path)
