import tomllib

import pytest

from meshwright.errors import InputError
from meshwright.files import convert
from meshwright.train.config import JobConfig, load_job, template, to_toml


def test_the_template_is_the_default_job():
    assert convert(tomllib.loads(template()), JobConfig, where="template") == JobConfig()


def test_the_template_tells_the_meaning_of_every_key():
    settings = [line for line in template().splitlines() if " = " in line]

    assert len(settings) > 30
    assert [line for line in settings if "  # " not in line and not line.partition("# ")[2]] == []


def test_a_resolved_job_reads_back():
    job = load_job(None, {"train.steps": 7, "data.paths": ["/a b", 'c"d'], "launch.layout": "dp=2"})

    assert convert(tomllib.loads(to_toml(job)), JobConfig, where="resolved") == job


def test_flags_override_the_file(tmp_path):
    (tmp_path / "job.toml").write_text("[train]\nsteps = 3\nseed = 5\n")
    job = load_job(tmp_path / "job.toml", {"train.steps": 9})

    assert (job.train.steps, job.train.seed) == (9, 5)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("train.step", 3, "did you mean train.steps"),
        ("trian.steps", 3, "did you mean train.steps"),
        ("optimizer.beta1", 1.0, "beta1: expected 0 or more and less than 1"),
        ("data.validation_share", 0.0, "between 0 and 1"),
        ("launch.port", 70000, "0 to 65535"),
        ("launch.timeout_s", 0.0, "more than 0"),
        ("train.checkpoint_every", -1, "0 or more"),
        ("data.seq_len", 4096, "more than model.max_position_embeddings"),
    ],
)
def test_a_bad_value_names_its_key(key, value, message):
    with pytest.raises(InputError, match=message):
        load_job(None, {key: value})
