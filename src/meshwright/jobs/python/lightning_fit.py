"""Lightning's programs: the trainer that fits a module, with what calls of one's own say of batch and length.

What a class of the file holds is not followed. A loader of training samples, an optimiser and a length are taken from
calls in it, where the file has one value of them alone.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from ..engines.trainers import LENGTHS
from .static import PythonModule
from .values import Opaque, PythonCall

OTHER_LOADERS = re.compile(r"(?:val|test|predict|eval)")  # functions and names of what is not trained on
OPTIMIZERS = "configure_optimizers"
ENUMERATED = re.compile(r"(?:\w+\.)*[A-Z]\w*\.([A-Z][A-Z\d_]*)")  # ShardingStrategy.FULL_SHARD
OF_MODELS = re.compile(r"(?:[\w.]*Model\w*|\w*LM(?:HeadModel)?)\.(?P<way>from_pretrained|from_config)")
OF_CONFIGURATIONS = re.compile(r"[\w.]*Config\.from_pretrained")
SHARDS = re.compile(r"\bfully_shard\(")


def of_lightning(call: PythonCall, module: PythonModule) -> PythonCall | None:
    """Return what a call `trainer.fit(module, data)` trains with, under the names of Lightning's CLI; else None."""
    trainer = call.args[0] if call.args else None
    if call.last != "fit" or not isinstance(trainer, PythonCall) or trainer.last != "Trainer":
        return None
    given = dict(zip(("model", "data"), call.args[1:], strict=False))
    for key, part in (("model", "model"), ("train_dataloaders", "data"), ("datamodule", "data")):
        if call.fields.get(key) is not None:
            given[part] = call.fields[key]
    parts = {key: value for key, value in given.items() if isinstance(value, PythonCall)}
    return PythonCall("", [], {"trainer": _settings(trainer), **parts, "code": _said_in_code(module)})


def _settings(call: PythonCall) -> PythonCall:
    """Return a trainer or its strategy as settings: members of enumerations are words, results of calls not known."""
    fields: dict[str, Any] = {}
    for key, value in call.fields.items():
        member = ENUMERATED.fullmatch(value.text) if isinstance(value, Opaque) else None
        fields[key] = member[1] if member else value
        if isinstance(value, PythonCall):
            fields[key] = _settings(value) if key == "strategy" else Opaque(f"{value.name}()")
            if value.last == "CPUOffload":
                fields[key] = value.fields.get("offload_params", value.args[0] if value.args else False)
    return PythonCall(call.name, [], fields)


def _said_in_code(module: PythonModule) -> dict[str, Any]:
    """Return what calls in classes and functions say: sequences of a pass, a length, the optimiser, what is sharded."""
    batches, optimizers, models = set(), set(), set()
    lengths: dict[str, int | None] = {
        name: value for name, value in module.names.items() if name.lower() in LENGTHS and type(value) is int
    }
    for function, variable, call in _calls(module.tree, "", ""):
        last = ast.unparse(call.func).rpartition(".")[2]
        words = {one.arg: one.value for one in call.keywords if one.arg}
        if last == "DataLoader" and "batch_size" in words and not OTHER_LOADERS.search(f"{function} {variable}"):
            batches.add(_whole(module, words["batch_size"]))
        for name in words.keys() & set(LENGTHS):
            lengths[f"{last}.{name}"] = _whole(module, words[name])
        if (owner := OF_MODELS.fullmatch(ast.unparse(call.func))) and call.args:
            models.add((owner["way"], _named_model(module, call.args[0])))
        if function == OPTIMIZERS and re.fullmatch(r"[A-Z]\w*", last) and "lr" in words:
            fused = last == "AdamW" and "fused" in words and module.value(words["fused"], module.names) is True
            optimizers.add("adamw_torch_fused" if fused else last)  # as Hugging Face names it
    found: dict[str, Any] = {"shards": True} if any(map(SHARDS.search, ast.unparse(module.tree).splitlines())) else {}
    if len(batches) == 1 and (batch := batches.pop()) is not None:
        found["DataLoader.batch_size"] = batch
    if len(values := set(lengths.values())) == 1 and None not in values:
        name, length = next(iter(lengths.items()))
        found[name.lower()] = length
    if len(models) == 1 and (way_and_model := models.pop())[1] is not None:
        found[f"{way_and_model[0]}.model_name_or_path"] = way_and_model[1]
    return found | ({"optimizer": optimizers.pop()} if len(optimizers) == 1 else {})


def _named_model(module: PythonModule, node: ast.expr) -> str | None:
    """Return the name of what a model is made of, itself or its configuration; None for one of other sizes."""
    if isinstance(node, ast.Call) and node.args and not node.keywords:
        node = node.args[0] if OF_CONFIGURATIONS.fullmatch(ast.unparse(node.func)) else node
    value = module.value(node, module.names)
    return value if isinstance(value, str) else None


def _calls(node: ast.AST, function: str, variable: str) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield the calls below a node, each with the function that it stands in and the variable that it is for."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield from _calls(inner, inner.name, "")
            continue
        name = ast.unparse(inner.targets[0]) if isinstance(inner, ast.Assign) else variable
        if isinstance(inner, ast.Call):
            yield function, name, inner
        yield from _calls(inner, function, name)


def _whole(module: PythonModule, node: ast.expr) -> int | None:
    value = module.value(node, module.names)
    return value if type(value) is int else None
