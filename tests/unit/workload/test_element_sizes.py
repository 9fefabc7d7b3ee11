"""Bytes of an element, which stand in `workload/conventions.py` alone: a second place would drift from it."""

import ast
from pathlib import Path

import meshwright

PACKAGE = Path(meshwright.__file__).parent
# tables of the formats of others have sizes of their own, and so has the arithmetic on the back of an envelope
PRICERS = ("workload", "plan/analytic", "plan/measured", "plan/search", "plan/layouts", "simulate", "parallel", "train")
SIZES = {2, 4}


def constants(source: str) -> list[str]:
    """Return the names of a file's own constants that are the bytes of one element."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            values = {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
            found += [name for name in names if name.endswith(("HALF_BYTES", "SINGLE_BYTES")) and values & SIZES]
    return found


def test_the_bytes_of_an_element_are_defined_in_one_file():
    defined = {
        str(path.relative_to(PACKAGE)): names
        for folder in PRICERS
        for path in (PACKAGE / folder).rglob("*.py")
        if (names := constants(path.read_text()))
    }

    assert defined == {"workload/conventions.py": ["SINGLE_BYTES", "HALF_BYTES"]}


def test_a_second_definition_is_seen_and_what_is_made_of_one_is_none():
    assert constants("HALF_BYTES = 2.0\nFLOAT_SINGLE_BYTES, OTHER = 4, 3\n") == ["HALF_BYTES", "FLOAT_SINGLE_BYTES"]
    assert constants("ADAM_BYTES = 2.0 * SINGLE_BYTES\nMOST_BYTES = 4\n") == []
