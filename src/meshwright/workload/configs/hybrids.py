"""Model types whose layers mix tokens in several ways: recurrences beside attention, and networks on their own."""

from collections.abc import Callable
from functools import partial

from ..architecture import Architecture
from .conformers import wav2vec2_bert
from .cross_attention import idefics, mllama
from .decoders import Traits
from .decoders_of_2026 import axk2, bailing_hybrid, deepseek_v4, flint, laguna, lfm3
from .gated import inkling, inkling2, muse, step3p5
from .indexed import dots3_note, glm5_next, hy_v4, minimax_m3, mistral_large4, qwen4_exp
from .linear import kimi_linear, lfm2, minimax, olmo_hybrid, qwen_hybrid
from .mamba import bamba, falcon_h1, granite_hybrid, jamba, mamba, nemotron_h, plain_mamba2, zamba, zamba2
from .perceiver import perceiver
from .reader import ConfigReader
from .recurrent import recurrent_gemma, rwkv, xlstm
from .routed import doge, ernie_vl, jetmoe, zaya
from .token_pooling import blt, funnel
from .wav2vec import data2vec_audio, sew_d, wav2vec
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
    "zamba": zamba,
    "zamba2": zamba2,
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
    "minimax_m3_vl_text": minimax_m3,
    "qwen4_exp_text": qwen4_exp,
    "mistral_large4_text": mistral_large4,
    "hy_v4": hy_v4,
    "glm5_next_text": glm5_next,
    "dots3_note_text": dots3_note,
    "step3p5": step3p5,
    "inkling_text": inkling,
    "inkling2_text": inkling2,
    **dict.fromkeys(("muse_spark_text", "muse_glimmer_text"), muse),
    "recurrent_gemma": recurrent_gemma,
    "rwkv": rwkv,
    "xlstm": xlstm,
    "jetmoe": jetmoe,
    "zaya": zaya,
    "ernie4_5_vl_moe_text": ernie_vl,
    "doge": doge,
    "mllama_text_model": mllama,
    "idefics": idefics,
    "wav2vec2-bert": wav2vec2_bert,
    "wav2vec2-conformer": partial(wav2vec, conformers=True),
    "blt": blt,
    "funnel": funnel,
    **dict.fromkeys(("wav2vec2", "hubert", "unispeech", "unispeech-sat"), wav2vec),
    "wavlm": partial(wav2vec, places=True),
    "sew-d": sew_d,
    "data2vec-audio": data2vec_audio,
    "sew": partial(wav2vec, squeezes=True),
    "perceiver": perceiver,
}
