"""Bytes of an element, which stand in `workload/elements.py` alone: a second place would drift from it.

Seen are the values of names that say they are bytes, wherever they get one: constants, defaults of fields, arguments;
what such a name is compared with; and numbers of parameters times a plain number.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

import meshwright
from meshwright.workload.elements import PRECISION_BYTES

PACKAGE = Path(meshwright.__file__).parent
FOLDERS = ("workload", "plan", "simulate", "parallel", "train", "bench")
HOME = "workload/elements.py"
OTHERS = {  # files with sizes that are not of what is trained, each with its reason
    "bench/reading/": "tables of the formats of other tools",
    "plan/targets/envelope.py": "arithmetic on the back of an envelope, which shows its own numbers",
    "train/checkpoint/manifest.py": "the types of safetensors, by its names",
    "train/integrity/checksums.py": "torch's whole numbers of each width",
    "train/run/secret.py": "of a secret",
    "plan/clusters/nccl.py": "rates, and packets of NCCL",
    "bench/pairs.py": "the smallest message that is timed",
}
MOST = 128  # a larger number of bytes is not that of an element, nor of a few of them
PLAIN = (ast.Constant, ast.BinOp, ast.Tuple, ast.operator, ast.Load)  # a minus is no size


def is_bytes(name: str) -> bool:
    """Return whether a name says that it is a number of bytes, and no rate of them."""
    return any(word in name.lower() for word in ("bytes", "dtypes")) and not name.lower().endswith(("_per_s", "bytes_"))


def named(node: ast.AST) -> list[str]:
    """Return the names in an expression, and those of attributes."""
    return [
        n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)
    ]


def is_size(node: ast.AST) -> bool:
    """Return whether an expression is made of numbers alone, all of them as small as those of a few elements."""
    if isinstance(node, ast.Dict):
        return any(is_size(part) for part in (*node.keys, *node.values) if part is not None)
    if not all(isinstance(each, PLAIN) for each in ast.walk(node) if not isinstance(each, ast.expr_context)):
        return any(is_size(part) for part in factors(node))
    found = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, int | float)]
    whole = [n for n in ast.walk(node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
    return bool(found) and not whole and 0 < max(found) <= MOST and not all(isinstance(n, bool) for n in found)


def factors(node: ast.AST) -> Iterable[ast.expr]:
    """Return the plain numbers that multiply something which is no size of an element."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and not any(map(is_bytes, named(node))):
        for side in (node.left, node.right):
            yield from [side] if isinstance(side, ast.Constant) else factors(side)


def given(node: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    """Return the names that a statement or expression gives a value or compares with one, and that value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((name, value) for target in targets for name in named(target))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from ((name, value) for name in named(target))
        case ast.keyword(arg=str(name), value=value):
            yield name, value
        case ast.Compare(left=left, comparators=[right]):
            yield from ((name, right) for name in named(left)[:1] if isinstance(right, ast.Constant))


def constants(source: str) -> list[str]:
    """Return where a file has the bytes of an element of its own: names, or the product."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [name for name, value in given(node) if is_bytes(name) and is_size(value)]
        times = [factor for factor in factors(node) if is_size(factor)]
        if times and any("parameters" in name for name in named(node)):
            found.append(ast.unparse(node))
    return found


def test_the_bytes_of_an_element_are_defined_in_one_file():
    defined = {
        str(path.relative_to(PACKAGE)): names
        for folder in FOLDERS
        for path in (PACKAGE / folder).rglob("*.py")
        if (names := constants(path.read_text()))
    }

    assert defined.pop(HOME)
    assert {path: names for path, names in defined.items() if not path.startswith(tuple(OTHERS))} == {}
    assert all(any(path.startswith(other) for path in defined) for other in OTHERS)  # each has one


def test_a_second_definition_is_seen_however_it_is_named_and_what_is_made_of_one_is_none():
    assert constants("HALF_BYTES = 2.0\nFLOAT_SINGLE_BYTES, OTHER = 4, 3\n") == ["HALF_BYTES", "FLOAT_SINGLE_BYTES"]
    assert constants("PRODUCT_BYTES = {'fp32': 4.0}\nUPDATE_BYTES_PER_PARAMETER = 16\n") == [
        "PRODUCT_BYTES", "UPDATE_BYTES_PER_PARAMETER",
    ]  # fmt: skip
    assert constants("DTYPES = {2: FLOAT}\n") == ["DTYPES"]
    assert constants("class Comm:\n    element_bytes: int = 4\n") == ["element_bytes"]
    assert constants("Operator(saved_bytes=8 * rows)\nlow = machine.product_bytes < 2.0\n") == [
        "product_bytes", "saved_bytes",
    ]  # fmt: skip
    assert constants("sizes = buckets(workload.parameters * 4)\n") == ["workload.parameters * 4"]
    assert constants("ADAM_BYTES = 2.0 * SINGLE_BYTES\nMOST_BYTES = 2**20\nrate_bytes_per_s = 4\n") == []


def test_a_precision_takes_the_bytes_of_its_type():
    assert PRECISION_BYTES["fp32"] == 2 * PRECISION_BYTES["bf16"] == 4 * PRECISION_BYTES["fp8"]
    assert PRECISION_BYTES["fp8"] == 2 * PRECISION_BYTES["nvfp4"] == 1.0
