"""Modules that selective recomputation may name one by one, as Megatron-LM's --recompute-modules does.

megatron/core/transformer/transformer_config.py (0.16.1), recompute_modules: norms, the latent attention's projection
out of its ranks and the experts' activation discard what they return; the others keep what enters them.
"""

from collections.abc import Iterable

from ..errors import InputError, nearest

MODULES = {  # in the order of their places in a number that says which of them are recomputed
    "core_attn": "scores of unfused attention",
    "layernorm": "results of both norms",
    "mla_up_proj": "queries, keys and values out of latent attention's ranks",
    "moe_act": "results of the experts' activation function",
    "mlp": "networks of layers without experts",
    "moe": "networks of layers with experts, what was sent to them and back",
    "shared_experts": "networks that every token visits beside its experts",
}
PLACES = {name: place for place, name in enumerate(MODULES)}


def modules_of(words: Iterable[str], *, where: str) -> tuple[str, ...]:
    """Return the modules that some words name, in order; InputError, with the nearest, for one that is not known."""
    said = {word.strip() for word in words} - {""}
    for word in sorted(said - MODULES.keys()):
        raise InputError(f"{where}: {word!r}: no such module ({nearest(word, MODULES)})")
    return tuple(name for name in MODULES if name in said)


def modules_number(modules: Iterable[str]) -> int:
    """Return the fact `Conventions.modules_again` for some modules."""
    return sum(1 << PLACES[name] for name in modules)
