"""Templates: places that are filled in, that have a default, and that are asked for."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.files.template import fill_template
from tests.unit.jobs.test_strangers import job

TUNE = (
    "tune.py --model_name_or_path {{ model }} --do_train --block_size 512 --per_device_train_batch_size <BATCH> --bf16"
)
SCRIPT = f"""#!/bin/bash
#SBATCH --job-name={{{{ run_name }}}}
#SBATCH --nodes={{{{ nodes }}}}
#SBATCH --gpus-per-node={{{{ gpus | default(4) }}}}
{{% if account %}}#SBATCH --account={{{{ account }}}}
{{% endif %}}
srun torchrun --nnodes={{{{ nodes }}}} --nproc_per_node={{{{ gpus | default(4) }}}} {TUNE}
"""
GIVEN = ("nodes=3", "model=Qwen/Qwen2.5-1.5B", "BATCH=2")


def of_template(tmp_path, text: str, *given: str, name: str = "job.sbatch.j2"):
    return job(tmp_path, {name: text}, str(tmp_path / name), *given)


def test_a_template_is_filled_in_with_what_is_given_and_with_its_defaults(tmp_path):
    found = of_template(tmp_path, SCRIPT, *GIVEN)

    assert (found.world, found.layout.mbs, found.model_name) == (12, 2, "Qwen/Qwen2.5-1.5B")
    assert "gpus=4 (its default in job.sbatch.j2)" in found.assumed
    assert not found.ignored


def test_places_that_nothing_fills_in_are_asked_for_by_name(tmp_path):
    with pytest.raises(InputError, match=r"job\.sbatch\.j2 is a template .*--job nodes=VALUE model=VALUE BATCH=VALUE"):
        of_template(tmp_path, SCRIPT)


def test_nodes_that_nothing_fills_in_are_not_one_node(tmp_path):
    found = of_template(tmp_path, SCRIPT, *GIVEN[1:])

    assert found.world is None
    assert any("--job nodes=VALUE fills it" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{% if big %}8{% else %}2{% endif %}", "2"),
        ("{% if not big %}8{% endif %}", "8"),
        ('{% if size == "xl" %}8{% elif size == "s" %}4{% else %}2{% endif %}', "4"),
        ("{% if size is defined %}8{% endif %}", "8"),
        ("{% if size %}{% if big %}1{% endif %}2{% endif %}3", "23"),
        ("{% set ranks = 8 %}{{ ranks }}", "8"),
        ("{# 16 #}8", "8"),
        ("{{ nodes | default('8', true) }}", "8"),
        ("a{{ run }}b {{ run }}", "a${run}b ${run}"),
    ],
)
def test_conditions_settings_and_defaults_of_a_template_are_followed(text, filled):
    assert fill_template("a.sh.j2", text, {"size": "s"}, yaml=False).text == filled


@pytest.mark.parametrize("name", ["job.yaml-template", "job.yaml.in", "job.yml.envsubst", "job.yaml.example"])
def test_a_manifest_that_is_a_template_by_its_name_is_filled_in_from_the_variables_beside_it(tmp_path, name):
    words = TUNE.replace("{{ model }}", "Qwen/Qwen2.5-1.5B").replace("<BATCH>", "$MICRO").split()
    text = CHART.replace("{{ .Values.nodes }}", "${NODES}") % ", ".join(f'"{word}"' for word in words)

    found = job(tmp_path, {name: text, "env_vars": "export NODES=3\nexport MICRO=5\n"})

    assert (found.world, found.layout.mbs) == (12, 5)


@pytest.mark.parametrize(
    "tag", ["{% for n in nodes %}x{% endfor %}", '{% include "head.sh" %}', "{{- range .Values.jobs }}"]
)
def test_loops_and_inclusions_of_a_template_are_refused(tag):
    with pytest.raises(InputError, match="is not followed"):
        fill_template("a.sh.j2", tag, {}, yaml=False)


@pytest.mark.parametrize(
    "text", ["docker ps --format '{{ .Names }}'", "cat <IN>OUT", "cat <<EOF", "# say <MODEL> here", "a ${{ x }}"]
)
def test_what_is_no_place_of_a_template_stays_as_it_is(text):
    assert fill_template("a.sh", text, {}, yaml=False).text == text


def test_a_chat_template_in_a_configuration_is_none_of_a_job(tmp_path):
    text = 'chat_template: "{% for m in messages %}{{ bos_token }}{% endfor %}"\nbase_model: Qwen/Qwen2.5-1.5B\n'
    text += "sequence_len: 512\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\nbf16: true\ndatasets: []\n"

    found = job(tmp_path, {"sft.yml": text})

    assert not any("template that is not filled in" in note for note in found.notes)


CHART = """apiVersion: batch/v1
kind: Job
spec:
  completions: {{ .Values.nodes }}
  template:
    spec:
      containers:
      - name: t
        args: [torchrun, --nproc_per_node=4, %s]
        resources: {limits: {nvidia.com/gpu: 4}}
"""


def test_pods_that_a_chart_counts_by_a_value_are_asked_for_and_filled_in(tmp_path):
    words = TUNE.replace("{{ model }}", "Qwen/Qwen2.5-1.5B").replace("<BATCH>", "2").split()
    text = CHART % ", ".join(f'"{word}"' for word in words)

    with pytest.raises(InputError, match=r"completions \$nodes: not set in the files"):
        of_template(tmp_path, text, name="job.yaml")
    assert of_template(tmp_path, text, "nodes=3", name="job.yaml").world == 12
