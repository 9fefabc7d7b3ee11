"""The backend is there whichever of torch and meshwright is imported first, and meshwright alone stays light."""

import subprocess
import sys

import pytest

INIT = (
    "import torch.distributed as dist; "
    "dist.init_process_group('meshwright', store=dist.HashStore(), rank=0, world_size=1); "
    "t = torch.ones(3); dist.all_reduce(t); assert t.sum() == 3; dist.destroy_process_group(); print('fine')"
)


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)


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


def test_the_hook_is_gone_once_torch_is_loaded():
    code = "import sys; n = len(sys.meta_path); import meshwright, torch; print(len(sys.meta_path) - n)"
    plain = "import sys; n = len(sys.meta_path); import torch; print(len(sys.meta_path) - n)"

    assert python(code).stdout == python(plain).stdout
