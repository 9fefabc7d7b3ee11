"""Reasons why a prediction is less certain than its stack's error band, in words for the answer."""

import math
from collections.abc import Sequence

from ...cluster.graph import Fabric
from ...layout import Layout
from ...units import format_network_rate
from ...workload.architecture import Architecture
from ...workload.conventions import conventions_of
from .attention import ALIGNED, FUSED_BATCH
from .calibration import Calibration, constants_digest
from .coefficients import STRANGERS, Book
from .factors import FACTORS
from .fitted_range import DOUBT, elsewhere, kinds_of, recurrent_kinds, seen, unseen_kinds
from .host import STATES_AWAY
from .recipes import has_constant, recipe_use, recipes

RECURRENT = "recurrent layers"
LENGTH, WIDTH = "sequences of ", "experts of width "
OPERATORS = "layers of transformers"
STRANGE = "accelerator "
SHARDED_EARLY = "ZeRO-3 of a stack before 2023"
# doubts that add more than a tenth: runs with wide experts, of transformers under DeepSpeed and with states on the
# hosts were 0.4 to 0.7 off, one of torchtitan on MI300X 0.47 by the peak alone (pytorch/ao: torchao/float8/README.md),
# those with ZeRO-3 of Narayanan et al. 2021 (arXiv 2104.04473, table 2; recorded from memory as sc21t2) 0.3 to 0.7;
# Adam on the hosts (gist-z*-off* of unfitted_runs_2.csv) 0.66 to 0.69 whatever was sharded
FAR_BAND = dict.fromkeys((RECURRENT, WIDTH, OPERATORS, STRANGE, SHARDED_EARLY), 0.25) | {STATES_AWAY: 0.4}
HOSTS_MEASURED = frozenset({"vtrainm", "vtrains"})  # stacks whose launch times were fitted


def cautions(
    architecture: Architecture,
    layout: Layout,
    *,
    stack: str,
    accelerator: str,
    known: Book,
    measured: Sequence[Calibration] = (),
    precision: str = "",
    seq_len: int = 0,
    network: float = 0.0,
    adapters: bool = False,
) -> tuple[str, ...]:
    """Return one sentence for each doubt; empty where there is none.

    `measured` are the user's own runs as far as they concern this answer: what they saw is in no doubt.
    `network` is what a GPU has between nodes, in bytes per second; 0 where nothing leaves a node. `adapters`: they
    alone are trained.
    """
    found = []
    asked, stack = stack, known.fitted(stack)
    machine, software = (
        any(FACTORS[name].machine == own for one in measured for name in one.factors) for own in (True, False)
    )
    if any(one.constants != constants_digest() for one in measured):
        found.append("calibration: of the constants of another version; write it anew by --calibrate RUNS --save FILE")
    if software:
        pass
    elif stack not in known.stacks or stack in STRANGERS:
        found.append("software stack: none of the measured ones; generic constants")
    elif stack not in known.errors:
        found.append(f"software stack {asked}: no run of it was measured; generic constants")
    if not machine and not known.trained_on(accelerator):
        found.append(f"{STRANGE}{accelerator}: no run on it was measured; {whose_constants(known, accelerator)}")
    elif not (machine and software):
        found += elsewhere(known, asked, accelerator)
    if not machine and stack not in HOSTS_MEASURED and architecture.hidden_size <= 2048:
        found.append("host: its launch times were not measured, and they bound narrow layers")
    found += unfused_kernels(architecture, layout, stack, known)
    if not software:
        found += unseen_length(stack, seq_len)
        found += unseen_network(stack, network)
        if adapters:  # unfitted ones of Automodel were up to 24 % off (am-lora* of unfitted_runs.csv)
            found.append(f"adapters beside frozen weights: {DOUBT}")
        if conventions_of(known.described(asked)).norms_single:
            found.append(f"{OPERATORS}, not compiled: {DOUBT}")
        found += unseen_recipe(precision, layout, stack=asked, accelerator=accelerator, known=known)
        if stack == STRANGERS[0] and layout.zero == 3 and layout.dp * layout.cp > 1:
            found.append(f"{SHARDED_EARLY}: {DOUBT} that is trusted")
    if layout.tp > architecture.num_key_value_heads:
        found.append(
            f"tp {layout.tp} is more than {architecture.num_key_value_heads} key-value heads: ranks that share one "
            "gather its projection (Megatron-LM from core 0.16 on), and each keeps it whole, which is not priced"
        )
    if architecture.mtp_trained and not seen().further:
        found.append(f"multi-token prediction: {DOUBT}")
    own = {kind for one in measured for run in one.runs for kind in kinds_of(Layout.parse(run.layout))}
    return (*found, *unseen_layers(architecture), *unseen_kinds(layout, beside=own))


def unfused_kernels(architecture: Architecture, layout: Layout, stack: str, known: Book) -> tuple[str, ...]:
    """Return what unfused attention's kernels do not suit, of a stack that has these."""
    found = []
    if stack not in known.stacks or known.stacks[stack].uses.get("flash") != 0.0:
        return ()
    if architecture.head_dim % ALIGNED:
        found.append(
            f"head width {architecture.head_dim} is no multiple of {ALIGNED}: batched products leave the tensor cores"
        )
    if (layout.mbs * architecture.num_attention_heads // layout.tp) % FUSED_BATCH:
        found.append(f"mbs x heads / tp is no multiple of {FUSED_BATCH}: the fused softmax falls back")
    return tuple(found)


def whose_constants(known: Book, accelerator: str) -> str:
    """Return whose constants an accelerator has on which no run was measured."""
    device = known.device(accelerator)[1]
    if device is None:
        return "constants of the H100"
    if device.kernels and device.like == "H100":
        return f"attention by kernels timed alone ({device.kernels}), all else of the H100, to scale"
    if device.kernels:
        return f"attention as on the {device.like} ({device.kernels}), all else the H100's"
    return f"the rate of its products is that of products alone ({device.alone}), all else the {device.like}'s"


def unseen_recipe(precision: str, layout: Layout, *, stack: str, accelerator: str, known: Book) -> tuple[str, ...]:
    """Return a sentence where a precision has more scales than one for each tensor, and no fitted run had them."""
    recipe = recipes().get(precision)
    if recipe is None:
        return ()
    of_stack = known.stacks[stack].uses if stack in known.stacks else {}
    device = known.device(accelerator)[1]
    use = recipe_use(precision, of_stack, device.uses if device else {})
    if use.precision != recipe.of:
        return (f"precision {precision}: emulated by {use.precision}, whose cost is taken; {DOUBT}",)
    if has_constant(recipe, of_stack) and layout.tp > 1:
        fitted = known.fitted(stack)
        return () if fitted in known.errors else (f"precision {precision}: its constant is of another stack's runs",)
    prior = f"products at {recipe.rate:.2g} of the rate of {recipe.of}, by kernels timed alone ({recipe.source})"
    return (f"precision {precision}: {DOUBT}; {prior}",)


def unseen_length(stack: str, seq_len: int) -> tuple[str, ...]:
    """Return one sentence where sequences are longer than in any fitted run of a stack, or of any if it had none."""
    lengths = seen().lengths
    longest, whose = lengths.get(stack) or max(lengths.values()), " of the stack" if stack in lengths else ""
    return (f"{LENGTH}{seq_len:,}: {DOUBT}{whose}; up to {longest:,} were",) if seq_len > longest else ()


def unseen_network(stack: str, network: float) -> tuple[str, ...]:
    """Return one sentence where a GPU has less than half of the slowest network of any fitted run of a stack.

    There traffic decides that was hidden in all of them. Of a stack without such runs, those of all stacks count.
    """
    networks = seen().networks
    slowest, whose = networks.get(stack) or min(networks.values()), " of the stack" if stack in networks else ""
    if not 0 < network < slowest / 2.0:
        return ()
    rate, least = format_network_rate(network), format_network_rate(slowest)
    return (f"a network of {rate} a GPU: {DOUBT}{whose}; the slowest had {least}",)


def unseen_layers(architecture: Architecture) -> tuple[str, ...]:
    """Return one sentence where layers mix tokens by other kernels than attention's which no fitted run had, and one
    where experts are wider than in any.
    """
    kinds = [kind for kind in recurrent_kinds(architecture) if not seen().mixers.get(kind)]
    found = (f"{RECURRENT}: {', '.join(kinds)}: {DOUBT}",) if kinds else ()
    width, widest = architecture.expert_size if architecture.experts else 0, seen().expert_width
    return (*found, f"{WIDTH}{width:,}: {DOUBT}; up to {widest:,} were") if width > widest else found


def torus_doubts(fabric: Fabric) -> tuple[str, ...]:
    """Return what is assumed of a torus of nodes, and of several that meet over the network of their hosts."""
    if fabric.kind != "torus":
        return ()
    laid = "torus: axes are laid along its sides in the order of ranks; a compiler may lay them better"
    if fabric.slice_bytes_per_s is None:
        return (laid,)
    size, rate = " x ".join(map(str, fabric.sides)), format_network_rate(fabric.slice_bytes_per_s)
    return (
        laid,
        f"{fabric.slices} slices of {size}: they meet over the network of their hosts, {rate} a chip: {DOUBT}",
    )


def widened(band: float, doubts: tuple[str, ...]) -> float:
    """Return the error band with a tenth more for a doubt; the stack's own, which its band holds already, adds nothing.

    Where other kernels or machines do most of the work than in any run, a doubt adds more: before runs of Mamba-2 were
    fitted to, they took 1.2 to 2.4 times what was predicted, a published step on MI300X 1.9 times, and published steps
    with Adam on the hosts 3.3 times. Doubts of different things are independent: together they add the root of the sum
    of their squares. Of 114 published runs that nobody fitted (unfitted_runs.csv, unfitted_runs_2.csv) 109 are within
    such bands.
    """
    told = [doubt for doubt in doubts if not doubt.startswith("software stack")]
    first = {next((doubt for doubt in told if doubt.startswith(start)), ""): more for start, more in FAR_BAND.items()}
    return band + math.hypot(*(0.1 + first.get(doubt, 0.0) for doubt in told))
