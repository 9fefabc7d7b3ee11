"""Public configurations: each is read, and the pages of docs/ say what the code says."""

from collections import Counter

import msgspec
import pytest

from benchmarks.published_jobs import FACTS, PAGE, facts_page, job_of, page, renderings
from meshwright.errors import InputError
from meshwright.jobs.job import JobSplit
from meshwright.layout import Layout
from meshwright.workload.engines import ENGINES

REFUSED = {
    "gpt3_175b.sh": "= 128 on nnodes 1 x nproc_per_node 8 = 8",
    "deepspeed.yaml": "zero_stage1_config.json",
    "lf_alst.yaml": "ds_z3_partial_offload_config.json, which is not here: give it too",
}


def name_of(entry) -> str:
    return next(iter(entry["files"])).partition(":")[0]


def test_there_are_forty_and_five_of_each_engine():
    counts = Counter(entry["engine"] for entry in renderings())

    assert sum(counts.values()) >= 40
    assert set(counts) == set(ENGINES)
    assert min(counts.values()) >= 5


@pytest.mark.parametrize("entry", renderings(), ids=name_of)
def test_each_is_read_as_its_engine_or_refused_for_what_it_contradicts(entry):
    if name_of(entry) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name_of(entry)]):
            job_of(entry)
        return
    job = job_of(entry)

    assert job.engine == entry["engine"]
    if not job.asked:
        assert job.full_layout().world_size == job.world


WORKED_OUT = [entry for entry in renderings() if "right" in entry]


@pytest.mark.parametrize("entry", WORKED_OUT, ids=name_of)
def test_what_is_read_is_what_was_worked_out_by_hand(entry):
    job, right = job_of(entry), dict(entry["right"])
    layout = Layout.parse(right.pop("layout"), world_size=job.world)
    found = {
        **{"world": job.world, "batch": job.global_batch, "seq_len": job.seq_len, "precision": job.precision},
        "asked": list(job.asked),
        **{"lora_rank": job.lora_rank, "weights": job.weights, "loss": job.loss, "optimizer": job.optimizer},
        **{"away": list(job.away), "half_sums": job.half_sums},
        **({} if job.architecture is None else sizes_of(job.architecture)),
    }

    assert msgspec.to_builtins(JobSplit.of(layout)) | {"etp": None} == told(job.layout) | {"etp": None}
    assert {name: found[name] for name in right} == right
    assert all(any(text.startswith(key) for text in job.ignored) for key in entry.get("ignored", ()))


def sizes_of(model) -> dict[str, int]:
    return {
        **{"parameters": model.parameters, "layers": model.num_hidden_layers, "experts": model.experts},
        **{"kv_heads": model.num_key_value_heads, "vocab": model.vocab_size},
    }


def told(split: JobSplit) -> dict:
    """Return a split with what its files leave out at the value of a layout."""
    plain = msgspec.to_builtins(JobSplit.of(Layout()))
    return plain | {name: value for name, value in msgspec.to_builtins(split).items() if value is not None}


def test_the_pages_are_made_from_the_code():
    assert PAGE.read_text() == page()
    assert FACTS.read_text() == facts_page()
