"""Futures of works, typed as those of torch's own backends where that can be had.

C++ callers (the reducer of DDP and its built-in hooks) read the future of a work: they expect a list of tensors, and an
error where the collective failed. Only C++ can make such a future; it is an extension module, built once like the C
helper, against torch's headers. Without it futures hold a Python list, which the built-in FP16 and BF16 hooks of DDP
do not take, and errors come as a RuntimeError that quotes them.
"""

import functools
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.futures import Future

from ...native import load_extension

SOURCE = Path(__file__).with_name("futures.cpp")


class WorkFuture:
    """The future of one work, and its end: `future` for the waiter, `complete` or `fail` once for the worker."""

    def __init__(self) -> None:
        extension = load_futures()
        self.future: Any
        if extension is None:
            # The error of a callback is the only one that a future of Python passes on to C++.
            self._given: Future[Callable[[], Any]] = Future()
            self.future = self._given.then(lambda given: given.value()())
        else:
            self.future, self._end = extension.make()
        self._extension = extension

    def complete(self, tensors: Sequence[Tensor]) -> None:
        """End the future with its result. Callbacks run on this thread."""
        result = list(tensors)
        if self._extension is None:
            self._given.set_result(lambda: result)
        else:
            self._extension.complete(self._end, result)

    def fail(self, error: BaseException) -> None:
        """End the future with an error. Callbacks run on this thread."""

        def throw() -> None:
            raise error

        if self._extension is None:
            self._given.set_result(throw)
        else:
            self._extension.fail(self._end, error)


@functools.cache
def load_futures() -> ModuleType | None:
    """Return the extension module, built if need be; None where it is switched off or cannot be had."""
    headers, libraries = (Path(torch.__file__).parent / name for name in ("include", "lib"))
    flags = (
        *("-O1", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--no-as-needed", f"-L{libraries}"),
        *("-ltorch_python", "-ltorch_cpu", "-lc10", "-lstdc++"),
        *(f"-I{folder}" for folder in (headers, headers / "torch/csrc/api/include", sysconfig.get_path("include"))),
        *(f"-DABI={torch.__version__}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
    )
    return load_extension(SOURCE, flags)


def loaded_futures() -> ModuleType | None:
    """Return the extension module where it is in use already; nothing is built for this."""
    return load_futures() if load_futures.cache_info().currsize else None
