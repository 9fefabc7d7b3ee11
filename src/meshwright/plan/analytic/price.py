"""Price a grid of layouts: the step's time and the fullest rank's memory, term by term."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from ...cluster.graph import Cluster, CollectiveFit, Fabric, NodeGroup
from ...errors import InputError, nearest
from ...hardware import load_catalogue
from ...hardware.arithmetic import peak_lacking
from ...layout import Layout
from ...timeline import Performance
from ...workload.adapters import adapted_flops_per_token, adapter_parameters, share_in_layers, trained_share
from ...workload.architecture import Architecture
from ...workload.conventions import OWN, conventions_of
from ...workload.elements import HALF_BYTES, PRECISION_BYTES, SINGLE_BYTES
from ...workload.recomputed import away_number, results_number
from .calibration import Calibration, covariance_of, measured_here, narrowed_band, own_variance, prior_of
from .cautions import cautions, torus_doubts, widened
from .coefficients import GENERIC, STRANGERS, Book, Coefficients, book, coefficients
from .conditions import LayoutCondition
from .dispatch import WAITS, doubt_of, is_unsaid
from .factors import adjusted, sensitivity
from .fits import OVER, MemoryTrust, as_said, fit_verdicts, in_pipelines, memory_trust, surely_over
from .fitted_range import origin
from .held_roles import loss_roles, weight_roles
from .host import ON_NVME, HostFigures, are_away
from .measured import in_words, unused_words, with_fits_used, with_switch
from .memory import MemoryTerms, least_states, peak_memory
from .optimizers import module_roles, optimizer_roles
from .quantities import Array, Grid, Machine, ModelQuantities, Number
from .recipes import recipes
from .step import StepSeconds, step_s
from .told_traits import otherwise
from .unnamed_stack import PLAIN, doubt_of_stack, may_be_plain

DEFAULT_STACK = OWN
# precisions of a run: the catalogue's peak that they use, and the bytes of an element that a product reads
SPELT = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "float8": "fp8"}
SPELT |= dict.fromkeys(("fp8-tensor", "fp8-tensorwise", "fp8-delayed", "fp8-current", "fp8-cs", "fp8-ds"), "fp8")
SPELT |= {"fp8-rowwise": "fp8-row"} | dict.fromkeys(("fp8-blockwise", "fp8-subchannel", "fp8-sc"), "fp8-block")
PEAKS = {"mxfp8": "fp8", "nvfp4": "fp4", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "fp4": "fp4", "fp32": "fp32"}
PEAKS |= {name: recipe.of for name, recipe in recipes().items()}
PRODUCT_BYTES = PRECISION_BYTES | {name: PRECISION_BYTES[recipe.of] for name, recipe in recipes().items()}
NOT_MODELLED = (
    "stragglers and failures",
    "data loading",
    "congestion of a network that other jobs share",
    "clocks lowered by heat",
)
OWN_NOT_MODELLED = (  # of what our engine is known to do
    "norms that a GPU computes in one kernel, which keep half as much: memory",
)
# engines that may capture layers or steps in CUDA graphs, whose buffers stay: docs/training/cuda-graphs.md of
# Megatron-Bridge; NeMo's guide has a fifth more activations
GRAPHED = frozenset({"megatron", "bridge", "nemo"})
GRAPHS = "memory of CUDA graphs where they are on: a few GB, in a pipeline more than 10 (Megatron-Bridge's guide)"


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The common part of all layouts of a grid: the model, the machines, the batch and the software."""

    architecture: Architecture
    cluster: Cluster
    gpus: int
    global_batch: int  # sequences
    seq_len: int
    precision: str = "bf16"
    stack: str = DEFAULT_STACK
    intra_bytes_per_s: float | None = None  # of one GPU to its peers, in place of the cluster's
    inter_bytes_per_s: float | None = None  # of all NICs of a node
    latency_s: float | None = None  # of one hop between nodes
    optimizer: str = "adamw"
    weights: str = ""  # the type that weights are held in, of held_roles.WEIGHTS; "": as the stack does
    loss: str = ""  # the way from the output to the loss, of held_roles.LOSSES; "": as the stack does
    half_sums: bool | None = None  # gradients are summed and reduced in half precision; None: as the stack does it
    routed_once: bool | None = None  # rows go once to each node of experts; None: as the stack's dispatcher does it
    imbalance: float = 1.0  # rows of the fullest rank's experts, in those of a rank on average
    lora_rank: int = 0  # of adapters beside frozen weights; 0: all parameters are trained
    lora_targets: tuple[str, ...] = ()  # kinds of matrices that adapters are on; (): all
    modules: tuple[str, ...] = ()  # of recomputed.MODULES, that selective recomputation repeats; (): the stack's own
    results: tuple[str, ...] | None = None  # of recomputed.RESULTS, that selective recomputation keeps alone
    away: tuple[str, ...] | None = None  # of recomputed.AWAY, in the hosts' memory until backward; None: the stack's
    layers_again: int = 0  # of each virtual stage, that full recomputation repeats; 0: all of them
    offload_share: float = 1.0  # of the states that offload=optimizer leaves to the host; the device updates the rest
    traits: tuple[str, ...] = ()  # what a job does otherwise than the stack's runs do, by its names for that
    conditions: tuple[LayoutCondition, ...] = ()  # that keep a search to some layouts
    assumed: tuple[str, ...] = ()  # of the model: sizes and a sequence length that nobody gave
    ignored: tuple[str, ...] = ()  # keys of its config that were passed over
    measured: tuple[Calibration, ...] = ()  # the user's own runs, of this stack and of these machines

    @property
    def compiled(self) -> bool:
        """Whether torch.compile joins the operators of a layer, on stacks whose runs have that."""
        return "eager" not in self.traits


@dataclass(frozen=True, slots=True)
class StepPrices:
    """Arrays of length n; seconds of one step, bytes of the fullest rank."""

    step_time_s: Array
    forward_s: Array
    backward_s: Array
    recompute_s: Array
    optimizer_s: Array
    tensor_comm_s: Array
    pipeline_comm_s: Array
    data_comm_s: Array
    exposed_comm_s: Array
    hidden_comm_s: Array
    bubble_s: Array
    other_s: Array
    allocated_bytes: Array
    reserved_bytes: Array  # that the allocator holds
    card_bytes: Array  # that the driver shows
    parameters_bytes: Array
    gradients_bytes: Array
    optimizer_bytes: Array
    activations_bytes: Array
    logits_bytes: Array
    working_bytes: Array
    update_bytes: Array  # what the optimiser makes while it steps
    host_bytes: Array
    pinned_bytes: Array  # of those in the host's memory

    def __len__(self) -> int:
        return len(self.step_time_s)

    def terms(self, index: int) -> Mapping[str, float]:
        """Return every term of one layout by name."""
        return {field.name: float(getattr(self, field.name)[index]) for field in fields(self)}


def price_layouts(
    setting: Setting, grid: Grid, stages: Sequence[int] = (), memory: MemoryTerms | None = None
) -> StepPrices:
    """Return the prices of all layouts of a grid; InputError for a cluster without accelerators or a precision.

    `stages` are the layers of the virtual stages of all of them, where a job cuts the model in its own way; `memory` is
    what `memory_of_layouts` returned of them, where that was asked before.
    """
    c = coefficients_of(setting)
    step = _step(setting, grid, c, stages)
    memory = memory or _memory(setting, grid, c, stages)
    terms = {field.name: getattr(step, field.name) for field in fields(StepSeconds) if field.name != "total_s"}
    return StepPrices(
        step_time_s=np.asarray(step.total_s),
        exposed_comm_s=np.asarray(step.exposed_comm_s),
        **_columns(terms, len(grid)),
        **{field.name: getattr(memory, field.name) for field in fields(MemoryTerms)},
    )


def memory_of_layouts(setting: Setting, grid: Grid) -> MemoryTerms:
    """Return the memory of the fullest rank of every layout of a grid, as arrays: that of `price_layouts`."""
    if not len(grid):
        return MemoryTerms(**{field.name: np.zeros(0) for field in fields(MemoryTerms)})
    return _memory(setting, grid, coefficients_of(setting), ())


def _memory(setting: Setting, grid: Grid, c: Coefficients, stages: Sequence[int]) -> MemoryTerms:
    model = ModelQuantities.of(setting.architecture)
    found = peak_memory(machine_of(setting), c, model, grid, **_batch(setting, grid), stages=stages)
    return MemoryTerms(**_columns({field.name: getattr(found, field.name) for field in fields(found)}, len(grid)))


def states_too_large(setting: Setting, grid: Grid) -> Any:
    """Return which layouts need more than a GPU has for weights, gradients and moments alone: `verdicts_in` says OVER.

    That is far less work, and leaves out half of a large model's layouts.
    """
    machine, c, model = machine_of(setting), coefficients_of(setting), ModelQuantities.of(setting.architecture)
    least = least_states(machine, c, model, grid, **_batch(setting, grid))
    return surely_over(least, machine.memory_bytes, _trust(setting))


def _columns(terms: Mapping[str, Number], count: int) -> dict[str, Array]:
    return {name: np.zeros(count) + term if np.ndim(term) == 0 else np.asarray(term) for name, term in terms.items()}


def step_times_s(setting: Setting, grid: Grid) -> Array:
    """Return the step time of every layout of a grid, in seconds, as `price_layouts` does, without memory."""
    return np.asarray(_step(setting, grid, coefficients_of(setting)).total_s)


def _step(setting: Setting, grid: Grid, c: Coefficients, stages: Sequence[int] = ()) -> StepSeconds:
    model = ModelQuantities.of(setting.architecture)
    return step_s(machine_of(setting), c, model, grid, **_batch(setting, grid), stages=stages)


def _batch(setting: Setting, grid: Grid) -> dict[str, Any]:
    shard = grid.dp * grid.cp / grid.replicas
    return {"seq_len": float(setting.seq_len), "global_batch": float(setting.global_batch), "shard": shard}


def coefficients_of(setting: Setting) -> Coefficients:
    """Return the constants of a setting's stack and machines, with what its own links and runs were measured at."""
    factors = own_factors(setting)
    c, own, _ = _on_own_links(setting, factors)
    if own.link != c.link:  # what `bench` measured of links is more than what steps tell of them
        factors.pop("links", None)
    if own.network != c.network:
        factors.pop("network", None)
    c = adjusted(own, factors)
    c = c if setting.latency_s is None else replace(c, network_latency_s=setting.latency_s)
    if setting.half_sums is not None:
        wide = float(HALF_BYTES if setting.half_sums else SINGLE_BYTES)
        c = replace(c, held_gradient_bytes=wide, gradient_bytes=wide, scattered_bytes=wide)
    c = c if setting.routed_once is None else replace(c, routed_once=float(setting.routed_once))
    held = weight_roles(setting.weights, float(c.master_bytes), adapters=setting.lora_rank > 0, where="--weights")
    c = replace(c, **held, **loss_roles(setting.loss, where="--loss", stranger=setting.stack in STRANGERS))
    roles = optimizer_roles(setting.optimizer, float(c.optimizer_bytes), where="--optimizer")
    c = replace(c, optimizer=c.optimizer * roles.pop("optimizer*", 1.0), **roles)
    c = replace(c, imbalance=setting.imbalance, layers_again=float(setting.layers_again))
    c = replace(c, host_share=setting.offload_share)
    if setting.modules:
        c = replace(c, **module_roles(setting.modules, float(c.selective_saves), where="--recompute-modules"))
    if setting.results is not None:
        c = replace(c, results_kept=float(results_number(setting.results)))
    if setting.away is not None:
        c = replace(c, results_away=float(away_number(setting.away)))
    if not setting.lora_rank:
        return c
    model = setting.architecture
    trained = trained_share(model, setting.lora_rank, setting.lora_targets)
    return replace(c, trained=trained, base_share=share_in_layers(model))


def _on_own_links(
    setting: Setting, factors: Mapping[str, float]
) -> tuple[Coefficients, Coefficients, tuple[CollectiveFit, ...]]:
    """Return the constants of a setting's stack, those on its cluster's measured links, and the fits that tell them."""
    group = node_group_of(setting.cluster)
    kind = "" if "network" in factors else group.nic_kind  # the user's own network was measured beside no kind's
    of_stack = coefficients(book(), setting.stack, group.gpu.model, setting.precision, kind, traits=setting.traits)
    c = with_switch(of_stack, group)
    links, network = setting.intra_bytes_per_s is None, setting.inter_bytes_per_s is None
    return c, *with_fits_used(c, machine_of(setting), setting.cluster, links=links, network=network)


def applied(setting: Setting) -> list[tuple[Calibration, tuple[str, ...]]]:
    """Return the user's own runs for a setting's model, each with the factors that hold for its stack and machines."""
    accelerator = node_group_of(setting.cluster).gpu.model
    found = [(one, one.concerns(setting.stack, one.family, accelerator)) for one in setting.measured]
    return [(one.of_model(setting.architecture), names) for one, names in found if names]


def own_factors(setting: Setting) -> dict[str, float]:
    """Return the factors of the user's own runs that hold for a setting."""
    return {name: one.factors[name] for one, names in applied(setting) for name in names}


def _narrowed(setting: Setting, layout: Layout, band: float) -> float:
    """Return the error band of a layout as the user's own runs have narrowed it."""
    mine = applied(setting)
    if not mine:
        return band
    grid, c = Grid.of([layout]), coefficients_of(setting)
    follows = sensitivity(lambda at: _step(setting, grid, adjusted(c, at)).total_s, {})[0]
    prior = prior_of(mine[0][0], setting.architecture)
    left = covariance_of(mine, prior)
    found = narrowed_band(
        band,
        follows @ prior @ follows,
        follows @ left @ follows,
        experts=setting.architecture.experts,
        misfit=max(one.misfit for one, _ in mine),
        model=own_variance(mine[0][0], setting.architecture),
    )
    return float(found)


def _dispatch_doubt(setting: Setting, layout: Layout, known: Book, step_s: float) -> tuple[tuple[str, ...], float]:
    """Return a doubt about the dispatcher of a layout's experts, and what of a step it may cost.

    The user's own runs end it.
    """
    told = setting.routed_once is not None or setting.measured
    if told or not is_unsaid(known, setting.stack, setting.architecture, layout, setting.traits):
        return (), 0.0
    grid = Grid.of([layout])
    own, waiting = (step_times_s(one, grid)[0] for one in (setting, replace(setting, traits=(*setting.traits, WAITS))))
    return doubt_of(step_s, step_s * float(waiting / own))


def performance(setting: Setting, prices: StepPrices, index: int, layout: Layout) -> Performance:
    """Return the prediction of one layout as the struct that measurements use too; doubts widen its band."""
    known = book()
    group = node_group_of(setting.cluster)
    mine = applied(setting)
    doubts = cautions(
        setting.architecture,
        layout,
        stack=setting.stack,
        accelerator=group.gpu.model,
        known=known,
        measured=[one.only(names) for one, names in mine],
        precision=setting.precision,
        seq_len=setting.seq_len,
        network=_network_of_gpu(machine_of(setting), setting.gpus),
        adapters=setting.lora_rank > 0,
    )
    doubts = (*doubts, *host_doubts(setting, layout))
    doubts = (*doubts, *torus_doubts(setting.cluster.fabric or Fabric()))
    if setting.ignored:
        doubts = (*doubts, f"model: keys passed over and not understood: {', '.join(setting.ignored)}")
    waiting, missed = _dispatch_doubt(setting, layout, known, float(prices.step_time_s[index]))
    band = known.band(setting.stack, experts=setting.architecture.experts)
    band = widened(_narrowed(setting, layout, band), doubts) + missed
    other, band = _unnamed(setting, layout, float(prices.step_time_s[index]), band)
    unmodelled = NOT_MODELLED + (OWN_NOT_MODELLED if setting.stack == OWN else ())
    unmodelled += (GRAPHS,) if known.engine(setting.stack) in GRAPHED else ()
    step_time_s = float(prices.step_time_s[index])
    tokens = setting.global_batch * setting.seq_len
    flops = tokens * flops_per_token(setting) / setting.gpus
    tflops = flops / step_time_s / 1e12
    return Performance(
        step_time_s=step_time_s,
        forward_s=float(prices.forward_s[index]),
        backward_s=float(prices.backward_s[index]),
        optimizer_s=float(prices.optimizer_s[index]),
        exposed_comm_s=float(prices.exposed_comm_s[index]),
        hidden_comm_s=float(prices.hidden_comm_s[index]),
        bubble_s=float(prices.bubble_s[index]),
        data_s=0.0,
        tokens_per_s_per_gpu=tokens / step_time_s / setting.gpus,
        model_tflops_per_gpu=tflops,
        mfu=tflops * 1e12 / float(machine_of(setting).peak),
        peak_memory_bytes_per_gpu=round(float(prices.reserved_bytes[index])),
        error_band=band,
        not_modelled=(*unmodelled, *doubts, *waiting, *other),
        calibration=origins(setting),
    )


def _unnamed(setting: Setting, layout: Layout, step_s: float, band: float) -> tuple[tuple[str, ...], float]:
    """Return a doubt about a stack that nothing names, and a band that holds what plain layers would take."""
    if setting.measured or not may_be_plain(setting.stack, layout, setting.precision):
        return (), band
    plain = replace(setting, stack=PLAIN)
    theirs = performance(plain, price_layouts(plain, Grid.of([layout])), 0, layout)
    return doubt_of_stack(step_s, band, theirs.step_time_s, theirs.error_band or 0.0)


def origins(setting: Setting) -> tuple[str, ...]:
    """Return where the constants of an answer come from, the most particular first."""
    known, fits = book(), _on_own_links(setting, own_factors(setting))[2]
    return (
        *(measured_here(one, names) for one, names in applied(setting)),
        *((f"links as measured on {setting.cluster.name}: {in_words(fits)}",) if fits else ()),
        *unused_words(setting.cluster, machine_of(setting), fits),
        origin(known, setting.stack, node_group_of(setting.cluster).gpu.model),
        f"stack {setting.stack}: {known.stacks.get(setting.stack, GENERIC).title}{otherwise(setting.traits)}",
        "constants.toml",
    )


def flops_per_token(setting: Setting) -> float:
    """Return the model's FLOPs of a token; frozen weights have no gradients, their adapters products of their own."""
    model = setting.architecture
    if not setting.lora_rank:
        return model.model_flops_per_token(setting.seq_len)
    trained = adapter_parameters(model, setting.lora_rank, setting.lora_targets)
    return adapted_flops_per_token(model, setting.seq_len, trained)


def node_group_of(cluster: Cluster) -> NodeGroup:
    """Return the nodes that a plan is made for: those of the first group with accelerators."""
    for group in cluster.groups:
        if group.gpu.peak_flops_per_s:
            return group
    raise InputError(f"cluster {cluster.name}: no group of nodes with accelerators of known peaks")


def machine_of(setting: Setting) -> Machine:
    """Return the machine that a setting describes."""
    group, fabric = node_group_of(setting.cluster), setting.cluster.fabric or Fabric()
    share, used = min(1.0, setting.gpus / group.gpus), min(group.gpus, setting.gpus)
    (rate, peer_share), leaves = group.group_rates(used), fabric.kind not in {"flat", "torus"}
    return Machine(
        peak=peak_flops_per_s(group.gpu.peak_flops_per_s, setting.precision, where=group.gpu.model),
        peak_half=half_peak_flops_per_s(group.gpu.peak_flops_per_s, setting.precision, where=group.gpu.model),
        product_bytes=PRODUCT_BYTES[setting.precision],
        memory_rate=group.gpu.memory_bandwidth_bytes_per_s or np.inf,
        memory_bytes=group.gpu.memory_bytes or 0,
        gpus_per_node=used,
        domain=group.gpus * group.scale_up_nodes,
        link_rate=setting.intra_bytes_per_s or rate,
        peer_share=peer_share,
        node_rate=(setting.inter_bytes_per_s or group.node_bandwidth_bytes_per_s or np.inf) * share,
        nodes_per_leaf=fabric.nodes_per_leaf if leaves else np.inf,
        oversubscription=fabric.oversubscription if leaves else 1.0,
        hop_latency_s=fabric.hop_latency_s,
        sides=fabric.sides if fabric.kind == "torus" else (),
        slice_rate=fabric.slice_bytes_per_s or np.inf,
        **_host(group, setting).of_gpu(used, group.gpus),
    )


def verdicts_in(setting: Setting, grid: Grid, memory: StepPrices | MemoryTerms, *, as_predicted: bool = False) -> Any:
    """Return for each layout the index of its word in `layout.FITS`, in the memory of a GPU and of its host.

    `as_predicted`, a layout fits that does where it needs no more than predicted.
    """
    machine = machine_of(setting)
    trust = in_pipelines(_trust(setting), book(), setting.stack, grid.pp)
    found = fit_verdicts(memory, machine.memory_bytes, trust._replace(above=0.0) if as_predicted else trust)
    return np.where(memory.host_bytes > machine.host_memory_bytes, OVER, found)


def _trust(setting: Setting) -> MemoryTrust:
    """Return how far the memory of a setting is trusted, by its stack and by what it says of itself."""
    states = bool(setting.weights) or PRODUCT_BYTES[setting.precision] == PRODUCT_BYTES["fp32"]
    return as_said(memory_trust(book(), setting.stack), setting.stack, states=states, loss=bool(setting.loss))


def _network_of_gpu(machine: Machine, gpus: int) -> float:
    """Return what a GPU has between nodes in bytes per second; 0 where all `gpus` reach each other otherwise."""
    return 0.0 if gpus <= machine.domain or machine.sides else float(machine.node_rate / machine.gpus_per_node)


def host_doubts(setting: Setting, layout: Layout) -> tuple[str, ...]:
    """Return what is assumed of the hosts where a layout offloads, or activations lie there."""
    by_stack = conventions_of(book().described(setting.stack)).results_away
    said = None if setting.away is None else bool(setting.away)
    away = are_away(said, by_stack, layout.recompute)
    host = _host(node_group_of(setting.cluster), setting)
    return host.doubts(setting.stack, states=layout.offload != "none", activations=away)


def _host(group: NodeGroup, setting: Setting) -> HostFigures:
    """Return what is known of a node's host; its memory's rate, if it does not say it, is that of sockets as elsewhere.

    A rented part of a node shares its socket's channels with others, and may use what those leave.
    """
    rate, like = group.host_memory_bandwidth_bytes_per_s, ""
    found = None if rate else load_catalogue().socket_memory_rate(group.gpu.model)
    if found:
        rate, like = found[0] * group.numa_nodes, found[1]
    return HostFigures(group.host_bandwidth_bytes_per_s, rate, group.host_memory_bytes, like, ON_NVME in setting.traits)


def precision_named(text: str, *, flag: str = "--precision") -> str:
    """Return a precision by its name or PyTorch's, case aside; InputError with the nearest for an unknown one.

    Trainers say beside it that master weights are in single precision: Composer's amp_bf16, Lightning's bf16-mixed.
    """
    plain = text.strip().lower().removeprefix("torch.").replace("_", "-").removeprefix("amp-").removesuffix("-mixed")
    found = SPELT.get(plain, plain)
    if found not in PEAKS:
        raise InputError(f"{flag} {text}: no such precision ({nearest(plain, sorted(PEAKS))})")
    return found


def peak_flops_per_s(peaks: Mapping[str, float], precision: str, *, where: str) -> float:
    """Return the dense peak of a precision; InputError where an accelerator does not multiply it.

    Sources that have bf16 alone name the rate of both half precisions; cores that have fp16 alone imitate bf16 slowly.
    """
    name = PEAKS.get(precision)
    if name is None:
        raise InputError(f"precision {precision!r}: expected one of {', '.join(PEAKS)}")
    if name == "fp16" and name not in peaks:
        name = "bf16"
    if name not in peaks:
        instead = "; fp16 is what it multiplies" if name == "bf16" and "fp16" in peaks else ""
        lacks = peak_lacking(load_catalogue(), where, precision, name)
        raise InputError(f"precision: {lacks} (known: {', '.join(peaks)}){instead}")
    lacking = block_scaling_lacks(peaks, precision, where=where)
    if lacking:
        raise InputError(f"precision: {where} has no {precision}: {lacking}")
    return peaks[name]


def half_peak_flops_per_s(peaks: Mapping[str, float], precision: str, *, where: str) -> float:
    """Return the dense peak of what runs in half precision beside products of fewer bits; all of fp32 is in fp32."""
    half = next((name for name in ("bf16", "fp16") if name in peaks and precision != "fp32"), precision)
    return peak_flops_per_s(peaks, half, where=where)


def block_scaling_lacks(peaks: Mapping[str, float], precision: str, *, where: str) -> str:
    """Return why an accelerator does not multiply a format with a scale for each block; "" where it does.

    Tensor cores that take such scales multiply four bits too (Blackwell, MI350); nvfp4 is NVIDIA's.
    """
    if precision == "mxfp8" and "fp4" not in peaks:
        return "its tensor cores take no scales of blocks, as Blackwell's and MI350's do; fp8 is what it has"
    known = load_catalogue().accelerators.get(where) if precision == "nvfp4" else None
    if known is not None and known.vendor != "nvidia":
        return f"a format of NVIDIA's; {known.title} has another one of four bits"
    return ""
