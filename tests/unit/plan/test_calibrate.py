"""`--calibrate`: a few measured steps of one's own, what they say, and where it holds."""

import csv
import io
import itertools
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from benchmarks.published_sweeps import collective_tables
from meshwright import cli
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic.calibration import Calibration, MeasuredStep, narrowed_band, read_calibration
from meshwright.plan.analytic.coefficients import ROLES, book
from meshwright.plan.analytic.factors import FACTORS, adjusted
from meshwright.plan.fitting.calibrate import calibrate_from_runs
from meshwright.plan.tables.batch import batch_of, step_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.report.calibration import show_calibration

PUBLISHED = collective_tables().parent / "training_runs_2.csv"
BASE = {
    **{"family": "house", "gpu": "H100-80GB-SXM", "num_gpus": "64", "layers": "32", "hidden": "4096", "heads": "32"},
    **{"kv_heads": "8", "ffn_hidden": "14336", "vocab": "128256", "gated_mlp": "1", "seq_len": "8192", "pp": "1"},
    **{"global_batch_sequences": "128", "micro_batch": "1", "zero_stage_fsdp": "1", "precision": "bf16"},
}
PLAN = [*("plan", "--model", "llama3-8b", "--gpus", "64", "--global-batch", "128", "--layout", "tp=2,dp=32,zero=1")]


def lines(*changes: dict[str, str]) -> list[dict[str, str]]:
    return [{"id": f"mine-{place}", **BASE, **change} for place, change in enumerate(changes)]


def written(path, rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())
    return str(path)


def rows_of(path):
    return read_rows(path, load_catalogue(), book(), known_models())


def measured_by(tmp_path, rows, factors: dict[str, float]):
    """Return the rows with the steps that a machine and a stack with these factors would take."""
    runs = [row.run for row in rows_of(written(tmp_path / "bare.csv", rows))]
    times_s = np.asarray(step_of(batch_of(runs, load_catalogue(), book()), book().values, factors).total_s)
    return [{**row, "step_time_s": f"{time:.6g}"} for row, time in zip(rows, times_s, strict=True)]


def calibrated(path, **more):
    return calibrate_from_runs(path, load_catalogue(), book(), known_models(), made="2026-01-01", **more)


LAYOUTS = ({"tp": "8"}, {"tp": "4"}, {"tp": "2", "pp": "4"}, {"tp": "1"}, {"tp": "1", "global_batch_sequences": "64"})


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    """Runs of a stack that is a fifth slower than its kind, and what a calibration finds in them."""
    folder = tmp_path_factory.mktemp("late")
    rows = measured_by(folder, lines(*LAYOUTS), {"pace": 1.2})
    return rows, calibrated(written(folder / "runs.csv", rows))


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A table of runs, and the file that `--save` makes of it."""
    folder = tmp_path_factory.mktemp("mine")
    rows = measured_by(folder, lines(*LAYOUTS), {"pace": 1.2, "network": 0.7})
    table, kept = written(folder / "runs.csv", rows), str(folder / "mine.json")
    assert cli.run_command(["validate", "--calibrate", table, "--save", kept]) == 0
    return table, kept


def test_a_slow_network_is_told_from_a_slow_stack(tmp_path, late):
    narrow = lines(*({**layout, "inter_node_Gbps_per_node": "200"} for layout in LAYOUTS))  # traffic shows
    slow = measured_by(tmp_path, narrow, {"network": 0.4})

    network = calibrated(written(tmp_path / "slow.csv", slow))
    pace = late[1]

    assert network.factors["network"] < 0.9
    assert abs(np.log(network.factors["network"])) > 2 * abs(np.log(network.factors["pace"]))
    assert pace.of_model(rows_of(tmp_path / "slow.csv")[0].run.architecture).factors["pace"] > 1.07
    assert pace.factors["network"] == pytest.approx(1.0, abs=0.1)
    for found in (network, pace):
        assert sum(abs(run.left_out) for run in found.runs) < sum(abs(run.before) for run in found.runs) / 2


def unfitted():
    """Return the constants as they are held before any run is seen."""
    known = book()
    prior = {name: msgspec.structs.replace(one, value=one.prior) for name, one in known.constants.items()}
    return msgspec.structs.replace(known, constants=prior)


def test_two_runs_halve_the_error_of_a_stack_that_was_never_seen(tmp_path):
    with PUBLISHED.open() as file:
        table = [line for line in csv.DictReader(file) if line["family"] == "simumax_dense"]
    for line in table:
        line |= {"config": str(PUBLISHED.parent / line["config"]), "family": "nobodys"}
    known, catalogue, models = unfitted(), load_catalogue(), known_models()
    rows = read_rows(written(tmp_path / "all.csv", table), catalogue, known, models)
    before = np.mean([abs(outcome.error) for outcome in predict(rows, catalogue, known)])
    after = []
    for pair in itertools.islice(itertools.combinations(table, 2), 0, None, 15):
        path = written(tmp_path / "pair.csv", pair)
        found = calibrate_from_runs(path, catalogue, known, models, made="2026-01-01")
        rest = [row for row in rows if row.id not in {line["id"] for line in pair}]
        after.append(np.mean([abs(outcome.error) for outcome in predict(rest, catalogue, known, found)]))

    assert len(table) == 15
    assert len(after) == 7
    assert np.mean(after) < before / 2


def test_a_row_is_never_predicted_by_its_own_measurement(tmp_path):
    rows = measured_by(tmp_path, lines(*LAYOUTS), {"pace": 1.2, "network": 0.7})
    other = [{**rows[0], "step_time_s": str(2 * float(rows[0]["step_time_s"]))}, *rows[1:]]
    found = []
    for name, table in (("a.csv", rows), ("b.csv", other)):
        path = written(tmp_path / name, table)
        found.append(predict(rows_of(path), load_catalogue(), book(), calibrated(path))[0])

    assert found[0].step_time_s == found[1].step_time_s
    assert found[0].step_time_s > 1.05 * predict(rows_of(path), load_catalogue(), book())[0].step_time_s


def test_the_only_measured_run_is_predicted_as_without_a_calibration_and_says_so(tmp_path):
    rows = measured_by(tmp_path, lines(*LAYOUTS), {"pace": 1.2})
    table, one = rows_of(written(tmp_path / "all.csv", rows)), written(tmp_path / "one.csv", rows[:1])

    plain, with_it = (predict(table, load_catalogue(), book(), each) for each in (None, calibrated(one)))

    assert with_it[0].step_time_s == plain[0].step_time_s
    assert with_it[0].error_band == plain[0].error_band > with_it[1].error_band
    assert with_it[0].origin == plain[0].origin + "; this run, the only one of one.csv, is left out"
    assert with_it[1].origin.startswith("measured here: 1 run of one.csv")


def test_a_measured_run_counts_the_others_alone(tmp_path, late):
    rows, found = late

    outcome = predict(rows_of(written(tmp_path / "runs.csv", rows)), load_catalogue(), book(), found)[0]

    assert outcome.origin.startswith(f"measured here: {len(LAYOUTS) - 1} other runs of runs.csv")


def test_repeats_of_a_run_count_once(tmp_path, late):
    rows, once = late
    again = [{**rows[0], "id": f"again-{place}"} for place in range(5)]

    often = calibrated(written(tmp_path / "again.csv", [*rows, *again]))

    assert often.factors == pytest.approx(once.factors, abs=1e-4)
    assert len(often.runs) == len(once.runs) == len(LAYOUTS)


def test_other_stacks_and_accelerators_are_left_alone(tmp_path, late):
    found = late[1]
    others = lines({"family": "another"}, {"family": "bridge"}, {"gpu": "B200", "family": "another"})
    table = rows_of(written(tmp_path / "others.csv", others))
    plain, with_it = (
        predict(table, load_catalogue(), book(), one) for one in (None, msgspec.structs.replace(found, runs=()))
    )

    assert with_it[2] == plain[2]
    only_machine = {name: value for name, value in found.factors.items() if FACTORS[name].machine}
    assert found.concerns("since-2024", "another", "h100") == tuple(only_machine)
    assert with_it[0].step_time_s != plain[0].step_time_s  # the same machines


def test_the_band_of_another_layout_narrows_with_each_run(tmp_path):
    rows = measured_by(tmp_path, lines(*LAYOUTS, {"tp": "2"}), {"pace": 1.1})
    other = rows_of(written(tmp_path / "other.csv", rows[-1:]))
    bands = []
    for count in (1, 2, 5):
        found = calibrated(written(tmp_path / f"{count}.csv", rows[:count]))
        bands.append(predict(other, load_catalogue(), book(), found)[0].error_band)

    assert book().band("since-2024") > bands[0] > bands[1] > bands[2] > 1.645 * 0.06


def test_without_a_run_a_band_stays_as_it_is():
    assert float(narrowed_band(0.3, 0.01, 0.01, experts=0, misfit=1.0)) == pytest.approx(0.3)
    assert float(narrowed_band(0.3, 0.01, 0.0, experts=0, misfit=1.0)) == pytest.approx(1.645 * 0.06)
    assert float(narrowed_band(0.3, 0.01, 0.0, experts=0, misfit=4.0)) == pytest.approx(2 * 1.645 * 0.06)


def test_runs_that_are_further_off_than_they_should_be_widen_the_band():
    assert float(narrowed_band(0.1, 0.01, 0.01, experts=0, misfit=4.0)) == pytest.approx(0.2)
    assert float(narrowed_band(0.1, 0.01, 0.0, experts=0, misfit=4.0)) == pytest.approx(2 * 1.645 * 0.06)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_time_s": ""}, "mine-1: no step_time_s; expected the measured seconds of a step"),
        ({"step_time_s": "fast"}, "mine-1: step_time_s"),
        ({"gpu": "B200", "step_time_s": "1.0"}, "gpu b200 and h100: expected runs of one"),
        ({"family": "bridge", "step_time_s": "1.0"}, "stack bridge and house: expected runs of one"),
        ({"tp": "3", "step_time_s": "1.0"}, "mine-1: tp"),
        (
            {"step_time_s": "1.0", "tokens_per_s_per_gpu": "4"},
            "mine-1: step_time_s 1, but its 4 tokens/s of a GPU make",
        ),
    ],
)
def test_a_table_that_says_too_little_or_too_much_is_refused(tmp_path, change, message):
    rows = lines({"tp": "2", "step_time_s": "3.0"}, {"tp": "4", **change})

    with pytest.raises(InputError) as caught:
        calibrated(written(tmp_path / "runs.csv", rows))

    assert message in str(caught.value)


def test_runs_of_several_stacks_and_accelerators_are_named_with_their_rows_and_names_of_one_stack_are_one(tmp_path):
    changes = ({"family": "megatron"}, {"family": "Megatron-LM", "tp": "2"}, {"family": "torchtitan", "gpu": "B200"})
    rows = lines(*({"tp": "4", "step_time_s": "3.0", **change} for change in changes))

    with pytest.raises(InputError) as caught:
        calibrated(written(tmp_path / "runs.csv", rows))

    assert "stack megatron and torchtitan" in str(caught.value)
    assert "(megatron: mine-0, mine-1; torchtitan: mine-2)" in str(caught.value)
    assert "(b200: mine-2; h100: mine-0, mine-1)" in str(caught.value)


def test_a_run_that_a_table_repeats_is_named_once_and_columns_that_nothing_reads_are_said(tmp_path, capsys):
    row = lines({"tp": "2", "step_time_s": "3.0", "MFU": "0.4"})[0]
    path = written(tmp_path / "runs.csv", [row, row, row])

    assert [one.id for one in calibrated(path).runs] == ["mine-0 (3 times)"]
    assert cli.run_command([*PLAN, "--cluster", "dgx-h100", "--calibrate", path]) == 0
    assert "runs.csv: column MFU: not read" in capsys.readouterr().err


def test_coefficients_of_the_factors_stay_shares(tmp_path):
    from meshwright.plan.analytic.coefficients import coefficients

    c = coefficients(book(), "bridge", "h100", "bf16")

    assert adjusted(c, {}) == c
    assert adjusted(c, {"tensor": 1000.0}).tp_hidden == 0.0
    assert adjusted(c, {"exposed": 1000.0}).dp_drag == 1.0
    assert {role for factor in FACTORS.values() for role in factor.roles} <= set(ROLES)


def priced(capsys, *words):
    capsys.readouterr()
    assert cli.run_command([*PLAN, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["predicted"]


def test_the_saved_file_is_a_stack_and_a_cluster_and_prices_as_the_runs_do(capsys, mine):
    table, kept = mine

    at_once = priced(capsys, "--calibrate", table, "--cluster", "dgx-h100")
    both = priced(capsys, "--cluster", kept, "--stack", kept)
    software = priced(capsys, "--cluster", "dgx-h100", "--stack", kept)
    machines = priced(capsys, "--cluster", kept, "--stack", "since-2024")
    neither = priced(capsys, "--cluster", "dgx-h100", "--stack", "since-2024")

    assert both["step_time_s"] == pytest.approx(at_once["step_time_s"])
    assert both["step_time_s"] > software["step_time_s"] > neither["step_time_s"]
    assert both["step_time_s"] > machines["step_time_s"] > neither["step_time_s"]
    assert both["error_band"] < neither["error_band"]
    assert both["calibration"][0] == "measured here: 5 runs of runs.csv"
    assert software["calibration"][0].endswith("its software alone")
    assert machines["calibration"][0].endswith("its machines alone")
    assert neither["calibration"][0].startswith("fitted on ")


def test_the_file_says_what_it_comes_from(mine):
    found = read_calibration(mine[1])

    assert (found.table, found.stack, found.family, found.accelerator) == ("runs.csv", "since-2024", "house", "h100")
    assert len(found.sha256) == 64
    assert [run.id for run in found.runs] == [f"mine-{place}" for place in range(5)]
    assert all(abs(run.left_out) < abs(run.before) for run in found.runs)
    assert found.cluster is not None
    assert found.cluster.num_gpus == 64


def test_a_file_of_other_constants_is_in_doubt(capsys, mine, tmp_path):
    kept = tmp_path / "old.json"
    document = json.loads(Path(mine[1]).read_text()) | {"constants": "0" * 16}
    kept.write_text(json.dumps(document))

    fresh, old = (priced(capsys, "--cluster", one, "--stack", one) for one in (mine[1], str(kept)))

    assert any("of the constants of another version" in text for text in old["not_modelled"])
    assert old["error_band"] == pytest.approx(fresh["error_band"] + 0.1)


@pytest.mark.parametrize("name", ["house", "House"])
def test_the_stack_may_be_named_as_the_table_of_runs_names_it(capsys, mine, name):
    named, unnamed = (
        priced(capsys, "--cluster", "dgx-h100", "--calibrate", mine[0], *more) for more in (("--stack", name), ())
    )

    assert named == unnamed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["validate", "--save", "x.json"], "--save: needs --calibrate RUNS.csv"),
        ([*PLAN, "--cluster", "dgx-h100", "--stack", "{cluster}"], "expected a calibration"),
        ([*PLAN, "--cluster", "dgx-h100", "--stack", "{kept}", "--calibrate", "{table}"], "expected one of them"),
        (
            [*PLAN, "--cluster", "dgx-h100", "--stack", "bridge", "--calibrate", "{table}"],
            "runs of house, not of bridge",
        ),
        (
            [*PLAN, "--calibrate", "{table}", "--cluster", "dgx-h100", "--stack", "hut"],
            "--stack hut: no such stack",
        ),
        ([*PLAN, "--cluster", "dgx-h100", "--stack", "house"], "--stack house: no such stack"),
        (["validate", "--calibrate", "{table}", "--save", "x.yaml"], "expected a name that ends in .json"),
        (["validate", "--calibrate", "nowhere.csv"], "nowhere.csv: no such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(capsys, mine, tmp_path, words, message):
    cluster = tmp_path / "cluster.json"
    cluster.write_text('{"name": "x"}')
    names = {"table": mine[0], "kept": mine[1], "cluster": str(cluster)}
    capsys.readouterr()

    assert cli.run_command([word.format(**names) for word in words]) == 2

    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error


def test_runs_of_one_table_are_shown_with_their_errors_left_out(capsys, mine):
    capsys.readouterr()
    assert cli.run_command(["validate", "--calibrate", mine[0]]) == 0
    text = " ".join(capsys.readouterr().out.split())

    assert "calibrated on 5 runs of house on h100" in text
    assert "left out, each predicted by the others:" in text
    assert f"the band of such runs narrows from {book().band('since-2024'):.0%} to" in text


def test_a_band_that_stays_is_said_to_and_runs_outside_it_are_named(capsys):
    run = MeasuredStep(
        id="r1", inputs="", layout="dp=8", gpus=8, measured_step_time_s=1.0, before=0.4, fitted=0.1, left_out=0.3,
        without={},
    )  # fmt: skip
    inside = msgspec.structs.replace(run, id="r2", left_out=0.01)
    kept = {"table": "runs.csv", "sha256": "", "made": "", "constants": ""}
    found = Calibration(
        stack="titan", family="", accelerator="h100", factors={}, covariance=(), spreads={}, band=0.136,
        band_before=0.1361, misfit=1.0, runs=(run, inside), **kept,
    )  # fmt: skip

    show_calibration(Console(width=200), found)

    assert "the band of such runs stays at 14%; outside it: r1\n" in capsys.readouterr().out

    show_calibration(Console(width=200), msgspec.structs.replace(found, band=0.31))

    assert "the band of such runs widens from 14% to 31%\n" in capsys.readouterr().out


def test_a_step_that_its_accelerators_cannot_take_or_in_another_unit_is_refused(tmp_path):
    (row,) = measured_by(tmp_path, lines({"tp": "1", "recompute": "full"}), {})
    second = float(row["step_time_s"])
    least = 51.47e9 * 128 * 8192 / 64 / 989.4e12  # of three passes; full recomputation has a fourth one of the layers
    for time, told in (
        (0.9 * least, "at the peak of 64 h100 it takes"),
        (1.1 * least, "at the peak of 64 h100 it takes"),
        (second * 1000, "in milliseconds\\?"),
        (second * 50, "expected the seconds of a step, of which .* are predicted$"),
    ):
        with pytest.raises(InputError, match=told):
            calibrated(written(tmp_path / "runs.csv", [{**row, "step_time_s": f"{time:.6g}"}]))

    plain = [{**row, "recompute": "none", "step_time_s": f"{1.1 * least:.6g}"}]
    assert calibrated(written(tmp_path / "runs.csv", plain)).factors["pace"] < 1.0
    slow = written(tmp_path / "runs.csv", [{**row, "step_time_s": f"{3 * second:.6g}"}])
    assert calibrated(slow).factors["pace"] > 1.1


def test_the_own_pace_of_a_model_is_told_from_that_of_its_stack(tmp_path):
    wide = {"hidden": "8192", "heads": "64", "ffn_hidden": "28672", "tp": "8"}
    slow = measured_by(tmp_path, lines(*LAYOUTS[:2]), {"pace": 1.3})
    usual = measured_by(tmp_path, lines(wide, {**wide, "pp": "2"}), {})
    usual = [{**row, "id": f"wide-{place}"} for place, row in enumerate(usual)]
    found = calibrated(written(tmp_path / "both.csv", [*slow, *usual]))
    models = [row.run.architecture for row in rows_of(tmp_path / "both.csv")]
    stranger = msgspec.structs.replace(models[0], num_hidden_layers=48)

    narrow, _, broad, _ = [found.of_model(model).factors["pace"] for model in models]
    assert narrow > found.of_model(stranger).factors["pace"] > broad
    spreads = [np.array(found.of_model(model).covariance)[-1, -1] for model in (models[0], stranger)]
    assert spreads[0] < spreads[1]
    assert found.part(machine=True).models == {}
    assert found.part(machine=False).of_model(models[0]).factors["pace"] == narrow
