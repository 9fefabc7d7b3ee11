"""The constants of the cost model: which there are, and which apply to a stack, an accelerator and a precision.

`data/constants.toml` holds every fitted constant with its meaning, unit, bounds and gain; `data/stacks.toml` says which
of them a software stack and an accelerator use for each role, beside facts that are known and not fitted.
"""

import functools
import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from ...files import convert
from ...workload.conventions import DESCRIBED, Conventions, conventions_of
from .quantities import Array, Number
from .recipes import recipe_use


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fitted number."""

    value: float
    low: float  # bounds from physics
    high: float
    prior: float  # what is expected before any run is seen
    spread: float = 0.5  # of the prior, as a logarithm
    unit: str = ""
    meaning: str
    machine: bool = False  # of hosts and links, not of software: it can be measured on the machine
    gain: float | None = None  # points of left-out error that it saves; None where it was not measured


class Coefficients(Conventions, frozen=True, kw_only=True):
    """The value of each role, a number or an array over rows; the facts of `Conventions` are among them."""

    product: Number  # share of the peak that a large product reaches
    scaled: Number  # fact: a layer's products and casts by their recipe's scales, beside one scale for each tensor
    scaled_cut: Number  # the same of products that tensor parallelism cuts
    product_depth: Number  # elements of K at which a product runs at half its ceiling
    product_width: Number  # likewise M and N
    cast: Number  # bytes moved for each element that a product in eight bits or fewer reads
    attention: Number  # share of the bf16 peak that a long fused attention reaches, counted causal
    attention_length: Number  # tokens at which it runs at half of that
    attention_alone: Number  # fact: that share of the stack's kernel timed alone on long sequences; 0 where none was
    attention_within: Number  # fact: tokens of the longest sequence in the runs that `attention` was fitted to
    exponentials: Number  # elements of a head's width whose products take as long as one score's exponential
    recurrence: Number  # products inside a recurrence's chunks, beside that
    scan: Number  # multiplies the bytes of a recurrence's kernels
    softmax: Number  # multiplies the bytes of an unfused softmax
    head_ragged: Number  # slows batched products of heads that are no multiple of 8
    memory: Number  # share of the memory's rate that element-wise kernels reach
    element_wise: Number  # multiplies the bytes of norms, residuals and activation functions
    launch_s: Number  # least seconds that the host needs for the forward of one layer
    launch_fallback: Number  # multiplies it where the fused softmax falls back
    link: Number  # share of a GPU link's rate that a ring reaches
    direct_links: Number  # exponent of (k-1)/(G-1), the share of it that a group of k of a node's G GPUs reaches
    in_switch: Number  # all-reduce in the switch beside a ring: 1 where the switch does not add up
    network: Number  # share of the NICs' rate that a ring across nodes reaches
    sends: Number  # likewise a send to another node
    start_s: Number  # least time of an all-reduce over eight ranks of a node
    small_s: Number  # of 1 MiB, with a protocol for small messages
    small_power: Number  # exponent of size / 1 MiB beside it
    fill_s: Number  # filling of its pipeline; (size / MiB)^(1/3) beside it
    small_group: Number  # exponent of (ranks - 1) / 7 for both
    network_start_s: Number  # the same constants of an all-reduce that leaves a node
    network_small_s: Number
    network_power: Number
    network_fill_s: Number
    network_latency_s: Number  # of one step
    tp_hidden: Number  # share of the tensor-parallel collectives that computation hides
    ep_exposed: Number  # share of the all-to-all between experts that nothing hides
    launch_moe_s: Number  # least seconds of the forward of a layer with experts, beside its experts' own kernels
    launch_expert_s: Number  # likewise of one kernel of one expert; 0 where one kernel computes those of all
    moe_pace: Number  # of layers with experts
    host_waits: Number  # fact: 1 where the host waits for the GPU in each layer with experts, for the counts of rows
    sends_hidden: Number  # share of the sends between stages that an interleaved schedule hides
    dp_hidden: Number  # share of the window of backward in which gradients travel unseen
    dp_drag: Number  # share of that hidden traffic by which it slows the computation beside it
    fsdp_drag: Number  # share of the shorter of compute and traffic that ZeRO-3 adds to the longer
    loss: Number  # multiplies the bytes of the loss
    optimizer: Number  # multiplies the bytes of the update
    routing: Number  # multiplies the bytes of permuting tokens for experts
    selective_products: Number  # share of the products that selective recomputation repeats
    selective_elements: Number  # likewise of element-wise kernels
    step_s: Number  # seconds a step beside all of this
    micro_s: Number  # seconds a micro-batch and virtual stage
    pace: Number  # of the stack as a whole
    flash: Number  # fact: 1 with a fused attention kernel
    selective_comm: Number  # likewise of the collectives of the forward: gathers whose result is not kept
    selective_attention: Number  # likewise of the attention between the projections
    summed_apart: Number  # fact: 1 where kernels of their own add gradients to that sum, 0 where the products do


ROLES = Coefficients.__struct_fields__
FACTS = Conventions.__struct_fields__
KEPT_LOW = ("low_input_bytes", "gate_bytes")
# What selective recomputation repeats is what it does not keep, `selective_saves`: 0 the attention between projections
# alone; 2 all but products and attention. What is repeated beside every second product is for a stack to say.
REPEATED: Mapping[float, Mapping[str, float]] = {
    0: {"selective_products": 0.0, "selective_elements": 0.0, "selective_comm": 0.0, "selective_attention": 1.0},
    2: {"selective_products": 0.0, "selective_elements": 1.0, "selective_comm": 1.0, "selective_attention": 0.0},
}
Uses = Mapping[str, float | str | list[str | float]]  # a role's fact, its constant, or several that multiply


class StackCoefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A software stack's constants for each role, and its defaults where a run does not say.

    `like` names the stack whose constants it uses, where it has none of its own: `parse_book` copies what it does not
    say itself. `engine` is the entry of `workload.engines` that says what it can run; "" where that is not known.
    """

    title: str
    engine: str = ""
    like: str = ""
    uses: dict[str, float | str | list[str | float]] = {}
    recompute: str = "none"
    sp: int = 0
    zero: int = 0
    schedule: str = "1f1b"
    release: str = ""  # the newest of its measured runs, whose recipes a plan takes; not of stacks like it
    assumed: tuple[str, ...] = ()
    traits: dict[str, str] = {}  # what sets a run apart: a pattern over what is written beside it


GENERIC = StackCoefficients(title="a stack that nobody measured")
FEW = 30  # runs, of which less than three are beyond the band that nine in ten are within
NORMAL = 1.645  # standard deviations that nine in ten of normal errors are within
UNSEEN = "unseen"  # in errors.toml: stacks that were left out whole
# what a run of each time is taken for, if nobody measured its own
STRANGERS = ("before-2023", "in-2023", "sharded-since-2024", "since-2024")


class Unstated(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Cells that a published table leaves out of some of its rows, by the page that has them."""

    pattern: str  # over what is written beside a run
    source: str
    cells: dict[str, str]  # of a table of runs, where a row leaves them empty


class DeviceCoefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An accelerator's constants; a key "role.precision" or "role@stack" goes before the plain role.

    `alone` names the source of its products' rate where that was timed without a training run, and `like` the
    accelerator whose constants it has beside that. `kernels` names the source of why attention runs as on `like`, where
    nothing of it was timed; where that is the H100, the source of what its attention reaches alone.
    """

    accelerators: tuple[str, ...]
    alone: str = ""
    kernels: str = ""
    like: str = "H100"
    uses: dict[str, float | str | list[str | float]] = {}

    @property
    def is_trained(self) -> bool:
        """Whether training runs on it were measured."""
        return not (self.alone or self.kernels)


class Errors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far off the predictions of one stack were, over the runs that were fitted to and left out in turn."""

    runs: int
    fitted: float  # mean absolute error, relative
    left_out: float
    band: float  # nine in ten of the left-out runs are within it, those with experts aside where there are others
    experts_band: float | None = None  # the same of runs with experts; None where there are none
    times: dict[str, float] = {}  # of UNSEEN: the band of the runs of each time, of STRANGERS, experts aside

    @property
    def of_few(self) -> float:
        """The band that as few errors stand for: their own tenth is hardly among them, and their spread is uncertain.

        Student's t at 95 % for as many errors (Abramowitz and Stegun 26.7.5), times the spread of normal ones.
        """
        if self.runs >= FEW:
            return self.band
        z, n = NORMAL, self.runs
        t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        return max(self.band, t * math.sqrt(math.pi / 2) * self.left_out)


class Book(msgspec.Struct, frozen=True):
    """All constants, who uses which, and how far off they were."""

    constants: dict[str, Constant]
    generic: dict[str, float | str | list[str | float]]
    stacks: dict[str, StackCoefficients]
    devices: dict[str, DeviceCoefficients]
    fabrics: dict[str, dict[str, float]] = {}  # measured facts of one kind of network, in place of the generic ones
    errors: dict[str, Errors] = {}
    traits: dict[str, str] = {}  # of any stack: a pattern over what is written beside a run
    unstated: dict[str, Unstated] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the constants, in order."""
        return tuple(self.constants)

    def device(self, accelerator: str) -> tuple[str, DeviceCoefficients | None]:
        """Return the constants of an accelerator with their name; "" and None where it has none of its own."""
        found = ((name, one) for name, one in self.devices.items() if accelerator in one.accelerators)
        return next(found, ("", None))

    def trained_on(self, accelerator: str) -> bool:
        """Return whether training runs on an accelerator were measured."""
        device = self.device(accelerator)[1]
        return device is not None and device.is_trained

    def fitted(self, stack: str) -> str:
        """Return the stack whose fitted constants price `stack`: itself, or the one that it is like."""
        return (self.stacks[stack].like if stack in self.stacks else "") or stack

    def described(self, stack: str) -> str:
        """Return the stack whose conventions hold for `stack`: its own, or those of the one that it is like."""
        return stack if stack in DESCRIBED else self.fitted(stack)

    def engine(self, stack: str) -> str:
        """Return the engine of a stack, "" where none is known."""
        return self.stacks[stack].engine if stack in self.stacks else ""

    def band(self, stack: str, *, experts: float = 0) -> float:
        """Return the relative error within which nine in ten runs of a stack were predicted, of models with experts or
        without; that of stacks that nobody measured where no run of this one had any. A stack that is like another one
        has no narrower band than a stack whose runs were left out, and a generic one none than the runs of its time;
        nor has one whose releases go on: its left-out runs had others of their own release beside them. Of few runs it
        is as wide as so few can tell, up to that of stacks that nobody measured.
        """
        unseen = self.errors[UNSEEN]
        if (fitted := self.fitted(stack)) != stack:
            return max(self.band(fitted, experts=experts), self.band(UNSEEN, experts=experts))
        own = self.errors.get(stack, unseen)
        if not experts:
            moving = stack in self.stacks and bool(self.stacks[stack].release)
            few = max(own.band, min(own.of_few, unseen.band))
            return max(few, unseen.times.get(STRANGERS[-1] if moving else stack, 0.0))
        return max(own.band, unseen.experts_band or 0.0) if own.experts_band is None else own.experts_band

    @property
    def values(self) -> Array:
        """Their values, in the same order."""
        return np.array([constant.value for constant in self.constants.values()])


@functools.lru_cache(maxsize=1)
def book() -> Book:
    """Return the constants of this package."""
    return parse_book(_toml("constants"), _toml("stacks"), _toml("errors"))


def parse_book(constants: Mapping[str, Any], stacks: Mapping[str, Any], errors: Mapping[str, Any]) -> Book:
    """Return the constants that three tables describe."""
    return Book(
        constants={k: convert(v, Constant, where=f"constants.toml: {k}") for k, v in constants.items()},
        generic=dict(stacks["generic"]),
        stacks={
            k: convert(_whole(stacks["stacks"], k), StackCoefficients, where=f"stacks.toml: {k}")
            for k in stacks["stacks"]
        },
        devices={k: convert(v, DeviceCoefficients, where=f"stacks.toml: {k}") for k, v in stacks["devices"].items()},
        fabrics=dict(stacks["fabrics"]),
        errors={k: convert(v, Errors, where=f"errors.toml: {k}") for k, v in errors.items()},
        traits=dict(stacks["traits"]),
        unstated={k: convert(v, Unstated, where=f"stacks.toml: {k}") for k, v in stacks.get("unstated", {}).items()},
    )


def _whole(stacks: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the entry of a stack with what it leaves to the one that it is like."""
    own = stacks[name]
    base = stacks[own["like"]] if "like" in own else {}
    kept = {key: value for key, value in base.items() if key not in {"title", "engine", "release"}}
    return {**kept, **own, "uses": {**base.get("uses", {}), **own.get("uses", {})}}


def resolve_roles(
    known: Book, stack: str, accelerator: str, precision: str, traits: Sequence[str] = ()
) -> list[float | list[str | float]]:
    """Return, for each role, its fact or the constants whose product it is.

    Of several entries for a role the most particular is taken: that for a trait of the run ("role+eager"), the
    device's for this stack or the one it is like ("role@mpt"), the device's for this precision ("role.fp8"), the
    stack's, the device's, the generic one, for this stack first, or what `workload.conventions` says. A stack's
    "role*trait" names a constant that multiplies what was found, a device's "role*" what it reaches of that.
    """
    device = known.device(accelerator)[1]
    of_device = device.uses if device else {}
    of_stack = known.stacks[stack].uses if stack in known.stacks else {}
    conventions = conventions_of(known.described(stack), precision)
    names = dict.fromkeys((stack, known.fitted(stack)))
    facts: dict[str, Any] = {name: float(getattr(conventions, name)) for name in FACTS}
    use = recipe_use(precision, of_stack, of_device)
    precision, facts = use.precision, facts | {"scaled": use.rate, "scaled_cut": use.rate_cut}
    traits = [trait for trait in traits if trait != use.trait]  # what is written beside a run says it once more
    for name in KEPT_LOW:  # what is kept in eight bits has its scales beside it
        facts[name] += use.kept * (facts[name] == 1.0)
    repeated = REPEATED.get(facts["selective_saves"], {})
    found: list[float | list[str | float]] = []
    for role in ROLES:
        keys: list[tuple[Uses, str]] = [
            (table, f"{role}+{trait}") for table in (of_stack, known.generic) for trait in traits
        ]
        keys += [(of_device, f"{kind}@{name}") for name in names for kind in (f"{role}.{precision}", role)]
        keys += [
            (of_device, f"{role}.{precision}"),
            (repeated, role),
            (of_stack, role),
        ]
        keys += [(of_device, role), (known.generic, f"{role}.{precision}")]
        keys += [(known.generic, f"{role}@{name}") for name in names]
        keys.append((facts if role in facts else known.generic, role))
        entry = next(table[key] for table, key in keys if key in table)
        more: list[str | float] = [
            str(of_stack[f"{role}*{trait}"]) for trait in traits if f"{role}*{trait}" in of_stack
        ]
        more += [float(str(of_device[f"{role}*"]))] if f"{role}*" in of_device else []
        found.append(
            [entry, *more] if isinstance(entry, str) else [*entry, *more] if isinstance(entry, list) else entry
        )
    return found


def coefficients(
    known: Book, stack: str, accelerator: str, precision: str, fabric: str = "", *, traits: Sequence[str] = ()
) -> Coefficients:
    """Return the value of each role for a stack on an accelerator and a network; unknown ones are generic."""
    found = gather_coefficients(
        index_plan(known, [resolve_roles(known, stack, accelerator, precision, traits)]),
        np.append(known.values, 1.0),
        scalar=True,
    )
    device = known.device(accelerator)[0]
    return replace(found, **known.fabrics.get(f"{fabric}@{device}", known.fabrics.get(fabric, {})))


def index_plan(known: Book, rows: Sequence[Sequence[float | list[str | float]]]) -> tuple[Any, Array]:
    """Return, over rows and roles, the indices of the constants that multiply and the facts that they multiply."""
    place = {name: index for index, name in enumerate(known.names)}
    one = len(place)
    widest = max([len(e) for row in rows for e in row if isinstance(e, list)] + [1])
    indices = np.full((len(rows), len(ROLES), widest), one)
    facts = np.ones((len(rows), len(ROLES)))
    for i, row in enumerate(rows):
        for j, entry in enumerate(row):
            if isinstance(entry, list):
                names = [item for item in entry if isinstance(item, str)]
                indices[i, j, : len(names)] = [place[name] for name in names]
                facts[i, j] = math.prod(item for item in entry if not isinstance(item, str))
            else:
                facts[i, j] = entry
    return indices, facts


def gather_coefficients(plan: tuple[Any, Array], values: Array, *, scalar: bool = False) -> Coefficients:
    """Return the coefficients of the rows of a plan from the values of the constants."""
    indices, facts = plan
    table = values[indices].prod(axis=2) * facts
    return Coefficients(**dict(zip(ROLES, table[0] if scalar else table.T, strict=True)))


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("data", f"{name}.toml").read_text("utf-8"))
