"""Any module that torch.export captures, as a chain of graph nodes that can be cut into pipeline stages.

The captured graph is a list of operators in the order of the forward pass. Operators whose value depends on a
parameter, or on another such value, make the chain. The rest (masks, positions, rotary tables: functions of the batch
and of buffers) costs little and is computed again in every stage that needs it, so that it never crosses a cut; every
stage has the whole micro-batch anyway. Between two neighbours of the chain the model can be cut where all that crosses
is tensors, none of which is changed in place behind the cut.
"""

import warnings
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn

from ...errors import InputError
from ...pipelines import ChainUnit
from ..engine import Batch
from .node_costs import NodeCost, costs_by_node, measured

STATE_COPIES = 4  # of a parameter: weight, gradient, two moments of AdamW


def capture(module: nn.Module, batch: Batch, *, measure: bool = True) -> "CapturedModel":
    """Return `module` as a graph for micro-batches of the shape of `batch`, sharing its parameters.

    `module(inputs, targets)` returns the summed loss. With `measure` a node costs what it takes on this machine, else
    its FLOPs. Raises InputError with PyTorch's reason where the module cannot be captured.
    """
    inputs, targets = (tensor.clone() for tensor in batch)  # one tensor given twice would become one input
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch.export about itself
            exported = torch.export.export(module, (inputs, targets)).module()
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{type(module).__name__} cannot be captured by torch.export: {reason}") from error
    assert isinstance(exported, fx.GraphModule)
    return CapturedModel(exported, module, (inputs, targets), measure=measure)


class CapturedModel(fx.GraphModule):
    """A captured model; parameters keep their names, a tied one its first name."""

    def __init__(self, exported: fx.GraphModule, module: nn.Module, example: Batch, *, measure: bool) -> None:
        graph, attributes = _plain(exported, {id(p): name for name, p in module.named_parameters()})
        super().__init__(attributes, graph)
        self._example, self._measure = example, measure
        self._shapes = tuple(tensor.shape for tensor in example)
        self.chain = _chain(graph, set(attributes) & {name for name, _ in self.named_parameters()})
        self.cuts = _cuts(graph, self.chain)

    @property
    def units(self) -> tuple[str, ...]:
        """The last node of each run of nodes that stay together."""
        return tuple(self.chain[end - 1].name for end in self.cuts[1:])

    def unit_costs(self, micro_batch: int, seq_len: int) -> list[ChainUnit]:
        """Return what each unit costs for a micro-batch of the captured shape, in seconds (FLOPs if not measured)."""
        costs = (measured if self._measure else costs_by_node)(self, self._example)
        seen: set[str] = set()
        return [self._unit(first, end, costs, seen) for first, end in zip(self.cuts, self.cuts[1:], strict=False)]

    def part(self, kept: Collection[int]) -> nn.Module:
        """Return the graph of some units; of units that are no neighbours, what holds their parameters."""
        first, last = min(kept), max(kept) + 1
        if len(kept) < last - first:
            return Holder(self, kept)
        begin, end = self.cuts[first], self.cuts[last]
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in [*self.graph.find_nodes(op="placeholder"), *crossing(self.chain, begin)]:
            copies[node] = graph.placeholder(node.name)
        for node in self.chain[begin:end]:
            _copy(node, graph, copies)
        if end == len(self.chain):
            (result,) = self.graph.find_nodes(op="output")
            graph.output(_copy(_loss_of(result), graph, copies))
        else:
            graph.output(tuple(copies[node] for node in crossing(self.chain, end)))
        return ChainPart(self, graph, self._shapes)

    def parameters_of(self, kept: Collection[int]) -> set[str]:
        """Return the names of the parameters that units use."""
        return _parameters_of(node for unit in kept for node in self.chain[self.cuts[unit] : self.cuts[unit + 1]])

    def _unit(self, first: int, end: int, costs: dict[str, NodeCost], seen: set[str]) -> ChainUnit:
        nodes = self.chain[first:end]
        new = _parameters_of(nodes) - seen
        seen |= new
        state = sum(p.numel() * p.element_size() for p in map(self.get_parameter, new))
        forward_s = sum(costs[node.name].forward_s for node in nodes)
        with_weights_s = sum(costs[node.name].forward_s for node in nodes if _parameters_of([node]))
        return ChainUnit(
            nodes[-1].name,
            forward_s,
            2 * forward_s,  # each product of forward is followed by two of its size
            weight_s=with_weights_s,
            state_bytes=STATE_COPIES * state,
            held_bytes=sum(costs[node.name].held_bytes for node in nodes),
            output_bytes=sum(node_bytes(node) for node in crossing(self.chain, end)),
        )


class ChainPart(fx.GraphModule):
    """A run of the chain, called with the micro-batch and what crosses the cut before it."""

    def __init__(self, root: nn.Module, graph: fx.Graph, shapes: tuple[torch.Size, ...]) -> None:
        super().__init__(root, graph)
        self._shapes = shapes

    def __call__(self, inputs: Tensor, targets: Tensor, *activations: Tensor) -> Any:
        """Run the graph; InputError for a micro-batch of another shape than it was captured with."""
        if (inputs.shape, targets.shape) != self._shapes:
            raise InputError(
                f"the model was captured for micro-batches of shapes {_text(self._shapes)}, "
                f"got {_text((inputs.shape, targets.shape))}"
            )
        return super().__call__(inputs, targets, *activations)


class Holder(fx.GraphModule):
    """The parameters of units that are not neighbours, by name; `part` gives the graph of units that are."""

    def __init__(self, model: CapturedModel, kept: Collection[int]) -> None:
        graph = fx.Graph()
        graph.output(tuple(graph.get_attr(name) for name in sorted(model.parameters_of(kept))))
        super().__init__(model, graph)
        self.units, self.unit_costs, self.part = model.units, model.unit_costs, model.part


def crossing(chain: list[fx.Node], position: int) -> list[fx.Node]:
    """Return the values that travel if the chain is cut in front of `position`, in order."""
    if position == len(chain):
        return []
    behind = set(chain[position:])
    return [node for node in chain[:position] if any(_reaches(user, behind) for user in node.users)]


def node_bytes(node: fx.Node) -> int:
    """Return the bytes of a node's tensor."""
    value = node.meta["val"]
    return int(value.numel() * value.element_size())


def _text(shapes: Iterable[torch.Size]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes)


def _plain(exported: fx.GraphModule, names: dict[int, str]) -> tuple[fx.Graph, dict[str, Any]]:
    """Return the graph without guards and dead nodes, and its attributes; tied parameters go by one name."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, Any] = {}
    for node in exported.graph.nodes:
        if node.op == "call_module" or "_assert" in str(node.target):
            continue  # guards and assertions about the example's shape
        if node.op == "output":
            graph.output(copies[_loss_of(node)])
            continue
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            value = _attribute(exported, str(node.target))
            copies[node].target = names.get(id(value), str(node.target))
            attributes[str(copies[node].target)] = value
    graph.eliminate_dead_code()
    used = {str(node.target) for node in graph.find_nodes(op="get_attr")}
    return graph, {name: value for name, value in attributes.items() if name in used}


def _attribute(root: nn.Module, target: str) -> Any:
    value: Any = root
    for part in target.split("."):
        value = getattr(value, part)
    return value


def _loss_of(output: fx.Node) -> fx.Node:
    """Return the node that the graph returns; InputError unless it is one scalar."""
    results: Any = output.args
    while isinstance(results, tuple | list) and len(results) == 1:
        results = results[0]
    if not isinstance(results, fx.Node) or results.meta["val"].numel() != 1:
        raise InputError("a module for a pipeline returns one scalar, the summed loss of its targets")
    return results


def _chain(graph: fx.Graph, parameters: set[str]) -> list[fx.Node]:
    """Return the operators that depend on parameters or have an effect, in order."""
    heavy: set[fx.Node] = set()
    chain = []
    for node in graph.nodes:
        if node.op == "get_attr" and node.target in parameters:
            heavy.add(node)
        elif node.op == "call_function" and (_keeps_its_place(node) or heavy & set(node.all_input_nodes)):
            heavy.add(node)
            chain.append(node)
    return chain


def _keeps_its_place(node: fx.Node) -> bool:
    """Return whether a node may be computed only once: it changes something in place, or draws random numbers."""
    schema = getattr(node.target, "_schema", None)
    tags = getattr(node.target, "tags", ())
    return (schema is not None and schema.is_mutable) or torch.Tag.nondeterministic_seeded in tags


def _cuts(graph: fx.Graph, chain: list[fx.Node]) -> list[int]:
    """Return the positions in front of which the chain may be cut, its two ends included."""
    index = {node: position for position, node in enumerate(chain)}
    last_change = {}
    for node in chain:
        if _keeps_its_place(node) and node.all_input_nodes:
            last_change[node.all_input_nodes[0]] = index[node]
    forbidden: set[int] = set()
    for node in chain:
        until = last_change.get(node, 0)
        if not isinstance(node.meta.get("val"), Tensor):
            until = max(index[user] for user in node.users if user in index)
        forbidden.update(range(index[node] + 1, until + 1))
    return [position for position in range(len(chain) + 1) if position not in forbidden]


def _reaches(user: fx.Node, behind: set[fx.Node]) -> bool:
    return user in behind or user.op == "output"


def _copy(node: fx.Node, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """Copy a node with what it needs and is not there yet."""
    if node not in copies:
        for needed in node.all_input_nodes:
            _copy(needed, graph, copies)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return copies[node]


def _parameters_of(nodes: Iterable[fx.Node]) -> set[str]:
    """Return the parameters that nodes use."""
    sources = {source for node in nodes for source in node.all_input_nodes if source.op == "get_attr"}
    return {str(source.target) for source in sources if _is_parameter(source)}


def _is_parameter(source: fx.Node) -> bool:
    root = source.graph.owning_module
    return root is not None and isinstance(_attribute(root, str(source.target)), nn.Parameter)
