import tomllib

import pytest

from meshwright.errors import InputError
from meshwright.files import convert
from meshwright.train.job.config import JobConfig, load_job, read_whole_config, template, to_toml


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


def test_the_configuration_of_a_run_that_was_cut_off_anywhere_is_refused_and_a_whole_one_is_read(tmp_path):
    text, path = to_toml(JobConfig()), tmp_path / "config.toml"
    path.write_text(text)
    assert read_whole_config(path) == JobConfig()

    lines = text.splitlines(keepends=True)
    for count in range(len(lines) - 1):
        path.write_text("".join(lines[:count]))
        with pytest.raises(InputError, match=r"has no \w+: the file was cut off, or is of an older version"):
            read_whole_config(path)


def test_a_key_that_is_missing_is_named_with_its_default(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(to_toml(JobConfig()).replace("keep_last = 3\n", ""))

    with pytest.raises(InputError, match=r"\[train\] has no keep_last: .* \(the default is 3\)"):
        read_whole_config(path)


def test_one_value_of_a_list_is_a_list_of_one():
    assert load_job(None, {"data.paths": "tale.txt"}).data.paths == ("tale.txt",)
    assert load_job(None, {"data.paths": []}).data.paths == ()
    with pytest.raises(InputError, match=r"data.paths"):
        load_job(None, {"data.paths": 3})
