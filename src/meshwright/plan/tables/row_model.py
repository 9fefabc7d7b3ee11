"""The model of a row: from a config.json, by its numbers, or by its name."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...errors import InputError, nearest
from ...units import counted
from ...workload.architecture import Architecture
from ...workload.kinds import Experts, runs_of
from ...workload.models import load_model, model_names, resolve_model
from .cells import Cells, count_of, flag_of, is_empty

SIZE = re.compile(r"(?i)\d+(?:\.\d+)?\s*[bmt]")  # 7B
EXPERTS = {"experts": "num_experts", "top_k": "num_experts_per_tok", "expert_ffn": "moe_intermediate_size"}
SAME = {
    **{
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "experts": "experts",
    },
    **{"top_k": "experts_per_token", "expert_ffn": "expert_size", "ffn_hidden": "intermediate_size"},
    **{"gated_mlp": "gated", "tied": "tied"},
}


def row_architecture(
    cells: Cells, models: Mapping[str, Architecture], folder: Path, assumed: list[str]
) -> Architecture:
    """Return the model of a row; what is taken for granted is added to `assumed`.

    A `config` is a path relative to the table's folder, or absolute; InputError where other cells contradict it.
    """
    further = count_of(cells, "mtp_layers", 0, least=0)
    found = _said(cells, models, folder, assumed)
    return _replaced(found, mtp_trained=further) if further else found


def _said(cells: Cells, models: Mapping[str, Architecture], folder: Path, assumed: list[str]) -> Architecture:
    if not is_empty(cells.get("config", "")):
        return _configured(cells, folder, assumed)
    whole = all(not is_empty(cells.get(column, "")) for column in ("layers", "hidden", "heads"))
    if not cells.get("hidden") or (not whole and find_model(cells.get("model_name", ""), models) is not None):
        return _by_name(cells, models, assumed)
    return _by_numbers(cells, assumed)


def find_model(name: str, models: Mapping[str, Architecture]) -> Architecture | None:
    """Return the model of the catalogue that a name in a table means."""
    return models.get(resolve_model(name) or "")


def check_model(cells: Cells, models: Mapping[str, Architecture]) -> None:
    """Raise InputError where a row names a model that nobody knows, and no sizes of one."""
    name = cells.get("model_name", "")
    if is_empty(name) or any(not is_empty(cells.get(column, "")) for column in ("config", "hidden")):
        return
    if find_model(name, models) is None:
        raise InputError(f"hidden: not stated, and no model {name!r} is known ({_hint(name, models)})")


def _configured(cells: Cells, folder: Path, assumed: list[str]) -> Architecture:
    path = folder / cells["config"]  # an absolute path stays as it is
    if path.suffix not in {".json", ".toml"} and not path.is_dir():
        raise InputError(f"config: {cells['config']}: expected the path of a config.json, or a folder that holds one")
    model = load_model(str(path))
    found = model.architecture
    assumed += model.assumed
    said = count_of(cells, "layers", found.num_hidden_layers)
    if said != found.num_hidden_layers:
        raise InputError(f"layers: {said}, but {cells['config']} has {found.num_hidden_layers}")
    return _agreeing(cells, found, cells["config"])


def _agreeing(cells: Cells, found: Architecture, name: str) -> Architecture:
    """Return a model that is said by more than its numbers, with the row's vocabulary; they must not contradict it.

    What a table calls the width of the network is that of its experts as often as not, where it has any.
    """
    for column, key in SAME.items():
        if column == "ffn_hidden" and found.experts:
            continue
        read = flag_of if column in {"gated_mlp", "tied"} else count_of
        known = int(getattr(found, key))
        said = known if is_empty(cells.get(column, "")) else read(cells, column, known)
        if said != known:
            raise InputError(f"{column}: {cells[column]}, but {name} has {known}")
    return _replaced(found, vocab_size=count_of(cells, "vocab", found.vocab_size))


def _by_name(cells: Cells, models: Mapping[str, Architecture], assumed: list[str]) -> Architecture:
    name = cells.get("model_name", "")
    check_model(cells, models)
    found = find_model(name, models)
    assert found is not None
    assumed += _assumed_of(resolve_model(name) or "")
    layers = count_of(cells, "layers", found.num_hidden_layers)
    said = not is_empty(cells.get("dense_layers", ""))
    if found.stack:
        resized = _replaced(found, num_hidden_layers=layers)
        dense = count_of(cells, "dense_layers", resized.dense_layers, least=0)
        resized = _with_dense(resized, found, dense) if dense != resized.dense_layers else resized
    else:
        dense = count_of(cells, "dense_layers", min(found.dense_layers, layers), least=0)
        resized = _replaced(found, num_hidden_layers=layers, dense_layers=dense)
    resized = _agreeing(cells, resized, name)
    if found.experts and layers != found.num_hidden_layers and not said:
        assumed.append(f"{dense} of the {layers} layers of {name} without experts (dense_layers says it)")
    return resized


def _hint(name: str, models: Mapping[str, Architecture]) -> str:
    """Return what may be meant by a name that is no model: one of nearly its name, or how its row says it.

    A model of another size is not what is meant.
    """
    near = "" if SIZE.fullmatch(name.strip()) else nearest(name.lower(), models)
    size = _size(name)
    if near.startswith("did you mean") and not (size and size != _size(near)):
        return near
    bare = "a size is no model; " * bool(SIZE.fullmatch(name.strip()))
    return f"{bare}config, or layers, hidden, heads, ffn_hidden and vocab, say which"


def _size(name: str) -> str:
    """Return the size in a model's name as it is written there, "" where it has none."""
    found = re.search(r"(?i)(?<![\d.a-z])(\d+(?:\.\d+)?)\s*([bmt])(?![a-z])", name)
    return f"{found[1]}{found[2].lower()}" if found else ""


@functools.cache
def _assumed_of(name: str) -> tuple[str, ...]:
    """Return what is assumed in reading a model of the catalogue."""
    return load_model(name).assumed if name in model_names() else ()


def _with_dense(resized: Architecture, whole: Architecture, dense: int) -> Architecture:
    """Return a model's layers with the first `dense` of them without experts, the rest like the first with some."""
    each = [run.layer for run in whole.stack for _ in range(run.count)]
    routed = [layer for layer in each if isinstance(layer.network, Experts)]
    plain = [layer for layer in each if not isinstance(layer.network, Experts)]
    layers = resized.num_hidden_layers
    if dense > layers or (dense and not plain) or (dense < layers and not routed):
        raise InputError(f"dense_layers: {dense} of {counted(layers, 'layer')}, but {whole.name} has no such layers")
    kept = [plain[i % len(plain)] for i in range(dense)] + [routed[i % len(routed)] for i in range(layers - dense)]
    return msgspec.structs.replace(resized, stack=runs_of(kept), dense_layers=dense)


def _by_numbers(cells: Cells, assumed: list[str]) -> Architecture:
    hidden, heads = count_of(cells, "hidden"), count_of(cells, "heads")
    gated = flag_of(cells, "gated_mlp", _likely_gated(cells, hidden)) > 0
    tied = flag_of(cells, "tied", 0 if gated else 1) > 0
    assumed += _sizes_assumed(cells, hidden, heads, tied=tied, gated=gated)
    config = {
        "vocab_size": count_of(cells, "vocab", 51200),
        "hidden_size": hidden,
        "intermediate_size": count_of(cells, "ffn_hidden", 4 * hidden),
        "num_hidden_layers": count_of(cells, "layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": count_of(cells, "kv_heads", heads),
        "max_position_embeddings": count_of(cells, "seq_len"),
        "model_type": "llama" if gated else "gpt2",
        "head_dim": -(-hidden // heads),
    }
    config |= {key: count_of(cells, column) for column, key in EXPERTS.items() if not is_empty(cells.get(column, ""))}
    if "num_experts" in config and "num_experts_per_tok" not in config:
        raise InputError("top_k: not stated, of a model with experts")
    name = cells.get("model_name", "")
    found = Architecture.from_sizes({**config, "tie_word_embeddings": tied}, name=name, where="row")
    return _replaced(found, dense_layers=count_of(cells, "dense_layers", 0, least=0))


def _likely_gated(cells: Cells, hidden: int) -> int:
    """Return 1 where a network is no four times as wide as the residual stream, as those of two matrices are."""
    routed = not is_empty(cells.get("experts", ""))
    return int(not routed and count_of(cells, "ffn_hidden", 4 * hidden) != 4 * hidden)


def _sizes_assumed(cells: Cells, hidden: int, heads: int, *, tied: bool, gated: bool) -> list[str]:
    """Return the sizes of a model that a row leaves out, with what they are taken for."""
    routed = all(not is_empty(cells.get(column, "")) for column in ("experts", "expert_ffn"))
    taken = {
        "vocab": "vocabulary 51200",
        "kv_heads": f"kv_heads {heads}, as many as heads" if heads > 1 else "",
        "ffn_hidden": "" if routed else f"ffn_hidden {4 * hidden}, 4 x hidden",
        "gated_mlp": (
            "three matrices in the network, since it is not 4 x hidden wide (gated_mlp 0: two)"
            if gated
            else "two matrices in the network (gated_mlp 1: three)"
        ),
        "tied": f"tied {tied:d}: the output {'is the embedding' if tied else 'has weights of its own'}",
    }
    return [told for column, told in taken.items() if told and is_empty(cells.get(column, ""))]


def _replaced(model: Architecture, **values: int) -> Architecture:
    try:
        return model.resized(**values)
    except ValueError as error:
        raise InputError(f"{error}") from None
