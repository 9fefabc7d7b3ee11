"""Rules of tensor parallelism found in the captured graph of any module made of products, norms and attention.

In the graph of `torch.export`, a product (a linear layer) can be cut by its inputs if all that leads to it from other
products treats features or heads one by one: activations, views, splits, rotary positions, attention. Those other
products are then cut by their outputs, in sections where what they return is split. What such a stretch returns may
be used nowhere else. Products outside of any stretch, norms and embeddings stay whole on every rank.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ...errors import InputError
from .tensor import Attributes, Column, RowParallel, Rule

_SPLITS = {"split", "split_with_sizes", "chunk"}
_FEATUREWISE = _SPLITS | {
    *("view", "reshape", "_unsafe_view", "transpose", "permute", "contiguous", "clone", "flatten", "unflatten", "t"),
    *("slice", "select", "unsqueeze", "squeeze", "expand", "cat", "repeat", "alias", "detach", "to", "_to_copy"),
    *("relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "elu", "mish", "hardtanh", "relu_", "silu_"),
    *("add", "sub", "mul", "div", "neg", "pow", "add_", "mul_", "dropout", "scaled_dot_product_attention"),
}
_HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads", "num_key_value_heads", "num_kv_heads", "split_size")


class _Product(NamedTuple):
    layer: str
    node: fx.Node
    source: fx.Node


def derived_rules(module: nn.Module, example: tuple[Tensor, ...]) -> dict[str, Rule]:
    """Return how the layers of `module` are cut; InputError if it cannot be captured or nothing in it can be cut.

    Attributes that count heads, or the width of a split, are divided under the names that are usual for them.
    """
    try:
        program = torch.export.export(module, example, strict=False)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"tp: {type(module).__name__} cannot be captured by torch.export: {text}") from None
    names = dict(program.graph_signature.inputs_to_parameters)
    products = {found.node: found for node in program.graph.nodes if (found := _product(node, names)) is not None}
    rules: dict[str, Rule] = {}
    for last in products.values():
        stretch = _stretch(last, products)
        if stretch is None or any(first.layer in rules for first in stretch) or last.layer in rules:
            continue
        rules[last.layer] = RowParallel()
        for first in stretch:
            rules[first.layer] = Column(_sections(first.node))
    if not rules:
        raise InputError(f"tp: nothing in {type(module).__name__} can be cut by features or heads")
    return _attributes(module, rules) | rules


def _product(node: fx.Node, parameters: dict[str, str]) -> _Product | None:
    """Return the node as a product of activations with a weight, or None if it is none."""
    at = {"linear": (1, 0), "addmm": (2, 1), "mm": (1, 0), "matmul": (1, 0)}.get(_name(node))
    if at is None:
        return None
    weight, source = node.args[at[0]], node.args[at[1]]
    while isinstance(weight, fx.Node) and _name(weight) in {"t", "transpose", "permute"}:
        weight = weight.args[0]
    full = parameters.get(weight.name, "") if isinstance(weight, fx.Node) else ""
    if not full.endswith(".weight") or not isinstance(source, fx.Node):
        return None
    return _Product(full.removesuffix(".weight"), node, source)


def _stretch(last: _Product, products: dict[fx.Node, _Product]) -> list[_Product] | None:
    """Return the products that lead to `last` through operators on features or heads, or None if anything else does."""
    inside: set[fx.Node] = set()
    firsts: list[_Product] = []
    waiting = [last.source]
    while waiting:
        node = waiting.pop()
        if node in inside or _independent(node):
            continue
        inside.add(node)
        if node in products:
            firsts.append(products[node])
        elif _name(node) in _FEATUREWISE or _name(node) == "getitem":
            waiting += node.all_input_nodes
        else:
            return None
    leaves = {user for node in inside for user in node.users if user not in inside and not _is_size(user)}
    return firsts if firsts and leaves <= {last.node} else None


def _independent(node: fx.Node) -> bool:
    """Return whether a node follows from sizes, positions, masks and buffers alone, and not from activations."""
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        value = current.meta.get("val")
        given = current.op == "placeholder" and isinstance(value, Tensor) and value.is_floating_point()
        if given and not current.name.startswith(("b_", "c_")):  # a parameter or an input, no buffer or constant
            return False
        waiting += current.all_input_nodes
    return True


def _sections(node: fx.Node) -> tuple[int, ...]:
    """Return the sizes that a product's outputs are split into along the features, () if they are not."""
    width = node.meta["val"].shape[-1]
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            value = user.meta.get("val")
            if _name(user) in _SPLITS:
                sizes = tuple(part.shape[-1] for part in user.meta["val"])
                if sum(sizes) == width:
                    return sizes
            elif isinstance(value, Tensor) and value.shape[-1:] == (width,):
                waiting.append(user)
    return ()


def _attributes(module: nn.Module, rules: dict[str, Rule]) -> dict[str, Rule]:
    """Return the attributes to divide of the modules that own what is cut by columns."""
    owners = {layer.rpartition(".")[0] for layer, rule in rules.items() if isinstance(rule, Column)}
    found: dict[str, Rule] = {}
    for owner in sorted(owners):
        held = vars(module.get_submodule(owner))
        names = tuple(name for name in _HEADS if type(held.get(name)) is int)
        if names:
            found[owner] = Attributes(names)
    return found


def _name(node: fx.Node) -> str:
    """Return an operator's name without namespace and overload."""
    target: Any = node.target
    if node.op != "call_function":
        return ""
    return str(target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else target.__name__)


def _is_size(node: fx.Node) -> bool:
    return node.op == "call_function" and not isinstance(node.meta.get("val"), Tensor | tuple | list)
