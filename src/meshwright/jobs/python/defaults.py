"""Defaults of a program's own flags: of the dataclasses that HfArgumentParser fills, and of argparse.

A field of such a class, or of a class made of TrainingArguments, is a flag (huggingface/transformers:
src/transformers/hf_argparser.py); its default counts where neither command nor file says the flag.
"""

import ast
import re
from collections.abc import Iterator, Set
from typing import Any

from ..engines.trainers import LENGTHS
from .static import PythonModule

PARSER = re.compile(r"(?:HfArgumentParser|TrlParser|H4ArgumentParser|ArgumentParser)$")
OF_TRAINING = re.compile(r"(?:TrainingArguments|SFTConfig)$")
# flags whose default decides time or memory; of adapters none, since other flags switch them on
PRICED = frozenset(
    {
        *("model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps", "optim"),
        *("bf16", "fp16", "gradient_checkpointing", "packing"),
    }
)


def defaults_of_flags(module: PythonModule, said: Set[str]) -> dict[str, Any]:
    """Return the defaults of a program's own flags that are priced, where nothing says them.

    Of lengths of a sequence there is one or none: where one is said, or several differ, no default is taken.
    """
    found = dict(_defaults(module))
    taken = {key: value for key, value in found.items() if key in PRICED - said and value is not None}
    lengths = {key: value for key, value in found.items() if key in LENGTHS and type(value) is int and value > 0}
    if not said & set(LENGTHS) and len(set(lengths.values())) == 1:
        taken |= dict(list(lengths.items())[:1])
    return taken


def _defaults(module: PythonModule) -> Iterator[tuple[str, Any]]:
    """Yield name and default of each flag."""
    parsed: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and PARSER.search(ast.unparse(node.func)):
            parsed |= {one.id for argument in node.args for one in ast.walk(argument) if isinstance(one, ast.Name)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and (node.name in parsed or any(map(_of_training, node.bases))):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
                    yield line.target.id, _value(line.value, module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            keywords = {one.arg: one.value for one in node.keywords}
            names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            named = next((name for name in names if name.startswith("--")), None)
            if named and "default" in keywords:
                yield named[2:].replace("-", "_"), _value(keywords["default"], module)


def _of_training(base: ast.expr) -> bool:
    return OF_TRAINING.search(ast.unparse(base)) is not None


def _value(node: ast.expr, module: PythonModule) -> Any:
    """Return a default as written, also inside of `field(default=...)`; None for one that is not known.

    Others that make a field take it by the same name: transformers' HfArg, pydantic's Field (there the first word too).
    """
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        first = node.args[0] if name == "Field" and node.args else None
        inner = next((one.value for one in node.keywords if one.arg == "default"), first)
        return None if inner is None else _value(inner, module)
    value = module.value(node, module.names)
    return value if isinstance(value, int | float | str | bool) else None
