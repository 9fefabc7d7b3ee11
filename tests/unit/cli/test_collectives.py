"""`meshwright collectives`, as a user types it."""

import json
from pathlib import Path

import pytest

from meshwright.cli import run_command
from meshwright.cli.named_cluster import named_cluster
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.schedules.schedule import COLLECTIVES, Schedule
from meshwright.simulate.collective import simulate_collective
from meshwright.simulate.nodes import NodesTopology
from meshwright.simulate.problem import Costs
from meshwright.simulate.traffic import named_traffic

MSCCL = Path(__file__).parents[1] / "collectives" / "msccl"


@pytest.fixture
def meshwright(capsys):
    """Return a function that runs `meshwright collectives ...` and returns exit code, output and error line."""

    def call(*words):
        code = run_command(["collectives", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_list_names_every_algorithm_with_a_description(meshwright):
    code, out, _ = meshwright("list", "--json")
    rows = json.loads(out)

    assert code == 0
    assert {(r["collective"], r["name"]) for r in rows} == {(c, n) for c in COLLECTIVES for n in algorithm_names(c)}
    assert all(len(r["description"]) > 20 for r in rows)


def test_show_prints_a_schedule_that_parses_back(meshwright, tmp_path):
    code, out, _ = meshwright("show", "ring", "--ranks", 4)
    text = out.rpartition("rounds ")[0]
    (tmp_path / "ring.txt").write_text(text)
    again = json.loads(meshwright("show", "--file", tmp_path / "ring.txt", "--json")[1])

    assert code == 0
    assert Schedule.parse(text) == build_schedule("all_reduce", "ring", 4)
    assert again["collective"] == "all_reduce"
    assert "sent most 3/2" in out


def test_verify_says_what_was_proved(meshwright):
    code, out, _ = meshwright("verify", "ring", "--ranks", 4, "--json")

    assert code == 0
    assert json.loads(out) == {
        "proved": True, "same_bits": True, "collective": "all_reduce", "name": "ring", "ranks": 4, "root": 0,
        "rounds": 6, "transfers": 24,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ring",), "ends with the same bits on all ranks"),
        (("naive",), "replicas drift apart"),
        (("ring", "--collective", "all_gather"), ""),
    ],
)
def test_verify_says_whether_floating_point_sums_end_alike(meshwright, words, says):
    code, out, _ = meshwright("verify", *words, "--ranks", 4)

    assert code == 0
    assert out.splitlines()[1:] == [line for line in out.splitlines() if says and says in line]


@pytest.mark.parametrize("path", sorted(MSCCL.glob("*.xml")), ids=lambda path: path.stem)
def test_verify_takes_msccl_files(meshwright, path):
    assert meshwright("verify", "--xml", path)[0] == 0


def test_a_wrong_schedule_is_exit_1_with_one_line(meshwright, tmp_path):
    (tmp_path / "wrong.txt").write_text("all_reduce x ranks=2 chunks=1\n0: c0:0>+1\n")
    code, out, err = meshwright("verify", "--file", tmp_path / "wrong.txt")

    assert (code, out) == (1, "")
    assert err == (
        "meshwright: all_reduce x on 2 ranks: rank 0 ends with chunk 0 without the contribution of rank 1 "
        "(that of rank 1 is never passed on)\n"
    )


def test_verify_all_proves_everything(meshwright):
    code, out, _ = meshwright("verify", "--all", "--max-ranks", 5, "--json")
    report = json.loads(out)

    assert code == 0
    assert report["proved"] == sum(row["proved"] for row in report["algorithms"])
    assert len(report["algorithms"]) == sum(len(algorithm_names(c)) for c in COLLECTIVES)


def test_price_sorts_the_algorithms_by_time(meshwright):
    code, out, _ = meshwright("price", "--ranks", 8, "--bytes", "1KiB,64MiB", "--rate", "1GB/s", "--alpha", "20us")
    small, large = out.splitlines()[:12], out.splitlines()[12:]

    assert code == 0
    assert small[0].split()[1] == "one_shot"
    assert [line.split()[1] for line in large][-2:] == ["parameter_server", "naive"]


@pytest.mark.parametrize("alpha", [(), ("--alpha", "40us")])
@pytest.mark.parametrize("node", ["dgx-h100", "aws-p5", "tpu-v4"])
def test_price_on_nodes_of_the_catalogue_is_what_simulate_finds(meshwright, node, alpha):
    (price,) = json.loads(
        meshwright("price", "ring", "--ranks", 16, "--bytes", "1MiB", "--cluster", node, "--json", *alpha)[1]
    )
    found = named_traffic("all_reduce", "ring", 16)
    topology = NodesTopology(named_cluster(node, 16), 16)
    costs = Costs(latency_s=40e-6 if alpha else None)

    assert price["time_s"] == pytest.approx(simulate_collective(found, topology, 2**20, costs=costs).result.time_s)


def test_price_of_one_schedule_on_hosts_and_on_a_cluster_file(meshwright, tmp_path):
    words = (
        "price",
        "hierarchical:partitioned/ring",
        "--ranks",
        8,
        "--ranks-per-node",
        4,
        "--bytes",
        "100MB",
        "--json",
    )
    (price,) = json.loads(
        meshwright(*words, "--rate", "100GB/s", "--alpha", "0s", "--inter", "8Gbps", "--inter-alpha", "1ms")[1]
    )
    assert price["time_s"] == pytest.approx(0.1 + 2e-3 + 1.5 * 1e-3)

    (tmp_path / "cluster.json").write_text(
        json.dumps(
            {
                "name": "pair",
                "devices": [{"id": "GPU0", "kind": "gpu"}, {"id": "GPU1", "kind": "gpu"}],
                "links": [{"a": "GPU0", "b": "GPU1", "kind": "x", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-3}],
            }
        )
    )
    (price,) = json.loads(
        meshwright("price", "ring", "--ranks", 2, "--bytes", "1GB", "--cluster", tmp_path / "cluster.json", "--json")[1]
    )
    assert price["time_s"] == pytest.approx(2 * (1e-3 + 0.5))


def test_draw_writes_a_picture(meshwright, tmp_path):
    assert meshwright("draw", "tree", "--ranks", 8, "--svg", tmp_path / "tree.svg")[:2] == (0, "")
    assert (tmp_path / "tree.svg").read_text().startswith("<svg")
    assert meshwright("draw", "tree", "--ranks", 8)[1].splitlines()[1].split() == [
        "round", *(f"r{rank}" for rank in range(8))
    ]  # fmt: skip


def test_export_and_import_are_inverse(meshwright, tmp_path):
    path = tmp_path / "gather.xml"

    assert meshwright("export", "linear", "--collective", "gather", "--ranks", 5, "--root", 3, "--output", path)[0] == 0
    assert meshwright("import", path)[1] == str(build_schedule("gather", "linear", 5, root=3))


MINE = """
from meshwright.collectives.schedules.schedule import Transfer, make

def mine(ranks):
    return make("broadcast", "mine", ranks, [[Transfer(0, r, (0,)) for r in range(1, ranks)]], chunks=1)

def wrong(ranks):
    return 3

def broken(ranks):
    return 1 / 0
"""


LOSSY = """
from meshwright.collectives.schedules.schedule import Transfer, make

def lossy(ranks):
    return make("broadcast", "lossy", ranks, [[Transfer(0, r, (0,)) for r in range(1, ranks - 1)]], chunks=1)
"""


def test_json_of_a_schedule_that_is_not_proved_holds_the_fault(meshwright, tmp_path):
    (tmp_path / "my.py").write_text(LOSSY)

    code, out, err = meshwright("verify", f"{tmp_path}/my.py:lossy", "--ranks", 4, "--json")

    answer = json.loads(out)
    assert code == 1
    assert answer["proved"] is False
    assert err == f"meshwright: {answer['fault']}\n"
    assert "rank 3" in answer["fault"]


def test_a_function_in_a_file_of_the_user_is_an_algorithm(meshwright, tmp_path):
    path = tmp_path / "my.py"
    path.write_text(MINE)

    assert meshwright("verify", f"{path}:mine", "--ranks", 4)[0] == 0
    assert meshwright("verify", f"{path}:wrong", "--ranks", 4)[::2] == (
        2, f"meshwright: {path}:wrong: expected a function from ranks to a Schedule, it returned int\n"
    )  # fmt: skip
    assert meshwright("verify", f"{path}:broken", "--ranks", 4)[::2] == (
        2, f"meshwright: {path}:broken: ZeroDivisionError: division by zero\n"
    )  # fmt: skip
    assert meshwright("verify", f"{path}:none", "--ranks", 4)[0] == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["verify", "rong", "--ranks", 4], "did you mean ring?"),
        (["verify", "ring"], "--ranks: how many?"),
        (["verify"], "expected one of NAME, --xml FILE and --file FILE"),
        (["verify", "--xml", "absent.xml"], "absent.xml: no such file"),
        (["verify", "binomial", "--ranks", 4], "say which: --collective reduce or broadcast or scatter or gather"),
        (["verify", "linear", "--collective", "gather", "--ranks", 4, "--root", 4], "root: expected 0 to 3, got 4"),
        (["verify", "hierarchical", "--ranks", 6, "--ranks-per-node", 4], "6 ranks do not fill nodes of 4"),
        (["verify", "hierarchical:ring/rinf:2", "--ranks", 4], "outer 'rinf': unknown (did you mean ring?)"),
        (["price", "ring", "--ranks", 4, "--bytes", "1MiB"], "expected one of --cluster NAME and --rate RATE"),
        (["price", "ring", "--ranks", 4, "--bytes", "1MiB", "--rate", "1GB/s"], "--alpha: expected a latency"),
        (
            ["price", "ring", "--ranks", 4, "--bytes", "1MiB", "--cluster", "dgx-h100", "--inter", "1GB/s"],
            "--inter: goes",
        ),
        (["price", "ring", "--ranks", 4, "--bytes", "1MiB", "--rate", "1GB/s", "--nics", 2], "--nics: goes with"),
        (["price", "ring", "--ranks", 4, "--bytes", "x", "--rate", "1GB/s", "--alpha", "1us"], "expected a size"),
        (["draw", "ring", "--ranks", 2, "--svg", "/nonexistent/x.svg"], "/nonexistent/x.svg"),
        (["verify", "absent.py:f", "--ranks", 2], "absent.py: no such file"),
    ],
)
def test_bad_input_is_exit_2_with_one_line(meshwright, words, reason):
    code, _, err = meshwright(*words)

    assert code == 2
    assert reason in err
    assert err.count("\n") == 1


def test_nccls_time_is_an_object_a_size(meshwright):
    arguments = ["--like", "nccl", "--ranks", 16, "--bytes", "1GiB", "--cluster", "dgx-h100", "--curve", "--json"]
    code, out, _ = meshwright("price", *arguments)
    found = [json.loads(line) for line in out.splitlines()]

    assert code == 0
    assert [one["bytes"] for one in found] == [2**power for power in range(10, 31)]
    assert set(found[0]) >= {"time_us", "algbw_GBps", "busbw_GBps", "algorithm", "protocol", "error_band", "fitted_on"}


def test_a_node_type_of_the_catalogue_is_priced_link_by_link(meshwright):
    code, out, _ = meshwright("price", "ring", "--ranks", 16, "--bytes", "1GiB", "--cluster", "dgx-h100", "--json")
    (price,) = json.loads(out)

    assert code == 0
    assert 2**30 / price["time_s"] < 400e9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ring", "--like", "nccl", "--ranks", 8, "--bytes", "1MiB", "--cluster", "dgx-h100"], "chooses its own way"),
        (["--like", "nccl", "--ranks", 8, "--bytes", "1MiB"], "expected --ranks N and --cluster"),
        (["ring", "--curve", "--ranks", 8, "--bytes", "1MiB", "--rate", "1GB/s"], "--curve: of which library"),
    ],
)
def test_what_does_not_go_with_a_library_is_said(meshwright, arguments, words):
    code, _, err = meshwright("price", *arguments)

    assert (code, words in err) == (2, True)


def test_round_trips_say_what_came_of_each_file(meshwright, tmp_path):
    meshwright("export", "ring", "--ranks", 3, "--output", tmp_path / "ring.xml")
    code, out, _ = meshwright("verify", "--round-trip", tmp_path)
    (tmp_path / "wrong.xml").write_text((tmp_path / "ring.xml").read_text().replace('type="rrc"', 'type="r"', 1))
    code_of_both, both, _ = meshwright("verify", "--round-trip", tmp_path)

    assert (code, code_of_both) == (0, 1)
    assert "ring.xml: proved; comes back equal" in out
    assert "2 files: 1 proved, 2 come back equal, 2 within msccl, 2 within rccl" in both


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--root", 1], "is a broadcast of root 2, --root says 1"), (["--collective", "reduce"], "is of broadcast")],
)
@pytest.mark.parametrize("form", ["--xml", "--file"])
def test_what_is_said_of_a_file_is_held_against_it(meshwright, tmp_path, form, words, message):
    path = tmp_path / ("b.xml" if form == "--xml" else "b.json")
    made = ["export", "binomial", "--collective", "broadcast", "--root", 2, "--ranks", 4, "--output", path]
    meshwright(*made, *([] if form == "--xml" else ["--json"]))

    code, _, err = meshwright("verify", form, path, *words)

    assert (code, meshwright("verify", form, path, "--root", 2)[0]) == (2, 0)
    assert message in err


@pytest.mark.parametrize(
    "words",
    [
        ("price", "--bytes", "1MB", "--rate", "1GB/s", "--alpha", "1us"),
        ("price", "--bytes", "1MB", "--rate", "1GB/s", "--alpha", "1us", "--json"),
        ("draw",),
        ("show",),
    ],
)
def test_what_is_said_of_a_schedule_that_is_not_proved_says_so_beside_it(meshwright, tmp_path, words):
    wrong, right = tmp_path / "wrong.txt", tmp_path / "right.txt"
    wrong.write_text("all_reduce x ranks=2 chunks=1\n0: c0:0>+1\n")
    right.write_text("all_reduce x ranks=2 chunks=1\n0: c0:0>+1 c0:1>+0\n")
    command, *rest = words
    code, out, err = meshwright(command, "--file", wrong, *rest)

    assert code == 0
    assert out
    assert "note: not proved: all_reduce x on 2 ranks: rank 0 ends with chunk 0 without the contribution" in err
    assert meshwright(command, "--file", right, *rest)[2] == ""
