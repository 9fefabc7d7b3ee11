"""The docstring of each package is a map of it, and pages name files that are there: a reader finds what lies where."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "meshwright"
ROOT = PACKAGE.parents[1]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
HOMES = ("src", "benchmarks", "tests", "testkit", "examples", "docsite")
OF_OTHERS = {"deepy.py"}  # files of other projects that pages name
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def contents(folder: Path) -> set[str]:
    """Return the names of the modules and packages in a folder."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_the_docstring_of_a_package_names_all_that_lies_in_it(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"\w+", text))

    assert contents(folder) - named == set()


def known(folder: Path) -> set[str]:
    """Return what a map may name: files at any depth, commands of meshwright, functions of the package itself."""
    files = {name for path in folder.rglob("*") for name in (path.name, path.stem)}
    commands = {path.stem for path in (PACKAGE / "cli").glob("*.py")}
    tree = ast.parse((folder / "__init__.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return files | commands | imported | defined


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_the_map_of_a_package_names_nothing_that_is_gone(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""

    assert set(re.findall(r"`([a-z_0-9]+)`", text)) - known(folder) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_source_file_that_is_gone(page):
    named = set(re.findall(r"`([\w/]+\.(?:py|c))`", page.read_text())) - OF_OTHERS
    there = [f"/{path.relative_to(ROOT)}" for home in HOMES for path in (ROOT / home).rglob("*.*")]

    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in there)] == []
