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
# Results that a checkpoint by names may keep beside what enters a layer; all else is computed again, routed experts
# always: their products have no names there (AI-Hypercomputer/maxtext:src/maxtext/layers/decoders.py, get_remat_policy)
RESULTS = {
    "qkv_proj": "queries, keys and values",
    "context": "what attention returns",
    "out_proj": "what attention's output projection returns",
    "mlpwi": "what enters a network's activation function",
    "mlpwo": "what a network returns",
}
RESULT_PLACES = {name: place for place, name in enumerate(RESULTS)}


INPUT = "input"  # of a layer, which recomputation begins with
# what of that may lie in the memory of the GPUs' hosts from forward to backward
AWAY = {INPUT: "what enters a layer", **RESULTS}
NOTHING = "none"  # of it, where a stack would have something there
AWAY_PLACES = {name: place for place, name in enumerate(AWAY)}


def modules_of(words: Iterable[str], *, where: str) -> tuple[str, ...]:
    """Return the modules that some words name, in order; InputError, with the nearest, for one that is not known."""
    said = {word.strip() for word in words} - {""}
    for word in sorted(said - MODULES.keys()):
        raise InputError(f"{where}: {word!r}: no such module ({nearest(word, MODULES)})")
    return tuple(name for name in MODULES if name in said)


def away_of(words: Iterable[str], *, where: str) -> tuple[str, ...]:
    """Return what lies in the hosts' memory by some words, in order; InputError, with the nearest, for an unknown."""
    said = {word.strip() for word in words} - {"", NOTHING}
    for word in sorted(said - AWAY.keys()):
        raise InputError(f"{where}: {word!r}: no such activations ({nearest(word, AWAY)})")
    return tuple(name for name in AWAY if name in said)


def results_number(results: Iterable[str]) -> int:
    """Return the fact `Conventions.results_kept` for some results: what enters a layer is always kept, as the 1."""
    return 1 + sum(2 << RESULT_PLACES[name] for name in results)


def away_number(names: Iterable[str]) -> int:
    """Return the fact `Conventions.results_away` for some of what is kept."""
    return sum(1 << AWAY_PLACES[name] for name in names)


def modules_number(modules: Iterable[str]) -> int:
    """Return the fact `Conventions.modules_again` for some modules."""
    return sum(1 << PLACES[name] for name in modules)
