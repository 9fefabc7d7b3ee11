"""Trainings that a script hands on: manifests to a cluster, texts to a terminal, and commands in another folder."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.jobs.shell.script import follow
from tests.unit.jobs.test_strangers import job

TRAIN = "torchrun --nproc_per_node 4 own.py --model_name_or_path Qwen/Qwen3-1.7B --per_device_train_batch_size 3"
TRAIN += " --block_size 1024 --bf16 True"
MANIFEST = """apiVersion: batch/v1
kind: Job
metadata: {name: own}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      containers:
      - name: one
        image: own
        command: [sh, -c, "torchrun --nnodes 2 --nproc_per_node 4 own.py --model_name_or_path MODEL --bf16 1
          --per_device_train_batch_size 3 --block_size 1024"]
        resources: {limits: {nvidia.com/gpu: 4}}
"""
KNOWN = MANIFEST.replace("MODEL", "Qwen/Qwen3-1.7B")
TEMPLATE = MANIFEST.replace("MODEL", "$M")
TASK = f"resources: {{accelerators: H100:4}}\nnum_nodes: 2\nrun: |\n  {TRAIN}\n"


@pytest.mark.parametrize(
    ("script", "files"),
    [
        (f"kubectl -n lab apply -f - <<EOF\n{KNOWN}EOF\nkubectl wait job/own\n", {}),
        ("kubectl create --filename=one.yaml\n", {"one.yaml": KNOWN}),
        ("export M=Qwen/Qwen3-1.7B\nenvsubst < one.yaml | kubectl apply -f -\n", {"one.yaml": TEMPLATE}),
        ("export M=Qwen/Qwen3-1.7B\ncat one.yaml | envsubst | kubectl apply -f -\n", {"one.yaml": TEMPLATE}),
        (
            "source ./own_vars\nenvsubst '$M' < one.yaml-template > one.yaml\nkubectl apply -f ./one.yaml\n",
            {"one.yaml-template": TEMPLATE, "own_vars": "export M=Qwen/Qwen3-1.7B\n"},
        ),
        ("cat one.yaml | sed 's|MODEL|Qwen/Qwen3-1.7B|' | oc apply -f -\n", {"one.yaml": MANIFEST}),
        ("sed 's|MODEL|Qwen/Qwen3-1.7B|' one.yaml > two.yaml\nkubectl apply -f two.yaml\n", {"one.yaml": MANIFEST}),
        ("sky launch -y -c own task.yaml\n", {"task.yaml": TASK}),
    ],
)
def test_a_manifest_that_a_script_hands_to_a_cluster_is_the_job(tmp_path, script, files):
    found = job(tmp_path, {"go.sh": script, **files}, str(tmp_path / "go.sh"))

    assert (found.world, found.layout.dp, found.layout.mbs, found.global_batch) == (8, 8, 3, 24)


def test_a_manifest_that_starts_no_training_leaves_the_one_of_the_script(tmp_path):
    volume = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: own}\nspec: {}\n"
    found = job(tmp_path, {"go.sh": f"kubectl apply -f - <<EOF\n{volume}EOF\n{TRAIN}\n"})

    assert found.world == 4


@pytest.mark.parametrize(
    "script",
    [
        "tmux new-session -d -s own\ntmux send-keys -t own 'export N=3' C-m\ntmux send-keys -t own \"{train}\" Enter",
        "tmux send-keys -t own:0 'cd /data' Enter '{train}' C-m",
        "tmux new -d -s own -c /data '{train}'",
        "tmux split-window -h -t own {train}",
        "screen -dmS own {train}",
        "screen -L -Logfile log.txt -dmS own bash -c '{train}'",
        "screen -S own -X stuff '{train}^M'",
    ],
)
def test_a_command_that_is_typed_into_a_terminal_is_the_job(tmp_path, script):
    found = job(tmp_path, {"go.sh": script.format(train=TRAIN) + "\n"})

    assert (found.world, found.layout.mbs) == (4, 3)


@pytest.mark.parametrize("line", ["tmux attach -t own", "tmux kill-session", "screen -ls", "screen -r own", "tmux"])
def test_commands_about_terminals_start_nothing_of_their_own(line):
    started = follow(f"{line}\n", where="go.sh").started

    assert [one.words for one in started] == [tuple(line.split())]


STATES = '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
INSIDE = f"{TRAIN} --deepspeed own.json\n"


@pytest.mark.parametrize(
    "script",
    [
        f"cd inner && {INSIDE}",
        f"cd $ROOT/inner\n{INSIDE}",
        f"pushd inner > /dev/null\n{INSIDE}popd\n",
        f"cd other\ncd ../inner\n{INSIDE}",
        f"(cd inner; {INSIDE})",
        "cd inner\nbash in.sh\n",
    ],
)
def test_files_are_found_in_the_folder_that_a_script_went_into(tmp_path, script):
    files = {
        "go.sh": script,
        "inner/own.json": STATES,
        "inner/in.sh": INSIDE,
        "other/own.json": STATES.replace("1", "3"),
    }

    assert job(tmp_path, files, str(tmp_path / "go.sh")).layout.zero == 1


def test_a_script_in_a_folder_that_goes_up_from_its_own_place_finds_files_there(tmp_path):
    files = {"scripts/go.sh": f'cd "$(dirname "$0")/.."\n{INSIDE}', "own.json": STATES}

    assert job(tmp_path, files, str(tmp_path / "scripts" / "go.sh")).layout.zero == 1


def test_a_subshell_and_a_script_of_its_own_leave_the_folder_as_it_was():
    text = "(cd inner; true)\n$(cd inner)\nbash in.sh\nown --one\ncd inner\nown --two\ncd -- ..\nown --three\n"
    found = follow(text, where="go.sh", find=lambda path: "cd deeper\n" if path == "in.sh" else None)

    assert {one.words[-1]: one.folder for one in found.started} == {"--one": "", "--two": "inner", "--three": ""}


def test_a_missing_file_of_a_command_line_is_asked_for_beside_the_command():
    with pytest.raises(InputError, match=r'give it too \(--job "COMMAND" gone.yaml\)'):
        read_job(["trl sft --config gone.yaml"], JobOptions())


def test_a_program_that_is_not_here_is_said_to_be_missing():
    with pytest.raises(InputError, match=r'gone.py is not here: --job "COMMAND" gone.py gives it too'):
        read_job(["torchrun --nproc_per_node 8 gone.py"], JobOptions())


def test_a_script_without_its_argument_names_the_configurations_beside_it(tmp_path):
    axolotl = "base_model: Qwen/Qwen3-1.7B\ndatasets: [{path: a}]\nmicro_batch_size: 1\nsequence_len: 512\n"
    files = {"go.sh": 'accelerate launch --num_processes 4 -m axolotl.cli.train "$1"\n', "all/one.yml": axolotl}
    files |= {"all/two.yml": axolotl, "all/states.json": STATES, "notes.yml": "a: 1\n"}

    found = job(tmp_path, files, str(tmp_path / "go.sh"))

    assert any(
        "is not given $1" in told and "(configurations here: all/one.yml, all/two.yml)" in told for told in found.notes
    )


def test_nanogpt_is_refused_by_its_name(tmp_path):
    program = "from model import GPTConfig, GPT\nbatch_size = 12\nexec(open('configurator.py').read())\n"
    with pytest.raises(InputError, match="this starts nanoGPT, which is not read"):
        job(tmp_path, {"go.sh": "torchrun --nproc_per_node 4 train.py own.py\n", "train.py": program})
