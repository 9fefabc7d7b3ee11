"""The one place that knows accelerators: which there are, their streams, events, memory, clocks and names.

It goes through `torch.accelerator`, so that CUDA, ROCm, XPU and devices that other packages register are one case, and
the CPU is the plain one: there nothing has to be waited for. What is CUDA's alone (memory that processes share) stays
in the file that needs it. A call on a CPU device never touches an accelerator.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from .cluster.discovery.nvml import GpuState, gpu_state
from .errors import InputError

if TYPE_CHECKING:  # a rank of a group reads no catalogue, and 128 of them start on one machine
    from .hardware import Catalogue
    from .hardware.kinds import Accelerator

Module = TypeVar("Module", bound=nn.Module)
CPU = torch.device("cpu")
DTYPE_NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8",
}


def accelerator_type() -> str | None:
    """Return the type of this machine's accelerators as torch names it ("cuda", also for ROCm; "xpu"); None without."""
    found = torch.accelerator.current_accelerator()  # what torch was built for, whether or not there is one
    return found.type if found is not None and _module(found.type).device_count() else None


def count() -> int:
    """Return how many accelerators torch sees on this machine; no context is made on them."""
    found = accelerator_type()
    return int(_module(found).device_count()) if found else 0


def device(index: int = 0) -> torch.device:
    """Return an accelerator by its index on this machine, or the CPU where there is none."""
    found = accelerator_type()
    return torch.device(found, index) if found else CPU


def is_accelerator(where: torch.device) -> bool:
    """Return whether work on a device runs beside the host."""
    return where.type not in ("cpu", "meta")


def native_backend() -> str | None:
    """Return the backend of torch.distributed that is made for this machine's accelerators; None without any.

    NCCL (on ROCm its twin RCCL, under the same name), XCCL, or what the package of another device registers.
    """
    found = accelerator_type()
    name = dist.Backend.default_device_backend_map.get(found) if found else None
    return name if name in dist.Backend.backend_list and name not in ("gloo", "mpi") and _is_built(name) else None


def _is_built(backend: str | None) -> bool:
    checks = {"nccl": dist.is_nccl_available, "xccl": dist.is_xccl_available}
    return bool(checks[backend]()) if backend in checks else True


def of_rank(local_rank: int, backend: str) -> torch.device:
    """Return where the tensors of a rank live that talks over `backend`: its accelerator where that is made for it."""
    if not uses_accelerators(backend):
        return CPU
    return device(0 if shows_one_each(os.environ) else local_rank)


def shows_one_each(environment: Mapping[str, str]) -> bool:
    """Return whether the launcher shows each of its ranks one accelerator alone, which is the first there.

    SLURM does so where tasks were given GPUs of their own (--gpus-per-task=1, --gpu-bind=single:1); ranks that torchrun
    starts within a task share what that task sees.
    """
    if "SLURM_LOCALID" not in environment or "TORCHELASTIC_RUN_ID" in environment or count() != 1:
        return False
    asked = environment.get("SLURM_TRES_PER_TASK", "") + environment.get("SLURM_TRES_BIND", "")
    bound = re.match(r"(verbose,|v,)*(per_task|single)", environment.get("SLURM_GPU_BIND", ""))
    return "SLURM_GPUS_PER_TASK" in environment or "gpu" in asked or bound is not None


def of_ranks(ranks_on_host: int) -> int:
    """Return how many of the ranks of this host have an accelerator of their own."""
    return ranks_on_host if shows_one_each(os.environ) else min(count(), ranks_on_host)


def uses_accelerators(backend: str) -> bool:
    """Return whether a backend moves the bytes of accelerators, one for each rank."""
    return backend == native_backend()


def set_current(where: torch.device) -> None:
    """Let an accelerator be the one that this thread works on."""
    if is_accelerator(where):
        torch.accelerator.set_device_index(where.index or 0)


def synchronize(where: torch.device) -> None:
    """Wait until a device has done all that was begun on it."""
    if is_accelerator(where):
        torch.accelerator.synchronize(where)


def synchronize_stream(where: torch.device) -> None:
    """Wait until the current stream of a device has done all that was begun on it."""
    if is_accelerator(where):
        torch.accelerator.current_stream(where).synchronize()


def moved(module: Module, where: torch.device) -> Module:
    """Return a module with its parameters and buffers on a device; parameters that were one stay one.

    `Module.to` alone makes new parameters, each use its own, where torch has the device not built in.
    """
    names: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for part in module.modules():
        for each, parameter in part._parameters.items():
            if parameter is not None:
                names.setdefault(parameter, []).append((part, each))
    module.to(where)
    for uses in names.values():
        (first, name), *others = uses
        for part, each in others:
            part._parameters[each] = first._parameters[name]
    return module


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of an accelerator's tensor in the host's memory, pinned so that it is copied at the link's rate."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_accelerator(tensor.device))
    return copy.copy_(tensor)


def synchronised_clock(where: torch.device) -> float:
    """Return seconds on the host's monotonic clock, once all work of the device is done."""
    synchronize(where)
    return time.monotonic()


def event(where: torch.device) -> torch.Event:
    """Return an event behind all that the current stream of an accelerator was given, whose time can be asked for."""
    mark = torch.Event(where, enable_timing=True)
    mark.record(torch.accelerator.current_stream(where))
    return mark


def between_s(first: torch.Event, last: torch.Event) -> float:
    """Return the seconds between two events on the device's own clock; both must have been reached."""
    return float(first.elapsed_time(last)) * 1e-3


def timed_s(work: Callable[[], object], calls: int, where: torch.device) -> float:
    """Return the seconds of one of `calls` calls in a row: by events where a device runs beside the host."""
    if not is_accelerator(where):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - start) / calls
    synchronize(where)
    first = event(where)
    for _ in range(calls):
        work()
    last = event(where)
    last.synchronize()
    return between_s(first, last) / calls


def name(index: int = 0) -> str:
    """Return what the driver calls an accelerator."""
    return str(_module(_known_type()).get_device_name(index))


def has_bf16(where: torch.device) -> bool:
    """Return whether an accelerator multiplies bf16 itself (V100 and T4 imitate it); True where torch does not tell."""
    module = _module(where.type)
    told = getattr(module, "is_bf16_supported", None)
    if told is None or not module.device_count():
        return True
    try:
        return bool(told(including_emulation=False))
    except TypeError:  # torch_npu's and torch_mlu's take no argument
        return bool(told())


def lacks_fp8(where: torch.device) -> str:
    """Return why a device multiplies no fp8 itself, in words; "" where torch tells that it does.

    NVIDIA's from compute capability 8.9 (Ada, Hopper) on; AMD's MI300 and MI350 and RDNA 4 (gfx94, gfx95, gfx12), as
    torch's own tests have it (torch/testing/_internal/common_cuda.py). Of other devices torch tells nothing.
    """
    if not is_accelerator(where):
        return "a processor multiplies no fp8"
    module = _module(where.type)
    reported = str(module.get_device_name(where.index or 0))
    if torch.version.hip:
        built = str(module.get_device_properties(where).gcnArchName)
        return "" if built.startswith(("gfx94", "gfx95", "gfx12")) else f"{reported} ({built}) multiplies no fp8"
    told = module.get_device_capability(where) if hasattr(module, "get_device_capability") else None
    if not isinstance(told, tuple):
        return f"torch does not tell whether {reported} multiplies fp8"
    return "" if told >= (8, 9) else f"{reported} multiplies no fp8"


def memory_bytes(index: int = 0) -> int:
    """Return the memory of an accelerator, all of it."""
    return int(_module(_known_type()).get_device_properties(index).total_memory)


def cache_bytes(where: torch.device) -> int | None:
    """Return the last cache before an accelerator's memory; None where torch does not tell it, and for the CPU."""
    if not is_accelerator(where):
        return None
    found = _module(where.type).get_device_properties(where)
    known = (getattr(found, each, None) for each in ("L2_cache_size", "last_level_cache_size"))  # XPU has the second
    return next((int(each) for each in known if each), None)


def product_side(where: torch.device) -> int:
    """Return the side of square matrices whose product keeps an accelerator busy from end to end.

    A power of two of which each multiprocessor has about 16 tiles of the result, 128 x 128 each, so that the last
    few, which some wait for, are little of it. Where torch counts none of them it is that of 64.
    """
    found = _module(where.type).get_device_properties(where)
    known = (getattr(found, each, None) for each in ("multi_processor_count", "gpu_subslice_count"))
    tiles = 16 * next((int(each) for each in known if each), 64)
    return int(2 ** round(math.log2(128 * math.sqrt(tiles))))


def free_bytes(where: torch.device) -> int:
    """Return what is free of an accelerator's memory."""
    return int(torch.accelerator.get_memory_info(where)[0])


def allocated_bytes(where: torch.device) -> int:
    """Return the bytes of live tensors on an accelerator."""
    return int(torch.accelerator.memory_allocated(where))


def forget_peak(where: torch.device) -> None:
    """Let `peak_bytes` count from now on."""
    torch.accelerator.reset_peak_memory_stats(where)


def peak_bytes(where: torch.device) -> int:
    """Return the most bytes of live tensors on an accelerator since `forget_peak`."""
    return int(torch.accelerator.max_memory_allocated(where))


def bus_id(index: int = 0) -> str | None:
    """Return the PCI address of an accelerator as sysfs writes it; None where torch does not tell it."""
    found = _module(_known_type()).get_device_properties(index)
    parts = [getattr(found, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return None if None in parts else f"{parts[0]:04x}:{parts[1]:02x}:{parts[2]:02x}.0"


def facts() -> list[dict[str, Any]]:
    """Return what is known of each accelerator, without names of anything else: name, memory, clocks, heat, power.

    Clocks and power are NVML's; where it does not know the device (ROCm, XPU) they are None.
    """
    found = []
    for index in range(count()):
        where = bus_id(index)
        state = gpu_state(where) if where else None
        found.append(
            {"name": name(index), "memory_bytes": memory_bytes(index)}
            | {each: getattr(state, each, None) for each in GpuState.__slots__}
        )
    return found


def generator_states() -> list[tuple[str, torch.Tensor]]:
    """Return type of device and state of the random generators in use: the CPU's, and the current accelerator's."""
    states, found = [("cpu", torch.get_rng_state())], accelerator_type()
    if found is not None and _module(found).is_initialized():
        states.append((found, _module(found).get_rng_state()))
    return states


def set_generator_state(kind: str, state: torch.Tensor) -> None:
    """Put back the state of a random generator: of the CPU's, or of the current accelerator's, by type of device."""
    if kind == "cpu":
        torch.set_rng_state(state)
    else:
        _module(kind).set_rng_state(state)


def forked_generators(where: torch.device) -> Any:
    """Return a context after which the random generators of the CPU and of a device are as before it."""
    if is_accelerator(where):
        return torch.random.fork_rng(devices=[where], device_type=where.type)
    return torch.random.fork_rng(devices=[])


def catalogued(catalogue: "Catalogue", reported: str) -> "Accelerator":
    """Return what the catalogue says of the accelerator that a driver calls so; InputError where it knows none.

    Peaks are never guessed from a name that resembles another: an entry of the user's own is asked for.
    """
    key = catalogue.driver_key(reported)
    if key is None:
        raise InputError(
            f"{reported}: not in the catalogue, so its peak rates are not known; --hardware FILE adds it, "
            "`topo --catalogue NAME --toml` prints an entry to start from"
        )
    return catalogue.accelerators[key]


def peak_flops_per_s(catalogue: "Catalogue", reported: str, dtype: torch.dtype) -> float:
    """Return the dense peak of an accelerator in one precision, as the catalogue has it; InputError if it has none."""
    found, precision = catalogued(catalogue, reported), DTYPE_NAMES[dtype]
    if precision not in found.peak_flops_per_s:
        raise InputError(f"{reported}: the catalogue has no dense {precision} peak of {found.title}")
    return found.peak_flops_per_s[precision]


def _known_type() -> str:
    found = accelerator_type()
    if found is None:
        raise InputError("no accelerator on this machine: torch sees none")
    return found


def _module(kind: str) -> Any:
    return torch.get_device_module(kind)
