"""Calls that do not keep their object alive.

What a group is made of calls the group back. Were that reference a strong one, a destroyed group would stay, with its
shared memory and a descriptor, until Python's cycle collector ran, which trainers switch off, or run for new objects
only.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakMethod

Result = TypeVar("Result")


def weakly(method: Callable[..., Result]) -> Callable[..., Result]:
    """Return a call of a bound method, for what its object holds itself: while it calls, the object is there."""
    reference: Any = WeakMethod(method)

    def call(*arguments: Any) -> Result:
        own: Callable[..., Result] = reference()
        return own(*arguments)

    return call
