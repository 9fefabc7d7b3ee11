"""Programs of other packages train over our groups and come to what they come to over Gloo's."""

import os
import subprocess
import sys

import pytest

from tests.clients.launch import needs, needs_entry_point, run, same_as_gloo, values

pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]


def soak(*values):
    return pytest.param(*values, marks=pytest.mark.soak)


@needs_entry_point()
def test_torch_alone_knows_the_name_and_imports_next_to_nothing_for_it():
    code = """
import sys, torch
import torch.distributed as dist
print(sorted(name for name in sys.modules if name.startswith("meshwright")))
dist.init_process_group("meshwright", store=dist.HashStore(), rank=0, world_size=1)
print(dist.get_backend())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    loaded = ["meshwright", "meshwright.gloo", "meshwright.hooks", "meshwright.interruptible"]
    assert done.stdout.splitlines() == [str(loaded), "meshwright"], done.stderr


@needs("accelerate")
@needs_entry_point()
@pytest.mark.parametrize(
    ("script", "ranks"),
    [("test_ops", 2), soak("test_sync", 2), soak("test_script", 2), soak("test_ops", 4), soak("test_sync", 4)],
)
def test_accelerates_own_tests_pass_unchanged_where_ours_stands_in_for_gloo(script, ranks):
    same_as_gloo("module.py", f"accelerate.test_utils.scripts.{script}", ranks=ranks, replaced=True)


@needs("transformers", "accelerate")
@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_trainer_takes_our_name(ranks):
    same_as_gloo("trainer.py", "named", ranks=ranks)


@needs("accelerate")
@pytest.mark.parametrize("imports", ["import meshwright, accelerate", "import accelerate, meshwright"])
def test_accelerate_takes_our_name_in_any_order_of_imports_and_still_refuses_others(imports):
    code = f"""
{imports}
for backend in ("nccl", "meshwright"):
    try:
        print(accelerate.PartialState(cpu=True, backend=backend).backend)
    except ValueError as error:
        print(error)
        accelerate.PartialState._reset_state()
"""
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | alone | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    refused = "Your assigned backend nccl is not available, please use gloo"
    assert done.stdout.splitlines() == [refused, "meshwright"], done.stderr


@pytest.mark.soak
@needs("transformers", "accelerate")
def test_trainer_trains_unchanged_where_ours_stands_in_for_gloo():
    same_as_gloo("trainer.py", "unset", ranks=2, replaced=True)


@pytest.mark.soak
@needs("transformers", "accelerate")
def test_trainer_uses_the_group_that_was_made_first():
    same_as_gloo("trainer.py", "first", ranks=2)


@needs("lightning")
@pytest.mark.parametrize(
    ("start_method", "ranks"), [("popen", 2), soak("spawn", 2), soak("fork", 2), soak("popen", 4), soak("fork", 4)]
)
def test_lightning_ddp_trains_alike(start_method, ranks):
    same_as_gloo("lightning_ddp.py", start_method, ranks=ranks, launched=False)


@needs("ray")
@needs_entry_point()
@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_ray_train_knows_the_backend_by_its_name(ranks):
    same_as_gloo("ray_train.py", ranks=ranks, launched=False)


@needs("torchmetrics")
@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_torchmetrics_are_computed_over_all_ranks_alike(ranks):
    same_as_gloo("metrics.py", ranks=ranks)


@needs("deepspeed")
@pytest.mark.parametrize(("stage", "ranks"), [(1, 2), soak(0, 2), soak(2, 2), soak(3, 2), soak(1, 4), soak(3, 4)])
def test_deepspeed_trains_alike(stage, ranks):
    same_as_gloo("deepspeed_zero.py", stage, ranks=ranks)


@needs("torchft", "opentelemetry")
@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_replicas_of_torchft_train_alike(ranks):
    same_as_gloo("torchft_replicas.py", ranks=ranks)


@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_checkpoints_of_dcp_are_saved_and_loaded_alike(ranks):
    same_as_gloo("checkpoint.py", ranks=ranks)


@pytest.mark.parametrize(("compiler", "ranks"), [("aot_eager", 2), soak("inductor", 2), soak("aot_eager", 4)])
def test_functional_collectives_are_compiled_alike(compiler, ranks):
    same_as_gloo("compiled.py", compiler, ranks=ranks)


@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_ddp_and_collectives_without_a_functional_form_are_compiled_alike(ranks):
    same_as_gloo("compiled_ddp.py", ranks=ranks)


@pytest.mark.parametrize("ranks", [2, soak(4)])
def test_torchrun_restarts_after_ranks_were_killed(ranks):
    # Gloo is no measure here: it loses tries to addresses of the dead, which stay in the agent's store
    reports = run("restarted.py", "meshwright", ranks=ranks, options=("--max-restarts", "2"))

    found = values(reports, ours=True, count=ranks)
    assert found == [{"tried": 2, "total": [ranks * (ranks + 1) / 2]}] * ranks


def test_the_hooks_that_ddp_has_in_cpp_average_alike():
    same_as_gloo("built_in_hooks.py", ranks=2)
