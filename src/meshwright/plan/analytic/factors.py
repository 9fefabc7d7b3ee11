"""The few factors that a user's own measured steps move: what each multiplies, and what is held of it before a run.

Factors multiply what the constants say; all are 1 without a calibration. Some are of the machine (its accelerators,
links and hosts), the others of the software.
"""

from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from .coefficients import Coefficients
from .quantities import Number


class Factor(msgspec.Struct, frozen=True, kw_only=True):
    """One factor; `spread` is the prior's, of its logarithm around 0, for a stack that nobody measured.

    The spreads are those with which one, two and five runs of a published stack that was left out of the fit predict
    its other runs best (`python -m benchmarks fit_planner`).
    """

    spread: float
    roles: tuple[str, ...]  # of the coefficients that it multiplies
    machine: bool
    meaning: str


FACTORS = {
    "products": Factor(
        spread=0.06, roles=("product",), machine=True, meaning="share of the peak that matrix products reach"
    ),
    "links": Factor(spread=0.3, roles=("link",), machine=True, meaning="share of the GPU links' rate"),
    "network": Factor(
        spread=0.15, roles=("network", "sends"), machine=True, meaning="share of the NICs' rate that is reached"
    ),
    "host": Factor(
        spread=0.7,
        roles=("launch_s", "launch_moe_s", "launch_expert_s", "step_s", "micro_s"),
        machine=True,
        meaning="seconds that the host needs for a layer, a micro-batch and a step",
    ),
    "attention": Factor(
        spread=0.3, roles=("attention",), machine=False, meaning="share of the peak that fused attention reaches"
    ),
    "elements": Factor(
        spread=0.1,
        roles=("element_wise", "softmax", "loss", "routing"),
        machine=False,
        meaning="bytes of element-wise kernels and of the loss",
    ),
    "tensor": Factor(
        spread=1.0, roles=("tp_hidden",), machine=False, meaning="tensor-parallel communication that nothing hides"
    ),
    "exposed": Factor(
        spread=0.2,
        roles=("dp_drag", "ep_exposed", "fsdp_drag"),
        machine=False,
        meaning="other communication that nothing hides",
    ),
    "experts": Factor(spread=0.08, roles=("moe_pace",), machine=False, meaning="seconds of layers with experts"),
    "pace": Factor(spread=0.07, roles=("pace",), machine=False, meaning="seconds of everything"),
}
PACE = "pace"  # the factor that each model has its own of, beside that of all
# How far the pace of one model lies from that of its stack, as a logarithm, without and with experts: the shapes of its
# kernels and its recipe are of no other. Likeliest for the errors that stacks left out of the fit leave.
MODELS, MODELS_EXPERTS = 0.04, 0.15
NUDGE = 1e-4  # of a factor's logarithm
LEAST_SHARE = 0.5  # a user's machines differ from those of the fit, however many runs it had
NEW_PRODUCTS = 0.25  # spread of what products reach on an accelerator that was never measured
HIDDEN = frozenset({"tp_hidden"})  # roles whose complement is multiplied: what is not hidden
SHARES = frozenset({"tp_hidden", "dp_drag", "fsdp_drag"})  # roles that never pass 0 or 1


def adjusted(c: Coefficients, factors: Mapping[str, Number]) -> Coefficients:
    """Return the coefficients with these factors; a factor that is not named is 1."""
    changes: dict[str, Number] = {}
    for name, factor in factors.items():
        for role in FACTORS[name].roles:
            own = getattr(c, role)
            value = 1.0 - (1.0 - own) * factor if role in HIDDEN else own * factor
            changes[role] = np.clip(value, 0.0, 1.0) if role in SHARES else value
    return replace(c, **changes)


def sensitivity(
    seconds_of: Callable[[Mapping[str, Number]], Number], factors: Mapping[str, Number]
) -> npt.NDArray[np.float64]:
    """Return how the logarithm of each step time follows that of each factor, steps by factors.

    `seconds_of` returns the step times at given factors; a factor that is not named is 1.
    """
    base = np.log(seconds_of(factors))
    nudged = [{**factors, name: factors.get(name, 1.0) * np.exp(NUDGE)} for name in FACTORS]
    return np.stack([(np.log(seconds_of(one)) - base) / NUDGE for one in nudged], axis=1)


def model_spread(share: float, *, experts: bool) -> float:
    """Return the spread of the logarithm of a model's own pace before any run of it; `share` as in `prior_spreads`."""
    return _scale(share) * (MODELS_EXPERTS if experts else MODELS)


def prior_spreads(share: float, *, new_accelerator: bool) -> dict[str, float]:
    """Return the spread of each factor's logarithm before any run.

    `share` is the stack's error band beside that of stacks that nobody measured: of one whose runs the constants were
    fitted to more is known. Of an accelerator on which no run was measured less is.
    """
    own = {name: factor.spread * _scale(share) for name, factor in FACTORS.items()}
    return own | ({"products": NEW_PRODUCTS} if new_accelerator else {})


def _scale(share: float) -> float:
    return min(max(share, LEAST_SHARE), 1.0)
