"""Names that we use of torch: one list, torch_names.txt, held against the sources and against the torch at hand.

A name of a new torch, or one that an older one lacks, is then a line of a diff. After a change of the sources:
`python -m tests.unit.test_torch_names` writes the list anew.
"""

import ast
import importlib
from pathlib import Path

from tests.unit.test_layers import FILES

LIST = Path(__file__).with_name("torch_names.txt")
# of builds for other devices alone; they are asked for only where such a device is
ELSEWHERE = {"torch.distributed.ProcessGroupXCCL", "torch.distributed.ProcessGroupNCCL"}


def names_of(source: str) -> set[str]:
    """Return the dotted names of torch in a file: what it imports, and the attributes that follow."""
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    known[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = set(known.values())
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in known:
            found.add(".".join([known[node.id], *reversed(parts)]))
    return {_without_instances(name) for name in found if name != "torch"}


def _without_instances(name: str) -> str:
    """Cut a name behind the first part that is a class or function: what follows belongs to its instances."""
    parts, here, path = name.split("."), importlib.import_module("torch"), "torch"
    for part in parts[1:]:
        if not isinstance(here, type(ast)):
            return path
        here = _member(here, path, part)
        path = f"{path}.{part}"
        if here is None:
            return path
    return path


def _member(module: object, path: str, part: str) -> object | None:
    found = getattr(module, part, None)
    if found is None:
        try:
            return importlib.import_module(f"{path}.{part}")
        except ImportError:
            return None
    return found


def used() -> set[str]:
    texts = (path.read_text() for path in FILES)
    return set().union(*(names_of(text) for text in texts if "torch" in text))


def test_the_list_is_what_the_sources_use():
    assert set(LIST.read_text().split()) == used()


def test_every_name_of_the_list_is_in_the_torch_at_hand():
    missing = set()
    importlib.import_module("torch.distributed._symmetric_memory")  # registers operators; torch 2.11 waits for it
    for name in set(LIST.read_text().split()) - ELSEWHERE:
        path, _, last = name.rpartition(".")
        module = importlib.import_module("torch")
        for part in path.split(".")[1:]:
            module = _member(module, module.__name__, part)
        if not hasattr(module, last) and _member(module, path, last) is None:
            missing.add(name)

    assert not missing


def test_a_name_is_seen_however_it_is_imported():
    source = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
    source += "nn.Linear\ndist.get_rank()\ntorch.Event()"

    assert names_of(source) == {
        "torch.distributed", "torch.nn", "torch.nn.Linear", "torch.distributed.get_rank", "torch.Event",
    }  # fmt: skip


if __name__ == "__main__":
    LIST.write_text("\n".join(sorted(used())) + "\n")
