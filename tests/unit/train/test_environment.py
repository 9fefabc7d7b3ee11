import pytest

from meshwright.errors import InputError
from meshwright.train.job.environment import (
    Place,
    adopt_slurm,
    choose_backend,
    first_host,
    place,
    ranks_on_this_host,
    tasks_per_node,
)


def test_torchruns_variables_say_where_a_rank_stands():
    variables = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}

    assert place(variables) == Place(rank=5, world_size=8, local_rank=1, local_world_size=4)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "RANK is not set"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "below"),
    ],
)
def test_missing_or_senseless_variables_are_named(variables, message):
    with pytest.raises(InputError, match=message):
        place(variables)


def test_a_gpu_for_each_rank_of_a_machine_means_nccl_however_many_machines_there_are(monkeypatch):
    monkeypatch.setattr("meshwright.device.count", lambda: 8)
    monkeypatch.setattr("meshwright.train.job.environment.native_backend", lambda: "nccl")
    one_of_two_machines = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}

    assert choose_backend("auto", ranks_on_this_host(one_of_two_machines, 16)) == "nccl"
    assert choose_backend("auto", ranks_on_this_host({}, 8)) == "nccl"
    assert choose_backend("auto", ranks_on_this_host({}, 16)) == "meshwright"


def test_ranks_that_slurm_shows_one_gpu_each_have_one_each(monkeypatch):
    monkeypatch.setattr("meshwright.device.count", lambda: 1)
    monkeypatch.setattr("meshwright.train.job.environment.native_backend", lambda: "nccl")
    monkeypatch.setenv("SLURM_LOCALID", "3")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)

    assert choose_backend("auto", 4) == "meshwright"  # four tasks before one GPU
    monkeypatch.setenv("SLURM_GPUS_PER_TASK", "1")
    assert choose_backend("auto", 4) == "nccl"
    assert choose_backend("nccl", 4) == "nccl"


def test_slurms_variables_become_torchruns():
    variables = {
        "SLURM_PROCID": "6", "SLURM_NTASKS": "7", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "123456", "SLURM_NODEID": "3",
        "SLURM_NODELIST": "node[07-09,12]", "SLURM_TASKS_PER_NODE": "2(x3),1",
    }  # fmt: skip
    adopt_slurm(variables)

    assert place(variables) == Place(rank=6, world_size=7, local_rank=0, local_world_size=1)
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("node07", "23456")


def test_another_launchers_variables_are_left_alone():
    variables = {"RANK": "0", "SLURM_PROCID": "3"}
    adopt_slurm(variables)

    assert variables == {"RANK": "0", "SLURM_PROCID": "3"}


@pytest.mark.parametrize(
    ("hosts", "first"), [("a", "a"), ("a,b", "a"), ("n[1-4]", "n1"), ("n[01,03]-ib,x", "n01-ib"), ("x-y[9]", "x-y9")]
)
def test_the_first_host_of_a_list(hosts, first):
    assert first_host(hosts) == first


def test_tasks_per_node_are_expanded_or_refused():
    assert tasks_per_node("4") == [4]
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    with pytest.raises(InputError, match="expected a form"):
        tasks_per_node("2(y3)")
