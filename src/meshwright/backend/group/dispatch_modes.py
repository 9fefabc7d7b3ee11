"""Calls under a `TorchDispatchMode`, such as CommDebugMode, which counts collectives, or FakeTensorMode.

Torch calls a group in Python without its dispatcher, so that modes would see nothing of it. Under a mode a call
therefore goes to the operator `torch.ops.c10d.*` that a group in C++ calls, and so through every mode. The operator
itself would look for a C++ backend; a mode of our own, below all others, takes it and makes the call. On fake tensors,
whose mode lies below that one, nothing is moved, as over Gloo.

Tensors that hold others (a subclass with a `__torch_dispatch__` of its own such as AsyncCollectiveTensor, a tensor
under `torch.func.grad`) have no memory of their own: the dispatcher unwraps them, and calls are made on what they hold.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, Work
from torch.utils import _python_dispatch as modes  # its flag is what calls.c looks at
from torch.utils._python_dispatch import TorchDispatchMode

from .c10d_operators import OPERATOR_OF_METHOD
from .overloads import Method

Call = TypeVar("Call", bound=Callable[..., Work])
INFRASTRUCTURE = tuple(torch._C._TorchDispatchModeKey.__members__.values())


def called_as(method: Method) -> Callable[[Call], Call]:
    """Return a decorator for a method of a group: its arguments are bound to torch's overloads, and modes see it."""

    def decorate(call: Call) -> Call:
        @functools.wraps(call)
        def bound(self: Any, *given: Any, **named: Any) -> Work:
            arguments, options = method.bind(given, named)
            is_watched = modes._is_in_torch_dispatch_mode and torch._C._len_torch_dispatch_stack()
            if is_watched or any(map(_holds_others, arguments)):
                return _dispatched(self, method.name, arguments, options, functools.partial(call, self))
            return call(self, *arguments, options)

        return cast(Call, bound)

    return decorate


def _dispatched(group: Any, name: str, given: Sequence[Any], options: Any, call: Callable[..., Work]) -> Work:
    """Make a call through all modes, with the arguments that they leave."""
    operator = getattr(torch.ops.c10d, OPERATOR_OF_METHOD[name]).default
    fixed = _fixed_arguments(group, name, options)
    rest, arguments, places = iter(given), [], []
    for i, argument in enumerate(operator._schema.arguments):
        if argument.name in fixed:
            arguments.append(fixed[argument.name])
        else:
            places.append(i)
            arguments.append(_listed(next(rest), str(argument.type)))

    def run(values: Sequence[Any]) -> Work:
        return call(*(values[i] for i in places), options)

    bottom = _Bottom(operator, run)
    above = [modes._pop_mode() for _ in range(torch._C._len_torch_dispatch_stack())]
    _push([*above, bottom])
    try:
        result = operator(*arguments)
    finally:
        for _ in range(torch._C._len_torch_dispatch_stack()):
            modes._pop_mode()
        _push(above)
    if bottom.work is not None:
        return bottom.work
    return Work.unbox(result[-1] if isinstance(result, tuple) else result)


def _push(above: Sequence[TorchDispatchMode]) -> None:
    """Push modes, of which the first was on top."""
    for mode in reversed(above):
        modes._push_mode(mode)


def _fixed_arguments(group: Any, name: str, options: Any) -> Mapping[str, Any]:
    """Return the arguments of an operator that are no tensors of the call, by their names.

    Torch cannot make another operator of reduction than the sum in Python; modes cannot read it either.
    """
    limit = getattr(options, "timeout", timedelta(seconds=-1))
    fixed = {
        "process_group": ProcessGroup.boxed(group),
        "reduce_op": torch.classes.c10d.ReduceOp(),
        "sparse_indices": None,
        "root_rank": getattr(options, "rootRank", 0),
        "root_tensor": 0,
        "async_op": bool(getattr(options, "asyncOp", True)),
        "timeout": max(-1, round(limit.total_seconds() * 1000)),
        "device_ids": [],
    }
    if name == "barrier":
        fixed["tensor"] = torch.empty(1, dtype=torch.uint8)
    return fixed


def _holds_others(value: Any) -> bool:
    """Return whether a tensor, or one in a list, is for the dispatcher to unwrap."""
    if isinstance(value, list | tuple):
        return any(map(_holds_others, value))
    return isinstance(value, Tensor) and (
        _has_own_dispatch(type(value)) or torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def _has_own_dispatch(kind: type[Tensor]) -> bool:
    return kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def _listed(value: Any, kind: str) -> Any:
    """Return an argument as the operator takes it: a tensor that a method takes alone stands in a list, or in two."""
    depth = kind.count("List[") if kind.endswith("Tensor" + "]" * kind.count("List[")) else 0
    for _ in range(depth - _depth(value) if depth and _holds_tensors(value) else 0):
        value = [value]
    return value


def _depth(value: Any) -> int:
    return 1 + _depth(value[0]) if isinstance(value, list | tuple) else 0


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and bool(value) and _holds_tensors(value[0]))


class _Bottom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode below those of the caller: it makes the one call that it is for, unless torch's own modes want it."""

    work: Work | None = None

    def __init__(self, operator: Any, run: Callable[[Sequence[Any]], Work]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operator = operator
        self._run = run

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call; leave every other operator as it is, and tensors that hold others to their class."""
        is_traced = any(torch._C._get_dispatch_mode(key) is not None for key in INFRASTRUCTURE)
        if call is not self._operator or is_traced:
            return call(*args, **(kwargs or {}))
        if any(map(_has_own_dispatch, types)):
            return NotImplemented
        self.work = self._run(args)
        boxed = self.work.boxed()
        return boxed if len(call._schema.returns) == 1 else (args[0], boxed)
