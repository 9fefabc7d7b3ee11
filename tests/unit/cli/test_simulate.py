"""`meshwright simulate` as a user types it."""

import json

import pytest

from meshwright.cli import run_command

RING = ["simulate", "--collective", "all_reduce", "--algorithm", "ring", "--ranks", "16", "--bytes", "1GiB"]
STEP = ["simulate", "--model", "llama3-8b", "--layout", "tp=8,pp=2,dp=2", "--global-batch", "16", "--seq-len", "2048"]
TREE = ["--cluster", "dgx-h100", "--fabric", "fat-tree"]


def printed(capsys, *words):
    assert run_command([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_ring_takes_what_its_slowest_link_takes(capsys):
    result = printed(capsys, *RING, *TREE, "--alpha", "5us")

    assert result["time_s"] == pytest.approx(30 * (5e-6 + 2**30 / 16 / 50e9), rel=1e-9)
    assert (result["ranks"], result["error_bound"], result["not_modelled"]) == (16, 0.0, [])


def test_what_the_catalogue_does_not_know_is_said(capsys):
    assert "latency of the NICs" in printed(capsys, *RING, *TREE)["not_modelled"][0]


def test_the_text_says_how_it_was_done(capsys):
    assert run_command([*RING, *TREE]) == 0

    text = capsys.readouterr().out
    assert "all_reduce ring, 16 ranks, 1 GiB: 40.3 ms" in text
    assert "480 transfers to 240" in text


def test_a_step_says_where_the_length_of_its_sequences_is_from(capsys):
    told = "assumed: sequence length 8,192: of its training, as published"

    assert run_command([*STEP[:-2], "--cluster", "dgx-h100"]) == 0
    assert told in capsys.readouterr().out
    assert run_command([*STEP, "--cluster", "dgx-h100"]) == 0
    assert told not in capsys.readouterr().out


def test_a_step_says_that_nothing_of_a_gpu_is_lost_to_communication(capsys):
    told = "what communication takes from computation on the same GPU"

    assert run_command([*STEP, "--cluster", "dgx-h100"]) == 0
    assert f"not modelled: {told}" in capsys.readouterr().out
    assert told in printed(capsys, *STEP, "--cluster", "dgx-h100")["not_modelled"][0]


def test_a_trace_shows_every_rank(tmp_path, capsys):
    assert run_command([*RING, *TREE, "--trace", str(tmp_path / "trace.json")]) == 0

    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(range(16))
    assert sum(event["ph"] == "s" for event in events) == 480


def test_a_slow_link_and_a_late_rank_take_longer(capsys):
    plain = printed(capsys, *RING, *TREE)["time_s"]

    late = printed(capsys, *RING, *TREE, "--late", "3=20ms")["time_s"]

    assert plain + 0.01 < late <= plain + 0.02  # links inside the node catch up on some of it
    assert printed(capsys, *RING, *TREE, "--slow", "node0/NIC7-fabric=0.5")["time_s"] == pytest.approx(
        2 * plain, rel=0.01
    )


def test_a_step_has_the_sequences_of_its_model_unless_told(capsys):
    short = [word for word in STEP if word not in {"--seq-len", "2048"}]

    assert printed(capsys, *short, *TREE) == printed(capsys, *STEP, "--seq-len", "8192", *TREE)
    assert printed(capsys, *short, *TREE)["time_s"] > printed(capsys, *STEP, *TREE)["time_s"]


def test_a_model_that_does_not_say_how_long_a_sequence_is_needs_it(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
                                "num_attention_heads": 4, "vocab_size": 1024, "intermediate_size": 512,
                                "max_position_embeddings": 131072}))  # fmt: skip
    words = ["simulate", "--model", str(path), "--layout", "dp=8", "--global-batch", "8", *TREE]

    assert run_command(words) == 2
    assert "--seq-len: expected since" in capsys.readouterr().err


def test_a_step_is_priced_by_parts_and_traced(tmp_path, capsys):
    result = printed(capsys, *STEP, *TREE, "--trace", str(tmp_path / "step.json"))

    assert result["time_s"] == result["step_time_s"] > result["forward_s"] + result["backward_s"]
    assert result["bubble_s"] > 0
    assert [row["rank"] for row in result["ranks"]] == [0, 16]
    assert json.loads((tmp_path / "step.json").read_text())["traceEvents"]


def test_what_is_left_of_sums_of_equal_times_is_no_part_of_a_step(capsys):
    words = ["simulate", "--model", "llama3-8b", "--global-batch", "8", "--seq-len", "8192", "--cluster", "perlmutter"]
    found = printed(capsys, *words, "--layout", "tp=4,sp=1", "--gpus", "4")

    assert found["hidden_comm_s"] == 0.0


def test_a_straggler_makes_the_step_longer(capsys):
    plain, slow = (printed(capsys, *STEP, *TREE, *words)["time_s"] for words in ([], ["--straggler", "9=1.5"]))

    assert 1.1 < slow / plain < 1.5


@pytest.mark.parametrize(("words", "says"), [
    (["simulate"], "expected one of --collective NAME"),
    (["simulate", "--collective", "all_reduce", "--bytes", "1GiB"], "--cluster: expected"),
    ([*RING[:-2], *TREE], "--bytes: how much?"),
    ([*RING, "--cluster", "dgx-h1000"], "did you mean dgx-h100?"),
    ([*RING, "--cluster", "missing.json"], "missing.json: no such file"),
    ([*RING, *TREE, "--routing", "valiant"], "expected ideal or ecmp or adaptive"),
    ([*RING, *TREE, "--slow", "node0"], "expected LINK=SHARE"),
    ([*RING, *TREE, "--slow", "x>y=0.5"], "no such link"),
    ([*RING, *TREE, "--slow", "node0/NIC0>fabric=half"], "expected a share"),
    ([*RING, *TREE, "--slow", "node0/NIC0>fabric=0"], "above 0 and up to 1"),
    ([*RING, *TREE, "--cut", "node0/NIC7>fabric"], "is cut, and the routing has no other way"),
    ([*RING, *TREE, "--late", "99=1s"], "no such rank"),
    ([*RING, *TREE, "--straggler", "1=2"], "is for a step"),
    ([*STEP, *TREE, "--late", "1=1s"], "is for a collective"),
    ([*STEP, *TREE, "--alpha", "1us"], "--alpha: is for a collective"),
    ([*RING, "--cluster", "dgx-h100", "--oversubscription", "4"], "a flat network has no oversubscription"),
    ([*RING, "--cluster", "tpu-v4", "--nodes-per-leaf", "4"], "a torus network has no nodes_per_leaf"),
    ([*STEP, *TREE, "--straggler", "77=2"], "expected a rank below 32"),
    ([*STEP[:3], *TREE], "--layout: expected"),
    ([*STEP, *TREE, "--gpus", "8"], "but there are 8 ranks"),
    (["simulate", "--collective", "all_reduce", "--algorithm", "halving_doubling", "--ranks", "8000", "--bytes", "1GB",
      "--cluster", "dgx-h100"], "too many transfers"),
])  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(words, says, capsys):
    assert run_command(words) == 2

    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def collective(capsys, name, algorithm, ranks, *more):
    words = ["simulate", "--collective", name, "--algorithm", algorithm, "--ranks", str(ranks), "--bytes", "1GiB"]
    return printed(capsys, *words, "--cluster", "dgx-h100", *more)


def test_one_ring_through_one_nic_has_the_rings_of_the_library_beside_it(capsys):
    one, rings = (collective(capsys, "all_reduce", name, 32) for name in ("ring", "rings"))

    assert one["library"]["library"] == "NCCL"
    assert one["library"]["why"].endswith("by one NIC of 8")
    assert one["library"]["time_s"] == pytest.approx(rings["time_s"]) == pytest.approx(one["time_s"] / 8, rel=0.02)
    assert rings["library"] is None
    assert run_command([*RING, "--cluster", "dgx-h100"]) == 0
    assert "NCCL's way is rings (a ring for each GPU of a node" in capsys.readouterr().out


def test_rings_between_racks_go_through_the_nics_of_all_trays_of_a_rack(capsys):
    words = ["simulate", "--collective", "all_reduce", "--ranks", "144", "--bytes", "4GiB", "--cluster", "gb200-nvl72"]
    one, rings, levels = (
        printed(capsys, *words, "--algorithm", name) for name in ("ring", "rings", "hierarchical:ring/ring")
    )

    assert (rings["algorithm"], levels["algorithm"]) == ("rings:72", "hierarchical:ring/ring:72")
    assert rings["busbw_bytes_per_s"] == pytest.approx(900e9, rel=0.1)  # a GPU's links: 72 NICs of 50 GB/s carry more
    assert one["library"]["time_s"] == pytest.approx(rings["time_s"])
    assert one["library"]["why"].endswith("leaves each rack by one NIC of 72")
    uneven = printed(capsys, *words[:4], "100", *words[5:], "--algorithm", "ring")
    assert uneven["library"] is None  # of a rack and a part of another one


def test_a_ring_over_one_link_of_many_has_the_way_over_all_of_them_beside_it(capsys):
    words = ["simulate", "--collective", "all_reduce", "--algorithm", "ring", "--bytes", "1GiB", "--cluster"]
    inside = printed(capsys, *words, "mi300x-8", "--ranks", "8")
    across = printed(capsys, *words, "mi300x-8", "--ranks", "16")

    assert inside["busbw_bytes_per_s"] == pytest.approx(64e9, rel=0.01)  # one of seven links of each GPU
    assert inside["library"]["busbw_bytes_per_s"] > 3 * 64e9
    assert inside["library"]["library"] == "RCCL"
    assert across["library"]["busbw_bytes_per_s"] == pytest.approx(400e9, rel=0.01)  # all NICs of a node
    assert printed(capsys, *words, "dgx-h100", "--ranks", "8")["library"] is None


def test_one_ring_on_a_torus_says_that_compilers_run_several(capsys):
    words = ["simulate", "--collective", "all_reduce", "--ranks", "16", "--bytes", "1GiB"]
    step = [*STEP[:3], "--layout", "dp=16,zero=3", "--global-batch", "16", "--seq-len", "2048"]

    for what in ([*words, "--algorithm", "ring"], step):
        assert any("as XLA runs them" in text for text in printed(capsys, *what, "--cluster", "v5e-16")["not_modelled"])
        elsewhere = printed(capsys, *what, "--cluster", "dgx-h100")["not_modelled"]
        assert not any("XLA" in text for text in elsewhere)
    other = printed(capsys, *words, "--algorithm", "partitioned", "--cluster", "v5e-16")["not_modelled"]
    assert not any("XLA" in text for text in other)


def test_nics_that_nothing_passes_are_no_gap_of_an_answer(capsys):
    words = ["simulate", "--collective", "all_reduce", "--algorithm", "ring", "--bytes", "1GiB"]
    inside, across = (
        printed(capsys, *words, "--ranks", ranks, "--cluster", "gb200-nvl72")["not_modelled"] for ranks in ("72", "144")
    )

    assert inside == []
    assert "latency of the NICs" in across[0]


def test_nodes_that_hang_on_a_dragonfly_where_they_stand_are_not_put_on_one_switch_in_silence(capsys):
    words = ["simulate", "--collective", "all_reduce", "--algorithm", "ring", "--ranks", "16", "--bytes", "1GiB"]

    assert run_command([*words, "--cluster", "perlmutter"]) == 0
    assert "one switch between all nodes" in (told := capsys.readouterr().err)
    assert "--fabric dragonfly prices it" in told
    for other in (["perlmutter", "--fabric", "dragonfly"], ["dgx-h100"]):
        assert run_command([*words, "--cluster", *other]) == 0
        assert "one switch" not in capsys.readouterr().err


def test_an_all_to_all_in_rounds_has_one_of_messages_at_once_beside_it(capsys):
    inside, across = (collective(capsys, "all_to_all", "pairwise", ranks) for ranks in (8, 16))

    assert across["library"]["algorithm"] == "linear"
    assert across["library"]["time_s"] == pytest.approx(2**30 / 2 / 50e9)  # half leaves the node, by each GPU's NIC
    assert inside["library"] is None


def test_a_fault_of_the_network_counts_in_what_the_library_takes(capsys):
    whole, slow = (
        collective(capsys, "all_reduce", "ring", 32, *more) for more in ((), ("--slow", "node1/NIC2-fabric=0.5"))
    )

    assert slow["library"]["time_s"] == pytest.approx(2 * whole["library"]["time_s"], rel=0.02)


def test_chips_that_no_such_library_serves_have_none_beside(capsys):
    words = ["simulate", "--collective", "all_reduce", "--algorithm", "ring", "--ranks", "16", "--bytes", "1GiB"]

    assert printed(capsys, *words, "--cluster", "tpu-v5p")["library"] is None


def test_a_collective_without_an_algorithm_is_told_which_one_libraries_take(capsys):
    assert run_command(["simulate", "--collective", "all_reduce", *RING[-4:], "--cluster", "dgx-h100"]) == 2
    assert "NCCL's way is rings" in capsys.readouterr().err


def test_a_file_that_is_not_proved_is_simulated_and_said_to_be_none_of_its_collective(capsys, tmp_path):
    (tmp_path / "wrong.txt").write_text("all_gather x ranks=2 chunks=2\n0: c0:0>1\n")
    words = ["--file", str(tmp_path / "wrong.txt"), "--bytes", "1MiB", "--cluster", "dgx-h100"]

    assert run_command(["simulate", *words]) == 0
    assert "note: not proved: all_gather x on 2 ranks: rank 0 ends with nothing in slot 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("link", "meant"),
    [
        ("node0/NIC9>fabric", "node0/NIC7>fabric"),
        ("fabric>node1/NIC8", "fabric>node1/NIC"),
        ("node1/NIC0>fabrik", "node1/NIC0>fabric"),
        ("node0/GPU0-node0/NVSwitc", "node0/GPU0>node0/NVSwitch"),
    ],
)
def test_a_link_that_is_not_there_is_answered_with_few_that_are_written_like_it(capsys, link, meant):
    assert run_command([*RING, "--ranks", "16", "--cluster", "dgx-h100", "--slow", f"{link}=0.5"]) == 2
    told = capsys.readouterr().err

    assert f"did you mean {meant}" in told
    assert len(told) < 250
