"""The layers of the design: each imports only from those listed before it."""

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "meshwright"
LAYERS = (
    *("interruptible", "gloo", "hooks", "__init__", "errors", "quantities", "units", "files", "machine_load"),
    *("temporary", "sockets", "handshake", "native", "timeline", "layout_names", "layout", "mesh", "pipelines"),
    *("hardware", "cluster", "device"),
    *("workload", "jobs", "collectives", "backend", "bench", "simulate", "plan", "parallel", "train", "traces"),
    *("report", "postmortem", "cli", "__main__"),
)
ROOMS = {  # of a package, each of which imports only from those before it; files outside of them may import all
    "train": ("job", "run", "measure", "data", "model", "checkpoint", "integrity", "elastic", "asynchronous"),
    "collectives": ("schedules", "proof", "algorithms", "pricing", "msccl", "mscclpp"),
    "postmortem": (
        *("nouns", "text", "positions", "ranks", "surroundings", "tools", "libraries", "scripts", "flight_records"),
        *("groups", "reasons", "page"),
    ),
    "plan": ("analytic", "measured", "layouts", "clusters", "tables", "fitting", "search", "targets"),
}
MAY_IMPORT_TORCH = {"device", "backend", "bench", "parallel", "train", "workload"}
# CUDA IPC and NCCL have no twin for other accelerators
CUDA_ALONE = {"device.py", "backend/wire/transport_device.py", "backend/group/device_types.py"}
FILES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    """Return a file's layer; `python -m meshwright.PACKAGE` is an entry point like the command line."""
    return "__main__" if path.name == "__main__.py" else path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports_of(path: Path) -> tuple[list[ast.Import | ast.ImportFrom], list[ast.Import | ast.ImportFrom]]:
    """Return the imports at the top of a file, and all of them."""
    tree = ast.parse(path.read_text())
    return tuple(
        [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        for nodes in (tree.body, ast.walk(tree))
    )


def those(paths: Iterable[Path], wrong: Callable[[Path], object]) -> dict[str, object]:
    """Return what is wrong with each file with which something is."""
    return {str(path.relative_to(PACKAGE)): found for path in paths if (found := wrong(path))}


def imported_layers(path: Path) -> set[str]:
    """Return the layers of meshwright that a file imports, however it writes the import."""
    package = ["meshwright", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in imports_of(path)[1]:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            names = [".".join([*module, alias.name]) for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "meshwright":
                found.add(parts[1] if len(parts) > 1 and parts[1] in LAYERS else "__init__")
    return found


def test_every_file_belongs_to_a_layer():
    assert {layer_of(path) for path in FILES} <= set(LAYERS)


def upward_imports(path: Path) -> set[str]:
    return imported_layers(path) - set(LAYERS[: LAYERS.index(layer_of(path)) + 1])


def test_imports_point_down():
    assert not those(FILES, upward_imports)


def imports_torch_at_the_top(path: Path) -> bool:
    top, _ = imports_of(path)
    roots = {a.name.split(".")[0] for n in top if isinstance(n, ast.Import) for a in n.names}
    roots |= {n.module.split(".")[0] for n in top if isinstance(n, ast.ImportFrom) and n.module and not n.level}
    return "torch" in roots


def test_only_running_layers_import_torch_at_the_top():
    importing = those(FILES, imports_torch_at_the_top)

    assert importing
    assert {name for name in importing if layer_of(PACKAGE / name) not in MAY_IMPORT_TORCH} == set()


def cuda_of(path: Path) -> list[str]:
    """Return where a file's code asks for CUDA itself, of all accelerators; what it says in texts does not count."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and (
            node.attr in {"is_cuda", "ProcessGroupNCCL", "is_nccl_available"} or node.attr == "cuda"
        ):
            found.append(f"{node.lineno}: .{node.attr}")
        elif isinstance(node, ast.Constant) and node.value == "cuda":
            found.append(f'{node.lineno}: "cuda"')
    return found


def torch_files() -> list[Path]:
    return [path for path in FILES if "import torch" in path.read_text() or "from torch" in path.read_text()]


def test_only_device_and_what_is_cudas_alone_ask_for_cuda():
    found = those(torch_files(), cuda_of)

    assert {name: lines for name, lines in found.items() if name not in CUDA_ALONE} == {}


def test_a_file_that_asks_for_cuda_is_seen(tmp_path):
    (tmp_path / "x.py").write_text('if torch.cuda.is_available() or t.is_cuda:\n    device = torch.device("cuda")\n')

    assert len(cuda_of(tmp_path / "x.py")) == 3


def star_imports(path: Path) -> list[int]:
    return [n.lineno for n in imports_of(path)[1] if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]


def test_no_star_imports():
    assert not those(FILES, star_imports)


@cache
def imported_files(path: Path) -> set[Path]:
    """Return the files of meshwright that a file imports, at the top or inside a function."""
    package = [*path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in imports_of(path)[1]:
        if not isinstance(node, ast.ImportFrom) or (
            not node.level and not (node.module or "").startswith("meshwright")
        ):
            continue
        module = (node.module or "").removeprefix("meshwright").strip(".").split(".") if node.module else []
        base = [*package[: len(package) - node.level + 1], *filter(None, module)] if node.level else module
        for name in (alias.name for alias in node.names):
            for candidate in (PACKAGE.joinpath(*base, f"{name}.py"), PACKAGE.joinpath(*base).with_suffix(".py")):
                if candidate.exists():
                    found.add(candidate)
                    break
    return found - {path}


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_of_a_package_import_from_those_before_them(package):
    rooms = ROOMS[package]
    folders = [path.parent.name for path in (PACKAGE / package).glob("*/__init__.py")]
    upward = {
        f"{path.parent.name}/{path.name} imports {other.relative_to(PACKAGE / package)}"
        for path in (PACKAGE / package).glob("*/*.py")
        for other in imported_files(path)
        if other.is_relative_to(PACKAGE / package)
        and (other.parent.name not in rooms or rooms.index(other.parent.name) > rooms.index(path.parent.name))
    }

    assert sorted(folders) == sorted(rooms)
    assert not upward


def test_no_file_imports_itself_by_way_of_others():
    imports = {path: imported_files(path) for path in FILES}
    while free := [path for path, needed in imports.items() if not needed & imports.keys()]:
        for path in free:
            del imports[path]

    assert not {str(path.relative_to(PACKAGE)) for path in imports}


def test_benchmarks_the_site_and_what_tests_share_import_no_tests():
    root = PACKAGE.parents[1]
    shared = [path for folder in ("benchmarks", "docsite", "testkit") for path in root.glob(f"{folder}/**/*.py")]
    imported = {
        (str(path.relative_to(root)), name)
        for path in shared
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }

    assert shared
    assert not [pair for pair in imported if pair[1].split(".")[0] == "tests"]
