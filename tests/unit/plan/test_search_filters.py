"""The limits of a search: the layouts that its stack can run, and the conditions that were asked for."""

import json
import math
import tomllib

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from benchmarks.published_sweeps import collective_tables
from meshwright import cli
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.jobs.emit.rules import refusals
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, performance, price_layouts
from meshwright.plan.analytic.coefficients import STRANGERS, book
from meshwright.plan.analytic.conditions import kept, parse_conditions
from meshwright.plan.analytic.fitted_range import kinds_seen, origin, seen
from meshwright.plan.layouts.filters import can_run, unlike_its_stack, warnings_of_stack
from meshwright.plan.layouts.space import legal_layouts
from meshwright.plan.layouts.stacks import default_stack, listed, stack_named, stack_names
from meshwright.plan.search.explore import explore, price_all, space_of
from meshwright.plan.tables.runs import read_rows, seen_of
from meshwright.plan.validate import known_models
from meshwright.workload.convention_words import clauses_of, named_facts
from meshwright.workload.conventions import OWN, Conventions, engine
from meshwright.workload.engines import ENGINES
from meshwright.workload.models import load_model
from tests.unit.plan.test_explore import setting

PUBLISHED = collective_tables().parent
STACKS = ("bridge", "torchtitan", "automodel", "deepspeed", "accelerate", "maxtext", "nemo")
TEXTS = (
    "tp=2,pp=2,dp=4,cp=1,mbs=1,zero=1,sp=1,order=tp-cp-dp-pp",
    "tp=2,pp=2,dp=4,cp=1,mbs=1,zero=3,schedule=zb,order=tp-pp-cp-dp",
    "tp=4,pp=1,dp=2,cp=2,mbs=2,zero=2,recompute=full",
)
LAYOUTS = [Layout.parse(text) for text in TEXTS]


def invoke(words):
    return CliRunner().invoke(cli.group, words.split(), catch_exceptions=True)


@pytest.mark.parametrize("stack", STACKS)
def test_the_search_finds_only_what_the_engine_of_its_stack_runs(stack):
    case = setting("mixtral-8x7b", "dgx-h100", gpus=16, global_batch=32, stack=stack)
    engine, heads = ENGINES[book().stacks[stack].engine], case.architecture.num_key_value_heads
    study = explore(case)
    told = [str(one) for one in study.rejections if f"stack {stack} cannot run" in str(one)]

    assert [refusals(engine, row.layout, heads) for row in study.rows] == [[]] * len(study.rows)
    assert len(told) == 1


def test_a_stack_whose_rules_are_not_known_is_not_kept_from_anything():
    case = setting("mixtral-8x7b", "dgx-h100", gpus=16, stack="since-2024")

    assert space_of(case).left == {}
    assert space_of(case).grid.columns()["schedule"].max() == 3  # zero-bubble
    assert (space_of(case).grid.etp == 1).any()  # experts folded over tp


@pytest.mark.parametrize(
    ("only", "without", "mask"),
    [
        (["zero<=1"], [], [1, 0, 0]),
        (["schedule=1f1b,interleaved"], [], [1, 0, 1]),
        ([], ["schedule=zb"], [1, 0, 1]),
        (["cp=1"], [], [1, 1, 0]),
        (["cp!=1", "mbs>1"], [], [0, 0, 1]),
        ([], ["recompute=full", "zero>=3"], [1, 0, 0]),
        (["tp<4", "dp>3"], [], [1, 1, 0]),
        (["etp=2"], [], [1, 1, 0]),
    ],
)
def test_conditions_keep_layouts_by_their_keys(only, without, mask):
    assert kept(parse_conditions(only, without), Grid.of(LAYOUTS)).tolist() == list(map(bool, mask))


def test_an_order_is_kept_by_its_effect():
    (asked,) = parse_conditions(["order=tp-dp-cp-pp"], [])

    assert asked.holds(Grid.of(LAYOUTS)).tolist() == [True, False, False]  # cp=1 has no place in the first
    assert replace(asked, negated=True).holds(Grid.of(LAYOUTS)).tolist() == [False, True, True]


def test_a_search_in_one_order_has_its_rows_in_that_order():
    case = replace(
        setting(gpus=16, stack="since-2024"), conditions=parse_conditions(["order=tp-dp-cp-pp", "cp=2", "dp>1"], [])
    )

    assert {row.layout.order for row in explore(case).rows} == {"tp-dp-cp-pp"}


def test_conditions_are_the_same_as_leaving_layouts_out_of_the_whole_search():
    free = setting(gpus=16, stack="since-2024")
    bound = replace(free, conditions=parse_conditions(["zero<=1", "cp=1"], ["schedule=zb"]))
    every = price_all(free)
    mask = (every.grid.zero <= 1) & (every.grid.cp == 1) & (every.grid.schedule != 3)

    assert explore(bound).best.predicted.step_time_s == pytest.approx(every.prices.step_time_s[mask].min())
    assert any("outside --only zero<=1 --only cp=1 --not schedule=zb" in str(r) for r in explore(bound).rejections)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("schedul=1f1b", "did you mean schedule?"),
        ("schedule=1f2b", "no such schedule"),
        ("schedule<zb", "has no order"),
        ("zero<=one", "expected a whole number"),
        ("zero<=1,2", "expected one number"),
        ("zero", "expected KEY=VALUE"),
        ("zero=>1", "expected a whole number; >= in place of =>"),
        ("zero=4", "zero is 0 to 3"),
        ("sp=2", "sp is 0 to 1"),
    ],
)
def test_a_condition_that_is_not_understood_is_refused(text, told):
    with pytest.raises(InputError, match=told):
        parse_conditions([text], [])


def test_conditions_that_leave_nothing_say_so_and_want_a_search():
    base = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 32"
    nothing, layout = invoke(f"{base} --only tp=3"), invoke(f"{base} --only tp=2 --layout tp=2")

    assert "is left: " in str(nothing.exception)
    assert "outside --only tp=3; tp of legal ones is 1, 2, 4, 8;" in str(nothing.exception)
    assert "--only: not with --layout; it goes with a search" in str(layout.exception)


def test_every_name_of_a_stack_is_taken_and_others_are_refused_with_the_nearest():
    assert {"megatron", "bridge", "nemo", "automodel", "torchtitan", "deepspeed", "accelerate", "fsdp"} <= {
        *stack_names()
    }
    families = {
        row.family for row in read_rows(PUBLISHED / "training_runs.csv", load_catalogue(), book(), known_models())
    }
    assert families <= set(stack_names())
    assert [stack_named(name) for name in stack_names()]
    with pytest.raises(InputError, match=r"--stack brigde: no such stack \(did you mean bridge\?\)"):
        stack_named("brigde")


@pytest.mark.parametrize("command", ["plan --gpus 8", "simulate --gpus 8"])
def test_the_command_line_lists_stacks_and_refuses_others(command):
    listing, wrong = invoke(f"{command} --stack help"), invoke(f"{command} --stack titam")

    assert listing.exit_code == 0
    assert all(one.name in listing.output for one in listed())
    assert "did you mean titan?" in str(wrong.exception)


def test_the_list_of_stacks_says_what_our_own_engine_sends_and_holds():
    listing = invoke("plan --stack help").output

    (line,) = [one for one in listing.splitlines() if one.startswith("meshwright")]
    assert line.endswith("generic constants, facts of its own")
    assert all(f"  {clause}\n" in listing for clause in clauses_of(named_facts(engine("bf16"), types=True)))


@pytest.mark.parametrize(
    "words", ["plan --stack help --json", "plan --json --stack help", "simulate --stack help --json",
              "validate --stack help --json"],
)  # fmt: skip
def test_the_list_of_stacks_is_json_where_that_is_asked_for(words):
    found = json.loads(invoke(words).output)

    known = {stack["name"]: stack for stack in found["stacks"]}
    assert set(known) == {one.name for one in listed()}
    assert set(found["aliases"]) <= set(stack_names())
    own = known["meshwright"]["facts"]
    assert own.items() <= {name: getattr(engine("bf16"), name) for name in Conventions.__struct_fields__}.items()
    assert known["trl"]["facts"]["loss_rows"] == 512


def test_the_default_stack_is_ours_for_what_ours_runs():
    assert default_stack("bf16") == default_stack("bf16", Layout(tp=2)) == OWN
    assert default_stack("nvfp4") == default_stack("bf16", Layout(tp=2, dp=4, ep=8)) == STRANGERS[-1]


def test_what_no_measured_run_had_is_said_and_widens_the_band():
    case = setting("llama3-70b", "dgx-h100", gpus=64, global_batch=64, stack="bridge")
    plain = Layout(tp=8, pp=4, dp=2, zero=1)
    rare = [replace(plain, schedule="zb"), replace(plain, zero=3), replace(plain, schedule="zb", zero=3)]
    bands = [
        performance(case, price_layouts(case, Grid.of([layout])), 0, layout).error_band for layout in (plain, *rare)
    ]
    told = performance(case, price_layouts(case, Grid.of(rare[2:])), 0, rare[2]).not_modelled

    assert bands == pytest.approx([bands[0], bands[0] + 0.1, bands[0] + 0.1, bands[0] + math.hypot(0.1, 0.1)])
    assert {"zero-bubble schedule: in no measured run", "ZeRO-3 in a pipeline: in no measured run"} <= set(told)


@pytest.mark.parametrize(("stack", "told"), [("deepspeed", True), ("trl", True), ("unsloth", False), ("bridge", False)])
def test_models_of_transformers_that_nothing_compiles_were_in_no_run_and_have_a_wider_band(stack, told):
    case, layout = setting("llama3-8b", "dgx-h100", gpus=8, global_batch=64, stack=stack), Layout(dp=8, zero=2)
    found = performance(case, price_layouts(case, Grid.of([layout])), 0, layout)

    assert any(text.startswith("layers of transformers, not compiled") for text in found.not_modelled) == told
    assert (found.error_band == pytest.approx(book().band(stack) + 0.35)) == told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seq_len": 2**19, "global_batch": 8}, "sequences of 524,288: in no measured run; up to 262,144 were"),
        ({"inter_bytes_per_s": 1.25e9}, "a network of 1.25 Gb/s a GPU: in no measured run; the slowest had 50 Gb/s"),
        ({}, None),
    ],
)
def test_a_stack_without_runs_is_held_against_the_lengths_and_networks_of_all_runs(changes, told):
    layout = Layout(dp=2, cp=8, zero=3)
    case = setting("llama3-8b", "dgx-h100", gpus=16, stack="meshwright", **{"global_batch": 64, **changes})
    found = performance(case, price_layouts(case, Grid.of([layout])), 0, layout)
    beyond = [text for text in found.not_modelled if text.startswith(("sequences of", "a network of"))]

    assert beyond == ([told] if told else [])


@pytest.mark.parametrize(
    ("model", "changes", "seq_len", "more", "told"),
    [
        ("mixtral-8x7b", {}, 4096, 0.35, "experts of width 14,336: in no measured run; up to 2,880 were"),
        ("qwen3-235b-a22b", {}, 4096, 0.0, None),
        ("qwen3-235b-a22b", {"zero": 3}, 4096, 0.1, "ZeRO-3 of experts: in no measured run"),
        ("qwen3-235b-a22b", {}, 32768, 0.1, "sequences of 32,768: in no measured run of the stack; up to 8,192 were"),
        ("llama3-8b", {"ep": 1, "zero": 3, "offload": "optimizer"}, 4096, 0.5, "offload: no run that offloads"),
    ],
)
def test_models_and_jobs_beyond_what_any_run_had_are_said_and_widen_the_band(model, changes, seq_len, more, told):
    layout = replace(Layout(dp=8, ep=8), **changes)
    case = setting(model, "dgx-h100", gpus=8, global_batch=64, stack="bridge", seq_len=seq_len, routed_once=True)
    found = performance(case, price_layouts(case, Grid.of([layout])), 0, layout)
    new = [text for text in found.not_modelled if told and text.startswith(told)]

    assert len(new) == (told is not None)
    further = 0.1 * sum(text.startswith("offload") for text in found.not_modelled if text not in new)
    known = book().band("bridge", experts=case.architecture.experts)
    assert found.error_band == pytest.approx(known + more + further)


def test_a_stack_on_an_accelerator_that_its_runs_did_not_have_is_said_and_widens_the_band():
    layout = Layout(tp=8, pp=4, dp=8)
    cases = [
        setting("llama3-70b", node, gpus=256, global_batch=512, stack="sc21t1") for node in ("dgx-a100-80g", "dgx-b200")
    ]
    known, strange = (performance(case, price_layouts(case, Grid.of([layout])), 0, layout) for case in cases)

    assert strange.error_band == pytest.approx(known.error_band + 0.1)
    assert "stack sc21t1 on b200: in no measured run; its runs were on a100" in strange.not_modelled
    assert not any(text.startswith("stack sc21t1") for text in known.not_modelled)


def test_what_the_fitted_runs_have_seen_is_what_the_table_holds():
    doubts = tomllib.loads((PUBLISHED / "distrusted.toml").read_text())
    tables = ("training_runs.csv", "training_runs_2.csv")
    rows = [row for table in tables for row in read_rows(PUBLISHED / table, load_catalogue(), book(), known_models())]
    fitted = [
        seen_of(row.run)
        for row in rows
        if row.run and row.measured_step_time_s and row.family not in doubts["families"]
        if row.id not in doubts["rows"] and "micro-batch 1" not in row.run.assumed
    ]

    assert seen() == kinds_seen(fitted, book())


@pytest.mark.parametrize(
    ("stack", "accelerator", "words"),
    [
        ("bridge", "h100", "runs of this stack"),
        ("megatron", "h100", "runs of stack bridge"),
        ("megatron", "a100-80g", "runs of stack bridge, none of this accelerator"),
        ("automodel", "h100", "runs of this accelerator, none of this stack"),
        ("automodel", "mi300x", "prior"),
    ],
)
def test_a_price_says_where_its_constants_come_from(stack, accelerator, words):
    assert origin(book(), stack, accelerator).endswith(words)


def test_json_says_where_the_constants_come_from():
    words = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --stack titan --layout dp=8 --json"
    answer = json.loads(invoke(words).stdout)

    assert answer["predicted"]["calibration"][0].startswith("fitted on 16 runs of this stack")


def test_a_layout_that_its_stack_cannot_run_is_priced_with_a_warning():
    words = (
        "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 32 --stack bridge --layout pp=2,schedule=zb"
    )

    assert "stack bridge cannot run it: its schedules are 1f1b, interleaved" in invoke(words).stderr


def test_a_layout_that_is_asked_for_of_an_engine_that_cannot_run_it_is_refused_with_its_rules():
    words = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --engine"
    refused = invoke(f"{words} accelerate --layout pp=2,dp=4")
    priced = invoke(f"{words} megatron --layout pp=2,dp=4")

    assert "--engine accelerate: it cannot run pp=2,dp=4" in str(refused.exception)
    assert "Accelerate and plain FSDP has no pp; nearest that it runs: dp=8,mbs=1" in str(refused.exception)
    assert priced.exit_code == 0, priced.output


DEEPSPEED = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64"


def test_a_pipeline_of_deepspeed_is_that_of_its_own_programs_and_takes_their_stages_of_zero():
    priced = invoke(f"{DEEPSPEED} --engine deepspeed --layout pp=2,dp=4,zero=1")
    refused = invoke(f"{DEEPSPEED} --engine deepspeed --layout pp=2,dp=4,zero=3")

    assert priced.exit_code == 0, priced.output
    assert "pp is that of DeepSpeed's PipelineModule" in priced.stderr
    assert "its ZeRO stages in a pipeline are 0, 1" in str(refused.exception)
    assert "nearest that it runs: pp=2,dp=4,mbs=1,zero=1 | dp=8,mbs=1,zero=3" in str(refused.exception)


def test_a_search_on_deepspeed_finds_pipelines_where_they_are_asked_for():
    found = invoke(f"{DEEPSPEED} --engine deepspeed --only pp=2 --json")

    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["layout"]["pp"] == 2


def test_what_is_written_for_deepspeed_goes_through_a_trainer_that_has_no_pipeline():
    refused = invoke(f"{DEEPSPEED} --emit deepspeed --layout pp=2,dp=4")

    assert "DeepSpeed through Hugging Face's Trainer or Accelerate has no pp" in str(refused.exception)


WITHOUT_PIPELINES = [engine for engine in ENGINES.values() if "pp" not in engine.axes]


@pytest.mark.parametrize("engine", WITHOUT_PIPELINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("text", ["pp=2,dp=4,zero=3", "pp=2,dp=4,vpp=2,schedule=interleaved", "pp=2,dp=4,schedule=zb"])
def test_what_an_engine_without_pipelines_does_in_one_is_not_said(engine, text):
    assert refusals(engine, Layout.parse(text), 8, 32) == [f"{engine.reached} has no pp"]


PIPED = "--model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 32 --seq-len 4096 --stack"


@pytest.mark.parametrize(("zero", "warned"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_pipeline_of_deepspeed_goes_with_zero_0_and_1_and_is_said_to_be_its_own(zero, warned):
    done = invoke(f"plan {PIPED} deepspeed --layout pp=2,dp=4,mbs=1,zero={zero}")

    assert ("its ZeRO stages in a pipeline are 0, 1" in done.stderr) == warned
    assert "note: pp is that of DeepSpeed's PipelineModule: DeepSpeed through Hugging Face's" in done.stderr


def test_pipelines_of_deepspeed_are_searched_where_they_are_asked_for():
    usual = explore(setting("llama3-8b", "dgx-h100", gpus=16, global_batch=32, stack="deepspeed"))
    done = invoke(f"plan {PIPED} deepspeed --only pp>=2 --json")
    answer = json.loads(done.stdout)
    found = [answer["layout"], *(one["layout"] for one in answer["alternatives"])]

    assert {row.layout.pp for row in usual.rows} == {1}
    assert all(one["zero"] <= 1 for one in found if one["pp"] > 1)
    assert answer["layout"]["pp"] > 1
    assert "PipelineModule" in done.stderr


@pytest.mark.parametrize(
    ("stack", "option"),
    [
        ("megatron", "--pipeline-model-parallel-layout"),
        ("bridge", "pipeline_model_parallel_layout"),
        ("torchtitan", ""),
    ],
)
def test_an_engine_that_refuses_uneven_stages_without_an_option_has_it_named(stack, option):
    words = "plan --model qwen2.5-7b --cluster dgx-h100 --gpus 8 --global-batch 32 --seq-len 4096 --stack"
    uneven = " ".join(invoke(f"{words} {stack} --layout pp=8,dp=1,mbs=1,zero={2 * (not option)}").stderr.split())
    even = " ".join(invoke(f"{words} {stack} --layout pp=4,dp=2,mbs=1,zero={2 * (not option)}").stderr.split())

    assert ("pp = 8 does not divide 28 layers" in uneven) == bool(option)
    assert option in uneven
    assert "does not divide" not in even


SCHEDULES = ("gpipe", "1f1b", "interleaved,vpp=2", "zb", "zb,vpp=2")
EVERY_SCHEDULE = [f"tp=2,pp=4,dp=2,mbs=1,schedule={schedule}" for schedule in SCHEDULES]
BRIDGE_ZB = "--global-batch 32 --seq-len 4096 --stack bridge --layout tp=2,pp=2,dp=4,mbs=1,schedule=zb"


@pytest.mark.parametrize("stack", [one.name for one in listed()])
def test_no_schedule_that_a_stack_cannot_run_is_searched_and_each_is_named_where_it_is_asked_for(stack):
    facts = book().stacks[stack]
    layouts = [
        Layout.parse(f"{text},sp={facts.sp},zero={zero}", world_size=16) for text in EVERY_SCHEDULE for zero in range(4)
    ]
    case = setting("llama3-8b", "dgx-h100", gpus=16, global_batch=32, stack=stack)
    case = replace(case, conditions=parse_conditions(["pp=4"], []))  # DeepSpeed's own pipelines too
    refused = [bool(unlike_its_stack(stack, layout, case.architecture, compiled=True)) for layout in layouts]

    assert can_run(case, Grid.of(layouts)).tolist() == [not one for one in refused]
    assert [bool(warnings_of_stack(case, layout)) for layout in layouts] == refused


@pytest.mark.parametrize(
    ("stack", "runs"),
    [
        ("meshwright", {"gpipe", "1f1b", "interleaved,vpp=2", "zb", "zb,vpp=2"}),
        ("bridge", {"1f1b", "interleaved,vpp=2"}),
        ("torchtitan", {"gpipe", "1f1b", "interleaved,vpp=2"}),  # zb goes without torch.compile alone
        ("automodel", {"gpipe", "1f1b", "interleaved,vpp=2", "zb,vpp=2"}),
        ("before-2023", {"gpipe", "1f1b", "interleaved,vpp=2"}),
        ("in-2023", {"gpipe", "1f1b", "interleaved,vpp=2"}),
        ("maxtext", {"gpipe", "interleaved,vpp=2"}),
        ("deepspeed", set()),
    ],
)
def test_the_search_of_a_stack_has_its_schedules_and_no_others(stack, runs):
    case = setting("llama3-8b", "dgx-h100", gpus=16, global_batch=32, stack=stack)
    grid = space_of(case).grid
    piped = grid.take((grid.pp > 1) & (grid.vpp <= 2))
    names = {piped.layout(index) for index in range(len(piped))}

    assert {f"{one.schedule}{',vpp=2' if one.vpp == 2 else ''}" for one in names} == runs


@pytest.mark.parametrize(
    "command",
    [
        f"plan --model llama3-8b --cluster dgx-h100 --gpus 16 {BRIDGE_ZB}",
        f"plan --model llama3-8b --compare dgx-h100,dgx-a800 --gpus 16 {BRIDGE_ZB}",
        f"simulate --model llama3-8b --cluster dgx-h100 --gpus 16 {BRIDGE_ZB}",
    ],
)
def test_every_command_that_takes_a_layout_says_that_its_stack_cannot_run_it(command):
    done = invoke(command)

    assert done.exit_code == 0, done.output
    assert "warning: stack bridge cannot run it: its schedules are 1f1b, interleaved" in done.stderr


def test_our_own_engine_is_offered_nothing_in_fp8_that_it_runs_in_bf16_alone():
    case = setting("llama3-8b", "dgx-h100", gpus=16, global_batch=32, stack=OWN, precision="fp8")
    words = "plan --model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 32 --stack meshwright --precision fp8"
    refused = invoke(f"{words} --layout pp=2,dp=8,mbs=1,schedule=zb")

    assert not (space_of(case).grid.schedule == 3).any()
    assert not (space_of(case).grid.tp > 1).any()
    assert "schedule=zb halves each backward, which linear layers in fp8 compute as one" in str(refused.exception)


def test_a_search_for_a_stack_whose_rules_are_not_known_says_so():
    told = "which layouts stack since-2024 can run is not known: none was left out for it"

    assert told in explore(setting(gpus=16, stack="since-2024")).warnings
    assert not any("not known" in text for text in explore(setting(gpus=16, stack="bridge")).warnings)


def test_a_curve_of_nothing_says_why_nothing_is_left():
    words = "plan --model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 32 --stack bridge --scaling fixed"

    assert "layouts that stack bridge cannot run" in str(invoke(f"{words} --only schedule=zb").exception)


@pytest.mark.parametrize("stack", ["accelerate", "megatron", "since-2024"])
@pytest.mark.parametrize(
    ("weights", "cut"), [("nf4", False), ("nf4-nested", False), ("int8", False), ("int4", True), ("", True)]
)
def test_weights_of_bitsandbytes_lie_whole_on_a_rank_under_every_stack(stack, weights, cut):
    case = replace(
        setting("llama3-8b", "dgx-h100", gpus=8, global_batch=32, stack=stack), weights=weights, lora_rank=16
    )
    layout = Layout.parse("tp=2,dp=4,mbs=1,sp=1" if stack == "megatron" else "tp=2,dp=4,mbs=1,zero=3", world_size=8)

    assert bool((space_of(case).grid.tp > 1).any()) == cut
    assert any("bitsandbytes" in warning for warning in warnings_of_stack(case, layout)) != cut


def test_several_conditions_may_stand_in_one_only():
    together = parse_conditions(["tp=8, schedule=1f1b,zb", "zero<=1"], [])

    assert together == parse_conditions(["tp=8", "schedule=1f1b,zb", "zero<=1"], [])


def test_several_conditions_in_one_not_are_refused_since_they_may_mean_both_or_any():
    with pytest.raises(InputError, match=r"expected one condition; --not tp=8 --not pp=2 leaves out what meets any"):
        parse_conditions([], ["tp=8,pp=2"])


def test_a_word_that_is_none_of_few_is_answered_with_all_of_them():
    with pytest.raises(InputError, match=r"no such schedule .*; there are gpipe, 1f1b, interleaved, zb"):
        parse_conditions(["schedule=dualpipe"], [])


@pytest.mark.parametrize(
    ("asked", "stack"),
    [
        ({"held": True}, STRANGERS[-1]),
        ({"adapters": True}, "trl"),
        ({"adapters": True, "layout": Layout(tp=2)}, STRANGERS[-1]),  # which trl does not run
        ({"adapters": True, "precision": "fp8"}, STRANGERS[-1]),
    ],
)
def test_adapters_and_weights_that_ours_has_not_are_priced_as_another_stack(asked, stack):
    assert default_stack(**{"precision": "bf16"} | asked) == stack


def test_layouts_that_a_stack_cannot_run_are_counted_and_not_built():
    model = load_model("llama3-8b").architecture
    sizes = {"ranks": 16, "global_batch": 64, "seq_len": 4096}
    whole = legal_layouts(model, **sizes)
    kept = legal_layouts(model, **sizes, keep=lambda grid: grid.tp == 1)

    assert kept.dropped == len(whole.grid) - len(kept.grid) > 0
    assert kept.grid.layout(5) == whole.grid.take(np.flatnonzero(whole.grid.tp == 1)).layout(5)


@pytest.mark.parametrize(
    ("stack", "layout", "told"),
    [
        ("unsloth", "tp=2,dp=4,zero=3", "Unsloth has no tp"),
        ("unsloth", "dp=8,zero=3", None),
        ("torchtune", "pp=2,dp=4,zero=3", "torchtune has no pp"),
        ("torchtune", "tp=2,dp=4,zero=3,sp=1", None),
    ],
)
def test_what_unsloth_and_torchtune_cannot_cut_is_said(stack, layout, told):
    rules = unlike_its_stack(stack, Layout.parse(layout), load_model("llama3-8b").description)

    assert list(rules) == ([told] if told else [])


@pytest.mark.parametrize(("layout", "told"), [("tp=4,pp=2", True), ("dp=8,zero=3", False)])
def test_a_layout_for_a_stack_whose_rules_are_not_known_says_that_nobody_knows_if_it_runs(layout, told):
    words = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --stack litgpt --layout"
    found = invoke(f"{words} {layout}")

    assert found.exit_code == 0
    assert ("note: whether stack litgpt can run tp=4,pp=2 is not known" in found.stderr) is told


NANOTRON = "plan --model llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --stack nanotron"


@pytest.mark.parametrize(
    ("layout", "rule"),
    [
        ("dp=16,zero=3", "its ZeRO stages are 0, 1"),
        ("pp=2,dp=8,vpp=2,schedule=interleaved", "its schedules are gpipe, 1f1b"),
        ("tp=2,dp=8,recompute=selective", "it recomputes none, full"),
    ],
)
def test_what_nanotron_has_not_is_said_of_a_layout_that_is_priced_for_it(layout, rule):
    assert f"stack nanotron cannot run it: {rule}" in invoke(f"{NANOTRON} --layout {layout}").stderr


def test_a_search_for_nanotron_keeps_to_what_it_has():
    found = invoke(f"{NANOTRON} --json")
    ours = invoke(f"{NANOTRON} --layout tp=2,dp=8,zero=1")

    layouts = [json.loads(found.stdout)["layout"], *(one["layout"] for one in json.loads(found.stdout)["alternatives"])]
    assert {layout.get("zero", 0) for layout in layouts if "offload" not in layout} <= {0, 1}
    assert "not known" not in ours.stderr


def test_a_search_that_finds_no_room_names_the_flags_that_say_fewer_bytes():
    refused = invoke("plan --model llama3-70b --cluster dgx-h100 --gpus 8 --global-batch 8 --only offload=none")

    assert str(refused.exception).endswith(
        "use more GPUs; or fewer bytes a parameter: --optimizer, --weights, --lora-rank"
    )
