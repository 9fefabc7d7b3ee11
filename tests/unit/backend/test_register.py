"""The backend is there whichever of torch and meshwright is imported first, and meshwright alone stays light."""

import os
import subprocess
import sys

import pytest

INIT = (
    "import torch.distributed as dist; "
    "dist.init_process_group('meshwright', store=dist.HashStore(), rank=0, world_size=1); "
    "t = torch.ones(3); dist.all_reduce(t); assert t.sum() == 3; dist.destroy_process_group(); print('fine')"
)


def python(code, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=os.environ | variables,
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "imports",
    [
        "import torch, meshwright",
        "import meshwright, torch",
        "import torch.distributed, meshwright",
    ],
)
def test_a_group_is_made_after_imports_in_any_order(imports):
    done = python(f"{imports}; {INIT}")

    assert done.stdout.strip() == "fine", done.stderr


def test_importing_meshwright_imports_neither_torch_nor_numpy():
    done = python("import sys, meshwright; print(sorted({'torch', 'numpy'} & set(sys.modules)))")

    assert done.stdout.strip() == "[]", done.stderr


def test_the_hook_is_gone_once_torch_is_loaded_and_the_module_keeps_its_loader():
    code = """
import sys, meshwright, torch
from torch.distributed import distributed_c10d as c10d
print([finder.name for finder in sys.meta_path if type(finder).__module__ == "meshwright.hooks"])
print(type(c10d.__loader__).__name__, type(c10d.__spec__.loader).__name__)
"""

    assert python(code).stdout.splitlines() == [
        "['accelerate.state', 'torch._dynamo.trace_rules', 'torch.distributed._dist2']",
        "SourceFileLoader SourceFileLoader",
    ]


def test_looking_for_torchs_module_without_loading_it_does_not_lose_the_backend():
    code = """
import sys, meshwright
import importlib.util
for finder in list(sys.meta_path):
    if type(finder).__module__ == "meshwright.hooks" and finder.name.startswith("torch"):
        package = importlib.util.find_spec("torch").submodule_search_locations[0]
        assert finder.find_spec(finder.name, [package + "/" + finder.name.split(".")[1]])
"""
    done = python(f"{code}\nimport torch\n{INIT}")

    assert done.stdout.strip() == "fine", done.stderr


def test_the_backend_is_there_without_torchs_search_for_backends():
    done = python(f"import torch, meshwright; {INIT}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")

    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.parametrize("imports", ["import meshwright, torch._dynamo", "import torch._dynamo, meshwright"])
def test_compiled_code_calls_the_backend_as_it_calls_one_in_cpp(imports):
    code = f"""
{imports}
import torch
import torch.distributed as dist
dist.init_process_group("meshwright", store=dist.HashStore(), rank=0, world_size=1)

def broadcast_between(x):
    y = x + 1
    dist.broadcast(y, 0)
    dist.barrier()
    return y * 2

print(torch.compile(broadcast_between, backend="eager")(torch.ones(2)).tolist())
"""
    done = python(code)

    assert done.stdout.strip() == "[4.0, 4.0]", done.stderr


@pytest.mark.parametrize(
    "imports", ["import meshwright, torch.distributed._dist2 as d", "import torch.distributed._dist2 as d, meshwright"]
)
def test_torchs_api_of_single_groups_knows_the_backend_and_its_options(imports):
    code = f"""
{imports}
import torch
from datetime import timedelta
group = d.new_group("meshwright", timedelta(seconds=30), "cpu", wire="bf16")
t = torch.ones(2)
group.allreduce([t], op=d.ReduceOp.SUM, timeout=timedelta(seconds=30)).wait()
with d.process_group(group):
    print(type(group).__name__, t.tolist(), group.size(), d.current_process_group() is group)
try:
    d.new_group("meshwright", timedelta(seconds=30), "cpu", colour="red")
except TypeError as error:
    print(error)
"""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}

    done = python(code, **alone)

    assert done.stdout.splitlines() == [
        "MeshwrightGroup [1.0, 1.0] 1 True", "Unexpected keyword argument 'colour'"
    ], done.stderr  # fmt: skip


GROUPS = """
import sys, torch, torch.distributed as dist
import meshwright
if len(sys.argv) > 1:
    meshwright.replace_gloo()
kinds = set()
for asked in ("gloo", None, "cpu:gloo"):
    dist.init_process_group(asked, store=dist.HashStore(), rank=0, world_size=1)
    for group in (dist.group.WORLD, dist.new_group([0]), dist.new_group([0], backend="gloo")):
        print(dist.get_backend(group), dist.get_backend_config(group), end=" ")
        kinds.add(type(group).__name__)
    dist.destroy_process_group()
    print()
print(*kinds)
"""


@pytest.fixture(scope="module")
def gloos_groups():
    return python(GROUPS).stdout.splitlines()


@pytest.mark.parametrize(("arguments", "variables"), [(["replace"], {}), ([], {"MESHWRIGHT_REPLACE_GLOO": "1"})])
def test_in_the_place_of_gloo_groups_are_ours_and_bear_its_name(arguments, variables, gloos_groups):
    *by_gloo, gloo = gloos_groups
    *by_ours, ours = python(GROUPS, *arguments, **variables).stdout.splitlines()

    assert (gloo, ours) == ("ProcessGroup", "MeshwrightGroup")
    assert by_ours == by_gloo
    assert len(by_ours) == 3
