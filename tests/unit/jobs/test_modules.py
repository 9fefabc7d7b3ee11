"""Modules that a job of Megatron-LM recomputes by name reach its price."""

import re

import pytest

from meshwright.cli import run_command

SCRIPT = """
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --ffn-hidden-size 14336 --swiglu --disable-bias-linear --normalization RMSNorm --seq-length 4096 \\
  --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --use-distributed-optimizer --bf16 \\
  --vocab-size 128256 --make-vocab-size-divisible-by 128 --tokenizer-type NullTokenizer \\
  --untie-embeddings-and-output-weights --position-embedding-type rope --recompute-granularity selective {modules}
"""


def allocated(tmp_path, capsys, modules):
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT.format(modules=modules))
    assert run_command(["plan", "--job", str(script), "--cluster", "dgx-h100", "--gpus", "8"]) == 0
    text = capsys.readouterr().out
    return float(re.search(r"it \w[\w ,]*: ([\d.]+) GiB allocated", text)[1]), text


def test_modules_that_are_recomputed_by_name_save_what_they_would_keep(tmp_path, capsys):
    attention, _ = allocated(tmp_path, capsys, "--recompute-modules core_attn")
    named, text = allocated(tmp_path, capsys, "--recompute-modules core_attn layernorm mlp")

    assert attention - named > 10  # GiB, of 32 layers for 4,096 tokens
    assert "priced as selective recomputation of attention" not in text


def test_a_module_that_nobody_knows_is_named_as_not_priced(tmp_path, capsys):
    _, text = allocated(tmp_path, capsys, "--recompute-modules layernorm wave_function")

    assert "recompute-modules wave_function: not priced" in text


def test_only_the_whole_layers_that_a_job_repeats_are_counted(tmp_path, capsys):
    def held(words):
        return allocated(tmp_path, capsys, f"--recompute-granularity full --recompute-method {words}")[0]

    every, some, most, none = (held(f"block --recompute-num-layers {count}") for count in (32, 8, 24, 0))

    assert every == held("uniform --recompute-num-layers 1")
    assert every < most < some < none
    assert some - most == pytest.approx((none - every) / 2, rel=0.1)  # each layer repeated spares as much


def test_a_block_of_no_layers_is_said_to_repeat_nothing(tmp_path, capsys):
    words = "--recompute-granularity full --recompute-method block --recompute-num-layers"

    assert "recompute-num-layers 0: no layer is computed again" in allocated(tmp_path, capsys, f"{words} 0")[1]
    assert "recompute-num-layers 8: priced as average layers" in allocated(tmp_path, capsys, f"{words} 8")[1]


def test_groups_of_layers_that_keep_one_input_are_said_not_to_be_priced(tmp_path, capsys):
    _, text = allocated(
        tmp_path, capsys, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4"
    )

    assert "recompute-num-layers 4: priced as if each layer kept what enters it" in text


def test_graphs_that_a_job_captures_are_named_with_what_of_them_is_not_priced(tmp_path, capsys):
    _, text = allocated(tmp_path, capsys, "--cuda-graph-impl local --cuda-graph-scope full_iteration")
    _, without = allocated(tmp_path, capsys, "")

    assert "and the launches that it saves are not priced" in " ".join(text.split())
    assert "and the launches that it saves are not priced" not in " ".join(without.split())


def test_what_changes_to_a_faster_layout_names_no_degree_of_experts_where_there_are_none(tmp_path, capsys):
    _, text = allocated(tmp_path, capsys, "--tensor-model-parallel-size 4 --sequence-parallel")

    assert "% faster" in text
    assert "tp 4 to " in text
    assert "etp" not in text
