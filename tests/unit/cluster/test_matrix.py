import itertools
import random
import re

import pytest

from meshwright.cluster.dumps.detect import parse_dump
from meshwright.cluster.graph import Cluster
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from testkit.topology_dumps import Sample, layouts, references

CATALOGUE = load_catalogue()
SAMPLES = [*references(), *layouts()]


def graph_of(text: str, gpu: str | None = None) -> tuple[dict[tuple[str, str], str], tuple[str, ...]]:
    cluster = parse_dump(text, "dump", CATALOGUE, gpu)
    return {(link.a, link.b): link.kind for link in cluster.links}, tuple(d.id for d in cluster.devices)


def right_links(sample: Sample) -> dict[tuple[str, str], str]:
    return {(sample.names[i], sample.names[j]): code for (i, j), code in sample.codes.items()}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_a_matrix_gives_the_right_graph(sample):
    cluster = parse_dump(sample.text, "dump", CATALOGUE)

    assert tuple(d.id for d in cluster.devices) == sample.names
    assert {(link.a, link.b): link.kind for link in cluster.links} == right_links(sample)
    assert tuple(d.cpu_affinity for d in cluster.devices) == sample.cpus
    assert tuple(d.numa for d in cluster.devices) == sample.numa


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_rates_are_per_direction_and_open_ones_are_null_with_a_warning(sample):
    cluster = parse_dump(sample.text, "dump", CATALOGUE)

    for kind, gigabytes in sample.rates.items():
        rates = {link.bandwidth_bytes_per_s for link in cluster.links if link.kind == kind}
        assert rates == {None if gigabytes is None else gigabytes * 1e9}, kind
        assert gigabytes is not None or any(w.startswith(kind) and "--gpu" in w for w in cluster.warnings)


@pytest.mark.parametrize(("gpu", "rate"), [("h100", 450), ("h200", 450), ("b200", 900), ("gb200", 900)])
def test_a_name_decides_what_nv18_is(gpu, rate):
    cluster = parse_dump(references()[3].text, "dump", CATALOGUE, gpu)

    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {rate * 1e9}
    assert not cluster.warnings
    assert {device.model for device in cluster.devices} == {gpu}


def test_a_name_gives_pcie_its_generation():
    cluster = parse_dump(references()[1].text, "dump", CATALOGUE, "h100")

    assert cluster.links[0].bandwidth_bytes_per_s == 63e9
    assert "upper bound" in cluster.warnings[0]


def test_a_name_with_fewer_links_than_the_dump_shows_is_called_out():
    cluster = parse_dump(references()[3].text, "dump", CATALOGUE, "a100")

    assert cluster.links[0].bandwidth_bytes_per_s is None
    assert "12 NVLinks only" in cluster.warnings[0]


def test_a_cut_down_part_is_told_apart():
    a800 = next(s for s in SAMPLES if s.name == "a800")

    assert any("A800 or H800" in w for w in parse_dump(a800.text, "dump", CATALOGUE).warnings)
    assert not any("A800" in w for w in parse_dump(references()[2].text, "dump", CATALOGUE).warnings)


def test_nic_names_come_from_the_legend():
    sample = next(s for s in SAMPLES if s.name == "h100_nic_numbers")
    cluster = parse_dump(sample.text, "dump", CATALOGUE)

    assert [d.model for d in cluster.of_kind("nic")] == [f"mlx5_{i}" for i in range(8)]


def test_a_listing_beside_the_matrix_names_the_gpu_and_its_mig_parts():
    sample = next(s for s in SAMPLES if s.name == "with_listing")
    cluster = parse_dump(sample.text, "dump", CATALOGUE)

    assert {d.model for d in cluster.devices} == {"h100"}
    assert any("MIG" in w and "GPU7" in w for w in cluster.warnings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("NV12", "NV1", 1), "the other way"),
        (lambda t: t.replace("NV12", "NVX", 1), "'NVX' is no link code"),
        (lambda t: t.replace(" X ", "NV12", 1), "X belongs on the diagonal"),
        (lambda t: "\n".join(t.splitlines()[:6]), "no row for GPU5"),
        (lambda t: t.replace("GPU1", "GPU0", 1), "stands twice"),
        (lambda t: t.replace("24-47", "47-24", 1), "runs backwards"),
        (lambda t: t.replace("24-47", "a-b", 1), "expected 8 codes"),
        (lambda t: re.sub(r"^GPU3.*\n", "", t, flags=re.M), "no row for GPU3"),
        (lambda t: re.sub(r"^(GPU3.*\n)", r"\1\1", t, flags=re.M), "second row for GPU3"),
        (lambda t: t[: t.index("\nGPU5\t")] + "\nGPU5\tNV12\tNV", "row GPU5: .NV. is no link code"),
        (lambda t: "", "not a known dump"),
        (lambda t: "hello\n" * 10, "not a known dump"),
    ],
)
def test_a_broken_matrix_is_a_one_line_error(change, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_dump(change(references()[2].text), "dump", CATALOGUE)

    assert "\n" not in str(caught.value)


def relayouts(text: str, rng: random.Random) -> str:
    """Change how a dump looks and nothing of what it says."""
    changes = [
        lambda t: t.replace("\t", " " * rng.randint(1, 6)),
        lambda t: "\n".join(" " * 4 + line for line in t.splitlines()),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "\n".join(line + " " * rng.randint(0, 5) for line in t.splitlines()),
        lambda t: "# nvidia-smi topo -m\n\n" + t,
        lambda t: t.replace("GPU0", "\x1b[4mGPU0\x1b[0m"),
        lambda t: "\ufeff" + t,
        lambda t: t.split("\nLegend")[0] + "\n",
    ]
    for change in rng.sample(changes, rng.randint(1, 3)):
        text = change(text)
    return text


@pytest.mark.parametrize("seed", range(100))
def test_a_matrix_that_only_looks_different_gives_the_same_graph(seed):
    rng = random.Random(seed)
    sample = rng.choice(SAMPLES)
    if sample.name in {"wrapped", "with_listing"}:  # these are layouts of their own
        sample = references()[seed % 4]

    assert graph_of(relayouts(sample.text, rng)) == (right_links(sample), sample.names)


def damaged(text: str, rng: random.Random) -> str:
    """Cut, drop, double, swap or overwrite parts of a dump."""
    for _ in range(rng.randint(1, 4)):
        lines = text.splitlines() or [""]
        where, line = rng.randrange(len(text) + 1), rng.randrange(len(lines))
        match rng.randrange(8):
            case 0:
                text = text[:where]
            case 1:
                text = text[:where] + text[where + rng.randint(1, 20) :]
            case 2:
                text = text[:where] + rng.choice("\x00\t \n<>&é9GXNV-,:[]") * rng.randint(1, 5) + text[where:]
            case 3:
                text = "\n".join([*lines[:line], *lines[line + 1 :]])
            case 4:
                text = "\n".join([*lines[:line], lines[line], *lines[line:]])
            case 5:
                other = rng.randrange(len(lines))
                lines[line], lines[other] = lines[other], lines[line]
                text = "\n".join(lines)
            case 6:
                cells = lines[line].split("\t")
                rng.shuffle(cells)
                text = "\n".join([*lines[:line], "\t".join(cells), *lines[line + 1 :]])
            case 7:
                text = text.replace(
                    rng.choice(["NV", "GPU", "SYS", "X", "-", "\t"]), rng.choice(["", "NV99", "0", " "]), 2
                )
    return text


def outcome(text: str) -> Cluster | str:
    """Return the cluster, or the message of the error; anything else that is raised fails the test."""
    try:
        return parse_dump(text, "dump", CATALOGUE)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(400))
def test_a_damaged_matrix_is_a_one_line_error_or_a_consistent_graph(seed):
    rng = random.Random(seed)
    sample = rng.choice(SAMPLES)

    cluster = outcome(damaged(sample.text, rng))
    if isinstance(cluster, str):
        assert "\n" not in cluster
        return
    ids = [device.id for device in cluster.devices]
    links = {(link.a, link.b): link.kind for link in cluster.links}
    assert len(set(ids)) == len(ids)
    if not links:  # only the names of the GPUs are left
        assert "is not said" in cluster.warnings[-1]
        return
    nics = {device.id for device in cluster.of_kind("nic")}
    every = set(itertools.combinations(ids, 2))
    assert set(links) <= every
    assert all(set(pair) <= nics for pair in every - set(links))  # a row of a NIC may be left out
    # what still reads as a row of the original says what it said there
    if tuple(ids) == sample.names and set(links) == every:
        assert links == right_links(sample) or sorted(links.values()) != sorted(right_links(sample).values())


@pytest.mark.parametrize(
    "between",
    [
        "\t",
        "   ",
        ",",
    ],
)
def test_columns_of_nics_may_stand_before_and_between_those_of_gpus(between):
    rows = (
        ["", "mlx5_0", "GPU0", "GPU1", "mlx5_1", "GPU2", "CPU Affinity"],
        ["mlx5_0", "X", "PIX", "NODE", "SYS", "SYS"],
        ["GPU0", "PIX", "X", "NV4", "SYS", "NV4", "0-15"],
        ["GPU1", "NODE", "NV4", "X", "SYS", "NV4", "0-15"],
        ["mlx5_1", "SYS", "SYS", "SYS", "X", "PXB"],
        ["GPU2", "SYS", "NV4", "NV4", "PXB", "X", "16-31"],
    )
    links, devices = graph_of("\n".join(between.join(row) for row in rows))

    assert devices == ("mlx5_0", "GPU0", "GPU1", "mlx5_1", "GPU2")
    assert links["mlx5_0", "GPU0"] == "PIX"
    assert links["mlx5_1", "GPU2"] == "PXB"
    assert links["GPU0", "GPU2"] == "NV4"


def test_a_title_in_the_corner_of_a_csv_is_no_device():
    links, devices = graph_of("GPU,GPU0,GPU1,CPU Affinity\nGPU0,X,PHB,0-7\nGPU1,PHB,X,0-7\n")

    assert (links, devices) == ({("GPU0", "GPU1"): "PHB"}, ("GPU0", "GPU1"))
