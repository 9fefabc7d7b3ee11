"""`meshwright validate`: what rows leave unsaid, and how honest the bands are that it holds of them."""

import math

import msgspec
import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, performance, price_layouts
from meshwright.plan.analytic.cautions import WIDTH, widened
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.host import STATES_AWAY
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import predict, summarise
from meshwright.workload.models import load_model
from tests.unit.plan.test_validate import RUN, outcomes, table

LARGE = {"layers": "80", "hidden": "8192", "heads": "64", "ffn_hidden": "28672", "tp": "8", "dp": "8", "num_gpus": "64"}
LARGE |= {"global_batch_sequences": "64", "step_time_s": "", "zero_stage_fsdp": ""}


def test_sharding_that_nobody_states_is_the_mildest_under_which_a_run_of_an_unknown_stack_may_fit(tmp_path):
    row = RUN | LARGE | {"family": "house", "recompute": "full"}
    silent, said = outcomes(tmp_path, row, row | {"id": "b", "zero_stage_fsdp": "0"})

    assert "ZeRO 1, since what is live with 0 is more than a GPU holds" in silent.assumed
    assert (silent.fits, said.fits) == ("fits", "does not fit")


def test_recomputation_that_nobody_states_is_the_mildest_under_which_a_run_of_an_unknown_stack_may_fit(tmp_path):
    row = RUN | LARGE | {"family": "house", "tp": "1", "dp": "64", "zero_stage_fsdp": "3", "micro_batch": "1"}
    silent, none, full = outcomes(tmp_path, *(row | {"recompute": said} for said in ("", "none", "full")))

    assert (none.fits, full.fits) == ("does not fit", "fits")
    assert silent.step_time_s == full.step_time_s > none.step_time_s
    assert "recompute full, since what is live with none is more than a GPU holds" in silent.assumed


def test_maxtext_keeps_the_results_of_projections_where_nothing_is_said_and_all_products_do_not_fit(tmp_path):
    row = RUN | LARGE | {"family": "maxtext", "gpu": "H200", "tp": "1", "dp": "64", "zero_stage_fsdp": "3"}
    row |= {"micro_batch": "2", "global_batch_sequences": "128"}
    silent, full = outcomes(tmp_path, *(row | {"recompute": said} for said in ("", "full")))

    assert any(text.startswith("recompute selective of all but attention's projections") for text in silent.assumed)
    assert silent.step_time_s < full.step_time_s
    assert silent.fits != "does not fit"


def test_what_is_assumed_of_a_measured_stack_stays_since_its_constants_hold_with_that(tmp_path):
    row = RUN | LARGE | {"family": "bridge", "tp": "1", "dp": "64", "zero_stage_fsdp": "3"}
    (silent,) = outcomes(tmp_path, row)

    assert "recompute none" in silent.assumed
    assert silent.fits == "may not"


def test_a_row_that_leaves_recomputation_open_has_a_wider_band_where_no_run_of_its_stack_tells(tmp_path):
    row = RUN | {"family": "house", "zero_stage_fsdp": "1", "seq_len": "2048"}
    silent, said = outcomes(tmp_path, row | {"recompute": ""}, row | {"recompute": "none"})

    assert silent.step_time_s == said.step_time_s
    assert silent.error_band == pytest.approx(said.error_band + 0.1)
    assert any(text.startswith("recomputation: ") for text in silent.doubts)


def test_the_table_counts_the_rows_within_their_bands_and_rows_say_on_which_side_they_are(tmp_path):
    row = RUN | {"recompute": "none", "step_time_s": ""}
    (priced,) = outcomes(tmp_path, row)
    times = {"as-predicted": 1.0, "beyond": 1.0 + 2.0 * priced.error_band, "odd": 10.0}
    path = tmp_path / "runs.csv"
    path.write_text(table(*(row | {"id": k, "step_time_s": str(v * priced.step_time_s)} for k, v in times.items())))
    result = CliRunner().invoke(cli.group, ["validate", str(path)])
    (summary,) = summarise(predict(read_rows(path, load_catalogue(), book(), {}), load_catalogue(), book()), book())
    assert (summary.measured, summary.inside) == (3, 1)
    told = " ".join(result.stdout.split())
    assert f"+0.0 %, within its band of {100 * priced.error_band:.1f} %" in told
    assert told.count("outside of its band") == 2
    assert told.count("so far off, a figure is wrong, or the run has what its row does not say") == 1


def test_an_unknown_stack_of_before_2023_has_the_band_of_the_runs_of_its_time(tmp_path):
    row = RUN | {"gpu": "A100 80GB", "family": "house", "recompute": "none", "zero_stage_fsdp": "1"}
    old, new = outcomes(tmp_path, row | {"year": "2022"}, row | {"year": "2025"})

    times = book().errors["unseen"].times
    assert times["before-2023"] > times["since-2024"]
    assert (old.error_band, new.error_band) == (times["before-2023"], book().band("unseen"))


def test_zero_3_of_an_unknown_stack_of_before_2023_is_in_doubt(tmp_path):
    row = RUN | {"gpu": "A100 80GB", "family": "house", "recompute": "full", "year": "2022", "tp": "1", "dp": "16"}
    sharded, whole = outcomes(tmp_path, row | {"zero_stage_fsdp": "3"}, row | {"zero_stage_fsdp": "1"})

    assert any(text.startswith("ZeRO-3 of a stack before 2023: ") for text in sharded.doubts)
    assert sharded.error_band > whole.error_band + 0.3


def test_a_network_slower_than_that_of_any_run_of_a_stack_is_in_doubt_in_a_table_too(tmp_path):
    row = RUN | {"family": "bridge", "recompute": "none", "zero_stage_fsdp": "1"}
    fast, slow = outcomes(tmp_path, *(row | {"inter_node_Gbps_per_node": rate} for rate in ("3200", "200")))

    assert any("a network of 25 Gb/s a GPU" in text for text in slow.doubts)
    assert not any("a network of" in text for text in fast.doubts)


def test_cores_that_a_table_counts_as_gpus_have_their_share_of_a_chip(tmp_path):
    row = RUN | {"gpu": "trn1", "num_gpus": "64", "seq_len": "2048", "recompute": "full", "step_time_s": ""}
    row |= {"zero_stage_fsdp": "1", "global_batch_sequences": "64"}
    cores, chips = outcomes(
        tmp_path,
        row | {"gpus_per_node": "32", "tp": "8", "dp": "8"},
        row | {"gpus_per_node": "16", "tp": "8", "dp": "8"},
    )

    assert 1.5 < cores.step_time_s / chips.step_time_s < 2.2  # collectives do not follow
    assert "a GPU is one of 2 cores of a chip: a node has 16 chips, and 32 are counted" in cores.assumed
    assert "a GPU is a chip of 2 cores (gpus_per_node says that cores are counted: 32)" in chips.assumed


def test_degrees_that_make_the_cores_of_the_nodes_count_cores(tmp_path):
    row = RUN | {"gpu": "trn1", "num_gpus": "", "nodes": "2", "tp": "8", "dp": "8", "seq_len": "2048"}
    (silent, said) = outcomes(tmp_path, row, row | {"gpus_per_node": "32"})

    assert "64 cores, 2 of each chip: 2 nodes have 32 chips (gpus_per_node)" in silent.assumed
    assert silent.step_time_s == said.step_time_s


def test_ranks_that_nodes_have_neither_as_chips_nor_as_cores_are_refused(tmp_path):
    row = RUN | {"gpu": "trn1", "num_gpus": "", "nodes": "2", "tp": "8", "dp": "16", "seq_len": "2048"}
    (refused,) = outcomes(tmp_path, row)

    assert "2 of 16 chips of 2 cores have 32 chips and 64 cores, but the row counts 128" in refused.reason


def test_the_band_of_a_stack_that_nothing_names_holds_plain_layers_too(tmp_path):
    row = RUN | {"family": "", "year": "2025", "num_gpus": "1", "tp": "1", "pp": "1", "dp": "1", "recompute": "full"}
    row |= {"global_batch_sequences": "2", "micro_batch": "2", "seq_len": "2048", "zero_stage_fsdp": "0"}
    silent, named, plain = outcomes(tmp_path, row, row | {"family": "since-2024"}, row | {"family": "accelerate"})

    assert any("nothing names it" in text and "(family accelerate)" in text for text in silent.doubts)
    assert silent.step_time_s == named.step_time_s < plain.step_time_s
    assert silent.step_time_s / (1 - silent.error_band) >= plain.step_time_s
    assert silent.error_band > named.error_band


def test_a_run_that_ran_out_though_it_should_fit_is_said_to_have_held_more(tmp_path):
    row = RUN | {"step_time_s": "OOM", "recompute": "full", "zero_stage_fsdp": "3", "num_gpus": "16"}
    path = tmp_path / "runs.csv"
    path.write_text(table(row))
    told = CliRunner().invoke(cli.group, ["validate", str(path)])

    assert "fits, though it ran out: it held more than its row says" in " ".join(told.output.split())


def test_a_step_of_cores_is_held_against_the_peak_of_cores(tmp_path):
    row = RUN | {"gpu": "trn1", "num_gpus": "32", "gpus_per_node": "32", "tp": "8", "dp": "4", "recompute": "none"}
    (asked,) = outcomes(tmp_path, row | {"step_time_s": ""})
    least_s = asked.model.flops_per_token * 32 * 8192 / 32 / 95e12
    (found,) = outcomes(tmp_path, row | {"step_time_s": str(0.9 * least_s)})

    assert "cannot be reached" in found.not_counted


def test_stacks_that_call_flash_attn_have_its_kernels_on_hopper_and_no_others_where_there_is_one_for_all(tmp_path):
    row = RUN | {"year": "2025", "recompute": "none", "zero_stage_fsdp": "1", "seq_len": "16384", "seq_parallel": "1"}
    row |= {"tp": "1", "dp": "16"}
    ratios = []
    for gpu in ("H100", "A100 80GB"):
        house, flash = outcomes(tmp_path, *(row | {"gpu": gpu, "family": f} for f in ("house", "nanotron")))
        ratios.append(flash.step_time_s / house.step_time_s)

    on_h100, on_a100 = ratios
    assert on_h100 > 1.03 * on_a100


def test_a_run_with_adapters_is_in_doubt_in_a_table_and_in_a_plan(tmp_path):
    row = RUN | {"family": "nemo", "recompute": "none", "zero_stage_fsdp": "1"}
    whole, adapters = outcomes(tmp_path, row, row | {"lora_rank": "16"})
    setting = Setting(
        architecture=load_model("llama3-8b").description, cluster=cluster_by_name(load_catalogue(), "aws-p5", 8),
        gpus=8, global_batch=32, seq_len=4096, stack="nemo",
    )  # fmt: skip
    layout = Layout(tp=2, dp=4, sp=1)
    bands = []
    for rank in (0, 16):
        planned = msgspec.structs.replace(setting, lora_rank=rank)
        bands.append(performance(planned, price_layouts(planned, Grid.of([layout])), 0, layout).error_band)

    assert "adapters beside frozen weights: in no measured run" in adapters.doubts
    assert adapters.error_band == pytest.approx(whole.error_band + 0.1)
    assert bands[1] == pytest.approx(bands[0] + 0.1)


def test_all_columns_that_a_row_needs_and_leaves_empty_are_named_at_once(tmp_path):
    (found,) = outcomes(tmp_path, RUN | {"num_gpus": "", "global_batch_sequences": "-"})

    assert found.reason == "num_gpus, global_batch_sequences: not stated"


def test_a_row_without_any_layout_is_in_doubt_and_nothing_else_is_changed_to_make_it_fit(tmp_path):
    row = RUN | LARGE | {"family": "house", "tp": "", "pp": "", "dp": ""}
    silent, said = outcomes(tmp_path, row, row | {"dp": "64"})

    assert "layout: data parallelism alone, since the row states none" in silent.assumed
    assert {"ZeRO 0", "recompute none"} <= set(silent.assumed)
    assert any(text.startswith("layout: ") for text in silent.doubts)
    assert any(text.startswith("ZeRO 3") or text.startswith("recompute full") for text in said.assumed)


def test_states_on_the_hosts_widen_a_band_more_than_another_doubt_that_is_far():
    alone, hosts, both = (
        widened(0.1, doubts) for doubts in ((f"{WIDTH}9,000",), (STATES_AWAY,), (f"{WIDTH}9,000", STATES_AWAY))
    )

    assert alone == pytest.approx(0.1 + 0.35)
    assert hosts == pytest.approx(0.1 + 0.5)
    assert both == pytest.approx(0.1 + math.hypot(0.35, 0.5))


def test_a_stack_whose_releases_go_on_has_no_narrower_band_than_stacks_of_its_time():
    known = book()

    assert known.stacks["bridge"].release
    assert known.band("bridge") == max(known.errors["bridge"].band, known.errors["unseen"].times["since-2024"])
    assert known.band("bridge", experts=8) == known.errors["bridge"].experts_band
    assert known.band("dgxc") == known.errors["dgxc"].band


def test_a_band_of_few_runs_is_as_wide_as_so_few_can_tell():
    known = book()
    one = known.errors["fms"]
    few, many = (msgspec.structs.replace(one, runs=runs, left_out=0.05, band=0.06) for runs in (4, 40))
    of_few, of_many = (
        msgspec.structs.replace(known, errors=known.errors | {"fms": errors}).band("fms") for errors in (few, many)
    )

    assert of_many == 0.06
    assert of_few == pytest.approx(2.13 * 1.2533 * 0.05, rel=0.01)  # Student's t of four at 95 %
    assert known.band("mlmreadme") == known.band("unseen")  # of one run
