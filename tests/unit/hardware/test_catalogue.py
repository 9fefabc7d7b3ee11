import json
import re
from pathlib import Path

import pytest

from meshwright.cli import run_command
from meshwright.cluster.builders import catalogue_cluster, node_group
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.hardware.arithmetic import gpu_link, node_network_bytes_per_s
from meshwright.hardware.catalogue import sourced_figures
from meshwright.hardware.listing import compared, entries, find_entry, of_its_gpus, with_accelerators

NODES = {
    *("dgx-1-p100", "dgx-1-v100", "dgx-2", "dgx-a100-40g", "dgx-a100-80g", "dgx-a800", "dgx-h100", "dgx-h200"),
    *("dgx-b200", "gb200-nvl72", "gb300-nvl72", "mi250x-8", "mi300x-8", "gaudi2-8", "aws-p4d", "aws-p5"),
    *("gcp-a3", "azure-nd-h100-v5"),
}


@pytest.fixture(scope="module")
def catalogue():
    return load_catalogue()


def test_every_node_type_of_the_issue_is_there(catalogue):
    assert set(catalogue.nodes) >= NODES


def test_every_figure_names_a_listed_source(catalogue):
    tables = (catalogue.interconnects, catalogue.switches, catalogue.networks, catalogue.accelerators, catalogue.nodes)
    every = [figure for table in tables for entry in table.values() for figure in sourced_figures(entry).values()]

    assert len(every) > 250
    assert all(catalogue.sources[figure.source] for figure in every)


def test_sources_that_disagree_are_both_kept(catalogue):
    memory = catalogue.accelerators["h200"].memory

    assert memory.number == 141e9
    assert [other.number for other in memory.others] == [140e9]


def test_an_accelerator_is_found_by_its_title_with_and_without_its_vendor(catalogue):
    for key, accelerator in catalogue.accelerators.items():
        assert catalogue.accelerator_key(accelerator.title) == key
        assert catalogue.accelerator_key(f"NVIDIA {accelerator.title}") == key


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "a100-80g", "A100"])
def test_an_accelerator_is_found_by_key_and_by_the_name_that_a_driver_reports(catalogue, name):
    assert catalogue.accelerator_key(name) == "a100-80g"


def test_an_unknown_name_is_an_error_that_names_the_nearest(catalogue):
    with pytest.raises(InputError, match="did you mean dgx-h100"):
        catalogue.node("dgx-h10")


def test_a_name_that_several_entries_have_all_words_of_is_answered_with_those(catalogue):
    with pytest.raises(InputError, match="did you mean a100-40g-pcie or a100-80g-pcie"):
        catalogue.accelerator("A100 PCIe")
    with pytest.raises(InputError, match="did you mean azure-nd-a100-v4"):
        catalogue.node("azure-nd-v4")


def test_the_name_of_a_family_is_answered_with_its_few_accelerators(catalogue):
    with pytest.raises(InputError, match="did you mean v100-16g or v100-16g-pcie or v100-32g or v100-32g-pcie"):
        catalogue.accelerator("v100")


def test_a_users_file_adds_hardware_and_overrides_a_figure(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[sources]\nlab = "measured in our lab"\n'
        '[accelerators.x1]\ntitle = "X1"\nvendor = "us"\nhost_link = "pcie-5"\n'
        'memory = { value = "48GB", source = "lab" }\nmemory_rate = { value = "1TB/s", source = "lab" }\n'
        'flops = { bf16 = { value = "200TFLOP/s", source = "lab" } }\n'
        '[accelerators.h100-96g]\nmemory_rate = { value = "2390GB/s", source = "lab" }\n'
    )

    catalogue = load_catalogue(path)

    assert catalogue.accelerator("x1").peak_flops_per_s == {"bf16": 200e12}
    assert catalogue.accelerators["h100-96g"].memory_rate.number == 2390e9
    assert catalogue.accelerators["h100-96g"].memory.number == 96e9
    assert load_catalogue().accelerators["h100-96g"].memory_rate.number == 2400e9


def files_of_the_page():
    """Return the TOML files that the page about hardware shows."""
    page = (Path(__file__).parents[3] / "docs" / "hardware.md").read_text()
    return re.findall(r"```toml\n(.*?)```", page, re.DOTALL)


def test_the_node_type_that_the_page_shows_is_priced_and_one_that_is_taken_for_a_cluster_is_told_apart(
    tmp_path, capsys
):
    _, machine, _ = files_of_the_page()
    path = tmp_path / "ours.toml"
    path.write_text(machine)
    asked = ["plan", "--model", "llama3-8b", "--gpus", "64", "--global-batch", "64", "--json"]

    assert run_command([*asked, "--hardware", str(path), "--cluster", "our-box"]) == 0
    assert json.loads(capsys.readouterr().out)["predicted"]["step_time_s"] > 0
    assert run_command([*asked, "--cluster", str(path)]) == 2
    assert f"expected --hardware {path}; --cluster takes its our-box" in capsys.readouterr().err


def test_the_cluster_that_the_page_shows_is_priced_as_the_catalogues_machine_on_its_fabric(tmp_path, capsys):
    path = tmp_path / "cluster.toml"
    path.write_text(files_of_the_page()[-1])

    def step_s(*cluster):
        asked = ["plan", "--model", "llama3-8b", "--gpus", "128", "--global-batch", "128", "--layout", "dp=128,zero=3"]
        assert run_command([*asked, *cluster, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["predicted"]["step_time_s"]

    known = step_s("--cluster", "dgx-h100", "--fabric", "rail-optimised")
    assert step_s("--cluster", str(path)) == pytest.approx(known, rel=0.02)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[accelerators", "mine.toml"),
        ('[accelerators.h100]\nmemroy = "1GB"\n', "unknown key .*memroy.*did you mean memory"),
        ('[accelerators.h100]\nmemory = { value = "lots", source = "reference" }\n', "'lots'"),
        ('[accelerators.h100]\nmemory = { value = "-1GB", source = "reference" }\n', "'-1GB'"),
        ('[accelerators.h100]\nmemory = { value = "80GB", source = "nobody" }\n', "no such entry 'nobody'"),
        ('[accelerators.h100]\nlink = "nvlink-9"\n', "no such entry 'nvlink-9'"),
        ('[nodes.mine]\ntitle = "m"\n', "missing required field"),
        ("[nodes.dgx-h100]\ngpus = 4\n", r"nodes.dgx-h100: gpus: expected .* \{ value = 4, source = \"NAME\" \}"),
        (
            '[accelerators.h100.flops]\nbf16 = "1PFLOP/s"\n',
            r"accelerators.h100: flops.bf16: expected a figure with its source: \{ value = \"1PFLOP/s\"",
        ),
        ('[nodes.dgx-h100]\naccelerator = "h1000"\n', "did you mean h100"),
        ("[[accelerators]]\nx = 1\n", "accelerators"),
    ],
)
def test_a_faulty_users_file_is_a_one_line_error_that_names_it(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(InputError, match=message) as caught:
        load_catalogue(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_names_users_files_too(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text('[networks.lab]\ntitle = "Lab"\nfamily = "tcp"\nrate = { value = "5Gbps", source = "reference" }\n')
    monkeypatch.setenv("MESHWRIGHT_HARDWARE", str(path))

    assert load_catalogue().network("lab").rate_bytes_per_s == 5e9 / 8


def test_figures_of_a_users_file_that_fall_into_a_trap_are_called_out(tmp_path, capsys):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[interconnects.nvlink-4]\nrate = { value = "900GB/s", source = "reference" }\n'
        '[accelerators.h100.flops]\nbf16 = { value = "1979TFLOP/s", source = "reference" }\n'
    )

    assert run_command(["topo", "--catalogue", "nvlink-4", "--hardware", str(path)]) == 0
    warnings = capsys.readouterr().err

    assert "duplex figure of NVLink 4" in warnings
    assert "with sparsity" in warnings


def test_words_filter_the_catalogue(catalogue):
    assert {entry.name for entry in entries(catalogue, ["nodes", "h100"])} >= {"dgx-h100", "aws-p5", "gcp-a3"}
    assert all(entry.table == "nodes" for entry in entries(catalogue, ["nodes", "efa"]))


def test_comparing_gives_ratios_to_the_first(catalogue):
    rows = dict(compared([find_entry(catalogue, "a100-80g"), find_entry(catalogue, "h100")]))

    assert rows["flops.bf16"] == ["312TFLOP/s", "989TFLOP/s (3.17x)"]


def test_the_command_lists_compares_and_prints_json(capsys):
    assert run_command(["topo", "--catalogue", "gaudi2", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert run_command(["topo", "--catalogue", "--compare", "dgx-a100-80g", "dgx-a800"]) == 0
    table = capsys.readouterr().out

    assert {entry["name"] for entry in listed} >= {"gaudi2", "gaudi2-8"}
    assert "nvswitch-2" in table


@pytest.mark.parametrize(
    "arguments", [["--compare", "a", "b"], ["--catalogue", "zzz"], ["--catalogue", "--compare", "h100", "h1000"]]
)
def test_bad_arguments_leave_with_two_and_one_line(capsys, arguments):
    assert run_command(["topo", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_users_memory_takes_the_place_of_what_the_driver_showed(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[accelerators.h100]\nmemory = { value = "40GB", source = "reference" }\n')

    assert load_catalogue(file).accelerators["h100"].memory_bytes == 40e9


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H20-3e", "h20-3e"), ("NVIDIA H800 PCIe", "h800-pcie"), ("NVIDIA A800 40GB Active", "a800-40g-active"),
        ("NVIDIA GeForce RTX 4090 D", "rtx-4090-d"), ("AMD Instinct MI308X", "mi308x"),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("Quadro RTX 8000", "quadro-rtx-8000"), ("Intel(R) Data Center GPU Max 1550", "max-1550"), ("Tesla P40", "p40"),
        ("GA100GL [A30 PCIe]", "a30"), ("NVIDIA RTX A5000", "rtx-a5000"), ("AMD Radeon Instinct MI50", "mi50"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("NVIDIA A16", "a16"), ("NVIDIA L2", "l2"), ("NVIDIA A800-SXM4-40GB", "a800-40g"),
    ],
)  # fmt: skip
def test_a_drivers_name_means_its_accelerator(catalogue, name, key):
    assert catalogue.driver_key(name) == key


@pytest.mark.parametrize(("name", "node"), [("h100", "dgx-h100"), ("A100", "aws-p4d"), ("mi300x", "oci-mi300x")])
def test_an_accelerator_alone_is_no_node_and_its_nodes_are_named(catalogue, name, node):
    with pytest.raises(InputError, match=f"{name}' is an accelerator: expected a node type that has it, of .*{node}"):
        catalogue.node_key(name)


@pytest.mark.parametrize(("name", "key"), [("rtx-4090", "rtx-4090"), ("8x RTX 5090", "rtx-5090"), ("gb10", "gb10")])
def test_an_accelerator_that_no_node_type_has_is_told_apart_from_a_slip_of_the_pen(catalogue, name, key):
    with pytest.raises(InputError, match=f"no node type of the catalogue has the accelerator {key}; .*--hardware FILE"):
        catalogue.node(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [("ascend-910b", "--hardware FILE"), ("mlu370-x8", "--hardware FILE"), ("dgx-h10", "did you mean dgx-h100")],
)
def test_a_machine_of_another_kind_is_not_taken_for_one_that_is_spelt_a_little_like_it(catalogue, name, told):
    with pytest.raises(InputError) as caught:
        catalogue.node(name)

    assert told in str(caught.value)
    assert ("did you mean" in str(caught.value)) == ("did" in told)


@pytest.mark.parametrize("name", ["NVIDIA H100", "NVIDIA Graphics Device", "NVIDIA A800", "NVIDIA GeForce RTX 40"])
def test_a_name_that_is_of_no_single_accelerator_means_none(catalogue, name):
    assert catalogue.driver_key(name) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a3-mega", "gcp-a3-mega"), ("a4x-max", "gcp-a4x-max"), ("p6e-gb200", "aws-p6e-gb200"),
        ("ND GB200 v6", "azure-nd-gb200-v6"),
        ("gpu_8x_h100_sxm5gdr", "dgx-h100"), ("b200-8x", "dgx-b200"), ("gb300-4x", "gb300-nvl72"),
        ("b200-180gb-sxm-ib.8x", "dgx-b200"), ("a100-80gb-sxm-ib.8x", "dgx-a100-80g"), ("g7e.48xlarge", "aws-g7e"),
        ("BM.GPU.GB200-v3.4", "oci-gb200-v3"), ("ND40rs_v2", "azure-nd-v2"), ("g2-standard-96", "gcp-g2"),
        ("trn2u.48xlarge", "aws-trn2"), ("BM.GPU.B300.8", "oci-b300"), ("hgx-h100", "dgx-h100"),
        ("p3.16xlarge", "aws-p3"), ("aws-p4d.24xlarge", "aws-p4d"), ("amazon trn1.32xlarge", "aws-trn1"),
        ("gcp-a2-highgpu-8g", "gcp-a2-high"), ("azure-ND96asr_v4", "azure-nd-a100-v4"),
        ("OCI BM.GPU.H200.8", "oci-h200"),
    ],
)  # fmt: skip
def test_a_node_is_found_by_what_its_cloud_calls_it(catalogue, name, key):
    assert catalogue.node_key(name) == key


def test_a_cloud_before_the_name_of_another_clouds_instance_is_no_node(catalogue):
    with pytest.raises(InputError, match=r"no node type 'azure-p4d\.24xlarge'"):
        catalogue.node_key("azure-p4d.24xlarge")


@pytest.mark.parametrize("name", ["frontier", "LUMI"])
def test_a_node_of_four_mi250x_has_eight_dies(catalogue, name):
    node = catalogue.listed_node(name)

    assert (node.accelerator, node.gpus.number, node.nics.number) == ("mi250x-gcd", 8, 4)


@pytest.mark.parametrize(
    ("name", "accelerator", "gpus", "gbps"),
    [
        ("p5.4xlarge", "h100", 1, 100), ("g6e.24xlarge", "l40s", 4, 200), ("g5.12xlarge", "a10g", 4, 40),
        ("a3-edgegpu-8g", "h100", 8, 400), ("a3-highgpu-4g", "h100", 4, 100), ("a3-highgpu-2g", "h100", 2, 50),
        ("Standard_NC96ads_A100_v4", "a100-80g-pcie", 4, 80), ("NC24ads_A100_v4", "a100-80g-pcie", 1, 20),
        ("Standard_NC80adis_H100_v5", "h100-nvl", 2, 80), ("BM.GPU.H100T.8", "h100", 8, 3200),
        ("gpu_8x_a100_80gb_sxm4", "a100-80g", 8, 0), ("gpu_4x_h100_sxm5", "h100", 4, 0),
        ("mi300x-192gb-ib.8x", "mi300x", 8, 0), ("trn2-ultraserver", "trainium2", 64, 12800),
    ],
)  # fmt: skip
def test_an_instance_of_a_cloud_has_its_gpus_and_its_documented_network(catalogue, name, accelerator, gpus, gbps):
    node = catalogue.node(name)

    assert (node.accelerator, node.gpus.number) == (accelerator, gpus)
    assert node_network_bytes_per_s(catalogue, node) * 8e-9 == pytest.approx(gbps)


def test_instances_whose_network_is_not_documented_are_planned_one_at_a_time(catalogue):
    assert catalogue_cluster(catalogue, "gpu_8x_b200_sxm6", nodes=1).num_gpus == 8
    with pytest.raises(InputError, match="lambda-8x-b200-sxm6: 2 nodes: what joins on-demand instances is not doc"):
        catalogue_cluster(catalogue, "gpu_8x_b200_sxm6", gpus=16)


def test_a_node_without_nics_says_why(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[sources]\nme = "me"\n[nodes.mine]\ntitle = "mine"\naccelerator = "h100"\n'
        'gpus = { value = 8, source = "me" }\nnuma_nodes = { value = 2, source = "me" }\n'
    )
    with pytest.raises(InputError, match="nodes.mine: expected network and nics, or no_network with the reason"):
        load_catalogue(file)


def test_cards_that_may_have_bridges_meet_over_pcie_in_a_node_that_does_not_say_so(catalogue):
    for name in ("NC96ads_A100_v4", "NC80adis_H100_v5", "gpu_4x_a6000"):
        assert gpu_link(catalogue, catalogue.node(name)).kind == "pcie", name


def test_a_share_of_a_machine_tells_nothing_of_other_machines(catalogue):
    assert "gcp-a3-high-4g" not in catalogue.whole_nodes
    assert "lambda-4x-h100-sxm5" not in catalogue.whole_nodes
    assert {"dgx-h100", "gcp-a3-edge", "tpu-v5p"} <= set(catalogue.whole_nodes)


def test_the_h20z_is_no_h20(catalogue):
    assert catalogue.driver_key("NVIDIA H20Z") == "h200"
    assert catalogue.driver_key("NVIDIA H20") == "h20"


@pytest.mark.parametrize(
    ("name", "chips", "key"),
    [
        ("v5p-256", 128, "tpu-v5p"), ("TPU v4-64", 32, "tpu-v4"), ("tpu-v6e-256", 256, "tpu-v6e"),
        ("v5litepod-16", 16, "tpu-v5e"),
    ],
)  # fmt: skip
def test_a_name_of_a_slice_says_how_many_chips_it_is(catalogue, name, chips, key):
    """Google counts TensorCores in the names of slices of v4 and v5p, two a chip, and chips in those of v5e and v6e."""
    for asked in (catalogue.node_key, catalogue.accelerator_key):
        with pytest.raises(InputError, match=f"names a slice of {chips} chips: expected {key} and that number"):
            asked(name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("dgx-a100-40", "dgx-a100-40g"), ("DGX A100 80GB", "dgx-a100-80g"), ("a3-high", "gcp-a3"),
        ("Leonardo", "leonardo-booster"), ("JUWELS Booster", "juwels-booster"), ("jean zay", "jean-zay-h100"),
        ("Perlmutter", "perlmutter"), ("Clariden", "alps-gh200"), ("lumi", "lumi-g"),
    ],
)  # fmt: skip
def test_a_size_of_memory_needs_no_unit_and_a_machine_is_found_by_its_short_name(catalogue, name, key):
    assert catalogue.node_key(name) == key


def test_a_name_that_leaves_one_size_open_is_answered_with_the_sizes(catalogue):
    with pytest.raises(InputError, match="did you mean dgx-a100-40g or dgx-a100-80g"):
        catalogue.node_key("dgx-a100")
    with pytest.raises(InputError, match="or one of a100-40g, a100-80g, .*, alone in a machine"):
        catalogue.node_key("a100")


@pytest.mark.parametrize("name", ["MI300X OAM", "Instinct MI300X", "AMD Instinct MI300X"])
def test_an_accelerator_by_its_drivers_name_is_told_which_nodes_have_it(catalogue, name):
    assert catalogue.nodes_with(name)[0] == "mi300x-8"


@pytest.mark.parametrize(
    ("name", "key"),
    [("p4d.24xlarge", "aws-p4d"), ("ND A100 v4", "azure-nd-a100-v4"), ("a2-highgpu-8g", "gcp-a2-high"),
     ("NVIDIA L40S", "l40s")],
)  # fmt: skip
def test_an_entry_is_compared_by_any_name_that_it_has(catalogue, name, key):
    assert find_entry(catalogue, name).name == key


def test_a_name_of_no_entry_is_refused_in_a_line_that_does_not_list_all(catalogue):
    with pytest.raises(InputError) as caught:
        find_entry(catalogue, "qqqqqq")

    assert len(str(caught.value)) < 200


def test_nodes_are_compared_by_their_accelerators_too(catalogue):
    chosen = [of_its_gpus(catalogue, find_entry(catalogue, name)) for name in ("aws-p4d", "aws-trn2")]

    rows = dict(compared(chosen))

    assert rows["gpu bf16"] == ["312TFLOP/s", "667TFLOP/s (2.14x)"]
    assert rows["gpu memory"][0] == "40GB"
    assert rows["gpu links"][0].startswith("300 GB/s per direction")


@pytest.mark.parametrize(("word", "without"), [("H20", "h200"), ("a10", "a100-40g"), ("p4", "p40"), ("l4", "l40s")])
def test_a_number_is_not_found_within_a_longer_one(catalogue, word, without):
    found = {entry.name for entry in entries(catalogue, [word])}

    assert word.lower() in found
    assert without not in found


def test_the_beginning_of_a_number_is_found_where_nothing_has_it_whole(catalogue):
    assert {entry.name for entry in entries(catalogue, ["accelerators", "mi35"])} == {"mi350x", "mi355x"}
    assert entries(catalogue, ["accelerators", "mi36"]) == []


def test_nodes_that_alone_match_come_with_their_accelerator(catalogue):
    found = with_accelerators(catalogue, entries(catalogue, ["trn2"]))

    assert [entry.name for entry in found] == ["trainium2", "aws-trn2", "aws-trn2-ultra"]


@pytest.mark.parametrize(
    ("node", "gbps", "gigabytes"),
    [
        ("juwels-booster", 800, 40),
        ("leonardo-booster", 400, 64),
        ("jean-zay-h100", 1600, 80),
        ("perlmutter", 800, 40),
        ("perlmutter-80g", 800, 80),
        ("alps-gh200", 800, 96),
    ],
)
def test_nodes_of_four_join_each_pair_by_a_third_of_the_links(catalogue, node, gbps, gigabytes):
    group = node_group(catalogue, node)

    assert (group.gpus, group.switched) == (4, False)
    assert group.node_bandwidth_bytes_per_s == pytest.approx(gbps / 8 * 1e9)
    assert group.peer_share == pytest.approx(1 / 3)
    assert catalogue.accelerators[catalogue.nodes[node].accelerator].memory.number == pytest.approx(gigabytes * 1e9)
