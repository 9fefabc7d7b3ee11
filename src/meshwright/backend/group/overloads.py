"""The ways in which a process group's methods may be called: every overload that torch's C++ groups have.

A method takes its tensors, and then either one object of options or some of the options themselves (root, op, timeout),
by place or by name.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from torch.distributed import ReduceOp

from ..faults.failures import ArgumentError


class CallOptions:
    """The options of a call, as torch's own objects hold them."""

    reduceOp: Any = ReduceOp(ReduceOp.SUM)
    rootRank: Any = 0
    asyncOp = True
    timeout = timedelta(seconds=-1)  # below zero: the group's


DEFAULTS = CallOptions()


class Method:
    """How one method is called: the names of its tensors, "a|b" where torch has two, and of the options beside them.

    `defaults` are of tensors, by the first of their names.
    """

    def __init__(
        self, name: str, tensors: str, options: str, defaults: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.name = name
        self._tensors = [names.split("|") for names in tensors.split()]
        self._options = options.split()
        self._defaults = defaults

    def bind(self, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """Return the tensors and the options of a call; TypeError for a call that is none of this method.

        An argument of None counts as not given.
        """
        left = {name: value for name, value in named.items() if value is not None}
        tensors = list(given[: len(self._tensors)])
        tensors += [None] * (len(self._tensors) - len(tensors))
        for i, names in enumerate(self._tensors):
            for name in names:
                if name in left:
                    if tensors[i] is not None:
                        raise TypeError(f"{self.name}: {name} is given twice")
                    tensors[i] = left.pop(name)
            if tensors[i] is None:
                tensors[i] = self._defaults.get(names[0])
            if tensors[i] is None:
                raise TypeError(f"{self.name}: {names[0]} is not given")
        rest = [value for value in given[len(self._tensors) :] if value is not None]
        options = left.pop("opts", None)
        if options is None and rest and hasattr(rest[0], "timeout"):
            options = rest.pop(0)
        if options is not None:
            if rest or left:
                raise TypeError(f"{self.name}: options are given both as an object and one by one")
            return tensors, options if hasattr(options, "asyncOp") else _completed(options)
        for name, value in zip(self._options, rest, strict=False):
            if name in left:
                raise TypeError(f"{self.name}: {name} is given twice")
            left[name] = value
        if len(rest) > len(self._options) or set(left) - set(self._options):
            odd = ", ".join(set(left) - set(self._options)) or f"{len(rest)} arguments after the tensors"
            raise TypeError(f"{self.name}: expected {', '.join(self._options) or 'no more arguments'}, got {odd}")
        return tensors, self._made(left) if left else DEFAULTS

    def _made(self, values: Mapping[str, Any]) -> CallOptions:
        options = CallOptions()
        if "op" in values:
            options.reduceOp = self._operator(values["op"])
        if "root" in values:
            options.rootRank = values["root"]
        if "timeout" in values:
            if not isinstance(values["timeout"], timedelta):
                raise ArgumentError(f"{self.name}: timeout {values['timeout']!r}: expected a timedelta")
            options.timeout = values["timeout"]
        return options

    def _operator(self, given: Any) -> Any:
        if isinstance(given, ReduceOp.RedOpType):
            return ReduceOp(given)
        if not isinstance(given, ReduceOp):
            raise ArgumentError(f"{self.name}: operator {given!r}: expected a ReduceOp")
        return given


def _completed(options: Any) -> CallOptions:
    """Return an object that holds some of the options, with the defaults of the others."""
    completed = CallOptions()
    for name in ("reduceOp", "rootRank", "timeout"):
        if hasattr(options, name):
            setattr(completed, name, getattr(options, name))
    return completed


ALL_REDUCE = Method("allreduce", "tensors|tensor", "op timeout")
ALL_REDUCE_COALESCED = Method("allreduce_coalesced", "tensors", "op timeout")
REDUCE = Method("reduce", "tensors|tensor", "root op timeout")
REDUCE_SCATTER = Method("reduce_scatter", "output_tensors|output input_tensors|input", "op timeout")
REDUCE_SCATTER_SINGLE = Method("reduce_scatter_single", "outputTensor|output inputTensor|input", "op timeout")
REDUCE_SCATTER_COALESCED = Method("reduce_scatter_single_coalesced", "outputs inputs", "op timeout")
BROADCAST = Method("broadcast", "tensors|tensor", "root timeout")
ALL_GATHER = Method("allgather", "output_tensors input_tensors|input_tensor", "timeout")
ALL_GATHER_SINGLE = Method("all_gather_single", "output input", "timeout")
ALL_GATHER_SINGLE_COALESCED = Method("all_gather_single_coalesced", "outputs inputs", "timeout")
ALL_GATHER_COALESCED = Method("allgather_coalesced", "output_lists input_list", "timeout")
GATHER = Method("gather", "output_tensors input_tensors|input_tensor", "root timeout")
SCATTER = Method("scatter", "output_tensors|output_tensor input_tensors", "root timeout")
ALL_TO_ALL = Method("alltoall", "output_tensors input_tensors", "timeout")
ALL_TO_ALL_SINGLE = Method(
    "all_to_all_single",
    "output input output_split_sizes|output_splits input_split_sizes|input_splits",
    "timeout",
    {"output_split_sizes": (), "input_split_sizes": ()},
)
BARRIER = Method("barrier", "", "timeout")
SEND = Method("send", "tensors dstRank|dst tag", "", {"tag": 0})
RECV = Method("recv", "tensors srcRank|src tag", "", {"tag": 0})
RECV_ANY = Method("recv_anysource", "tensors tag", "", {"tag": 0})
