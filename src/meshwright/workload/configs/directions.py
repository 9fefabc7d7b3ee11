"""Directions of attention that a file says otherwise than its class: both ways in a decoder, ahead alone in BERT."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, LayerKind, Mixer
from .others import PAIRS
from .reader import ConfigReader

BOTH_WAYS = "{key} = {value!r}: each token meets those after it too"
IN_WINDOWS = ", in a window {keys} keys, as many on each side"
# what says it: of the library's masks (masking_utils.py, create_causal_mask), and of Gemma's classes
SWITCHES: dict[str, tuple[object, ...]] = {"is_causal": (False,), "use_bidirectional_attention": (True, "all")}
# keys more than half of a window that their classes then leave on each side (configuration_gemma3.py makes it
# w // 2 + 1, of which modeling_gemma3.py leaves that out; configuration_gemma4.py leaves it to the library's masks)
HALVING = {"gemma3_text": 0, "gemma4_text": 1, "gemma4_unified_text": 1}
# types of the library that mask by a table of their own (as modeling_openai.py, Attention.bias), whatever a file says
OWN_MASKS = frozenset({"openai-gpt", "gpt_neo", "timesfm"})


def directed(c: ConfigReader, kind: str, model: Architecture) -> Architecture:
    """Return an architecture whose attention looks the way that the keys of its file say.

    Raises ValueError where layers would have to look another way than they are counted in, or where nothing tells
    that the class asks those keys: decoders of pairs, and code beside the weights.
    """
    found = [(key, c.alone(key)) for key, values in SWITCHES.items() if _among(c.alone(key), values)]
    c.skip("is_causal")
    if not found:
        return _decoding(model) if kind not in PAIRS and c.alone("is_decoder") is True else model
    key, value = found[0]
    if not all(_is_plain(mixer) for run in model.runs for mixer in run.layer.mixers):
        raise ValueError(f"{key}: {value!r}: layers that are no plain attention are counted in one direction alone")
    halved = kind in HALVING and found[-1][0] != "is_causal"
    turned = _turned(model, masked=False, kind=kind if halved else "")
    if turned == model:
        return model
    if kind in OWN_MASKS or kind in PAIRS or not c.of_library:
        raise ValueError(
            f"{key}: expected {'true' if value is False else 'null or false'}, got {value!r}: attention without a mask "
            f"is not counted for model_type {kind}"
        )
    windows = sorted({m.window for run in turned.runs for m in run.layer.mixers if isinstance(m, Attention)} - {0})
    told = IN_WINDOWS.format(keys=" or ".join(f"{window:,}" for window in windows)) if windows else ""
    c.assumed.append(BOTH_WAYS.format(key=key, value=value) + told)
    return turned


def _among(value: object, values: tuple[object, ...]) -> bool:
    """Return whether a value is one of some, 0 and 1 being no switches."""
    return any(type(value) is type(other) and value == other for other in values)


def _is_plain(mixer: Mixer) -> bool:
    """Return whether a mixer is attention that the library's masks alone direct: not in chunks, nor by an indexer."""
    return isinstance(mixer, Attention) and not mixer.chunk and not mixer.index_top


def _decoding(model: Architecture) -> Architecture:
    """Return an encoder that masks what comes after a token (bert: modeling_bert.py, BertModel.forward)."""
    mixers = [m for run in model.runs for m in run.layer.mixers if isinstance(m, Attention) and not m.masked]
    if any(mixer.window for mixer in mixers):
        raise ValueError("is_decoder: expected false: windows on both sides of a token are not counted with a mask")
    return _turned(model, masked=True)


def _turned(model: Architecture, *, masked: bool, kind: str = "") -> Architecture:
    runs = tuple(msgspec.structs.replace(run, layer=_layer(run.layer, masked=masked, kind=kind)) for run in model.runs)
    return model if runs == model.runs else msgspec.structs.replace(model, stack=runs)


def _layer(layer: LayerKind, *, masked: bool, kind: str) -> LayerKind:
    changed = {
        name: msgspec.structs.replace(
            mixer, masked=masked, window=mixer.window if masked else _on_both_sides(mixer.window, kind)
        )
        for name, mixer in (("mixer", layer.mixer), ("beside", layer.beside))
        if isinstance(mixer, Attention) and not mixer.reads and mixer.masked != masked
    }
    return msgspec.structs.replace(layer, **changed)


def _on_both_sides(window: int, kind: str) -> int:
    """Return the keys of a window without a mask: itself, and on each side as many as the window's.

    As masking_utils.py, sliding_window_bidirectional_overlay has it; `kind`: a type that halves the window before.
    """
    if not window:
        return 0
    return 2 * (window // 2 + HALVING[kind] if kind else window) + 1
