"""Configurations that a script makes of others: what sed, grep, awk, cat, cp and envsubst leave is what is read."""

import shutil
import subprocess
import time

import pytest

from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.jobs.shell.filters import filtered
from meshwright.jobs.shell.script import follow

RECIPE = """model_name_or_path: Qwen/Qwen3-1.7B
stage: sft
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
TEXT = """model: meta/llama
lr: 1e-5   # rate
seq_len: 4096
a.b|c (x) {y} $NAME ${NAME} ^z
path: /data/x/y
\tbatch_size:   8
use_fp8: true
name: 'x [1] y'
"""
FILTERS = (
    ("sed", "s/lr: .*/lr: 2/"),
    ("sed", "s|/data|/mnt|g"),
    ("sed", "-E", r"s/([a-z_]+): +([0-9]+)/\2=\1/"),
    ("sed", r"s/\([a-z_]*\): *\([0-9]\+\)/\2=\1/"),
    ("sed", "s/${NAME}/foo/"),
    ("sed", "s/$NAME/foo/g"),
    ("sed", r"s/\$NAME/foo/g"),
    ("sed", "s/ ^z/q/"),
    ("sed", "/^lr/d;s/x/&&/g;s/y/Y/"),
    ("sed", r"s/\<x\>/W/g"),
    ("sed", "-E", "s/(true|false)/off/"),
    ("sed", "-e", "s/a/1/", "-e", "s/b/2/"),
    ("sed", r"s/[[:space:]]\+/ /g"),
    ("sed", "s/[^/]*$/end/"),
    ("sed", r"s/\//_/g"),
    ("sed", "s/{y}/{z}/"),
    ("sed", "-E", r"s/\{y\}/{z}/"),
    ("sed", "s/(x)/[&]/"),
    ("sed", "s/a.b|c/K/"),
    ("sed", "s/[]]/)/"),
    ("sed", r"s/[\.b]/_/g"),
    ("sed", "s/LR/x/I"),
    ("sed", r"s/lr/a\nb\tc/"),
    ("grep", "-E", "lr|seq"),
    ("grep", "-i", "LR:"),
    ("grep", r"lr\|seq"),
    ("grep", "lr|seq"),
    ("grep", "-F", "${NAME}"),
    ("awk", "{print $2}"),
    ("awk", "-F:", "{print $2}"),
    ("awk", "{print $NF}"),
    ("head", "-n", "2"),
    ("head", "-2"),
    ("tail", "-n", "3"),
    ("cut", "-d:", "-f2"),
    ("tr", "-d", ":"),
    ("wc", "-l"),
)


def job(folder, script):
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "run.sh").write_text(script)
    return read_job([str(folder / "run.sh")], JobOptions(gpus=8))


def test_a_recipe_that_sed_writes_to_a_temporary_file_is_read(tmp_path):
    found = job(
        tmp_path,
        "LEN=4096\nCFG=$(mktemp /tmp/cfg.XXXXXX.yaml)\n"
        'sed -e "s|^cutoff_len:.*|cutoff_len: ${LEN}|" -e "/^gradient_acc/d" recipe.yaml > "$CFG"\n'
        'echo "gradient_accumulation_steps: 8" >> "$CFG"\nllamafactory-cli train "$CFG"\n',
    )

    assert found.seq_len == 4096
    assert found.global_batch == 2 * 8 * 8


def test_a_recipe_that_is_changed_in_place_is_read_as_changed(tmp_path):
    found = job(tmp_path, "sed -i 's/batch_size: 2/batch_size: 1/' recipe.yaml\nllamafactory-cli train recipe.yaml\n")

    assert found.global_batch == 1 * 4 * 8


def test_a_change_in_place_that_is_not_followed_is_named(tmp_path):
    found = job(tmp_path, "sed -i '3,5{s/a/b/}' recipe.yaml\nllamafactory-cli train recipe.yaml\n")

    assert found.global_batch == 2 * 4 * 8
    assert "run.sh line 1: what `sed 3,5{s/a/b/}` changes is not followed" in found.assumed


def test_a_copy_with_the_environments_variables_is_read(tmp_path):
    (tmp_path / "template.yaml").write_text(RECIPE.replace("2048", "${LEN}"))
    found = job(tmp_path, "export LEN=1024\nenvsubst < template.yaml > made.yaml\nllamafactory-cli train made.yaml\n")

    assert found.seq_len == 1024


def test_a_value_that_is_taken_out_of_a_recipe_is_known(tmp_path):
    found = job(
        tmp_path,
        "N=$(grep '^gradient_accumulation_steps' recipe.yaml | awk '{print $2}')\ncp recipe.yaml made.yaml\n"
        'sed -i "s/per_device_train_batch_size: .*/per_device_train_batch_size: $N/" made.yaml\n'
        "llamafactory-cli train made.yaml\n",
    )

    assert found.global_batch == 4 * 4 * 8


@pytest.mark.skipif(shutil.which("sed") is None, reason="needs sed")
@pytest.mark.parametrize("words", FILTERS, ids=" ".join)
def test_a_filter_leaves_what_the_program_itself_leaves(words):
    done = subprocess.run(words, input=TEXT, capture_output=True, text=True, check=False)

    assert filtered(TEXT, words) == done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("sed", "-n", "s/a/b/p"),
        ("sed", "s/x*/-/g"),
        ("sed", "s/*//"),
        ("sed", "-E", "s/(a|ab)c?/x/"),
        ("sed", "3d"),
        ("sed", "s/a/b/2"),
        ("grep", "-v", "x"),
        ("grep", "[[:punct:]]"),
    ],
    ids=" ".join,
)
def test_what_is_not_read_as_the_program_reads_it_is_not_followed(words):
    assert filtered(TEXT, words) is None


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "a?" * 60 + "a" * 60, ".*.*.*.*.*=x", r"(a+b?)+$", "a{9}{9}"])
def test_a_pattern_that_could_take_long_is_not_followed(pattern):
    start = time.perf_counter()

    assert filtered("a" * 5000 + "\n", ["grep", "-E", pattern]) is None
    assert time.perf_counter() - start < 2


def test_temporary_files_have_names_of_their_own():
    started = follow("A=$(mktemp)\nB=$(mktemp --suffix=.yaml)\nrun $A $B\n", where="x.sh").started

    assert list(started[0].words) == ["run", "/tmp/temporary-1", "/tmp/temporary-2.yaml"]


@pytest.mark.parametrize(
    ("asked", "batch"),
    [
        ('grep -q "stage: dpo" recipe.yaml', 2),
        ('grep -q "stage: sft" "$HOME/recipe.yaml" 2>/dev/null', 1),
        ("grep -qE '^bf16: *true' recipe.yaml", 1),
        ("grep --quiet fp8 recipe.yaml", 2),
        ('! grep -q "stage: dpo" recipe.yaml', 1),
        ("grep stage:.sft recipe.yaml > /dev/null", 1),
        ("grep -i STAGE recipe.yaml", 1),
    ],
)
def test_whether_a_file_at_hand_has_a_line_decides_what_is_started(tmp_path, asked, batch):
    more = "sed -i 's/batch_size: 2/batch_size: 1/' recipe.yaml"

    found = job(tmp_path, f"if {asked}; then\n  {more}\nfi\nllamafactory-cli train recipe.yaml\n")

    assert found.global_batch == batch * 4 * 8
    assert not any("grep" in text for text in found.assumed)


def test_whether_a_file_that_is_not_here_has_a_line_is_taken_so_and_said(tmp_path):
    found = job(tmp_path, "if grep -q sft other.yaml; then SEEN=1; fi\nllamafactory-cli train recipe.yaml\n")

    assert any("`grep -q sft other.yaml` succeeds is known only on the machine" in text for text in found.assumed)


STATES = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}}'
TUNED = "deepspeed --num_gpus 8 own.py --deepspeed ds.json --model_name_or_path Qwen/Qwen3-1.7B --block_size 1024"
TUNED += " --per_device_train_batch_size 2 --gradient_accumulation_steps 1\n"


@pytest.mark.parametrize(
    "line",
    [
        "yq -i '.zero_optimization.stage = 1' ds.json",
        "yq eval -i '.zero_optimization.stage |= 1 | .note = \"a | b\"' ds.json",
        "N=1 yq -i '.zero_optimization.stage = env(N)' ds.json",
        "jq '.zero_optimization[\"stage\"]=1 | del(.steps_per_print, .a.b)' ds.json > t.json && mv t.json ds.json",
        "jq --argjson n 1 '.zero_optimization.stage = $n' ds.json | sponge ds.json",
        't=$(mktemp)\njq \'. * {"zero_optimization": {"stage": 1}}\' < ds.json > $t\nmv $t ds.json',
    ],
)
def test_keys_that_jq_and_yq_set_are_read(tmp_path, line):
    (tmp_path / "ds.json").write_text(STATES)
    (tmp_path / "go.sh").write_text(f"{line}\n{TUNED}")

    for items in ([str(tmp_path / "go.sh")], [str(tmp_path / "go.sh"), str(tmp_path / "ds.json")]):
        job = read_job(items, JobOptions())

        assert job.layout.zero == 1
        assert not any("not followed" in told for told in job.assumed)


@pytest.mark.parametrize(
    "line",
    [
        "yq -i '.zero_optimization.stage |= . - 2' ds.json",
        "jq 'walk(.)' ds.json > t.json && mv t.json ds.json",
        "jq --arg n $UNKNOWN '.zero_optimization.stage = $m' ds.json > t.json",
        "perl -pi -e 's/3/1/' ds.json",
        "crudini --set ds.json zero stage 1",
        'python3 -c \'import json; d = own("ds.json"); json.dump(d, open("ds.json", "w"))\'',
        "python - <<EOF\nimport json\njson.dump(own('ds.json'), open('ds.json', 'w'))\nEOF",
    ],
)
def test_a_change_that_is_not_followed_is_said_beside_the_numbers(tmp_path, line):
    (tmp_path / "ds.json").write_text(STATES)
    (tmp_path / "go.sh").write_text(f"{line}\n{TUNED}")

    job = read_job([str(tmp_path / "go.sh")], JobOptions())

    assert job.layout.zero == 3
    assert any("of ds.json is not followed" in told for told in job.assumed)


@pytest.mark.parametrize("line", ["jq -r .bf16 ds.json > /dev/null", "jq . ds.json", "python3 -c 'print(\"ds.json\")'"])
def test_what_only_reads_a_file_is_no_change_of_it(tmp_path, line):
    (tmp_path / "ds.json").write_text(STATES)
    (tmp_path / "go.sh").write_text(f"{line}\n{TUNED}")

    assert not any("not followed" in told for told in read_job([str(tmp_path / "go.sh")], JobOptions()).assumed)


def test_a_line_that_is_added_to_a_file_at_hand_leaves_the_rest_of_it(tmp_path):
    (tmp_path / "own.yaml").write_text(RECIPE)
    (tmp_path / "go.sh").write_text('echo "lora_rank: 24" >> own.yaml\nllamafactory-cli train own.yaml\n')

    job = read_job([str(tmp_path / "go.sh"), str(tmp_path / "own.yaml")], JobOptions(gpus=8))

    assert (job.seq_len, job.global_batch) == (2048, 64)


def test_envsubst_leaves_the_variables_that_its_words_do_not_name(tmp_path):
    script = "export ONE=1 TWO=2\nenvsubst '$ONE' < own.yaml.in > made.yaml\n"
    outcome = follow(script, where="go.sh", given={}, find=lambda path: "a: $ONE\nb: ${TWO}\n")

    assert outcome.documents == {"made.yaml": "a: 1\nb: ${TWO}\n"}
