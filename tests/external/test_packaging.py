"""Wheel and sdist: built from the tree, installed without it, and complete."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*arguments: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(argument) for argument in arguments]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist from what git tracks, and the wheel from the sdist, with the hatchling of this environment."""
    folder = tmp_path_factory.mktemp("built")
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).split("\n")
    tree = folder / "tree"
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", tree, cwd=folder)
    return folder / "dist"


def test_building_leaves_nothing_in_the_tree(built):
    """Not even what git would ignore."""
    tree = built.parent / "tree"
    listed = set(filter(None, run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).split("\n")))

    assert {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} <= listed


def test_the_wheel_holds_every_file_of_the_package(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("meshwright/")}
    tracked = run("git", "ls-files", "-co", "--exclude-standard", "src/meshwright", cwd=ROOT).split()

    assert {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()} - held == set()
    assert "meshwright/py.typed" in held


def test_the_sdist_holds_what_builds_it_and_no_more_than_the_tree(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}

    assert {"pyproject.toml", "README.md", "LICENSE", "src/meshwright/py.typed"} <= names
    assert not [name for name in names if name.startswith((".venv", "runs/", "build/"))]


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_works_where_nothing_of_the_tree_is(built, tmp_path, kind):
    """Install without dependencies, as pip and pipx do, into a fresh environment that borrows the libraries of this."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    libraries = Path(pytest.__file__).parents[1]
    (site / "borrowed.pth").write_text(f"{libraries}\n")  # after the environment's own packages
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "--quiet")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, next(built.glob(kind)), cwd=tmp_path)
    command = tmp_path / "env" / "bin" / "meshwright"

    where = run(python, "-I", "-c", "import meshwright; print(meshwright.__file__)", cwd=tmp_path).strip()
    assert where.startswith(str(tmp_path))
    assert "Commands:" in run(command, "--help", cwd=tmp_path)
    assert "NVLink" in run(command, "topo", "--catalogue", "nvlink", cwd=tmp_path)
    assert "proved" in run(command, "collectives", "verify", "ring", "--ranks", 4, cwd=tmp_path)


def test_the_extras_are_those_of_the_readme():
    named = re.search(r"Extras: (.*?)\.\n", (ROOT / "README.md").read_text(), re.DOTALL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(re.findall(r"`(\w+)`", named[1])) == set(project["optional-dependencies"])
    assert project["scripts"] == {"meshwright": "meshwright.cli:main"}


def test_whatever_the_package_imports_is_declared():
    """The environment of the test above borrows libraries that a user would not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = (*project["dependencies"], *extras["gpu"], *extras["fp8"])
    packages = {re.split(r"[<>=\[ ]", text)[0].lower() for text in needed}
    declared = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if packages & {name.lower() for name in owners}
    }
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module).split(".")[0])

    assert imported - declared - set(sys.stdlib_module_names) - {"meshwright"} == set()
