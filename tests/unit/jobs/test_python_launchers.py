"""Launchers written in Python: commands that they start, jobs that they submit, and several jobs of one manifest."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

WORDS = ["tune.py", "--model_name_or_path", "Qwen/Qwen2.5-1.5B", "--do_train", "--block_size", "512", "--bf16"]
LINE = " ".join(WORDS)
LAUNCH = f"""import argparse, subprocess, sys

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=4)
    given = parser.parse_args()
    subprocess.check_call([sys.executable, "data.py"])
    words = STARTER
    subprocess.run([*words, *{WORDS}, "--per_device_train_batch_size", str(2)], check=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "starter",
    [
        '["torchrun", f"--nproc_per_node={given.gpus}"]',
        '[sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(given.gpus)]',
        '["accelerate", "launch", "--num_processes", "4"]',
    ],
)
def test_the_command_that_a_python_launcher_starts_is_the_training(tmp_path, starter):
    found = job(tmp_path, {"launch.py": LAUNCH.replace("STARTER", starter)})

    assert (found.world, found.layout.mbs, found.seq_len) == (4, 2, 512)


SUBMIT = """import submitit
from lab.engine import Trial

executor = submitit.AutoExecutor(folder="logs")
executor.update_parameters(nodes=3, gpus_per_node=4, TASKS, slurm_partition="learn")

def train(size):
    import subprocess
    subprocess.run(f"torchrun --nnodes=3 --nproc_per_node=4 WORDS --per_device_train_batch_size {size}", shell=True)

executor.submit(WHAT)
""".replace("WORDS", LINE)


def submit(what: str, tasks: str) -> dict[str, str]:
    return {"submit.py": SUBMIT.replace("WHAT", what).replace("TASKS", tasks)}


@pytest.mark.parametrize("tasks", ["tasks_per_node=4", "slurm_ntasks_per_node=4"])
def test_each_task_that_submitit_starts_runs_the_command_that_it_is_given(tmp_path, tasks):
    words = ["python", *WORDS, "--per_device_train_batch_size", "2"]

    assert job(tmp_path, submit(f"submitit.helpers.CommandFunction({words})", tasks)).world == 12


def test_the_command_of_a_function_that_is_submitted_is_followed_with_its_arguments(tmp_path):
    found = job(tmp_path, submit("train, 3", "tasks_per_node=1"))

    assert (found.world, found.layout.mbs) == (12, 3)


def test_what_is_submitted_from_elsewhere_is_named_with_the_machines_that_it_gets(tmp_path):
    told = r"submit\.py: submits Trial of lab\.engine with conf/a\.yaml \(nodes 3, ntasks per node 4, gpus per node 4\)"
    with pytest.raises(InputError, match=told):
        job(tmp_path, submit('Trial("conf/a.yaml")', "tasks_per_node=4"))


@pytest.mark.parametrize(
    "more",
    [
        'words += ["--per_device_train_batch_size", "3"]',
        'words.extend(["--per_device_train_batch_size", "3"])',
        'words.append("--per_device_train_batch_size=3")',
        'words = " ".join([*words, "--per_device_train_batch_size 3"])',
        'words = shlex.split(shlex.join([*words, "--per_device_train_batch_size=3"]))',
    ],
)
def test_words_that_are_added_to_a_command_count(tmp_path, more):
    words = ["torchrun", "--nproc_per_node=4", *WORDS]
    text = f"import shlex\nimport subprocess\nwords = {words}\n{more}\nsubprocess.run(words)\nwords.append('--fp16')\n"

    found = job(tmp_path, {"launch.py": text})

    assert (found.world, found.layout.mbs, found.precision) == (4, 3, "bf16")


def test_words_that_nobody_knows_are_no_end_of_a_command(tmp_path):
    words = ["torchrun", "--nproc_per_node=4", *WORDS]
    text = f"import subprocess\nsubprocess.run([*{words}, '--per_device_train_batch_size=3', *extra()])\n"

    assert any("further flags" in note for note in job(tmp_path, {"launch.py": text}).notes)


# --- several jobs of one manifest

OBJECT = """apiVersion: batch/v1
kind: Job
metadata: {{name: {name}}}
spec:
  template:
    spec:
      containers:
      - args: [torchrun, --nproc_per_node=4, {words}, --learning_rate={rate}]
        resources: {{limits: {{nvidia.com/gpu: 4}}}}
"""


def jobs(model: str, rate: str) -> dict[str, str]:
    words = [*WORDS, "--per_device_train_batch_size=2"]
    first = OBJECT.format(name="small", words=", ".join(f'"{word}"' for word in words), rate="1e-4")
    words[2] = model
    second = OBJECT.format(name="large", words=", ".join(f'"{word}"' for word in words), rate=rate)
    return {"jobs.yaml": f"{first}---\n{second}"}


def test_trainings_of_a_manifest_are_named_with_what_they_differ_in(tmp_path):
    told = (
        r"jobs\.yaml: holds 2 trainings, small and large, of the models .*; expected one: --job jobs\.yaml:small names"
    )
    with pytest.raises(InputError, match=told):
        job(tmp_path, jobs("Qwen/Qwen2.5-7B", "1e-4"), str(tmp_path / "jobs.yaml"))


def test_an_object_of_a_manifest_is_chosen_by_its_name(tmp_path):
    found = job(tmp_path, jobs("Qwen/Qwen2.5-7B", "1e-4"), f"{tmp_path / 'jobs.yaml'}:large")

    assert (found.model_name, found.world) == ("Qwen/Qwen2.5-7B", 4)


def test_a_name_that_no_object_of_a_manifest_has_is_refused_with_the_names_that_there_are(tmp_path):
    with pytest.raises(InputError, match=r"no object is named 'huge' \(there are: small, large\)"):
        job(tmp_path, jobs("Qwen/Qwen2.5-7B", "1e-4"), f"{tmp_path / 'jobs.yaml'}:huge")


def test_trainings_of_a_manifest_that_are_priced_alike_are_one(tmp_path):
    found = job(tmp_path, jobs("Qwen/Qwen2.5-1.5B", "2e-4"), str(tmp_path / "jobs.yaml"))

    assert found.world == 4
    assert "jobs.yaml: holds 2 trainings, small and large, alike in what is priced" in found.assumed


FLAGS = {
    "a loop with conditions": """
def flags(table):
    out = []
    for key, value in table.items():
        if value is None or value is False:
            continue
        out.append("--" + key)
        if value is True:
            continue
        out += [str(value)]
    return out
""",
    "a list with conditions": """
def flags(table):
    switches = [f"--{key}" for key, value in table.items() if value is True]
    return switches + ["--%s=%s" % (key, value) for key, value in table.items() if value not in [True, False, None]]
""",
    "texts that are filled in": """
def flags(table):
    words = " ".join("--{} {}".format(key, "" if value is True else value) for key, value in table.items() if value)
    return words.split()
""",
    "a loop that is left": """
def flags(table):
    out = []
    for key in table:
        if key == "fp16":
            break
        out.extend(["--" + key] if table[key] is True else ["--" + key, str(table[key])])
    return out
""",
}


@pytest.mark.parametrize("function", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("start", ["subprocess.run(words)", "os.execvp(words[0], words)", "os.system(' '.join(words))"])
def test_flags_that_a_function_makes_of_a_table_are_followed(tmp_path, function, start):
    table = {"model_name_or_path": "Qwen/Qwen2.5-1.5B", "bf16": True, "block_size": 256}
    table |= {"per_device_train_batch_size": 3, "do_train": True, "fp16": None}
    text = f"import os\nimport subprocess\n{function}\nwords = ['torchrun', '--nproc_per_node=4', 'tune.py']\n"
    text += f"words += flags({table})\n{start}\n"

    found = job(tmp_path, {"launch.py": text})

    assert (found.world, found.layout.mbs, found.seq_len, found.precision) == (4, 3, 256, "bf16")


def test_words_of_a_loop_over_what_nobody_knows_may_be_further_flags(tmp_path):
    words = ["torchrun", "--nproc_per_node=4", *WORDS, "--per_device_train_batch_size=3"]
    text = f"import subprocess, sys\nwords = {words}\nfor one in sys.argv[1:]:\n    words.append(one)\n"

    notes = job(tmp_path, {"launch.py": f"{text}subprocess.run(words)\n"}).notes

    assert any("words of line 3 (further flags)" in note for note in notes)


def test_a_long_command_in_one_text_is_read_to_its_end(tmp_path):
    more = " ".join(f"--run_name_{place} plain" for place in range(80))
    text = f'import subprocess\nbatch = 3\nsubprocess.run(f"torchrun --nproc_per_node=4 {LINE} {more} '
    text += '--per_device_train_batch_size {batch}", shell=True)\n'

    assert job(tmp_path, {"launch.py": text}).layout.mbs == 3


@pytest.mark.parametrize(
    "command", ['f"{LINE} {more}"', '"LINE " + more', '["LINE", more]', 'f"{LINE} " + f"--seed {more}"']
)
def test_a_command_that_is_known_in_part_is_read_with_the_rest_named(tmp_path, command):
    line = f"torchrun --nproc_per_node=4 {LINE} --per_device_train_batch_size=3"
    command = command.replace("{LINE}", line).replace("LINE", line)
    command = f"{line.split()} + [more]" if command.startswith("[") else command
    text = f"import os, subprocess\nmore = os.environ['MORE']\nsubprocess.run({command}, shell=True)\n"

    found = job(tmp_path, {"launch.py": text})

    assert (found.world, found.layout.mbs) == (4, 3)
    assert any("$MORE" in note for note in found.notes) or "seed" in command
