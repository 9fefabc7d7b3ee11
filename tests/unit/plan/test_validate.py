"""`meshwright validate` on published runs and on tables that somebody wrote by hand."""

import csv
import io
import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.published_sweeps import collective_tables
from meshwright import cli
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, performance, price_layouts
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.fits import word
from meshwright.plan.analytic.price import flops_per_token, verdicts_in
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.tables.row_machine import accelerator_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import RowOutcome, Unpriced, known_models, predict, summarise
from meshwright.workload.models import load_model

PUBLISHED = collective_tables().parent / "training_runs.csv"
RUN = {
    **{"id": "mine-1", "family": "mine", "gpu": "H100-80GB-SXM", "num_gpus": "16", "layers": "32", "hidden": "4096"},
    **{"heads": "32", "kv_heads": "8", "ffn_hidden": "14336", "vocab": "128256", "gated_mlp": "1", "seq_len": "8192"},
    **{"global_batch_sequences": "32", "micro_batch": "1", "tp": "2", "pp": "1", "dp": "8", "precision": "bf16"},
    **{"step_time_s": "3.0"},
}


def table(*rows: dict[str, str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def outcomes(tmp_path, *rows: dict[str, str]):
    path = tmp_path / "runs.csv"
    path.write_text(table(*rows))
    catalogue, known = load_catalogue(), book()
    return predict(read_rows(path, catalogue, known, known_models()), catalogue, known)


@pytest.fixture(scope="module")
def published():
    catalogue, known = load_catalogue(), book()
    rows = read_rows(PUBLISHED, catalogue, known, known_models())
    return rows, predict(rows, catalogue, known)


def errors_of(published, family: str, *, experts: bool = False) -> np.ndarray:
    rows, found = published
    return np.abs(
        [
            outcome.error
            for row, outcome in zip(rows, found, strict=True)
            if isinstance(outcome, RowOutcome) and outcome.error is not None and row.family == family
            if (row.run.architecture.experts > 0) == experts and "micro-batch 1" not in row.run.assumed
        ]
    )


@pytest.mark.parametrize(
    ("family", "most"),
    [
        *(
            ("bloom", 5),
            ("sc21t1", 4),
            ("korth", 4),
            ("mpt", 4.5),
            ("dgxc", 4.5),
            ("titan", 7),
            ("fms", 8),
            ("bridge", 9),
        ),
        *(("vtrainm", 7), ("vtrains", 6)),
    ],
)
def test_the_stored_constants_reproduce_the_published_runs_of_a_family(published, family, most):
    assert 100 * errors_of(published, family).mean() < most


def test_korthikantis_runs_are_closer_than_with_hand_set_constants(published):
    assert errors_of(published, "korth").max() < 0.08  # Calculon's worst is 8.87 %


def test_the_layout_predicted_to_be_the_fastest_of_a_sweep_is_at_most_a_tenth_slower_than_the_fastest(published):
    sweeps: dict[object, list[tuple[float, float, str]]] = {}
    for row, outcome in zip(*published, strict=True):
        if (
            isinstance(outcome, RowOutcome)
            and outcome.measured_step_time_s
            and row.family in {"vtrainm", "vtrains", "bloom"}
        ):
            run = row.run
            times = (outcome.step_time_s, outcome.measured_step_time_s, str(run.layout))
            sweeps.setdefault((row.family, run.architecture, run.gpus, run.global_batch), []).append(times)

    compared = [runs for runs in sweeps.values() if len({layout for _, _, layout in runs}) >= 4]
    regrets = [min(runs)[1] / min(measured for _, measured, _ in runs) - 1 for runs in compared]
    assert len(regrets) >= 10
    assert max(regrets) < 0.10
    assert np.mean(regrets) < 0.03


def test_runs_with_experts_are_within_20_percent_on_average(published):
    assert errors_of(published, "bridge", experts=True).mean() < 0.20


def test_every_published_row_has_a_price_or_a_reason(published):
    rows, found = published

    assert [row.id for row in rows] == [outcome.id for outcome in found]
    assert all(o.step_time_s > 0 and o.peak_memory_bytes_per_gpu > 1e8 for o in found if isinstance(o, RowOutcome))
    assert all(o.reason for o in found if isinstance(o, Unpriced))
    assert any("num_gpus" in o.reason for o in found if isinstance(o, Unpriced) and o.id == "bloom-023")


def test_no_run_that_was_published_breaks_a_rule_of_its_engine(published):
    """A rule that a run contradicts is wrong: all of these ran."""
    rows = [(row, outcome) for row, outcome in zip(*published, strict=True) if isinstance(outcome, RowOutcome)]

    assert len(rows) > 600
    assert {row.id: outcome.breaks for row, outcome in rows if outcome.breaks} == {}


def test_what_was_measured_never_enters_a_prediction(tmp_path):
    absent = {key: value for key, value in RUN.items() if key != "step_time_s"}
    empty, other = RUN | {"step_time_s": ""}, RUN | {"step_time_s": "99"}

    predicted = {outcomes(tmp_path, row)[0].step_time_s for row in (RUN, absent, empty, other)}
    assert len(predicted) == 1
    assert outcomes(tmp_path, empty)[0].error is None
    assert outcomes(tmp_path, other)[0].error == pytest.approx(predicted.pop() / 99 - 1)


def test_a_row_is_priced_without_optional_columns_and_for_any_known_gpu(tmp_path):
    few = ("id", "gpu", "num_gpus", "seq_len", "global_batch_sequences", "precision")
    row = {key: RUN[key] for key in few} | {"model_name": "LLAMA3_8B"}
    rows = [row | {"gpu": gpu} for gpu in ("MI300X", "RTX 3090", "A800-80GB", "B200-SXM (DGX B200)")]

    found = outcomes(tmp_path, *rows)
    assert all(isinstance(outcome, RowOutcome) for outcome in found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "TPU-v5"}, "TPU-v5"),
        ({"tp": "3"}, "num_gpus"),
        ({"global_batch_sequences": "12"}, "global_batch_sequences"),
        ({"hidden": "wide"}, "hidden"),
        ({"hidden": "", "model_name": "nobody-knows"}, "nobody-knows"),
        ({"precision": "int3"}, "int3"),
        ({"gpu": "A100-80GB-SXM", "precision": "fp8"}, "fp8"),
        ({"layers": "-4"}, "layers"),
        ({"num_gpus": "nan"}, "num_gpus"),
        ({"seq_len": "1e99"}, "seq_len"),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(tmp_path, change, reason):
    good, bad = outcomes(tmp_path, RUN, RUN | change)

    assert isinstance(good, RowOutcome)
    assert isinstance(bad, Unpriced)
    assert reason in bad.reason


def test_json_is_one_object_a_row_and_the_summary_goes_to_stderr(tmp_path):
    path = tmp_path / "runs.csv"
    said = RUN | {"recompute": "none"}
    path.write_text(table(said, said | {"id": "mine-2", "gpu": "abacus"}))
    result = CliRunner().invoke(cli.group, ["validate", str(path), "--json"])

    first, second = map(json.loads, result.stdout.splitlines())
    keys = ["id", "family", "step_time_s", "peak_memory_bytes_per_gpu", "fits", "measured_step_time_s", "error"]
    assert list(first)[: len(keys)] == keys
    assert (first["stack"], first["error_band"]) == ("since-2024", book().errors["unseen"].band)
    assert any("family mine: no such stack" in text for text in first["assumed"])
    assert second.keys() == {"id", "family", "reason"}
    assert "mine" in result.stderr
    assert "none of the measured ones" in result.stderr


def test_a_row_says_the_same_alone_as_in_a_table_of_others_that_differ_in_all_that_can_be_said(tmp_path):
    one = RUN | {"family": "trl", "tp": "1", "dp": "16", "step_time_s": ""}
    rows = [
        one | {"id": "frozen", "lora_rank": "8", "weights": "nf4", "zero_stage_fsdp": "0", "recompute": "full"},
        one | {"id": "away", "offload": "parameters", "zero_stage_fsdp": "3", "family": "deepspeed"},
        one | {"id": "moments", "offload": "optimizer", "zero_stage_fsdp": "1", "optimizer": "adam8bit"},
        one
        | {"id": "pages", "optimizer": "paged-adam8bit-in-backward", "activations_away": "input", "recompute": "full"},
        one | {"id": "halves", "weights": "bf16", "loss": "fused", "recompute": "selective", "family": "torchtitan"},
        one | {"id": "names", "recompute": "selective", "recompute_modules": "layernorm,mlp", "family": "megatron"},
        one | {"id": "rings", "cp": "2", "dp": "8", "precision": "fp8", "family": "bridge", "overlap": "dp"},
        one | {"id": "old", "year": "2022", "precision": "fp16", "family": "nobody"},
    ]

    together = outcomes(tmp_path, *rows)

    for row, found in zip(rows, together, strict=True):
        (alone,) = outcomes(tmp_path, row)
        assert isinstance(found, RowOutcome)
        assert isinstance(alone, RowOutcome)
        assert found.step_time_s == pytest.approx(alone.step_time_s, rel=1e-9)
        assert found.peak_memory_bytes_per_gpu == pytest.approx(alone.peak_memory_bytes_per_gpu, rel=1e-9)
        assert (found.fits, found.error_band) == (alone.fits, alone.error_band)


def test_a_row_says_which_activations_lie_on_the_hosts(tmp_path):
    row = RUN | {"family": "torchtitan", "recompute": "full", "global_batch_sequences": "32"}

    away = [row | {"id": name, "activations_away": name} for name in ("input", "inputs")]
    here, there, wrong, own = outcomes(tmp_path, row, *away, away[0] | {"id": "own", "family": "meshwright"})

    assert there.peak_memory_bytes_per_gpu < here.peak_memory_bytes_per_gpu
    assert any("activations lie on the host" in text for text in there.doubts)
    assert "activations_away: 'inputs': no such activations (did you mean input?)" in wrong.reason
    assert "activations_away: not of our own engine" in own.reason


def test_of_one_gpu_no_zero_is_assumed(tmp_path):
    row = RUN | {"family": "torchtune", "tp": "1", "num_gpus": "1", "dp": "1", "global_batch_sequences": "1"}

    one, two = outcomes(tmp_path, row, row | {"id": "b", "num_gpus": "2", "dp": "2", "global_batch_sequences": "2"})

    assert "ZeRO 3" in two.assumed
    assert not any("ZeRO" in text for text in one.assumed)


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", '"', "\x00\x01"])
def test_a_file_that_is_no_table_of_runs_is_one_line(tmp_path, content):
    path = tmp_path / "runs.csv"
    path.write_text(content)

    with pytest.raises(InputError, match=r"runs\.csv"):
        read_rows(path, load_catalogue(), book(), {})


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("A100-SXM", "a100-80g"),
        ("A100-40GB-SXM", "a100-40g"),
        ("H100-80GB-SXM (DGX H100)", "h100"),
        ("H100-96GB-HBM2e-SXM(500W)", "h100-96g"),
        ("GB200-NVL72", "gb200"),
        ("B300-SXM (DGX B300)", "b300"),
        ("v5p", "tpu-v5p"),
        ("v5litepod", "tpu-v5e"),
        ("Trillium", "tpu-v6e"),
    ],
)
def test_a_gpu_is_found_by_the_name_that_tables_give_it(name, key):
    assert accelerator_of(load_catalogue(), name) == key


def test_the_constants_are_few_bounded_and_explained():
    known = book()

    assert len(known.constants) <= 60
    for name, constant in known.constants.items():
        assert constant.low <= constant.value <= constant.high, name
        assert constant.low <= constant.prior <= constant.high, name
        assert constant.meaning, name


@pytest.mark.parametrize("text", ["3,697", "3.6-3.7", "3697 ticks", "-3.7", "0", "inf", "fast"])
def test_a_measured_cell_that_holds_no_figure_is_named(tmp_path, text):
    path = tmp_path / "runs.csv"
    path.write_text(f'id,gpu,num_gpus,step_time_s,peak_memory_bytes_per_gpu\nx,h100,8,"{text}",7\ny,h100,8,n/a,\n')

    first, second = read_rows(path, load_catalogue(), book(), known_models())

    assert (first.measured_step_time_s, first.measured_peak_memory_bytes) == (None, 7)
    why = "is 3697 or 3.697" if text == "3,697" else "is no number above 0"
    assert first.unreadable == (f"step_time_s: {text!r} {why}, so it counts as not measured",)
    assert second.unreadable == ()


def test_every_row_says_where_its_constants_come_from(tmp_path):
    rows = (RUN, {**RUN, "family": "bridge"}, {**RUN, "family": "megatron"}, {**RUN, "gpu": "MI300X"})
    origins = [outcome.origin for outcome in outcomes(tmp_path, *rows)]

    assert origins[0].startswith("fitted on ")
    assert origins[0].endswith("of this accelerator, none of this stack")
    assert origins[1].endswith("of this stack")
    assert origins[2].endswith("of stack bridge")
    assert origins[3] == "prior"


@pytest.mark.parametrize("offload", ["none", "optimizer", "parameters"])
def test_a_row_that_offloads_is_priced_as_plan_prices_it(tmp_path, offload):
    zero = 3 if offload == "parameters" else 1
    row = {
        **{"id": "1", "family": "meshwright", "gpu": "H100-80GB-SXM", "num_gpus": "8", "model_name": "llama3-8b"},
        **{"seq_len": "4096", "global_batch_sequences": "64", "micro_batch": "1", "dp": "8", "offload": offload},
        **{"zero_stage_fsdp": str(zero), "recompute": "full", "precision": "bf16"},
    }
    layout = Layout.parse(f"dp=8,mbs=1,zero={zero},recompute=full,offload={offload}")
    given = Setting(
        architecture=known_models()["llama3-8b"],
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 8), gpus=8, global_batch=64,
        seq_len=4096,
    )  # fmt: skip

    found = outcomes(tmp_path, row)[0]
    prices = price_layouts(given, Grid.of([layout]))

    assert found.step_time_s == pytest.approx(prices.terms(0)["step_time_s"], rel=1e-9)
    assert found.peak_memory_bytes_per_gpu == pytest.approx(prices.terms(0)["reserved_bytes"], rel=1e-9)
    assert found.fits == word(verdicts_in(given, Grid.of([layout]), prices)[0])
    said = performance(given, prices, 0, layout)
    assert any(text.startswith("offload: no run that offloads") for text in found.doubts) == (offload != "none")
    assert found.error_band == pytest.approx(said.error_band)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offload": "weights"}, "offload: 'weights': expected none, optimizer, parameters"),
        ({"offload": "parameters", "zero_stage_fsdp": "1"}, "offload: parameters come from the host layer by layer"),
    ],
)
def test_an_offload_that_is_none_is_refused_with_the_reason(tmp_path, change, reason):
    assert reason in outcomes(tmp_path, RUN | change)[0].reason


def test_a_step_faster_than_the_peak_of_its_gpus_is_doubted_and_counts_in_no_error(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(table(RUN, {**RUN, "id": "too-fast", "step_time_s": "0.1"}))
    done = CliRunner().invoke(cli.group, ["validate", str(path), "--json"])
    plain, fast = (json.loads(line) for line in done.stdout.splitlines())

    assert (plain["not_counted"], fast["error"], fast["measured_step_time_s"]) == ("", None, 0.1)
    assert "too-fast: not counted in the errors: measured 0.1 s, but at the peak of 16 h100 it takes" in done.stderr
    rows = read_rows(path, load_catalogue(), book(), known_models())
    (summary,) = summarise(predict(rows, load_catalogue(), book()), book())
    assert (summary.priced, summary.measured) == (2, 1)
    assert summary.worst == summary.mean == abs(plain["error"])


def test_a_step_that_its_tokens_a_second_contradict_is_named_and_counts_in_no_error(tmp_path):
    per_gpu = 32 * 8192 / 16 / 3.0  # of the row's step of 3 s
    rows = [RUN | {"id": str(share), "tokens_per_s_per_gpu": str(share * per_gpu)} for share in (1.0, 1.04, 2.0)]
    same, rounded, double = outcomes(tmp_path, *rows)

    assert same.error == rounded.error is not None
    assert (double.error, double.measured_step_time_s) == (None, 3.0)
    assert double.not_counted.endswith("tokens/s of a GPU make a step of 1.5 s: one of the two is wrong")


def test_adapters_may_be_faster_than_the_whole_model_at_its_peak(tmp_path):
    at_peak_s = 0.85  # of all weights: 51.5 GFLOP x 262,144 tokens / (16 x 989 TFLOP/s)
    cells = {"step_time_s": f"{0.9 * at_peak_s}"}
    whole, adapted = outcomes(tmp_path, RUN | cells | {"lora_rank": "0"}, RUN | cells | {"lora_rank": "16"})

    assert "at the peak of 16 h100 it takes" in whole.not_counted
    assert adapted.not_counted == ""


@pytest.mark.parametrize("rank", [0, 16])
def test_a_row_and_plan_count_the_same_flops_of_a_token(tmp_path, rank):
    (row,) = outcomes(tmp_path, RUN | {"lora_rank": str(rank)})
    planned = Setting(
        architecture=load_model("llama3-8b").architecture,
        cluster=cluster_by_name(load_catalogue(), "dgx-h100", 16),
        gpus=16,
        global_batch=32,
        seq_len=8192,
        lora_rank=rank,
    )

    assert row.model.flops_per_token == flops_per_token(planned)
    assert (flops_per_token(planned) < 40e9) == (rank > 0)  # no product for the gradient of frozen weights


def test_the_band_of_a_family_is_that_of_its_rows_with_their_doubts(tmp_path):
    elsewhere = RUN | {"family": "torchtitan", "gpu": "A100 80GB"}  # its runs were on H100
    found = outcomes(tmp_path, elsewhere)
    (summary,) = summarise(found, book())

    assert found[0].doubts
    assert summary.band == found[0].error_band
