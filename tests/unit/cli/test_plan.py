"""`meshwright plan` as a user types it."""

import json
import re
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest
from msgspec.structs import replace

from meshwright.bench.table import Row, csv_text
from meshwright.cli import run_command
from meshwright.cli.plan_here import names_this_machine
from meshwright.cluster.builders import catalogue_cluster
from meshwright.cluster.discovery.local import discover_host
from meshwright.cluster.graph import Cluster, Device, Host
from meshwright.files import read_struct, write_struct
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout, Plan
from meshwright.timeline import Performance
from testkit.topology_dumps import layouts, references

SMALL = ["plan", "--model", "llama3-8b", "--cluster", "dgx-a100-80g", "--gpus", "16", "--global-batch", "32"]
HERE = ["plan", "--model", "gpt2", "--cluster", "this"]
PARAMS = ["plan", "--params", "2B", "--seq-len", "2048", "--global-batch", "16", "--cluster", "dgx-a100-80g"]


def answer(capsys, *words):
    assert run_command(list(words)) == 0
    return capsys.readouterr()


def test_the_search_prints_the_ranked_table_with_its_reasons(capsys):
    text = answer(capsys, *SMALL).out

    assert "the fastest of each way to split" in text
    assert "rather than" in text
    assert "layouts need more than the 79.3 GiB of a GPU" in text
    assert "memory against time" in text
    assert "fit)" in text  # plain data parallelism, or what is faster and may not
    assert "not modelled:" in text


def test_json_of_a_pipeline_has_the_memory_of_each_stage(capsys):
    words = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8"]

    assert run_command([*words, "--seq-len", "4096", "--layout", "pp=4,dp=2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert [stage["stage"] for stage in document["stages"]] == [0, 1, 2, 3]


def test_json_is_layout_predicted_whether_it_fits_and_alternatives(capsys):
    captured = answer(capsys, *SMALL, "--json")
    document = json.loads(captured.out)

    assert list(document) == ["model", "layout", "predicted", "fits", "memory", "terms", "alternatives"]
    states = ("parameters", "gradients", "optimizer", "activations", "logits", "working")
    whole = sum(document["terms"][f"{name}_bytes"] for name in states)
    assert whole == pytest.approx(document["memory"]["allocated_bytes"])
    layout = msgspec.convert(document["layout"], Layout)
    predicted = msgspec.convert(document["predicted"], Performance)
    assert layout.world_size == 16
    assert predicted.error_band is not None
    assert any(a["layout"]["dp"] == 16 and a["layout"]["zero"] == 0 for a in document["alternatives"])
    assert captured.err == ""


def test_the_page_of_a_plan_has_its_simulated_step_and_its_machine(capsys, tmp_path):
    page = tmp_path / "plan.html"
    answer(capsys, *SMALL, "--layout", "tp=8,pp=2,sp=1", "--html", str(page))
    document = json.loads(page.with_suffix(".json").read_text())
    sections = {section["heading"]: section["blocks"] for section in document["sections"]}

    assert document["kind"] == "plan"
    assert list(sections) == [
        "What is priced", "Predicted", "Timeline", "Layout", "Alternatives", "One node of the cluster", "Not modelled",
    ]  # fmt: skip
    names = {trace["name"] for trace in sections["Timeline"][0]["traces"]}
    assert {"forward", "backward", "optimizer"} <= names
    assert sections["One node of the cluster"][0]["svg"].count("GPU") >= 8
    assert "for this step" in sections["Timeline"][1]["items"][0]


def test_the_page_of_a_layout_that_does_not_fit_says_so_first_and_in_its_row(capsys, tmp_path):
    page = tmp_path / "plan.html"
    answer(capsys, *SMALL, "--layout", "dp=16,mbs=2", "--html", str(page))
    document = json.loads(page.with_suffix(".json").read_text())
    (table,) = next(s["blocks"] for s in document["sections"] if s["heading"] == "Alternatives")

    assert document["verdict"].endswith("on each of 16 ranks, which does not fit")
    assert table["rows"][0][table["columns"].index("fits")]["text"] == "no"


def test_one_layout_is_priced_with_every_term(capsys):
    text = answer(capsys, *SMALL, "--layout", "tp=8,pp=2,sp=1").out

    assert "tp=8,pp=2,dp=1,mbs=1,sp=1" in text
    for term in ("forward", "tensor comm", "bubble", "activations", "MFU"):
        assert term in text


@pytest.mark.parametrize(("batch", "at_the_loss"), [("16", True), ("64", False)])
def test_a_term_of_memory_that_is_nothing_at_the_peak_is_explained(capsys, batch, at_the_loss):
    layout = ["--layout", "dp=16,zero=3,mbs=1,recompute=full", "--seq-len", "8192"]
    lines = " ".join(answer(capsys, *SMALL, "--global-batch", batch, *layout).out.split())

    assert ("most is needed at the loss, without gradients yet" in lines) == at_the_loss
    assert ("gradients 0 B" in lines) == at_the_loss


def test_the_best_layout_priced_alone_costs_what_the_search_said(capsys):
    best = json.loads(answer(capsys, *SMALL, "--json").out)
    text = str(msgspec.convert(best["layout"], Layout))

    assert json.loads(answer(capsys, *SMALL, "--layout", text, "--json").out)["predicted"] == best["predicted"]


def test_the_plan_is_written_for_train(capsys, tmp_path):
    path = tmp_path / "plan.json"
    document = json.loads(answer(capsys, *SMALL, "--json", "--output", str(path)).out)
    plan = read_struct(path, Plan)

    assert msgspec.to_builtins(plan.layout) == document["layout"]
    assert (plan.global_batch_sequences, plan.seq_len) == (32, 8192)
    assert "rather than" in plan.reason


@pytest.mark.parametrize("words", [("--lora-rank", "16"), ("--optimizer", "adam8bit"), ("--mtp-layers", "1")])
def test_a_plan_that_train_would_not_follow_is_not_written(capsys, tmp_path, words):
    assert run_command([*SMALL, *words, "--output", str(tmp_path / "plan.json")]) == 2

    assert f"{words[0]} and --output: expected one of them" in capsys.readouterr().err
    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(("flag", "name"), [("--output", "plan.json"), ("--graph", "step.svg")])
def test_a_file_in_a_folder_that_is_not_there_is_refused_before_the_search(capsys, tmp_path, monkeypatch, flag, name):
    monkeypatch.setattr("meshwright.plan.search.explore.price_all", lambda *_: pytest.fail("searched all the same"))

    assert run_command([*SMALL, flag, str(tmp_path / "none" / name)]) == 2
    assert "no folder" in " ".join(capsys.readouterr().err.split())


def test_modules_that_predict_further_tokens_are_part_of_the_model_and_of_the_price(capsys):
    one = [*SMALL, "--layout", "dp=16,zero=1", "--json"]
    plain, module = (json.loads(answer(capsys, *one, *more).out) for more in ((), ("--mtp-layers", "1")))
    bridge = json.loads(answer(capsys, *one, "--stack", "bridge", "--mtp-layers", "1").out)

    assert module["model"]["parameters"] > plain["model"]["parameters"]
    assert module["model"]["flops_per_token"] > 1.05 * plain["model"]["flops_per_token"]
    assert any("1 layer to predict further tokens, counted" in text for text in bridge["model"]["assumed"])
    assert bridge["predicted"]["step_time_s"] > 0


def test_adapters_and_small_optimisers_need_less_memory_and_say_what_they_leave_out(capsys):
    one = [*SMALL, "--stack", "bridge", "--layout", "dp=16,zero=1", "--json"]
    whole, small, adapted = (
        json.loads(answer(capsys, *one, *more).out) for more in ((), ("--optimizer", "adam8bit"), ("--lora-rank", "16"))
    )
    peaks = [found["predicted"]["peak_memory_bytes_per_gpu"] for found in (whole, small, adapted)]

    assert peaks[0] > peaks[1] > peaks[2]
    assert any("adapters" in text for text in adapted["model"]["assumed"])
    assert adapted["model"]["flops_per_token"] < 0.75 * whole["model"]["flops_per_token"]


def test_arithmetic_from_a_parameter_count_alone(capsys):
    text = answer(capsys, *PARAMS, "--gpus", "8", "--mfu", "0.5", "--recompute", "full", "--tokens", "13T").out

    assert "65.536 TFLOP" in text
    assert "36 GB" in text
    assert "not a bottleneck" in text
    assert "one after another: 467 ms" in text
    assert "overlapped: 420 ms" in text


def test_arithmetic_that_asks_for_the_gpus_of_some_days_is_about_those_gpus(capsys):
    words = [
        "plan",
        "--params",
        "120B",
        "--tokens",
        "3T",
        "--mfu",
        "0.45",
        "--cluster",
        "dgx-h200",
        "--target-days",
        "45",
    ]
    document = json.loads(answer(capsys, *words, "--json").out)
    lines = {line["name"]: line["value"] for line in document["lines"]}
    said = answer(capsys, *words).out

    assert lines["GPUs for these days"] == pytest.approx(6 * 120e9 * 3e12 / (0.45 * 989e12 * 45 * 86400), abs=1)
    assert 44.7 < lines["training"] <= 45.0
    assert document["warnings"] == []
    assert "1,256 GPUs are those of the days asked for, in whole nodes" in said


def test_a_convolutional_model_is_sized_by_its_own_arithmetic(capsys):
    words = ["plan", "--model", "resnet50", "--mfu", "0.4", "--global-batch", "256", "--cluster", "dgx-a100-80g"]
    document = json.loads(answer(capsys, *words, "--json").out)

    values = {line["name"]: line["value"] for line in document["lines"]}
    assert values["gradients"] == 4 * 25_557_032
    assert values["FLOPs of a step"] == pytest.approx(3 * 8.178e9 * 256, rel=1e-3)


def test_an_encoder_in_stages_is_sized_by_its_own_arithmetic_and_says_what_it_assumes(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]}')
    words = ["plan", "--model", str(path), "--mfu", "0.4", "--global-batch", "256", "--cluster", "dgx-a100-80g"]
    text = answer(capsys, *words).out
    values = {line["name"]: line["value"] for line in json.loads(answer(capsys, *words, "--json").out)["lines"]}

    assert "assumed: window_size = 7, the default of the model type" in text
    assert values["gradients"] == pytest.approx(4 * 27.5e6, rel=1e-2)  # 28 M, with 1,000 classes
    assert values["FLOPs of a step"] == pytest.approx(3 * 2 * 4.5e9 * 256, rel=1e-2)


def test_the_arithmetic_of_shared_layers_multiplies_their_weights_in_each(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "albert", "hidden_size": 1024, "num_attention_heads": 16}')
    words = ["plan", "--model", str(path), "--mfu", "0.4", "--global-batch", "8", "--cluster", "dgx-h100"]
    document = json.loads(answer(capsys, *words, "--seq-len", "512", "--json").out)

    flops = next(line["value"] for line in document["lines"] if line["name"] == "FLOPs of a step")
    assert flops == pytest.approx(6 * document["model"]["multiplied_parameters"] * 8 * 512)
    assert document["model"]["multiplied_parameters"] > 8 * document["model"]["parameters"]


def test_the_arithmetic_of_experts_multiplies_the_few_that_a_token_visits(capsys):
    words = ["plan", "--model", "deepseek-v3", "--mfu", "0.4", "--global-batch", "15360", "--tokens", "14.8T"]
    document = json.loads(answer(capsys, *words, "--cluster", "dgx-h100", "--gpus", "2048", "--json").out)

    days = next(line["value"] for line in document["lines"] if line["name"] == "training")
    assert days == pytest.approx(47, abs=1)  # 2.3 years for all of them; the run took 54 days
    assert document["model"]["parameters"] > 18 * document["model"]["multiplied_parameters"]


@pytest.mark.parametrize("more", [(), ("--mfu", "0.4"), ("--layout", "dp=8")], ids=str)
def test_the_longest_sequence_that_a_config_allows_is_no_length_to_plan_for(capsys, tmp_path, more):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
                                "num_attention_heads": 4, "vocab_size": 1024, "intermediate_size": 512,
                                "max_position_embeddings": 131072}))  # fmt: skip
    words = ["plan", "--model", str(path), "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8", *more]

    assert run_command(words) == 2
    assert "--seq-len: expected" in capsys.readouterr().err
    assert run_command([*words, "--seq-len", "4096"]) == 0


def test_a_target_is_solved_for_the_network_with_a_picture(capsys, tmp_path):
    path = tmp_path / "curve.svg"
    text = answer(capsys, *SMALL, "--target-mfu", "0.3", "--plot", str(path)).out

    assert "rate between nodes (all NICs of a node, per direction): at least" in text
    assert "8 x ndr-400" in text
    assert "<- now" in text
    assert "fewest GPUs" in text
    picture = ElementTree.fromstring(path.read_text())
    assert sum("needed" in (node.text or "") for node in picture.iter()) >= 1


def test_days_for_a_token_budget_are_a_target_too(capsys):
    document = json.loads(answer(capsys, *SMALL, "--target-days", "1000", "--tokens", "1T", "--json").out)

    assert document["target_step_time_s"] == pytest.approx(1000 * 86400 * 32 * 8192 / 1e12)
    assert document["model"]["parameters"] > document["model"]["multiplied_parameters"] > 0
    assert document["error_band"] > 0.0
    assert "this accelerator" in document["calibration"][0]


def test_clusters_are_compared_with_any_override(capsys):
    words = ["plan", "--model", "megatron-22b", "--gpus", "16", "--global-batch", "64"]
    names = "dgx-a100-80g,dgx-a800,dgx-a800:intra=300GB/s"
    document = json.loads(
        answer(capsys, *words, "--compare", names, "--layout", "tp=8,pp=2,mbs=4,sp=1,recompute=full", "--json").out
    )
    steps = [side["same"]["predicted"]["step_time_s"] for side in document["sides"]]

    assert steps[1] > steps[0] == steps[2]


def test_a_duplex_figure_in_the_file_of_a_cluster_is_warned_of_alone_and_side_by_side(capsys, tmp_path):
    cluster = catalogue_cluster(load_catalogue(), "dgx-a100-80g", gpus=16)
    group = replace(cluster.groups[0], type="", gpu_bandwidth_bytes_per_s=600e9, peer_bandwidth_bytes_per_s=600e9)
    path = tmp_path / "mine.json"
    write_struct(path, replace(cluster, groups=(group,)))
    words = ["plan", "--model", "megatron-22b", "--gpus", "16", "--global-batch", "64", "--layout", "tp=8,pp=2"]

    alone = answer(capsys, *words, "--cluster", str(path)).err
    beside = answer(capsys, *words, "--compare", f"dgx-a100-80g,{path}").err

    for said in (alone, beside):
        assert "600 GB/s is the duplex figure" in " ".join(said.split())


@pytest.mark.parametrize(
    "more",
    [
        ("--scaling", "fixed"),
        ("--modes",),
        ("--mfu", "0.4"),
    ],
    ids=lambda words: words[0],
)
def test_every_way_of_asking_says_which_model_it_is_about(capsys, more):
    model = json.loads(answer(capsys, *SMALL, *more, "--json").out)["model"]

    assert model["active_parameters"] <= model["parameters"]
    assert model["flops_per_token"] > 6 * model["multiplied_parameters"] > 0
    assert model["seq_len"] > 0


@pytest.mark.parametrize(
    "more",
    [
        ("--layout", "tp=8,pp=2,sp=1"),
        ("--scaling", "fixed"),
        ("--mfu", "0.4"),
        ("--compare", "dgx-a100-80g,dgx-a800", "--layout", "tp=8,pp=2,sp=1"),
    ],
    ids=lambda words: words[0],
)
def test_every_way_of_asking_says_how_long_a_sequence_is_and_who_said_so(capsys, more):
    where = "assumed: sequence length 8,192: of its training, as published"

    text = answer(capsys, *SMALL, *more).out
    asked = answer(capsys, *SMALL, *more, "--seq-len", "4096").out

    assert "llama3-8b: 8.03 B parameters" in text
    assert where in text
    assert "at 4,096 tokens a sequence" in asked
    assert "assumed: sequence length" not in asked


def test_clusters_side_by_side_say_within_what_their_steps_are_held_to_lie_and_what_is_left_out(capsys):
    words = ("--compare", "dgx-a100-80g,dgx-a800", "--layout", "tp=8,pp=2,sp=1")
    sides = json.loads(answer(capsys, *SMALL, *words, "--json").out)["sides"]

    text = answer(capsys, *SMALL, *words).out

    bands = [f"{side['same']['predicted']['error_band']:.0%}" for side in sides]
    assert [line.split()[1:] for line in text.splitlines() if line.strip().startswith("within")][1] == bands
    assert "not modelled: stragglers and failures" in text


def test_a_layout_with_many_keys_stands_in_one_line_above_its_terms(capsys):
    text = "tp=4,pp=2,dp=2,vpp=4,mbs=1,zero=1,sp=1,schedule=interleaved,recompute=full"

    assert text in answer(capsys, *SMALL, "--stack", "megatron", "--layout", text).out.splitlines()


@pytest.mark.parametrize(
    "asked", [("--target-days", "1000", "--tokens", "1T"), ("--scaling", "fixed"), ("--modes",)], ids=lambda a: a[0]
)
def test_a_target_a_curve_and_modes_say_how_sure_their_steps_are(capsys, asked):
    text = " ".join(answer(capsys, *SMALL, *asked).out.split())

    assert text.count("step times are held to lie within") == 1
    assert "synchronous has the shortest step, 1.00 x" not in text  # as fast as itself


def test_the_scaling_curve_is_printed(capsys):
    text = answer(capsys, *SMALL, "--scaling", "fixed").out

    assert "of linear" in text
    assert "linear" in text.splitlines()[-1]


@pytest.mark.parametrize(("word", "meant"), [("strong", "fixed"), ("weak", "grown")])
def test_strong_and_weak_scaling_are_those_of_a_fixed_and_of_a_grown_batch(capsys, word, meant):
    said, plain = (answer(capsys, *SMALL, "--scaling", one, "--json").out for one in (word, meant))

    assert said == plain


def test_modes_of_data_parallelism_are_priced_beside_the_best_synchronous_layout(capsys):
    rows = json.loads(answer(capsys, *SMALL, "--modes", "--json").out)["modes"]
    slowed = json.loads(answer(capsys, *SMALL, "--modes", "--slow", "3", "--inter", "1Gbps", "--json").out)["modes"]
    text = answer(capsys, *SMALL, "--modes").out
    bytes_of = {row["name"]: row["wire_bytes"] for row in rows}

    assert rows[0]["name"] == "synchronous"
    assert all(row["error_band"] > 0.0 and "of this accelerator" in row["calibration"][0] for row in rows)
    assert "has the shortest step" in " ".join(text.split())
    assert bytes_of["local SGD, H = 10"] == pytest.approx(5 * bytes_of["DiLoCo, H = 50"])
    assert bytes_of["parameter server, s = 0"] == bytes_of["parameter server, s = 4"]
    assert min(slowed, key=lambda row: row["step_time_s"])["name"].startswith("DiLoCo")
    by_name = {row["name"]: row["step_time_s"] for row in slowed}
    assert by_name["parameter server, s = 4"] <= by_name["parameter server, s = 0"]


def test_served_workers_do_not_update_and_local_ones_do(capsys):
    free = ("--inter", "100000000Gbps", "--latency", "0us", "--json")
    rows = json.loads(answer(capsys, *SMALL, "--modes", *free).out)["modes"]
    step_s = {row["name"]: row["step_time_s"] for row in rows}
    node = [*SMALL[:5], "--gpus", "8", "--global-batch", "16", "--json"]
    alone = json.loads(answer(capsys, *node).out)["predicted"]

    local_s, served_s = step_s["local SGD, H = 10"], step_s["parameter server, s = 0"]
    assert local_s == pytest.approx(alone["step_time_s"], rel=1e-4)
    assert local_s - served_s == pytest.approx(alone["optimizer_s"], rel=1e-2)


def test_modes_with_a_slow_worker_say_how_long_the_others_take_without_it(capsys):
    text = " ".join(answer(capsys, *SMALL, "--modes", "--slow", "3").out.split())
    rows = json.loads(answer(capsys, *SMALL, "--modes", "--slow", "3", "--json").out)["modes"]

    assert re.search(
        r"one of 2 workers, of 8 GPUs each, is waited for .* s of a synchronous step; the other 1 alone", text
    )
    assert 0 < rows[0]["waited_s"] <= rows[0]["exposed_comm_s"]
    assert "is waited for" not in answer(capsys, *SMALL, "--modes").out


def test_the_latency_of_the_modes_is_the_clusters_own_unless_one_is_given(capsys, tmp_path):
    cluster = catalogue_cluster(load_catalogue(), "dgx-a100-80g", nodes=2)
    slow = replace(cluster, groups=(replace(cluster.groups[0], nic_latency_s=0.05),))
    write_struct(tmp_path / "slow.json", slow)
    words = ["plan", "--model", "llama3-8b", "--global-batch", "32", "--modes", "--json", "--cluster"]

    def served_s(*more):
        rows = {row["name"]: row for row in json.loads(answer(capsys, *words, *more).out)["modes"]}
        return rows["parameter server, s = 0"]["step_time_s"]

    own, given = served_s(str(tmp_path / "slow.json")), served_s("dgx-a100-80g", "--gpus", "16", "--latency", "50ms")
    usual = served_s("dgx-a100-80g", "--gpus", "16")

    assert own == pytest.approx(given)
    assert own - usual == pytest.approx(4 * (0.05 - 1e-5))  # up and down, a message and its answer each
    assert usual - served_s("dgx-a100-80g", "--gpus", "16", "--latency", "0us") == pytest.approx(4 * 1e-5)


def test_a_machine_that_topo_saved_is_planned_for(capsys, tmp_path):
    dump = tmp_path / "matrix.txt"
    dump.write_text(references()[3].text)
    saved, printed = str(tmp_path / "saved.json"), tmp_path / "printed.json"
    named = ["topo", "--from", str(dump), "--gpu", "h100"]
    printed.write_text(answer(capsys, *named, "--save", saved, "--json").out)
    words = ["plan", "--model", "llama3-8b", "--global-batch", "32", "--json"]
    plans = [json.loads(answer(capsys, *words, "--cluster", name).out) for name in (saved, str(printed), "dgx-h100")]

    assert plans[0] == plans[1] == plans[2]
    assert run_command([*words, "--cluster", saved, "--gpus", "16"]) == 2
    assert "no NIC of known rate joins its nodes; expected --inter RATE" in capsys.readouterr().err
    assert answer(capsys, *words, "--cluster", saved, "--gpus", "16", "--inter", "3200Gbps").out


def test_a_plan_for_more_machines_like_a_saved_one_says_which_network_joins_them(capsys, tmp_path):
    dump, saved = tmp_path / "matrix.txt", tmp_path / "saved.json"
    dump.write_text(next(one.text for one in layouts() if "NV18" in one.text and "NIC7" in one.text))
    answer(capsys, "topo", "--from", str(dump), "--gpu", "h100", "--save", str(saved))
    machine = json.loads(saved.read_text())
    nics = [device for device in machine["devices"] if device["kind"] == "nic"]
    for device in nics:
        device["network_bandwidth_bytes_per_s"] = 50e9
    saved.write_text(json.dumps(machine))
    words = ["plan", "--model", "llama3-8b", "--global-batch", "32", "--cluster", str(saved), "--layout", "zero=3"]

    one, two, told = (
        answer(capsys, *words, "--gpus", *more).out for more in (["8"], ["16"], ["16", "--inter", "3200Gbps"])
    )

    assert "2 nodes like that of" in two
    assert "NICs of 400 Gb/s (--inter says another)" in two.replace("\n", " ")
    assert "nodes like that of" not in one + told


def test_a_machine_without_gpus_is_refused_with_what_it_has(capsys, tmp_path):
    path = tmp_path / "here.json"
    host = Host(name="here", cores=2, memory_bytes=2**30)
    write_struct(path, Cluster(name="here", hosts=(host,), devices=(Device(id="CPU0", kind="cpu", node="here"),)))

    assert run_command(["plan", "--model", "llama3-8b", "--global-batch", "32", "--cluster", str(path)]) == 2

    error = capsys.readouterr().err
    assert error == (
        f"meshwright: {path}: has no GPUs to plan for (it lists 1 cpu); expected a machine with GPUs, or "
        "`plan` on the very machine (--cluster this)\n"
    )


def test_what_cannot_be_trained_on_this_machine_is_said_of_the_file_that_stands_for_it(capsys, tmp_path):
    path = tmp_path / "here.json"
    devices = (Device(id="CPU0", kind="cpu", node="here"),)
    write_struct(path, Cluster(name="here", hosts=(discover_host(),), devices=devices))

    for named in ("this", str(path)):
        assert run_command(["plan", "--model", "gpt2", "--global-batch", "32", "--cluster", named]) == 2
        assert capsys.readouterr().err.startswith(f"meshwright: --cluster {named}: gpt2: expected a decoder like Llama")


@pytest.mark.parametrize("known", [True, False])
def test_a_file_of_this_machine_without_gpus_is_measured_and_one_of_another_is_not(known, tmp_path):
    path, host = tmp_path / "here.json", discover_host()
    host = host if known else msgspec.structs.replace(host, cpu_model="another")
    cpu = Device(id="CPU0", kind="cpu", node=host.name)
    write_struct(path, Cluster(name=host.name, hosts=(host,), devices=(cpu,)))

    assert names_this_machine(str(path)) is known
    assert names_this_machine("this")
    assert not names_this_machine("dgx-h100")
    assert not names_this_machine(str(tmp_path / "missing.json"))


def test_gpus_of_this_machine_in_a_file_are_priced_by_the_catalogue(tmp_path):
    path, host = tmp_path / "here.json", discover_host()
    gpu = Device(id="GPU0", kind="gpu", model="H100", node=host.name)
    write_struct(path, Cluster(name=host.name, hosts=(host,), devices=(gpu,)))

    assert not names_this_machine(str(path))


def test_what_measurement_does_not_read_is_refused_for_a_file_of_this_machine_too(capsys, tmp_path):
    path, host = tmp_path / "here.json", discover_host()
    cpu = Device(id="CPU0", kind="cpu", node=host.name)
    write_struct(path, Cluster(name=host.name, hosts=(host,), devices=(cpu,)))

    asked = ["plan", "--model", "gpt2", "--cluster", str(path), "--global-batch", "8", "--stack", "titan"]
    assert run_command(asked) == 2

    assert "measured, not looked up: --stack does not go with it" in capsys.readouterr().err


@pytest.mark.slow  # bench imports torch
def test_a_table_that_bench_saved_with_its_node_is_planned_for(capsys, tmp_path):
    table, saved = tmp_path / "table.csv", str(tmp_path / "saved.json")
    sizes = [2**power for power in range(20, 31)]
    table.write_text(csv_text([Row(collective="all_reduce", backend="nccl", ranks=8, bytes=size, redop="sum",
                                   time_s=1e-4 + 1.75 * size / 200e9) for size in sizes]))  # fmt: skip
    answer(capsys, "bench", "--from", str(table), "--node", "dgx-a100-80g", "--save", saved)
    words = ["plan", "--model", "llama3-8b", "--global-batch", "32", "--layout", "tp=8", "--json", "--cluster"]
    slower, spec = (json.loads(answer(capsys, *words, name).out)["predicted"] for name in (saved, "dgx-a100-80g"))

    assert slower["step_time_s"] > spec["step_time_s"]  # 200 GB/s of bus, where most reach more


def test_the_duplex_figure_is_called_out(capsys):
    captured = answer(capsys, *SMALL, "--intra", "600GB/s", "--inter", "3200Gbps", "--json")

    assert "--intra: 600 GB/s is the duplex figure" in captured.err
    assert "--inter: 3200 Gb/s is the duplex figure of a dgx-a100-80g; per direction it is 1600 Gb/s" in captured.err
    assert "(right for NICs of twice its rate)" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan"], "expected one of --model NAME, --job FILE and --params COUNT"),
        ([*SMALL, "--params", "2B"], "expected one of --model NAME, --job FILE and --params COUNT"),
        (["plan", "--model", "gpt2"], "--global-batch: expected"),
        (["plan", "--model", "gpt2", "--global-batch", "8"], "--cluster: expected"),
        ([*SMALL, "--target-mfu", "0.5", "--scaling", "fixed"], "--target-mfu and --scaling: expected one of them"),
        ([*SMALL, "--target-mfu", "2"], "--target-mfu: expected more than 0 and at most 1"),
        ([*SMALL, "--target-days", "3"], "--target-days: needs --tokens"),
        ([*SMALL, "--target-step-time", "0"], "--target-step-time: expected more than 0"),
        ([*SMALL, "--plot", "x.svg"], "--plot: needs --target-mfu"),
        ([*SMALL, "--target-mfu", "0.3", "--plot", "x.png"], "ends in .svg"),
        ([*SMALL, "--output", "nowhere/plan.json"], "--output nowhere/plan.json: no folder nowhere"),
        ([*PARAMS, "--mfu", "1.5"], "mfu: expected more than 0 and at most 1, got 1.5"),
        (["plan", "--params", "2B", "--global-batch", "8", "--cluster", "dgx-h100"], "--seq-len: expected"),
        ([*PARAMS, "--compare", "a,b"], "--compare: needs --model"),
        ([*SMALL[:3], "--global-batch", "8", "--compare", "dgx-h100"], "two or more clusters"),
        ([*SMALL[:3], "--global-batch", "8", "--compare", "dgx-h100:speed=1,dgx-a800"], "expected KEY=VALUE"),
        ([*SMALL, "--precision", "int3"], "precision"),
        ([*SMALL, "--gpus", "12"], "12 GPUs are not a multiple of the 8 of a dgx-a100-80g; 8 and 16 are"),
        ([*SMALL[:3], "--cluster", "dgx-b100", "--global-batch", "8"], "did you mean dgx-"),
        ([*SMALL, "--layout", "dp=16,mode=async"], "priced beside each other by --modes"),
        ([*SMALL, "--slow", "2"], "--slow: needs --modes"),
        ([*SMALL, "--modes", "--slow", "0.5"], "--slow: expected 1 or more, got 0.5"),
        ([*SMALL, "--modes", "--gpus", "8", "--global-batch", "12"], "12 sequences do not divide over 8 workers"),
        ([*SMALL, "--layout", "tp=16"], "nearest legal: tp=8,dp=2,mbs=1"),
        (HERE, "--global-batch: expected"),
        ([*HERE, "--global-batch", "8", "--inter", "1Gbps"], "measured, not looked up: --inter does not go with it"),
        ([*HERE, "--global-batch", "8", "--not", "pp>1"], "--not does not go with it"),
        ([*HERE, "--global-batch", "8", "--calibrate", "runs.csv"], "--calibrate does not go with it"),
        ([*HERE, "--global-batch", "8", "--fabric", "other"], "measured, not looked up: --fabric does not go with it"),
        (["plan", "--job", "run.sh", "--cluster", "dgx-h100", "--lora-rank", "8"], "such as lora_r=16"),
        ([*SMALL, "--mtp-layers", "1", "--lora-rank", "8"], "--mtp-layers and --lora-rank: expected one of them"),
        ([*SMALL, "--mtp-layers", "1", "--stack", "meshwright"], "trains no modules that predict further tokens"),
        ([*PARAMS, "--mtp-layers", "1"], "--mtp-layers: needs --model"),
        ([*HERE, "--global-batch", "8", "--mtp-layers", "1"], "--mtp-layers does not go with it"),
        ([*SMALL, "--precision", "fp8-rows"], "did you mean fp8-row?"),
        (["plan", "--job", "run.sh", "--cluster", "dgx-h100", "--optimizer", "muon"], "--optimizer: not with --job"),
        ([*HERE, "--global-batch", "8", "--modes"], "measured, not looked up: --modes does not go with it"),
        ([*HERE, "--global-batch", "8", "--precision", "nvfp4"], "--precision nvfp4: train runs bf16"),
        ([*HERE, "--global-batch", "8"], "gpt2: expected a decoder like Llama"),
        ([*SMALL, "--layout", "pp=16,vpp=3,schedule=interleaved"], "pp x vpp = 48"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, words, message):
    assert run_command(words) == 2

    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("tp=3", "tp x cp x pp = 3 does not divide the 16 ranks; nearest legal: tp=4,"),
        ("dp=16,ep=3", "ep: 3 does not divide dp x cp = 16; with 8 experts ep may be 1, 2, 4, 8 here"),
    ],
)
def test_a_layout_that_its_own_ranks_contradict_is_told_what_goes(capsys, layout, told):
    words = ["plan", "--model", "mixtral-8x7b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "32"]

    assert run_command([*words, "--layout", layout]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("more", [("--mfu", "0.4"), ("--target-days", "30"), ("--layout", "dp=16,zero=3,mbs=2")])
def test_a_budget_of_less_than_a_step_is_asked_for_its_unit(capsys, more):
    assert run_command([*SMALL, *more, "--tokens", "15"]) == 2
    assert "--tokens 15: fewer than the 262,144 of one step; 15T are 15 trillion" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("adamw_torch_fused", "adamw-fused"),
        ("paged_adamw_8bit", "paged-adam8bit"),
        ("adamw8bit", "adam8bit"),
        ("paged_adamw_32bit", "paged-adamw-fp32"),
    ],
)
def test_an_optimiser_by_its_trainers_name_is_the_planners(capsys, theirs, ours):
    words = [*SMALL, "--layout", "dp=16,zero=3,mbs=2", "--stack", "trl", "--json"]
    asked, known = (answer(capsys, *words, "--optimizer", name) for name in (theirs, ours))

    assert asked.out == known.out
    assert f"note: --optimizer {theirs} is {ours}" in asked.err


@pytest.mark.parametrize(("cluster", "gpus"), [("tpu-v4", "6144"), ("8xA100-80GB", "384")])
def test_days_by_an_mfu_need_no_network_between_the_nodes(capsys, cluster, gpus):
    words = ["plan", "--params", "100B", "--seq-len", "2048", "--global-batch", "2048", "--cluster", cluster]
    text = answer(capsys, *words, "--gpus", gpus, "--mfu", "40%", "--tokens", "300B").out

    assert "GPU-hours" in text
    assert "the links between nodes are left out" in " ".join(text.split())
    assert "traffic between nodes" not in text
    assert "nothing to exchange" not in text


def test_the_days_of_a_training_come_with_the_gpu_hours_that_are_paid_for(capsys):
    text = answer(capsys, *SMALL, "--layout", "dp=16,zero=3,mbs=2", "--tokens", "1T", "--json").out
    training = json.loads(text)["training"]

    assert training["gpu_hours"] == pytest.approx(24 * 16 * training["days"])


def test_named_nodes_are_taken_near_each_other_and_a_spread_job_is_told_how_to_get_closer_ones(capsys, tmp_path):
    topology, plan = tmp_path / "topology.conf", tmp_path / "plan.json"
    topology.write_text(
        "SwitchName=leaf0 Nodes=c0\nSwitchName=leaf1 Nodes=c[1-2]\nSwitchName=spine Switches=leaf[0-1]\n"
    )
    words = [*SMALL, "--layout", "tp=8,dp=2", "--placements", str(topology), "--output", str(plan)]

    near = answer(capsys, *words).err
    assert "order of nodes: c1,c2 " in near
    assert "note:" not in near
    assert read_struct(plan, Plan).nodes == ("c1", "c2")

    for old, new in (("16", "24"), ("32", "48"), ("tp=8,dp=2", "tp=8,dp=3")):
        words[words.index(old)] = new
    spread = answer(capsys, *words).err
    assert "order of nodes: c0,c1,c2 " in spread
    assert "sbatch --switches=1" in spread


def test_placements_without_nodes_are_an_error(capsys, tmp_path):
    nothing = tmp_path / "matrix.txt"
    nothing.write_text("GPU0 GPU1\n")

    assert run_command([*SMALL, "--placements", str(nothing)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_encoder_of_sound_is_priced_at_its_own_length(capsys, tmp_path):
    sizes = {"d_model": 768, "encoder_layers": 24, "encoder_attention_heads": 12, "decoder_attention_heads": 12}
    (tmp_path / "sound.json").write_text(json.dumps({"model_type": "whisper"} | sizes), "utf-8")
    words = ["plan", "--model", str(tmp_path / "sound.json"), "--cluster", "dgx-h100", "--gpus", "8", "--global-batch"]
    words += ["64", "--layout", "dp=8,mbs=8", "--json", "--seq-len"]
    short, long = (json.loads(answer(capsys, *words, length).out) for length in ("100", "400"))

    assert any("1,500 positions of sound" in told for told in short["model"]["assumed"])
    assert short["model"]["flops_per_token"] > 2 * long["model"]["flops_per_token"]
    for name in ("step_time_s", "peak_memory_bytes_per_gpu"):
        assert 0.6 < short["predicted"][name] / long["predicted"][name] < 1


def test_more_ranks_of_tp_than_key_value_heads_are_for_the_engine_that_has_them(capsys):
    words = ["plan", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "64", "--global-batch", "64"]
    words += ["--seq-len", "8192", "--layout", "tp=16,pp=4,dp=1"]
    found = json.loads(answer(capsys, *words, "--stack", "megatron", "--json").out)

    assert any("16 is more than 8 key-value heads" in doubt for doubt in found["predicted"]["not_modelled"])
    for stack in ("meshwright", "torchtitan"):
        assert run_command([*words, "--stack", stack]) != 0
        told = capsys.readouterr().err
        assert "16 does not divide num_key_value_heads = 8" in told
        assert "or --engine megatron, whose ranks share key-value heads" in told


def test_a_layout_that_does_not_fit_is_told_with_one_that_does(capsys):
    job = ("plan", "--model", "llama2-7b", "--cluster", "dgx-a100-80g", "--global-batch", "128", "--seq-len", "512")
    text = " ".join(answer(capsys, *job, "--gpus", "1", "--layout", "mbs=1,recompute=full").out.split())
    eight = answer(capsys, *job, "--gpus", "8", "--layout", "dp=8,zero=3").out

    assert "it does not fit" in text
    assert re.search(r"in its place: dp=1\S*,offload=optimizer fits with .* GiB on the card", text)
    assert "in its place" not in eight


def test_where_no_layout_fits_what_takes_fewer_bytes_is_named(capsys):
    large = ("plan", "--model", "llama3-405b", "--cluster", "dgx-a100-80g", "--gpus", "8", "--global-batch", "8")
    text = " ".join(answer(capsys, *large, "--seq-len", "4096", "--layout", "tp=8").out.split())

    assert re.search(r"in its place: none of [\d,]+ legal layouts of 405.9 B parameters fits in", text)
    assert "whatever the batch: use more GPUs; or fewer bytes a parameter: --optimizer" in text


@pytest.mark.parametrize(
    "more",
    [
        ["--weights", "nf4"],
        ["--loss", "chunkd"],
        ["--optimizer", "adamm"],
        ["--target-mfu", "45"],
        ["--target-days", "0", "--tokens", "1T"],
    ],
)
def test_what_no_run_can_have_is_refused_before_the_answer_begins(more, capsys):
    typed = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "32", *more]

    assert run_command(typed) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "text", "engine"),
    [
        ("gpt.yaml", "trainer: {devices: 8}\nmodel: {micro_batch_size: 1, megatron_amp_O2: true}\n", "nemo"),
        ("titan.toml", '[model]\nname = "llama3"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n', "torchtitan"),
        ("ds.json", '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}', "DeepSpeed"),
        ("run.sh", "torchrun pretrain_gpt.py --num-layers 2 --micro-batch-size 1", "megatron"),
        ("other.yaml", "house: 1\n", ""),
    ],
)
def test_an_engine_s_configuration_in_the_place_of_a_model_is_sent_to_job(capsys, tmp_path, name, text, engine):
    (tmp_path / name).write_text(text)
    words = ["--cluster", "dgx-h100", "--global-batch", "8", "--seq-len", "512"]

    assert run_command(["plan", "--model", str(tmp_path / name), *words]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert (f"{engine}: --job {tmp_path / name} reads that" in told) if engine else ("--job" not in told)


def test_arguments_in_a_script_in_the_place_of_a_model_are_sent_to_job_with_the_script_that_starts(capsys, tmp_path):
    (tmp_path / "sizes.sh").write_text("MODEL_ARGS=(\n  --num-layers 4\n  --hidden-size 64\n)\n")

    assert run_command(["plan", "--model", str(tmp_path / "sizes.sh"), "--cluster", "dgx-h100"]) == 2
    assert f"--job {tmp_path / 'sizes.sh'} SCRIPT" in capsys.readouterr().err
