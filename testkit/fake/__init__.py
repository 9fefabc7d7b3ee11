"""A fake accelerator, "fakegpu", for machines without one: `load()` builds it once and makes torch take it for real.

See `device.cpp` for what it is strict about. Its backend of torch.distributed, "fakeccl", stands where NCCL stands: it
takes tensors of the device alone, and lets the host go on before the bytes have moved.
"""

import contextlib
import functools
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from meshwright.native import load_extension

SOURCE = Path(__file__).with_name("device.cpp")
NAME = "Fake H100"  # of the device: in no catalogue


class Properties(NamedTuple):
    """What the driver tells of the device: small, so that what is measured by its size is measured fast."""

    name: str = NAME
    total_memory: int = 16 * 2**30
    multi_processor_count: int = 1
    L2_cache_size: int = 2**16


class Module:
    """What stands at `torch.fakegpu`, as `torch.cuda` does for CUDA."""

    def __init__(self, extension: ModuleType) -> None:
        self._extension = extension

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _lazy_init(self) -> None:
        """Nothing is left to do; torch 2.11 takes a device without this for one not begun, and does not wait for it."""

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return COUNT

    def current_device(self) -> int:
        return self._extension.current_device()

    def set_device(self, index: Any) -> None:
        self._extension.set_current_device(torch.device(index).index or 0)

    def Stream(self, *_: Any, **__: Any) -> torch.Stream:
        return torch.Stream(torch.device("fakegpu", self.current_device()))

    def Event(self, *_: Any, enable_timing: bool = False, **__: Any) -> torch.Event:
        return torch.Event("fakegpu", enable_timing=enable_timing)

    def current_stream(self, device: Any = None) -> torch.Stream:
        return torch.accelerator.current_stream(device)

    def stream(self, stream: torch.Stream | None) -> Any:
        return contextlib.nullcontext() if stream is None else stream

    def manual_seed_all(self, seed: int) -> None:
        self._extension.seed(seed)

    def manual_seed(self, seed: int) -> None:
        self._extension.seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return self._extension.random_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self._extension.set_random_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def get_device_name(self, index: int = 0) -> str:
        return NAME

    def get_device_properties(self, index: int = 0) -> Any:
        return Properties()

    def synchronize(self, device: Any = None) -> None:
        torch.accelerator.synchronize()


COUNT = 4


@functools.cache
def load() -> ModuleType:
    """Return the extension, with torch knowing the device and its backend in this process."""
    headers, libraries = (Path(torch.__file__).parent / name for name in ("include", "lib"))
    flags = (
        *("-O0", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--no-as-needed", f"-L{libraries}"),
        *("-ltorch_python", "-ltorch_cpu", "-lc10", "-lstdc++"),
        *(f"-I{folder}" for folder in (headers, headers / "torch/csrc/api/include", sysconfig.get_path("include"))),
        *(f"-DABI={torch.__version__}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
    )
    extension = load_extension(SOURCE, flags)
    assert extension is not None, "the fake device cannot be built: is there a C++ compiler?"
    extension.set_devices(COUNT)
    torch.utils.rename_privateuse1_backend("fakegpu")
    torch._register_device_module("fakegpu", Module(extension))
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dist.Backend.register_backend("fakeccl", _group, extended_api=True, devices=["fakegpu"])
    return extension


def _group(request: Any, options: Any) -> Any:
    from testkit.fake.group import create  # which imports meshwright: it may be what imports torch just now

    return create(request, options)
