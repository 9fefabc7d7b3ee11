"""The runs that the constants were fitted to: their kinds of layouts and of layers, and accelerators.

`data/seen.toml` is written from the table of runs by `python -m benchmarks fit_planner --write`.
"""

import functools
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable
from importlib import resources

import msgspec

from ...files import convert
from ...layout import Layout
from ...units import counted
from ...workload.architecture import Architecture
from ...workload.kinds import Attention, Latent
from .coefficients import Book

# kinds of layouts that few people run
KINDS = (
    "zero-bubble schedule", "ZeRO-3 in a pipeline", "ZeRO-3 of experts", "context parallelism of 4 or more",
    "experts folded over tp",
)  # fmt: skip
DOUBT = "in no measured run"
# with its accelerator, stack and sequence length, and bytes per second of a GPU between nodes: 0 where it has no need
RunSeen = tuple[Layout, str, str, Architecture, int, float]


class SeenKinds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Numbers of fitted runs with each kind of layout and of recurrent layers, and on each device of stacks.toml; which
    devices a stack had, its longest sequence and slowest network (bytes per second a GPU); the widest experts of all.
    """

    kinds: dict[str, int]
    mixers: dict[str, int]
    devices: dict[str, int]
    stacks: dict[str, tuple[str, ...]]
    lengths: dict[str, int]
    networks: dict[str, float]
    expert_width: int
    further: int  # runs that train modules which predict further tokens


def kinds_of(layout: Layout) -> tuple[str, ...]:
    """Return which of the rare kinds a layout is."""
    whether = (
        layout.schedule == "zb" and layout.pp > 1,
        layout.zero == 3 and layout.pp > 1 and layout.dp * layout.cp > 1,
        layout.zero == 3 and layout.ep > 1,
        layout.cp >= 4,
        layout.is_folded and layout.ep > 1,
    )
    return tuple(kind for kind, there in zip(KINDS, whether, strict=True) if there)


def recurrent_kinds(architecture: Architecture) -> tuple[str, ...]:
    """Return the names of the layer kinds that mix tokens by other kernels than attention's."""
    mixers = (mixer for run in architecture.runs for mixer in run.layer.mixers)
    return tuple(sorted({type(mixer).__name__ for mixer in mixers if not isinstance(mixer, Attention | Latent)}))


def kinds_seen(runs: Iterable[RunSeen], known: Book) -> SeenKinds:
    """Return what some runs have seen."""
    kinds = Counter(dict.fromkeys(KINDS, 0))
    devices = Counter(dict.fromkeys((name for name, one in known.devices.items() if one.is_trained), 0))
    mixers: Counter[str] = Counter()
    stacks: dict[str, set[str]] = {}
    lengths: dict[str, int] = {}
    networks: dict[str, float] = {}
    width = further = 0
    for layout, accelerator, stack, architecture, seq_len, network in runs:
        kinds.update(kinds_of(layout))
        mixers.update(recurrent_kinds(architecture))
        of_run = [name for name, device in known.devices.items() if accelerator in device.accelerators]
        devices.update(of_run)
        fitted = known.fitted(stack)
        stacks.setdefault(fitted, set()).update(of_run)
        lengths[fitted] = max(lengths.get(fitted, 0), seq_len)
        if network:
            networks[fitted] = min(networks.get(fitted, network), network)
        width = max(width, architecture.expert_size if architecture.experts else 0)
        further += architecture.mtp_trained > 0
    return SeenKinds(
        kinds=dict(kinds),
        mixers=dict(sorted(mixers.items())),
        devices=dict(devices),
        stacks={stack: tuple(sorted(stacks[stack])) for stack in stacks},
        lengths=lengths,
        networks=networks,
        expert_width=width,
        further=further,
    )


@functools.lru_cache(maxsize=1)
def seen() -> SeenKinds:
    """Return what the runs of this package's constants have seen."""
    text = resources.files(__package__).joinpath("data", "seen.toml").read_text("utf-8")
    return convert(tomllib.loads(text), SeenKinds, where="seen.toml")


def unseen_kinds(layout: Layout, *, beside: Collection[str] = ()) -> tuple[str, ...]:
    """Return one sentence for each kind of a layout that no measured run had, those `beside` the fitted ones aside."""
    return tuple(f"{kind}: {DOUBT}" for kind in kinds_of(layout) if not seen().kinds.get(kind) and kind not in beside)


def elsewhere(known: Book, stack: str, accelerator: str) -> tuple[str, ...]:
    """Return a sentence where the runs of a stack were all on other accelerators, which it may suit better or worse."""
    devices = seen().stacks.get(known.fitted(stack), ())
    if not devices or any(accelerator in known.devices[name].accelerators for name in devices):
        return ()
    return (f"stack {stack} on {accelerator}: {DOUBT}; its runs were on {', '.join(devices)}",)


def origin(known: Book, stack: str, accelerator: str) -> str:
    """Return where the constants of a price come from: runs of this stack, of this accelerator, or priors alone."""
    own = known.fitted(stack)
    if own in known.errors:
        whose = "this stack" if own == stack else f"stack {own}"
        others = ", none of this accelerator" if elsewhere(known, stack, accelerator) else ""
        return f"fitted on {_runs(known.errors[own].runs)} of {whose}{others}"
    count = seen().devices.get(known.device(accelerator)[0], 0)
    if count:
        return f"fitted on {_runs(count)} of this accelerator, none of this stack"
    return "prior"


def _runs(count: int) -> str:
    return counted(count, "run")
