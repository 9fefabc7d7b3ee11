"""A stranger who speaks the protocol of torch's store at every port of a job: nothing of the job changes."""

from datetime import timedelta

import msgspec
import psutil
import pytest
import torch.distributed as dist

from meshwright.layout import Layout
from testkit.caches import new_cache
from testkit.fault_jobs import Job, events, final_weights, steps_done
from testkit.train_jobs import losses, small_job, write_corpus, write_run

STEPS = 120
KEYS = ("default_pg/0//cpu//member/1", "checkpoint/problem", "blame", "MASTER_PORT", "torch.rendezvous.run")


def begin(path, corpus):
    job = small_job(corpus, steps=STEPS, checkpoint_every=10, validate_every=10**6)
    folder = write_run(path, msgspec.structs.replace(job), Layout(dp=2, mbs=4))
    return folder, Job(
        ["--resume", str(path)], {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": new_cache(path.parent / "cache")}
    )


def ports_of(job):
    """Return every port that a process of the job listens on."""
    connections = [c for process in job.members() for c in process.net_connections("tcp")]
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def disturb(port):
    """Do what a client of torch's store can do; return the operations that the server carried out."""
    done = []
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=0.2))
        for key in (*KEYS, *store.list_keys()):
            for operation in (
                lambda key=key: store.delete_key(key),
                lambda key=key: store.add(key, 1),
                lambda key=key: store.set(key, "a stranger was here"),
            ):
                operation()
                done.append(key)
    except (dist.DistError, RuntimeError):
        pass
    return done


@pytest.mark.slow
@pytest.mark.soak
def test_a_hostile_client_of_torchs_store_changes_nothing(tmp_path):
    corpus = write_corpus(tmp_path)
    whole, alone = begin(tmp_path / "whole", corpus)
    assert alone.end()[0] == 0

    folder, job = begin(tmp_path / "run", corpus)
    job.wait_until(lambda: steps_done(folder) > 5)
    disturbed, done = set(), []
    while steps_done(folder) < STEPS - 5 and job.process.poll() is None:
        for port in ports_of(job):
            disturbed.add(port)
            done += disturb(port)
    code, errors = job.end()

    assert code == 0, errors
    assert disturbed
    assert done == []
    assert losses(folder) == losses(whole)
    assert final_weights(folder) == final_weights(whole)
    assert events(folder, "failure") == events(folder, "restart") == []


def test_the_same_client_does_as_it_likes_in_torchs_own_store():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("key", "value")

    assert "key" in disturb(store.port)

    assert store.get("key") == b"a stranger was here"
