"""The boxes of a drawn step: operators of a captured model, and between them every call of its program.

A box of a collective stands where it is called; what the operators do not tell apart (the sums of the loss, what
recomputation calls again) stands at the end of its unit's forward, or the beginning of its backward. So the boxes of a
lane are one micro-batch of the program, with what a step does once.
"""

import itertools
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from torch import Tensor, fx, nn

from ..layout import Layout, Plan
from ..mesh import Axis, size
from ..pipelines import schedule
from ..units import format_bytes
from ..workload.program import Comm, Pass, Stage, StepProgram, called_in
from ..workload.weight_traffic import ROOT
from .pipeline.capture import CapturedModel
from .spmd.tensor import Column, Parameters, RowParallel, Rule, Vocabulary

Kind = Literal["forward", "backward", "link", "sum"]


class StepBox(NamedTuple):
    """One box: operators of a module, or a message or collective."""

    kind: Kind
    text: str
    title: str  # shown on the pointer
    bucket: int | None = None
    comm: Comm | None = None  # the call that a box of communication stands for


class Lane(NamedTuple):
    """The boxes of one stage, those of its backward from the last operator to the first."""

    name: str
    forward: list[StepBox]
    backward: list[StepBox]

    @property
    def calls(self) -> list[Comm]:
        """Every call that is drawn."""
        return [box.comm for box in (*self.forward, *self.backward) if box.comm is not None]


class OperatorGroup(NamedTuple):
    """Neighbouring operators of one module."""

    module: str
    nodes: tuple[fx.Node, ...]

    @property
    def attends(self) -> bool:
        """Whether attention is among them."""
        return any("scaled_dot_product" in node.name or "attention" in str(node.target) for node in self.nodes)


def lanes_of(
    model: CapturedModel, plan: Plan, program: StepProgram, *, cut: Sequence[int], units: Sequence[str],
    rules: Mapping[str, Rule],
) -> list[Lane]:  # fmt: skip
    """Return the lanes of a step of `model`, cut into stages at `cut` of its `units` (modules, by name)."""
    layout = plan.layout
    grid = schedule(layout.schedule, layout.pp, layout.vpp, plan.micro_batches)
    groups = _by_unit(model, units)
    lanes = []
    for number, (first, end) in enumerate(itertools.pairwise(cut)):
        stage = program.stages[number]
        bytes_in = program.stages[number - 1].output_bytes if number else 0
        ranks = grid.rank_of_stage
        forward, backward = _Stage(model, layout, stage, groups[first:end], rules).boxes()
        lanes.append(
            Lane(
                f"stage {number} on pipeline rank {ranks[number]}",
                [
                    *_link("receive", bytes_in, ranks, number, -1),
                    *forward,
                    *_link("send", stage.output_bytes, ranks, number, 1),
                ],
                [
                    *_link("receive", stage.output_bytes, ranks, number, 1),
                    *backward,
                    *_link("send", bytes_in, ranks, number, -1),
                ],
            )
        )
    return lanes


class _Stage:
    """The boxes of one stage: `groups` are the operators of each of its units of the chain."""

    def __init__(
        self, model: CapturedModel, layout: Layout, stage: Stage, groups: Sequence[list[OperatorGroup]],
        rules: Mapping[str, Rule],
    ) -> None:  # fmt: skip
        self._model, self._layout, self._stage, self._groups, self._rules = model, layout, stage, groups, rules
        self._seen: set[str] = set()
        self._filled: dict[Axis, int] = {}  # bytes of the next bucket of an axis
        self._buckets: dict[Axis, deque[int]] = {}  # of each axis, not yet full
        for number, comm in enumerate(stage.gradients):
            self._buckets.setdefault(comm.axis, deque()).append(number)
        units = list(stage.units)
        self._root = units.pop(0) if units[0].name == ROOT else None
        self._units = units

    def boxes(self) -> tuple[list[StepBox], list[StepBox]]:
        """Return those of forward and those of backward."""
        forward = [] if self._root is None else self._collectives(self._root.forward.ahead)
        for unit, groups in zip(self._units, self._groups, strict=True):
            forward += self._forward(unit.forward, groups)
        backward: list[StepBox] = []
        for unit, groups in zip(reversed(self._units), reversed(self._groups), strict=True):
            backward += self._backward(unit.backward, groups)
        backward += [] if self._root is None else self._collectives(self._root.backward.behind)
        for bucket in sorted(number for waiting in self._buckets.values() for number in waiting):
            backward.append(self._of_bucket(bucket))
        return forward, backward + self._collectives((*self._stage.sums, *self._stage.parameters))

    def _forward(self, work: Pass, groups: Sequence[OperatorGroup]) -> list[StepBox]:
        calls = _Calls(called_in(work.comms))
        found = self._collectives(work.ahead)
        for before, group in itertools.pairwise([None, *groups]):
            assert group is not None
            rule = self._rules.get(group.module)
            if isinstance(rule, Column | Parameters):
                found += self._taken(calls, group, "input", "tp", "all_gather")
            if isinstance(rule, Parameters):
                for what in ("router's weights", "router's choices"):
                    found += self._taken(calls, group, what, "tp", "all_gather")
                for what in ("numbers of rows", "rows to their experts (dispatch)"):
                    found += self._taken(calls, group, what, "ep", "all_to_all")
            if group.attends:
                found += self._taken(calls, group, "keys and values", "cp", "all_gather")
            found.append(StepBox("forward", _short(group), _title(group)))
            if isinstance(rule, Parameters):
                found += self._taken(calls, group, "rows from their experts (combine)", "ep", "all_to_all")
            if isinstance(rule, RowParallel | Vocabulary) or self._joins(before, group):
                found += self._taken(calls, group, "output", "tp", "all_reduce", "reduce_scatter")
        return found + [self._collective(comm, "") for comm in calls.rest]

    def _backward(self, work: Pass, groups: Sequence[OperatorGroup]) -> list[StepBox]:
        calls = _Calls(reversed(called_in(work.comms)))  # what is called again comes first: it is what is left
        found: list[StepBox] = []
        for group, before in itertools.pairwise([*reversed(groups), None]):
            assert group is not None
            rule = self._rules.get(group.module)
            if isinstance(rule, RowParallel | Vocabulary) or self._joins(before, group):
                found += self._taken(calls, group, "gradient of the output", "tp", "all_gather")
            dispatched: list[StepBox] = []
            if isinstance(rule, Parameters):
                dispatched = self._taken(calls, group, "gradients of the rows to their experts", "ep", "all_to_all")
                found += self._taken(calls, group, "gradients of the rows from their experts", "ep", "all_to_all")
            axis, own = self._own_bytes(group)
            waiting = self._buckets.get(axis)
            found.append(StepBox("backward", _short(group), _title(group), waiting[0] if own and waiting else None))
            found += dispatched
            if group.attends:
                found += self._taken(calls, group, "gradients of keys and values", "cp", "reduce_scatter")
            if isinstance(rule, Parameters):
                found += self._taken(
                    calls, group, "gradients of the router's weights", "tp", "all_reduce", "reduce_scatter"
                )
            if isinstance(rule, Column | Parameters):
                found += self._taken(calls, group, "gradient of the input", "tp", "all_reduce", "reduce_scatter")
            found += self._filled_by(axis, own)
        again = [self._collective(comm, "") for comm in calls.rest]
        return self._collectives(work.ahead) + again + found + self._collectives(work.behind)

    def _joins(self, before: OperatorGroup | None, group: OperatorGroup) -> bool:
        """Return whether a group adds up what the experts before it have returned."""
        rule = None if before is None else self._rules.get(before.module)
        return isinstance(rule, Parameters) and before is not None and before.module.startswith(f"{group.module}.")

    def _filled_by(self, axis: Axis, own: int) -> list[StepBox]:
        """Return the buckets of an axis that `own` more bytes of gradients fill."""
        waiting, found = self._buckets.get(axis, deque()), []
        self._filled[axis] = self._filled.get(axis, 0) + own
        while waiting and self._filled[axis] >= self._stage.gradients[waiting[0]].bytes:
            self._filled[axis] -= self._stage.gradients[waiting[0]].size_bytes
            found.append(self._of_bucket(waiting.popleft()))
        return found

    def _own_bytes(self, group: OperatorGroup) -> tuple[Axis, int]:
        """Return who shares a group's parameters, and their bytes without parameters of an earlier group."""
        names = _parameters(group) - self._seen
        self._seen |= names
        found = [self._model.get_parameter(name) for name in names]
        rule, layout = self._rules.get(group.module), self._layout
        experts = layout.ep > 1 and isinstance(rule, Parameters)
        parts = (layout.tp if rule is not None else 1) * (layout.ep if experts else 1)
        own = sum(p.numel() * p.element_size() // (parts if p.dim() > 1 else 1) for p in found)
        return "edp" if experts else "data", own

    def _taken(self, calls: "_Calls", group: OperatorGroup, what: str, axis: str, *names: str) -> list[StepBox]:
        comm = calls.take(axis, names)
        return [] if comm is None else [self._collective(comm, f"of the {what} of {group.module}")]

    def _of_bucket(self, bucket: int) -> StepBox:
        comm = self._stage.gradients[bucket]
        text = f"{_words(comm)} {format_bytes(comm.size_bytes)}"
        ranks = size(self._layout, comm.axis)
        whose = "gradients of experts" if comm.axis == "edp" else "gradients"
        title = f"bucket {bucket}: {_words(comm)} of {whose} over {ranks} data-parallel ranks"
        return StepBox("sum", text, title, bucket, comm)

    def _collectives(self, comms: Iterable[Comm]) -> list[StepBox]:
        return [self._collective(comm, "") for comm in called_in(comms, special=True)]

    def _collective(self, comm: Comm, what: str) -> StepBox:
        bytes_ = format_bytes(comm.size_bytes)
        if comm.axis == "host":
            text = f"copy {comm.collective.replace('_', ' ')} {bytes_}"
            return StepBox("sum", text, f"{text}, of each rank between its device and its host's memory", None, comm)
        text = f"{_words(comm)} {comm.axis}={size(self._layout, comm.axis)}"
        title = f"{_words(comm)} {what}, {bytes_} over the {size(self._layout, comm.axis)} ranks of {comm.axis}"
        return StepBox("sum", text, title.replace(" ,", ","), None, comm)


class _Calls:
    """The calls of a unit in one direction, each to be drawn once."""

    def __init__(self, calls: Iterable[Comm]) -> None:
        self.rest = list(calls)

    def take(self, axis: str, names: Sequence[str]) -> Comm | None:
        """Return the next call of these collectives along an axis, None if there is none left."""
        found = next((comm for comm in self.rest if comm.axis == axis and comm.collective in names), None)
        if found is not None:
            self.rest.remove(found)
        return found


def _words(comm: Comm) -> str:
    return comm.collective.replace("_", "-")


def _by_unit(model: CapturedModel, units: Sequence[str]) -> list[list[OperatorGroup]]:
    """Return the operators of each unit; what belongs to none is part of the one before it."""
    number = {name: index for index, name in enumerate(units)}
    found: list[list[fx.Node]] = [[] for _ in units]
    current = 0
    for node in model.chain:
        current = next((number[name] for name in _path(node) if name in number), current)
        found[current].append(node)
    return [_groups(nodes) for nodes in found]


def _path(node: fx.Node) -> list[str]:
    """Return the modules that an operator was called in, the outermost first."""
    return [name for name, _ in (node.meta.get("nn_module_stack") or {}).values()]


def _groups(nodes: Iterable[fx.Node]) -> list[OperatorGroup]:
    runs = itertools.groupby(nodes, key=lambda node: (_path(node) or [""])[-1])
    return [OperatorGroup(module, tuple(members)) for module, members in runs]


def _link(verb: str, size_bytes: int, ranks: Sequence[int], stage: int, step: int) -> list[StepBox]:
    if not size_bytes or ranks[stage] == ranks[stage + step]:
        return []
    preposition = "to" if verb == "send" else "from"
    text = f"{verb} {format_bytes(size_bytes)}"
    return [StepBox("link", text, f"{text} {preposition} pipeline rank {ranks[stage + step]} (stage {stage + step})")]


def _parameters(group: OperatorGroup) -> set[str]:
    sources = {source for node in group.nodes for source in node.all_input_nodes if source.op == "get_attr"}
    owner = group.nodes[0].graph.owning_module
    assert owner is not None
    known = dict(owner.named_parameters())
    return {str(source.target) for source in sources if isinstance(known.get(str(source.target)), nn.Parameter)}


def _short(group: OperatorGroup) -> str:
    """Return the module; where a whole layer computes between its modules (a residual sum), the operator behind it."""
    module, operator = group.module.removeprefix("model."), re.sub(r"_\d+$", "", group.nodes[-1].name)
    return f"{module}.{operator}" if module[-1:].isdecimal() else module or operator


def _title(group: OperatorGroup) -> str:
    return f"{group.module}: {', '.join(node.name for node in group.nodes)} -> {_output(group)}"


def _output(group: OperatorGroup) -> str:
    value = group.nodes[-1].meta.get("val")
    return str(list(value.shape)) if isinstance(value, Tensor) else "several tensors"
