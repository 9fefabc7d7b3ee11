"""`--job`, `--engine` and `--emit` as a user types them."""

import json
from pathlib import Path

import pytest

from meshwright.cli import run_command
from meshwright.jobs.read import read_job

CASES = Path(__file__).parents[1] / "jobs" / "cases"
SMALL = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "32"]
NEMO = str(CASES / "nemo_nemotron_15b.yaml")


def answer(capsys, *words, code=0):
    assert run_command(list(words)) == code
    return capsys.readouterr()


def test_a_job_is_priced_with_what_was_assumed_and_what_would_be_faster(capsys):
    text = answer(capsys, "plan", "--job", str(CASES / "megatron_llama_13b.sh"), "--cluster", "dgx-h100").out

    assert "what runs today" in text
    assert "GFLOP a token (causal) at 4,096 tokens a sequence" in text
    assert "assumed: TP=4 (its default in megatron_llama_13b.sh)" in text
    assert "it fits:" in text
    assert "faster on megatron" in text


@pytest.mark.parametrize(
    ("nodes", "each", "more", "said"),
    [(6, 4, (), True), (3, 8, (), False), (1, 4, (), False), (6, 4, ("--gpus", "24"), False)],
)
def test_nodes_of_which_a_job_fills_a_part_are_said_to_be_priced_full(tmp_path, capsys, nodes, each, more, said):
    script = tmp_path / "go.sh"
    flags = "--per_device_train_batch_size 1 --model_name_or_path gpt2-xl --block_size 512 --bf16"
    script.write_text(f"torchrun --nnodes {nodes} --nproc_per_node {each} run_clm.py {flags} --ddp_timeout 100\n")

    text = answer(capsys, "plan", "--job", str(script), "--cluster", "dgx-h100", *more).out

    assert (f"{each} ranks on each node: priced with 8, on all GPUs of each dgx-h100" in text) == said


@pytest.mark.parametrize(
    ("launcher", "told"),
    [
        ("deepspeed --hostfile hosts --include a@b:0,1,2,3", "12 GPUs of dgx-h100: priced as 3 nodes with 4 of 8 each"),
        ("torchrun --nnodes 3 --nproc_per_node 4", ""),
        ("torchrun --nnodes 2 --nproc_per_node 6", ""),
    ],
)
def test_gpus_that_whole_nodes_do_not_have_are_priced_on_nodes_with_fewer(tmp_path, capsys, launcher, told):
    (tmp_path / "hosts").write_text("a slots=8\nb slots=8\n")
    script = tmp_path / "go.sh"
    flags = "--per_device_train_batch_size 1 --model_name_or_path gpt2-xl --block_size 512 --bf16"
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    script.write_text(f"{launcher} run_clm.py {flags} --deepspeed ds.json\n")

    text = answer(capsys, "plan", "--job", str(script), "--cluster", "dgx-h100").out

    assert "on 12 GPUs" in text
    assert told in text
    assert ("priced as" in text) is bool(told)


def test_a_launcher_that_takes_every_gpu_has_those_of_the_clusters_nodes(tmp_path, capsys):
    script = tmp_path / "go.sh"
    flags = "--per_device_train_batch_size 1 --model_name_or_path gpt2-xl --block_size 512 --bf16"
    script.write_text(f"torchrun --nnodes 2 --nproc_per_node gpu run_clm.py {flags} --ddp_timeout 100\n")

    text = answer(capsys, "plan", "--job", str(script), "--cluster", "dgx-h100").out

    assert "on 16 GPUs" in text
    assert "assumed: 8 ranks a node: torchrun starts one on each GPU that it sees" in text
    assert "in words: 16 ranks: 16 data-parallel ranks, each with a copy of the model" in text


def test_the_way_round_a_trainer_that_is_not_read_is_one_that_prices(tmp_path, capsys):
    script = tmp_path / "go.sh"
    script.write_text("python -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=8\n")

    refused = answer(capsys, "plan", "--job", str(script), "--cluster", "dgx-h100", code=2).err
    priced = answer(capsys, *SMALL, "--layout", "tp=2,dp=8,mbs=1").out

    assert "say the layout with --layout in place of --job" in refused
    assert "step time" in priced


def test_what_is_noted_of_a_job_is_told_where_its_cluster_is_asked_for(tmp_path, capsys):
    script = tmp_path / "go.sh"
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=1\n"
    flags = "--per_device_train_batch_size 1 --model_name_or_path gpt2-xl --block_size 512 --bf16"
    script.write_text(f"{head}srun torchrun --nnodes 2 --nproc_per_node 2 run_clm.py {flags} --ddp_timeout 100\n")

    text = answer(capsys, "plan", "--job", str(script), code=2).err

    assert "--cluster: expected" in text
    assert "; 12 of 16 GPUs (" in text


MEGATRON = ("plan", "--job", str(CASES / "megatron_llama_13b.sh"), "--cluster", "dgx-h100")


def test_a_layout_asked_for_beside_a_job_is_put_beside_what_runs_today_and_what_would_be_faster(capsys):
    found = json.loads(answer(capsys, *MEGATRON, "--json").out)
    asked = ("--layout", "tp=8,pp=1,zero=1,sp=1,recompute=full")

    text = answer(capsys, *MEGATRON, *asked).out
    document = json.loads(answer(capsys, *MEGATRON, *asked, "--json").out)

    assert "the layout that is asked for" in text
    assert "what runs today\n" not in text
    assert "beside what runs today: " in text
    assert "no layout that megatron can run" not in text
    assert document["today"]["predicted"] == found["predicted"]
    best = min(other["predicted"]["step_time_s"] for other in found["faster"])
    assert document["faster"][0]["predicted"]["step_time_s"] == best < document["predicted"]["step_time_s"]


def test_a_job_that_no_layout_of_its_engine_surely_fits_is_told_of_the_memory_of_the_hosts(capsys, tmp_path):
    zero = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 2}
    (tmp_path / "zero.json").write_text(json.dumps(zero))
    model = ("--model", "llama3-8b", "--seq-len", "4096", "--cluster", "dgx-a100-80gb", "--gpus", "2")
    asked = ("plan", "--job", str(tmp_path / "zero.json"), *model, "--global-batch", "4")

    text = answer(capsys, *asked).out
    document = json.loads(answer(capsys, *asked, "--json").out)

    assert document["fits"] != "fits"
    assert "what may fit, on deepspeed" in text
    assert "it would fit with mbs=1,offload=optimizer (" in text
    assert all(one["layout"]["offload"] != "none" for one in document["would_fit"])


def test_the_page_of_a_job_shows_what_runs_today_what_was_assumed_and_the_alternatives(capsys, tmp_path):
    page = tmp_path / "job.html"
    document = json.loads(answer(capsys, *MEGATRON, "--html", str(page), "--json").out)

    data = json.loads(page.with_suffix(".json").read_text())

    predicted, faster = document["predicted"], document["faster"][0]["predicted"]
    text = page.with_suffix(".json").read_text()
    assert data["title"].startswith("megatron_llama_13b.sh on ")
    assert f"(within {predicted['error_band']:.0%})" in data["verdict"]
    assert "assumed: TP=4 (its default in megatron_llama_13b.sh)" in text
    assert str(predicted["step_time_s"]) in text
    assert str(faster["step_time_s"]) in text


def test_of_a_layout_asked_for_that_one_is_emitted_whatever_is_faster(capsys):
    text = answer(capsys, *MEGATRON, "--layout", "tp=8,pp=1,zero=1,sp=1", "--emit", "megatron").out

    assert "--tensor-model-parallel-size 8" in text


def test_a_faster_layout_with_a_wider_band_says_how_wide_and_why(capsys, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(
        '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\n'
        'seq_len = 8192\n[parallelism]\ntensor_parallel_degree = 8\n[activation_checkpoint]\nmode = "full"\n'
    )
    asked = ("plan", "--job", str(job), "--gpus", "64", "--cluster", "dgx-h100")
    document = json.loads(answer(capsys, *asked, "--json").out)
    best = document["faster"][0]["predicted"]

    last = answer(capsys, *asked).out.partition("faster: ")[2].replace("\n", " ")

    assert best["error_band"] > document["predicted"]["error_band"]
    assert f"{best['error_band']:.0%}" in last
    assert best["not_modelled"][-1] in last


def test_two_questions_at_once_are_told_to_be_two(capsys):
    assert (
        "--scaling: not with --job: give one of the two" in answer(capsys, *MEGATRON, "--scaling", "fixed", code=2).err
    )


def test_json_of_a_job_holds_the_job_its_price_and_the_alternatives(capsys):
    document = json.loads(answer(capsys, "plan", "--job", NEMO, "--cluster", "dgx-h100", "--json").out)

    assert {"job", "layout", "predicted", "fits", "faster", "alternatives"} <= set(document)
    job = document["job"]
    assert (job["engine"], job["world"], job["global_batch"], job["seq_len"]) == ("nemo", 64, 256, 4096)
    assert document["layout"]["tp"] == job["layout"]["tp"] == 4
    assert document["predicted"]["error_band"] > 0


def test_files_may_follow_each_other_and_what_is_missing_is_asked_for_in_one_line(capsys):
    files = [str(CASES / "hf_training_arguments.yaml"), str(CASES / "deepspeed_zero2.json")]

    told = answer(capsys, "plan", "--job", *files, "--cluster", "dgx-a100-80g", code=2).err

    assert "--gpus: expected" in told
    assert told.count("\n") == 1
    assert answer(capsys, "plan", "--job", *files, "--gpus", "16", "--cluster", "dgx-a100-80g", "--json").out


def test_a_cluster_that_counts_its_gpus_says_the_ranks_that_the_files_leave_open(capsys):
    files = [str(CASES / "hf_training_arguments.yaml"), str(CASES / "deepspeed_zero2.json")]
    network = ["--inter", "200Gbps", "--json"]

    told = answer(capsys, "plan", "--job", *files, "--cluster", "16xA100-80G", *network).out
    given = answer(capsys, "plan", "--job", *files, "--cluster", "16xA100-80G", "--gpus", "16", *network).out

    assert json.loads(told)["predicted"] == json.loads(given)["predicted"]
    assert "all of --cluster 16xA100-80G" in " ".join(json.loads(told)["job"]["assumed"])


def test_a_cluster_whose_gpus_are_no_whole_split_is_none_that_was_meant(tmp_path, capsys):
    text = Path(CASES / "megatron_llama_13b.sh").read_text()
    experts = text.replace("--bf16", "--bf16 --num-experts 16 --moe-router-topk 2 --expert-model-parallel-size 16")
    script = tmp_path / "go.sh"
    script.write_text(
        experts.replace("srun --nodes=$NODES torchrun --nnodes $NODES --nproc_per_node $GPUS", "srun python")
    )
    words = ["plan", "--job", str(script), "--inter", "200Gbps", "--cluster"]

    told = answer(capsys, *words, "8xH100", code=2).err

    assert "--gpus: expected, since the number of ranks is in none of the files; all 8 of --cluster 8xH100" in told


def test_validate_puts_a_job_beside_what_was_measured(capsys):
    words = ["validate", "--job", NEMO, "--measured", "3.0", "--cluster", "dgx-h100"]

    outcome = json.loads(answer(capsys, *words, "--json").out)

    assert outcome["measured_step_time_s"] == 3.0
    assert outcome["error"] == pytest.approx(outcome["step_time_s"] / 3.0 - 1)
    assert "predicted" in answer(capsys, *words).out


def test_a_time_far_from_what_is_predicted_is_told_as_what_it_may_be(capsys):
    words = ["validate", "--job", NEMO, "--cluster", "dgx-h100", "--measured"]
    predicted_s = json.loads(answer(capsys, *words, "3.0", "--json").out)["step_time_s"]

    assert f"; in milliseconds it would be a step of {predicted_s:.3g} s" in answer(
        capsys, *words, f"{1000 * predicted_s}"
    ).out.replace("\n", " ")


def test_a_job_that_was_measured_faster_than_its_peak_has_no_error_and_is_told_so(capsys):
    words = ["validate", "--job", NEMO, "--measured", "0.001", "--cluster", "dgx-h100"]
    told = answer(capsys, *words)

    assert "warning: --measured 0.001: at the peak of " in told.err
    assert "within" not in told.out
    assert "outside" not in told.out
    assert json.loads(answer(capsys, *words, "--json").out)["error"] is None


def test_validate_and_plan_price_a_job_alike(capsys):
    planned = json.loads(answer(capsys, "plan", "--job", NEMO, "--cluster", "dgx-h100", "--json").out)
    words = ["validate", "--job", NEMO, "--measured", "3.0", "--cluster", "dgx-h100", "--json"]

    assert json.loads(answer(capsys, *words).out)["step_time_s"] == planned["predicted"]["step_time_s"]


def test_simulate_takes_a_job(capsys):
    words = ["simulate", "--job", NEMO, "--cluster", "dgx-h100", "--json"]

    assert json.loads(answer(capsys, *words).out)["layout"].startswith("tp=4,dp=16,mbs=4")


STAGES = """torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 \\
  --num-attention-heads 16 --ffn-hidden-size 8192 --swiglu --normalization RMSNorm --disable-bias-linear --bf16 \\
  --vocab-size 32000 --micro-batch-size 1 --global-batch-size 32 --seq-length 2048 --use-distributed-optimizer \\
  --overlap-grad-reduce --overlap-param-gather --pipeline-model-parallel-size 4 """


@pytest.mark.parametrize(
    ("cut", "layers"),
    [
        ("--pipeline-model-parallel-layout 'Ett|tttt|tttttt|ttttL'", [2, 4, 6, 4]),
        ("--pipeline-model-parallel-layout 'E|tttttttt|tttttttt|L'", [0, 8, 8, 0]),
        ("--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3", [1, 6, 6, 3]),
        (
            "--num-layers 14 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            [3, 4, 4, 3],
        ),
        ("", [4, 4, 4, 4]),
    ],
)
def test_simulate_cuts_the_stages_as_the_job_does(capsys, tmp_path, cut, layers):
    file = tmp_path / "train.sh"
    file.write_text(STAGES + cut)

    found = json.loads(answer(capsys, "simulate", "--job", str(file), "--cluster", "dgx-h100", "--json").out)
    planned = json.loads(answer(capsys, "plan", "--job", str(file), "--cluster", "dgx-h100", "--json").out)

    backward = [row["backward_s"] for row in found["ranks"]]  # the last rank has the output too
    middle = backward[1] / layers[1]
    assert backward[:3] == pytest.approx([middle * count for count in layers[:3]], rel=0.02, abs=0.02 * backward[1])
    assert [stage["layers"] for stage in planned["stages"]] == layers


def test_a_cut_of_stages_says_by_which_of_them_the_step_is_priced(capsys, tmp_path):
    file = tmp_path / "train.sh"
    told = "of its own layout the longest sets the pace, the fullest the memory"
    asked = ("plan", "--job", str(file), "--cluster", "dgx-h100")

    file.write_text(STAGES)
    even = answer(capsys, *asked).out
    file.write_text(STAGES + "--pipeline-model-parallel-layout 'Ett|tttt|tttttt|ttttL'")
    assert told in answer(capsys, *asked).out
    assert told not in even


def test_stages_that_are_not_as_many_as_the_degrees_make_are_a_contradiction(capsys, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        "trainer: {num_nodes: 1, devices: 8}\n"
        "model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 4, micro_batch_size: 1,\n"
        "  name: llama3_8b, virtual_pipeline_model_parallel_size: 2, global_batch_size: 32, mcore_gpt: true,\n"
        "  encoder_seq_length: 4096,\n"
        "  pipeline_model_parallel_layout: 'Et*8|t*8|t*8|t*8L'}\n"
    )

    error = answer(capsys, "plan", "--job", str(file), "--cluster", "dgx-h100", code=2).err

    assert "into 4 stages, but" in error
    assert "makes 8" in error


def test_train_refuses_a_job_and_says_how(capsys):
    assert "plan --job ... --output plan.json" in answer(capsys, "train", "--job", "x.sh", code=2).err


def test_the_winner_of_a_search_is_emitted_for_an_engine_and_reads_back(capsys, tmp_path):
    file = tmp_path / "job.py"
    words = [*SMALL, "--seq-len", "8192", "--emit", "torchtitan", "--emit-to", str(file), "--json"]

    document = json.loads(answer(capsys, *words).out)
    job = read_job([str(file)])

    assert job.full_layout().tp == document["layout"]["tp"]
    assert (job.world, job.global_batch, job.seq_len) == (16, 32, 8192)


def test_emission_on_standard_output_is_the_configuration_alone(capsys):
    captured = answer(capsys, *SMALL, "--layout", "tp=4,dp=4,zero=1,sp=1", "--emit", "megatron")

    assert captured.out.startswith("#!/bin/bash")
    assert "--tensor-model-parallel-size 4" in captured.out


def test_an_engine_keeps_the_search_to_what_it_can_run(capsys):
    found = json.loads(answer(capsys, *SMALL, "--engine", "deepspeed", "--json").out)
    layouts = [found["layout"], *(other["layout"] for other in found["alternatives"][:-1])]

    assert all(layout["pp"] == layout["cp"] == 1 and layout["sp"] == 0 for layout in layouts)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*SMALL, "--engine", "deepsped"], "did you mean deepspeed?"),
        ([*SMALL, "--emit", "megatron", "--json"], "--emit-to FILE"),
        ([*SMALL, "--emit-to", "x"], "needs --emit"),
        ([*SMALL, "extra.sh"], "files go with --job"),
        ([*SMALL, "--layout", "tp=2,pp=4,dp=2", "--emit", "accelerate"], "has no pp"),
        (["plan", "--job", "absent.sh", "--cluster", "dgx-h100"], "no such file"),
        (["plan", "--job", NEMO], "--cluster: expected"),
        (["plan", "--job", NEMO, "--cluster", "dgx-h100", "--modes"], "--modes: not with --job"),
        (["plan", "--job", NEMO, "--cluster", "dgx-h100", "--graph", "step.svg"], "--graph: not with --job"),
        (["validate", "--job", NEMO], "--measured SECONDS"),
        (["validate"], "expected a table of runs"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(capsys, words, told):
    error = answer(capsys, *words, code=2).err

    assert told in error
    assert error.count("\n") == 1


def test_files_that_belong_together_go_to_validate_and_simulate_too(capsys):
    files = [str(CASES / "hf_training_arguments.yaml"), str(CASES / "deepspeed_zero2.json")]
    machine = ["--gpus", "16", "--cluster", "dgx-a100-80g", "--json"]

    validated = json.loads(answer(capsys, "validate", "--job", *files, "--measured", "40", *machine).out)
    simulated = json.loads(answer(capsys, "simulate", "--job", *files, *machine).out)

    assert validated["job"]["layout"]["zero"] == 2
    assert simulated["layout"].startswith("dp=16,mbs=4,zero=2")


def test_a_batch_that_follows_from_the_ranks_is_not_asked_for_beside_them(capsys):
    job = Path(__file__).parents[3] / "examples/jobs/llama3_8b_torchtitan.toml"
    words = ["plan", "--job", str(job), "--cluster", "dgx-h100"]

    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert "--gpus: expected" in said
    assert "--global-batch" not in said
    assert run_command([*words, "--gpus", "64", "--json"]) == 0


def test_a_job_priced_on_another_stack_says_what_that_stack_cannot_run(capsys):
    words = ["plan", "--job", NEMO, "--cluster", "dgx-h100", "--stack"]

    assert (
        "warning: stack deepspeed cannot run it: it has no sequence parallelism"
        in answer(capsys, *words, "deepspeed").err
    )
    assert "cannot run it" not in answer(capsys, *words, "nemo").err


LIKELY_TOO_LARGE = """
deepspeed --num_gpus 8 run_clm.py --deepspeed zero3.json --model_name_or_path meta-llama/Llama-3.1-8B --bf16 \\
    --block_size 4096 --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --gradient_checkpointing
"""


def test_a_job_that_may_not_fit_is_told_what_fits_and_not_what_takes_more_memory(capsys, tmp_path):
    (tmp_path / "zero3.json").write_text('{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}')
    (tmp_path / "run.sh").write_text(LIKELY_TOO_LARGE)
    words = ("plan", "--job", str(tmp_path / "run.sh"), "--cluster", "8xL40S")

    text = answer(capsys, *words).out
    document = json.loads(answer(capsys, *words, "--json").out)

    need = document["predicted"]["peak_memory_bytes_per_gpu"]
    assert document["fits"] == "may not"
    assert document["faster"]
    assert all(other["predicted"]["peak_memory_bytes_per_gpu"] < need for other in document["faster"])
    assert "what fits, on deepspeed" in text
    assert "the fastest that fits takes" in text


def test_a_comparison_beside_a_job_is_refused_with_what_comes_near_to_it(capsys):
    both = answer(capsys, *MEGATRON, "--compare", "dgx-h100,dgx-h200", code=2).err

    assert "--job is priced on one --cluster after another" in both


ESTIMATOR = """from sagemaker.pytorch import PyTorch

PyTorch(entry_point="tune.py", instance_type="{kind}", instance_count=2, hyperparameters={{
    "model_name_or_path": "Qwen/Qwen3-8B", "max_length": 2048, "per_device_train_batch_size": 1, "bf16": True,
    "fsdp": "full_shard"}}, distribution={{"torch_distributed": {{"enabled": True}}}}).fit()
"""


def test_an_instance_type_that_the_files_name_is_the_cluster_where_none_is_given(capsys, tmp_path):
    file = tmp_path / "start.py"
    file.write_text(ESTIMATOR.format(kind="ml.p4d.24xlarge"))

    found = answer(capsys, "plan", "--job", str(file), "--json")

    assert "note: --cluster aws-p4d, since start.py runs on p4d.24xlarge" in found.err
    assert json.loads(found.out)["job"]["machines"] == "p4d.24xlarge"


def test_a_cluster_that_is_asked_for_is_told_with_the_machines_that_the_files_name(capsys, tmp_path):
    file = tmp_path / "start.py"
    file.write_text(ESTIMATOR.format(kind="ml.p3.8xlarge"))

    found = answer(capsys, "plan", "--job", str(file), "--json", code=2)

    assert "--cluster: expected a node type of the catalogue or a file: start.py says of its machines" in found.err
    assert "p3.8xlarge" in found.err
