"""Public configurations: each is read, and the pages of docs/ say what the code says."""

from collections import Counter

import pytest

from benchmarks.published_jobs import FACTS, PAGE, facts_page, job_of, page, renderings
from meshwright.errors import InputError
from meshwright.workload.engines import ENGINES

REFUSED = {"gpt3_175b.sh": "= 128 on nnodes 1 x nproc_per_node 8 = 8", "deepspeed.yaml": "zero_stage1_config.json"}


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


def test_the_pages_are_made_from_the_code():
    assert PAGE.read_text() == page()
    assert FACTS.read_text() == facts_page()
