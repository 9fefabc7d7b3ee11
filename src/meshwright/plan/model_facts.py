"""Remarks of an answer on its model: its size, its work, and what was assumed of it."""

from collections.abc import Sequence

import msgspec

from ..units import counted
from ..workload.architecture import Architecture
from ..workload.elements import HALF_BYTES
from ..workload.kinds import Experts
from ..workload.models import Model
from .analytic import Setting
from .analytic.price import PRODUCT_BYTES, flops_per_token, machine_of
from .analytic.recipes import recipes

LOW = frozenset(name for name, bytes_ in PRODUCT_BYTES.items() if bytes_ < HALF_BYTES)

MOST_TOKENS = 2**27  # of a step of a published run: MiniMax-01 ends at 128 M (arXiv 2501.08313, section 4)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The model of a plan, as `plan --json` carries it under `model`."""

    name: str
    parameters: int
    text_parameters: int  # without encoders of images
    active_parameters: int  # that a token of text passes through
    multiplied_parameters: int  # that it is multiplied with: the output projection counts, the embedding does not
    flops_per_token: float  # forward and backward
    causal: bool  # scores that a causal mask hides are not counted
    seq_len: int
    assumed: tuple[str, ...]  # a default that changes the answer, keys that were passed over


def model_facts(setting: Setting) -> ModelFacts:
    """Return the facts of a setting's model."""
    more = [*_passed_over(setting.ignored), *batch_read(setting.global_batch, setting.seq_len)]
    more += [experts_spread(setting)] if setting.architecture.experts else []
    more += [low_precision(setting)] if setting.precision in LOW else []
    more += [single_precision(setting)] if setting.precision == "fp32" else []
    return facts_about(
        setting.architecture,
        setting.seq_len,
        flops_per_token=flops_per_token(setting),
        assumed=(*setting.assumed, *more),
    )


def facts_of(model: Model, asked: int | None, seq_len: int) -> ModelFacts:
    """Return the facts of a transformer by its name or file; `asked` is the length that was asked for, in tokens."""
    assumed = (*model.assumed, *model.length_assumed(asked), *_passed_over(model.ignored))
    return facts_about(model.architecture, seq_len, assumed=assumed)


def _passed_over(keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"passed over, and not understood: {key}" for key in keys)


def batch_read(sequences: int, seq_len: int) -> tuple[str, ...]:
    """Return how a batch is counted that no run has: tokens are easily given for sequences."""
    tokens = sequences * seq_len
    if tokens <= MOST_TOKENS:
        return ()
    told = (
        f"--global-batch counts sequences: {sequences:,} of {seq_len:,} tokens are {tokens / 1e9:,.3g} billion tokens"
    )
    meant = f"; {sequences:,} tokens would be --global-batch {sequences // seq_len}" if sequences >= seq_len else ""
    return (f"{told} a step, more than any published run takes (128 million){meant}",)


def experts_spread(setting: Setting) -> str:
    """Return how evenly tokens are taken to be spread over the experts."""
    if setting.imbalance == 1.0:
        return "tokens are spread evenly over the experts (--imbalance prices a router that does not, 1.4 say)"
    return f"the fullest rank's experts have {setting.imbalance:g} times the rows of the mean; every layer waits for it"


def low_precision(setting: Setting) -> str:
    """Return which products run in a precision of 8 bits or fewer, and against which peak MFU is said."""
    peak = float(machine_of(setting).peak) / 1e12
    recipe = recipes().get(setting.precision)
    scales = "" if recipe is None else f" (scales: {recipe.scales})"
    of = setting.precision if recipe is None else recipe.of
    return (
        f"{setting.precision}: products with the layers' weights{scales}; scores of attention and the output "
        f"projection run in bf16; MFU is against the dense peak in {of}, {peak:,.0f} TFLOP/s"
    )


def single_precision(setting: Setting) -> str:
    """Return how single precision multiplies, and against which peak MFU is said."""
    peak = float(machine_of(setting).peak) / 1e12
    return f"fp32: all products in fp32, none in TF32; MFU is against the dense peak in fp32, {peak:,.3g} TFLOP/s"


def facts_about(
    model: Architecture, seq_len: int, *, flops_per_token: float | None = None, assumed: tuple[str, ...] = (),
    option: str = "--mtp-layers",
) -> ModelFacts:  # fmt: skip
    """Return the facts of a model at a sequence length, all of it trained unless `flops_per_token` says otherwise.

    `option` says where the modules that predict further tokens would be asked for.
    """
    assumed += (*_idle(model), *_borrowed(model), *_further_tokens(model, option))
    return ModelFacts(
        name=model.name,
        parameters=model.parameters,
        text_parameters=model.text_parameters,
        active_parameters=model.active_parameters,
        multiplied_parameters=model.matmul_parameters(),
        flops_per_token=model.model_flops_per_token(seq_len) if flops_per_token is None else flops_per_token,
        causal=model.model_flops_per_token(seq_len) < model.model_flops_per_token(seq_len, causal=False),
        seq_len=seq_len,
        assumed=assumed,
    )


def _idle(model: Architecture) -> tuple[str, ...]:
    """Return what is said of weights beside the experts: of those held for no token of text, and of those left out."""
    routed = [(run.count, run.layer.network) for run in model.runs if isinstance(run.layer.network, Experts)]
    idle, empty = (sum(count * getattr(each, name) for count, each in routed) for name in ("unused", "empty"))
    told = []
    if idle:
        rest = (model.parameters - idle) / 1e9
        told.append(
            f"{idle / 1e9:.4g} B of the parameters are multiplied with no token of text; without them {rest:.4g} B"
        )
    if empty:
        total = (model.parameters + empty) / 1e9
        more = f"transformers allocates {empty / 1e9:.4g} B parameters more, for experts that compute nothing"
        told.append(f"{more} ({total:.4g} B in all): not counted, and in no published checkpoint")
    return tuple(told)


def _borrowed(model: Architecture) -> tuple[str, ...]:
    """Return what is said of layers that multiply with the weights of earlier ones."""
    count = sum(run.count for run in model.stack if run.layer.borrowed)
    if not count:
        return ()
    more = f"{model.borrowed_parameters / 1e9:.4g} B parameters more are multiplied than are held"
    return (f"{count} of the {model.num_hidden_layers} layers use weights of an earlier one: {more}",)


def _further_tokens(model: Architecture, option: str) -> tuple[str, ...]:
    """Return what is counted of modules that predict further tokens."""
    named, trained = model.mtp_layers, model.mtp_trained
    if trained:
        size = f"{trained * model.mtp_parameters / 1e9:.4g} B parameters"
        other = f"; the config names {named}" if named and named != trained else ""
        return (f"{counted(trained, 'layer')} to predict further tokens, counted and trained: {size}{other}",)
    if named:
        those = "it" if named == 1 else "them"
        told = f"{counted(named, 'layer')} to predict further tokens, not counted ({option} {named} counts {those})"
        return (told,)
    return ()


def sentence(facts: ModelFacts) -> str:
    """Return the facts in one line, with a line for each thing assumed."""
    active = (
        f", {facts.active_parameters / 1e9:.4g} B active" if facts.active_parameters < facts.text_parameters else ""
    )
    causal = " (causal)" if facts.causal else ""
    head = (
        f"{facts.name or 'the model'}: {facts.parameters / 1e9:.4g} B parameters{active}, "
        f"{facts.flops_per_token / 1e9:.4g} GFLOP a token{causal} at {counted(facts.seq_len, 'token')} a sequence"
    )
    return "\n".join([head, *(f"  assumed: {text}" for text in facts.assumed)])
