"""A request to the planner turned into a Setting, and the answer as a Plan."""

from collections.abc import Sequence

import msgspec

from ..cluster.builders import KNOWN_LINK_NAMES, fabric_assumed
from ..cluster.graph import Cluster, Placement
from ..errors import InputError
from ..hardware import Catalogue
from ..hardware.arithmetic import dies_told, duplex_trap, share_between_peers, without_peers
from ..hardware.cards import cards_assumed, gpus_told
from ..layout import Candidate, Layout, Machines, Plan
from ..units import counted, format_network_rate, format_rate
from ..workload.adapters import adapted_text, adapter_parameters, check_rank
from ..workload.architecture import Architecture
from ..workload.conventions import FROZEN_BYTES, OWN, conventions_of
from ..workload.engines import shares_key_heads
from ..workload.models import Model
from .analytic import Grid, Setting, book, price_layouts
from .analytic.calibration import Calibration, calibrations, is_file, joined_calibrations
from .analytic.conditions import LayoutCondition
from .analytic.held_roles import UNPACKED, check_own
from .analytic.optimizers import LISTED, UPDATE_LISTED, optimizer_assumed
from .analytic.price import DEFAULT_STACK, coefficients_of, node_group_of
from .analytic.recipes import recipes
from .clusters.machines import cluster_by_name, fits_left_out, node, nodes_counted, on_nearest_nodes, unlike_gpus
from .clusters.suspicions import suspicions_of
from .layouts.legality import legal_layout, unrunnable
from .layouts.releases import recipe_of
from .layouts.stacks import NO_FURTHER, find_stack, stack_named
from .layouts.stated import stated
from .search.explore import row_of
from .search.study import PricedLayout

AS_GIVEN = 1.02  # of a rate that is worked out: more than that was written down
BUCKET_BYTES = 25 * 2**20  # of gradients, as PyTorch's DistributedDataParallel fills them


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `meshwright plan` that describe a model on a cluster."""

    model: Model
    cluster: str  # node type of the catalogue, or a file
    gpus: int | None
    global_batch: int
    seq_len: int | None
    precision: str = "bf16"
    stack: str = DEFAULT_STACK  # by its name, or the file of a calibration
    fabric: str = "flat"
    intra_bytes_per_s: float | None = None
    inter_bytes_per_s: float | None = None
    latency_s: float | None = None
    optimizer: str = "adamw"
    weights: str = ""  # the type that they are held in; "": as the stack does
    loss: str = ""  # whole, compiled, half, chunked, fused; "": as the stack does
    imbalance: float = 1.0  # of the rows that reach experts
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()  # kinds of matrices that adapters are on; (): all
    modules: tuple[str, ...] = ()  # that selective recomputation computes again
    in_parts: int = 0  # GPUs that whole nodes do not have lie on nodes with that number, or fewer; 0: refused
    recipe: bool = False  # with what the recipes of the stack's newest release switch on for the model
    away: tuple[str, ...] | None = None  # activations in the hosts' memory until backward; None: as the stack does
    conditions: tuple[LayoutCondition, ...] = ()  # that keep a search to some layouts
    placements: tuple[Placement, ...] = ()  # of the nodes that there are: the nearest ones are taken
    measured: tuple[Calibration, ...] = ()  # the user's own runs


def setting_of(request: PlanRequest, catalogue: Catalogue) -> Setting:
    """Return the setting of a request; InputError for what is not known or not given."""
    seq_len = request.seq_len or request.model.seq_len
    if seq_len is None:
        why = request.model.seq_len_from or f"{request.model.name} does not say how long a sequence is"
        raise InputError(f"--seq-len: expected the tokens of a sequence: {why}")
    assumed = request.model.assumed + request.model.length_assumed(request.seq_len)
    assumed += _beyond_positions(request.model.architecture, seq_len)
    if request.lora_rank:
        check_rank(request.model.architecture, request.lora_rank, where="--lora-rank")
        trained = adapter_parameters(request.model.architecture, request.lora_rank, request.lora_targets)
        assumed += (f"{adapted_text(request.lora_targets)}: {trained / 1e6:,.4g} M parameters are trained",)
    assumed += _loss_assumed(request)
    assumed += (UNPACKED,) if request.weights.lower() in FROZEN_BYTES else ()
    assumed += optimizer_assumed(request.optimizer) + _update_assumed(request)
    cluster = _cluster_of(request, catalogue)
    assumed += nodes_counted(request.cluster, cluster) + unlike_gpus(request.cluster, cluster)
    assumed += _no_peers(cluster, catalogue) if request.intra_bytes_per_s is None else ()
    assumed += cards_assumed(catalogue, request.cluster) if request.intra_bytes_per_s is None else ()
    assumed += () if request.placements else fabric_assumed(catalogue, cluster)
    assumed += _network_read(cluster, request) + fits_left_out(request.cluster, cluster)
    assumed += dies_told(catalogue, node_group_of(cluster).gpu.model)
    software, machine = calibrations(request.stack, request.cluster)
    stack = software.stack if software else stack_named(request.stack)
    _check_stack(request, stack)
    if request.placements:
        cluster = on_nearest_nodes(cluster, request.placements)
    traits, told = _recipe(request, stack, cluster)
    setting = Setting(
        architecture=request.model.architecture,
        cluster=cluster,
        gpus=cluster.num_gpus,
        global_batch=request.global_batch,
        seq_len=seq_len,
        precision=request.precision,
        stack=stack,
        latency_s=request.latency_s,
        optimizer=request.optimizer,
        weights=request.weights,
        loss=request.loss,
        imbalance=request.imbalance,
        lora_rank=request.lora_rank,
        lora_targets=request.lora_targets,
        modules=request.modules,
        traits=traits,
        away=request.away,
        conditions=request.conditions,
        assumed=assumed + told,
        ignored=request.model.ignored,
        measured=(*request.measured, *joined_calibrations(software, machine)),
    )
    coefficients_of(setting)  # refuses what no run can have, before an answer begins
    return setting


def _check_stack(request: PlanRequest, stack: str) -> None:
    """Raise InputError for what our own engine is asked for and does not do."""
    check_own(
        stack,
        {"--weights": request.weights, "--loss": request.loss, "--activations-away": " ".join(request.away or ())},
    )
    if stack == OWN and request.precision in recipes():
        raise InputError(f"--precision {request.precision}: {OWN} multiplies fp8 by tensor alone; or --stack NAME")
    if stack == OWN and request.model.architecture.mtp_trained:
        raise InputError(f"--stack {OWN}: {NO_FURTHER}; --stack NAME, which may have them")


def _cluster_of(request: PlanRequest, catalogue: Catalogue) -> Cluster:
    """Return the cluster of a request with its GPUs and the rates that it says."""
    return cluster_by_name(
        catalogue,
        request.cluster,
        request.gpus or gpus_told(catalogue, request.cluster),
        fabric=request.fabric,
        intra_bytes_per_s=request.intra_bytes_per_s,
        inter_bytes_per_s=request.inter_bytes_per_s,
        latency_s=request.latency_s,
        in_parts=request.in_parts,
    )


def _recipe(request: PlanRequest, stack: str, cluster: Cluster) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the traits of the newest recipe where they are asked for, and what is assumed with them."""
    if not request.recipe:
        return (), ()
    accelerator = node_group_of(cluster).gpu.model
    traits, told = recipe_of(stack, accelerator, request.model.name, request.precision)
    return traits, tuple(f"{text} (--recipe none leaves it out)" for text in told)


def _loss_assumed(request: PlanRequest) -> tuple[str, ...]:
    """Return what is assumed of the loss of a stack that has parts of its logits, in releases of today."""
    stack = find_stack(request.stack)
    if request.loss or stack is None or not request.model.architecture.embeds:  # no logits of words
        return ()
    c = conventions_of(book().described(stack), request.precision)
    parts = "an eighth of the logits" if c.loss_chunks > 1 else f"some rows of logits ({c.loss_rows:g} are counted)"
    return (f"{parts} at a time, as {stack} does today (--loss)",) if c.loss_chunks > 1 or c.loss_rows else ()


def _update_assumed(request: PlanRequest) -> tuple[str, ...]:
    """Return what is assumed of the update of a stack whose AdamW works on lists of tensors unless it is fused."""
    stack = find_stack(request.stack)
    if stack is None or request.lora_rank or request.optimizer.lower() not in LISTED:
        return ()
    listed = conventions_of(book().described(stack), request.precision).roots_at_once
    return (UPDATE_LISTED,) if listed else ()


def _no_peers(cluster: Cluster, catalogue: Catalogue) -> tuple[str, ...]:
    """Return what is assumed of GPUs that reach one another through the host's memory alone."""
    group = node_group_of(cluster)
    known = catalogue.accelerators.get(group.gpu.model)
    if known is None or group.gpus < 2 or group.gpu_link != KNOWN_LINK_NAMES["pcie"]:
        return ()
    link = catalogue.interconnect(known.host_link)
    told, usual = without_peers(known, link), share_between_peers(known, link) * link.rate_bytes_per_s
    if told and group.gpu_bandwidth_bytes_per_s > AS_GIVEN * usual:
        given, likely = format_rate(group.gpu_bandwidth_bytes_per_s), format_rate(usual)
        told = f"{known.title} reaches its peers at {given}, as the cluster says; without peer access {likely} is usual"
    return (told,) if told else ()


def _network_read(cluster: Cluster, request: PlanRequest) -> tuple[str, ...]:
    """Return which NICs are taken to join nodes of which a file describes one, and that the others are like it."""
    group = node_group_of(cluster)
    read = is_file(request.cluster) and not group.type and request.inter_bytes_per_s is None
    if not read or group.count <= group.scale_up_nodes:
        return ()
    network = format_network_rate(group.node_bandwidth_bytes_per_s)
    nics = f"{counted(group.nics, 'NIC')} of {format_network_rate(group.nic_bandwidth_bytes_per_s)}"
    return (
        f"{group.count} nodes like that of {request.cluster}, each joined by {network}: {nics} (--inter says another)",
    )


def _beyond_positions(model: Architecture, seq_len: int) -> tuple[str, ...]:
    """Return a remark where a sequence is longer than a table of positions; rotations and biases have no such end."""
    rows = model.max_position_embeddings
    if model.positions not in {"learned", "none"} or not 0 < rows < seq_len:
        return ()
    return (
        f"a table of more positions: it has {counted(rows, 'row')}, which sequences of "
        f"{counted(seq_len, 'token')} go beyond",
    )


def rate_warnings(request: PlanRequest, catalogue: Catalogue) -> list[str]:
    """Return a warning for each rate given that is the duplex figure of the cluster's own, or slipped in its file."""
    if is_file(request.cluster):
        intra, inter = request.intra_bytes_per_s, request.inter_bytes_per_s
        read = cluster_by_name(catalogue, request.cluster, intra_bytes_per_s=intra, inter_bytes_per_s=inter)
        described = node(read)
        return [f"{request.cluster}: {text}" for text in suspicions_of(described, catalogue)]
    own = node(cluster_by_name(catalogue, request.cluster, fabric=request.fabric))
    accelerator = catalogue.accelerators[own.gpu.model]
    link = catalogue.interconnect(accelerator.link or accelerator.host_link)
    found = []
    if request.intra_bytes_per_s is not None:
        trap = duplex_trap(request.intra_bytes_per_s, link)
        found += [f"--intra: {trap}"] if trap else []
    network = own.node_bandwidth_bytes_per_s
    if request.inter_bytes_per_s is not None and network and abs(request.inter_bytes_per_s / (2 * network) - 1) < 0.03:
        found.append(
            f"--inter: {format_network_rate(request.inter_bytes_per_s)} is the duplex figure of a {request.cluster}; "
            f"per direction it is {format_network_rate(network)} (right for NICs of twice its rate)"
        )
    return found


def priced_layout(setting: Setting, text: str) -> PricedLayout:
    """Return the price of the layout that `text` names; InputError with the rules it breaks and the nearest legal."""
    text = stated(text, setting)
    shared = shares_key_heads(setting.stack)
    try:
        layout = _legal(setting, text, shared_heads=shared)
    except InputError as error:
        if not shared and _is_legal(setting, text, shared_heads=True):
            raise InputError(f"{error}; or --engine megatron, whose ranks share key-value heads") from None
        raise
    if layout.mode != "sync":
        raise InputError(f"--layout {text}: asynchronous modes are priced beside each other by --modes")
    problem = unrunnable(layout, setting.precision) if setting.stack == OWN else ""
    if problem:
        raise InputError(f"--layout {text}: {problem}; or --stack NAME, which may have it")
    grid = Grid.of([layout])
    return row_of(setting, grid, price_layouts(setting, grid), 0)


def _legal(setting: Setting, text: str, *, shared_heads: bool) -> Layout:
    return legal_layout(
        text,
        setting.architecture,
        global_batch=setting.global_batch,
        seq_len=setting.seq_len,
        ranks=setting.gpus,
        shared_heads=shared_heads,
    )


def _is_legal(setting: Setting, text: str, *, shared_heads: bool) -> bool:
    try:
        _legal(setting, text, shared_heads=shared_heads)
    except InputError:
        return False
    return True


def plan_of(setting: Setting, best: PricedLayout, others: Sequence[PricedLayout], reason: str = "") -> Plan:
    """Return the plan that `train` reads: the layout, its prediction and the runners-up."""
    return Plan(
        layout=best.layout,
        predicted=best.predicted,
        global_batch_sequences=setting.global_batch,
        seq_len=setting.seq_len,
        bucket_bytes=BUCKET_BYTES,
        alternatives=alternatives(best, others),
        nodes=tuple(place.node for place in setting.cluster.placements),
        reason=reason,
        model=msgspec.to_builtins(setting.architecture),
        cluster=Machines(
            name=setting.cluster.name,
            accelerator=node_group_of(setting.cluster).gpu.model,
            ranks=setting.gpus,
            nodes=setting.cluster.num_nodes,
        ),
        precision=setting.precision,
    )


def alternatives(best: PricedLayout, others: Sequence[PricedLayout]) -> tuple[Candidate, ...]:
    """Return the rows as alternatives of the best one, each layout once."""
    unique: dict[Layout, Candidate] = {row.layout: row.candidate for row in others if row.layout != best.layout}
    return tuple(unique.values())
