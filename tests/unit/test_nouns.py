"""The nouns of the design have one meaning each: a reader who meets one knows which class it is."""

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "meshwright"
NOUNS = ("Cluster", "Layer", "Layout", "Plan", "Schedule", "Span", "StepProgram", "Timeline", "Workload")
CLASSES = Counter(
    node.name
    for path in PACKAGE.rglob("*.py")
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ClassDef)
)


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_of_the_design_is_the_name_of_one_class(noun):
    assert CLASSES[noun] == 1


def test_a_grid_and_a_program_say_of_what():
    assert CLASSES["Program"] == 0
    assert CLASSES["Grid"] <= 1


def test_no_two_files_define_a_public_class_of_one_name():
    assert [name for name, count in CLASSES.items() if count > 1 and not name.startswith("_")] == []


SHARED = {  # functions of one name and one meaning: a reader of each format, a command of each group, a quantity
    *("read", "command", "main", "collected", "named", "order", "groups_of", "gemma4", "lfm2", "sizes"),
    *("convert", "draw", "export", "show", "verify", "union", "length_s", "is_empty", "world_of", "gathered"),
    *("performance", "step_program", "in_flight", "peak_flops_per_s", "network_bytes_per_s", "states", "recomputation"),
}


def test_functions_of_one_name_have_one_meaning():
    names = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    )

    assert {name for name, count in names.items() if count > 1} == SHARED
