"""Model types whose layers mix tokens in several ways: recurrences beside attention, and networks on their own."""

from collections.abc import Callable
from functools import partial

from ..architecture import Architecture
from .decoders import Traits
from .decoders_of_2026 import axk2, bailing_hybrid, deepseek_v4, flint, laguna, lfm3
from .linear import kimi_linear, lfm2, minimax, olmo_hybrid, qwen_hybrid
from .mamba import bamba, falcon_h1, granite_hybrid, jamba, mamba, nemotron_h, plain_mamba2
from .reader import ConfigReader
from .windows import afmoe, gemma3n, gemma4, longcat, mimo_v2

QWEN_DENSE = Traits(network_bias=False)
QWEN_EXPERTS = Traits(network_bias=False, experts="by_step", shared_gate=True)
HYBRIDS: dict[str, Callable[[ConfigReader], Architecture]] = {
    "qwen3_next": partial(qwen_hybrid, traits=QWEN_EXPERTS),
    "qwen3_5_text": partial(qwen_hybrid, traits=QWEN_DENSE),
    "qwen3_5_moe_text": partial(qwen_hybrid, traits=QWEN_EXPERTS),
    "olmo_hybrid": olmo_hybrid,
    "kimi_linear": kimi_linear,
    **dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01"), minimax),
    "nemotron_h": nemotron_h,
    "granitemoehybrid": granite_hybrid,
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "jamba": jamba,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": plain_mamba2,
    "lfm2": partial(lfm2, traits=Traits(tied=True)),
    "lfm2_moe": partial(lfm2, traits=Traits(tied=True, experts="after_first")),
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), gemma4),
    "gemma3n_text": gemma3n,
    "afmoe": afmoe,
    "mimo_v2_flash": mimo_v2,
    "longcat_flash": longcat,
    "flint": flint,
    "laguna": laguna,
    "deepseek_v4": deepseek_v4,
    "axk2": axk2,
    "bailing_hybrid": bailing_hybrid,
    "lfm3": lfm3,
}
