"""The answers of the library `transformers`: models of its own classes without memory, and the defaults of their keys.

python -m tests.unit.workload.configs.library    writes defaults.json and names.json anew
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import torch

from meshwright.workload import configs
from meshwright.workload.architecture import Architecture
from meshwright.workload.configs.classes import OWN
from meshwright.workload.configs.composites import COMPOSITES
from meshwright.workload.configs.families import RECIPES
from meshwright.workload.configs.outputs import NO_WORDS
from meshwright.workload.configs.reader import ALIASES, ConfigReader
from meshwright.workload.kinds import Experts

FILE = Path(configs.__file__).with_name("defaults.json")
NAMES = FILE.with_name("names.json")
PARTS = ("text_config", "vision_config", "audio_config", "encoder_config", "vq_config")
BESIDE = ("vision", "visual", "audio", "projector", "embed_vision", "vqmodel")  # parts that no token of text passes
ALIKE = {"kimi_k2": "deepseek_v3"}  # model types of other people's code, in the form of one of the library's
# model types that the library has no code for: published counts alone tell whether they are read rightly
STRANGERS = frozenset(
    {
        *(
            "bailing_moe",
            "bailing_moe_v2",
            "minimax_m1",
            "minimax_text_01",
            "internlm2",
            "baichuan",
            "chatglm",
            "arctic",
        ),
        *("phi3small", "kimi_vl", "phi4mm", "internvl_chat"),
        *("qwen", "aquila", "xverse", "internlm", "deepseek", "grok-1"),
        *("minicpm", "exaone", "openelm", "nemotron-nas", "mimo", "orion", "Dream", "hf_olmo", "llada"),
        *("jais", "molmo", "new", "gte"),
        "perception_lm",  # whose encoder lies in timm
    }
)
TEXTS = (
    "AutoModelForImageTextToText",
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForImageClassification",
    "AutoModelForCTC",
)
PAIRS = ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")
FILLED = {  # sizes without which a class computes no others
    "nemotron": {"num_key_value_heads": 8},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_vl_text": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "dots1": {"n_routed_experts": 32, "num_experts_per_tok": 6},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256}
    | {"indexer_budget": 2048, "indexer_compress_ratio": 16},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "gemma3n/vision_config": {"architecture": "mobilenetv5_300m_enc"},
    "aya_vision/vision_config": {"num_attention_heads": 16},
    "ovis2": {"hidden_size": 4096},  # of its text model
    "emu3": {"vocabulary_map": {"<image>": 1}},
    "esm": {"vocab_size": 33},
    "wav2vec2-bert": {"vocab_size": 64},
    "wav2vec2-conformer": {"vocab_size": 64},
    "granite4_vision": {"downsample_rate": "1/4", "deepstack_layer_map": [[1, 0], [2, 1]]},
    "deit": {"architectures": ["DeiTForImageClassification"]},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
}


class Recording(dict[str, Any]):
    """A mapping that knows which of its keys were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        self.asked.add(key)
        return super().get(key, default)


def configuration(config: Mapping[str, Any]) -> Any:
    """Return the library's object for a config.json."""
    from transformers import CONFIG_MAPPING

    keys = {key: value for key, value in config.items() if key not in {"model_type", "architectures"}}
    return CONFIG_MAPPING[ALIKE.get(config["model_type"], config["model_type"])].from_dict(keys)


def written(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json that the library writes for a config: with every key, defaults too."""
    return {**json.loads(configuration(config).to_json_string(use_diff=False)), "model_type": config["model_type"]}


def model(config: Mapping[str, Any]) -> torch.nn.Module:
    """Return the library's model of a config.json, its parameters without memory."""
    import transformers

    made = configuration(config)
    if config["model_type"] in OWN and not config.get("architectures"):
        return model({**config, "architectures": [next(iter(OWN[config["model_type"]]))]})
    with torch.device("meta"):
        if config.get("architectures"):
            return getattr(transformers, config["architectures"][0])(made)  # type: ignore[no-any-return]
        for name in (*(PAIRS if made.is_encoder_decoder else ()), *TEXTS, *PAIRS):
            try:
                return getattr(transformers, name).from_config(made)  # type: ignore[no-any-return]
            except ValueError as error:
                if "Unrecognized configuration" not in str(error):
                    raise
    if config["model_type"] in NO_WORDS:
        with torch.device("meta"):
            return transformers.AutoModel.from_config(made)  # type: ignore[no-any-return]
    raise LookupError(f"no model of {config['model_type']}")


def parameters(module: torch.nn.Module) -> int:
    """Return its parameters, a tied one once."""
    return sum(parameter.numel() for parameter in module.parameters())


def allocated(model: Architecture) -> int:
    """Return the parameters that the library allocates for an architecture: with what no published weights have."""
    routed = [(run.count, run.layer.network) for run in model.runs if isinstance(run.layer.network, Experts)]
    return model.parameters + sum(count * experts.empty for count, experts in routed)


def multiplied(module: torch.nn.Module, tops: Mapping[int, int] | None = None) -> float:
    """Return the weights that a token of text is multiplied with: linear layers, experts by the share that it visits.

    `tops`: how many experts a token visits, by how many there are.
    """
    found, seen = 0.0, set()
    for name, part in module.named_modules():
        if any(word in name for word in BESIDE):
            continue
        for key, weight in part.named_parameters(recurse=False):
            if weight.dim() == 3 and "expert" in name and weight.shape[0] in (tops or {}):
                found += weight.numel() * (tops or {})[weight.shape[0]] / weight.shape[0]
            elif key == "weight" and is_linear(part) and (id(part) not in seen):
                seen.add(id(part))
                found += weight.numel()
            elif key == "weight" and weight.dim() == 2 and name.endswith(("gate", "router", "wg", "classifier")):
                found += weight.numel()
    return found


def is_linear(part: torch.nn.Module) -> bool:
    """Return whether a module is a linear layer, in the library's own forms too."""
    return isinstance(part, torch.nn.Linear) or type(part).__name__ == "Conv1D"


def read_defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of the keys that are read, by model type."""
    found: dict[str, dict[str, Any]] = {}
    for kind in sorted(RECIPES.keys() - STRANGERS):
        values = Recording(configuration({"model_type": kind}).to_dict())
        for key, value in FILLED.get(kind, {}).items():
            if values.get(key) is None:
                values[key] = value
        RECIPES[kind](ConfigReader({}, values, kind))
        found[kind] = _asked(values, but={*FILLED.get(kind, {}), *derived(kind, values)})
    for kind, composite in COMPOSITES.items():
        if kind in STRANGERS:
            continue
        made = configuration({"model_type": kind, **{part: {} for part in composite.optional}})
        filled = {key: value for key, value in FILLED.get(kind, {}).items() if key in composite.beside}
        beside = {key: value for key, value in made.to_dict().items() if key in composite.beside} | filled
        width = getattr(getattr(made, "text_config", made), "hidden_size", 1024)
        for part, tower in (("vision_config", composite.tower), ("audio_config", composite.sound)):
            if tower is not None:
                own = getattr(made, part, None) or getattr(made, "encoder_config", None) or made.vq_config
                values = Recording((own if kind in OWN_ENCODER else type(own)()).to_dict())
                values |= beside
                tower(ConfigReader({}, values, kind), width)
                found[f"{kind}/{part.removesuffix('_config')}"] = _asked(values, but={*filled})
                beside = {}
    return found


# classes that fill in sizes of the encoder which its own class does not assume
OWN_ENCODER = frozenset({"llava", "llava_next", "llava_next_video", "llava_onevision", "vipllava", "cohere2_vision"})
FLAT = {"phi4_multimodal": 3072}  # types whose text model's sizes lie beside those of the encoders: its width
TIED_ANYWAY = frozenset({"t5", "mt5", "umt5"})  # by the library, and not by checkpoints that say otherwise
LARGE = frozenset({  # types whose tokens have numbers beyond a small vocabulary
    *("glm", "glm4", "phi3", "flex_olmo", "kimi_linear", "modernbert", "marian", "olmo_hybrid", "smollm3", "minicpm3"),
    *("whisper", "dots1", "axk2", "bailing_hybrid", "lfm3", "modernbert-decoder", "xglm", "hy_v4", "dots3_note_text"),
    "eurobert",
})  # fmt: skip
KEPT = frozenset({"model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "_name_or_path"})
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYERS_OF_BOTH = ("encoder_layers", "decoder_layers")  # of a text model with an encoder of its own


def base(kind: str) -> dict[str, Any]:
    """Return a config.json of a model type that builds fast: few layers, few tokens."""
    if kind in COMPOSITES:
        return _pair(kind)
    config = {"model_type": kind, **FILLED.get(kind, {})}
    sizes = configuration(config).to_dict()
    if "vocab_size" in sizes:
        config["vocab_size"] = 200_000 if kind in LARGE else 1000
    small = config | {key: 4 for key in LAYERS if isinstance(sizes.get(key), int)}
    try:
        configuration(small)
    except Exception:  # a class that lists its layers knows no other number of them
        return config
    return small


def _pair(kind: str) -> dict[str, Any]:
    if kind in FLAT:
        return {"model_type": kind, "num_hidden_layers": 4, "hidden_size": FLAT[kind]}
    made = configuration({"model_type": kind, **{part: {} for part in COMPOSITES[kind].optional}})
    parts = {name: value for name, value in made.to_dict().items() if name in PARTS and value is not None}
    absent = {"layer_types", "mlp_layer_types", "moe_layers", "no_rope_layers", "per_layer_config", "pad_token_id"}
    absent |= {"kv_source_layers", "indexer_types"}
    each = parts["text_config"].get("num_hidden_layers")
    text = {
        key: value
        for key, value in parts["text_config"].items()
        if key not in absent and not (isinstance(value, list) and len(value) == each)
    }
    text |= {"num_hidden_layers": 4} | dict.fromkeys(text.keys() & LAYERS_OF_BOTH, 4)
    text |= FILLED.get(str(text.get("model_type")), {})
    encoders = {
        part: {key: value for key, value in parts[part].items() if value is not None} | FILLED.get(f"{kind}/{part}", {})
        for part in PARTS
        if part in parts and part != "text_config"
    }
    return {"model_type": kind, "text_config": text, **encoders, **FILLED.get(kind, {})}


def changed(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a config.json with each key that its class knows changed in turn: switched, doubled, halved, null, set."""
    whole = configuration(config).to_dict()
    for part in (*PARTS, None):
        if part is None or part in config:
            known = whole if part is None else {**whole[part], **config[part]}
            for key, value in known.items():
                if key in KEPT or key.endswith(("_id", "2label", "label2id")) or isinstance(value, dict | list | str):
                    continue
                if part is None and key in {*LAYERS, "vocab_size"}:
                    continue
                if key == "tie_word_embeddings" and config["model_type"] in TIED_ANYWAY:
                    continue
                for other in _others(value):
                    yield {**config, **({key: other} if part is None else {part: {**config[part], key: other}})}


def joined(config: Mapping[str, Any], rng: Random, count: int = 4) -> dict[str, Any]:
    """Return a config.json in which some of the keys that its class knows are changed at once."""
    found = dict(config)
    every = list(changed(config))
    for one in rng.sample(every, min(count, len(every))):
        for key, value in one.items():
            if isinstance(value, dict) and key in PARTS:
                found[key] = found[key] | {k: v for k, v in value.items() if v != config[key].get(k, ...)}
            elif value != config.get(key, ...):
                found[key] = value
    return found


def _others(value: object) -> list[object]:
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [value * 2 if value else 2, value // 2 if value > 1 and value % 2 == 0 else None, None]
    return [True, 2, 256] if value is None else [None]


def derived(kind: str, values: Mapping[str, Any]) -> set[str]:
    """Return the keys that the class works out from others: they change when another one does."""
    found = set()
    for name, times in (("hidden_size", 2), ("num_attention_heads", 2), ("num_hidden_layers", 2)):
        for key in ALIASES[name]:
            if isinstance(values.get(key), int):
                try:
                    other = configuration({"model_type": kind, key: values[key] * times}).to_dict()
                except Exception:
                    continue
                found |= {k for k, value in other.items() if value != values.get(k) and k not in ALIASES[name]}
    return found


def _asked(values: Recording, but: set[str]) -> dict[str, Any]:
    """Return what was asked for and says something; lists of one entry a layer hold for other sizes too rarely."""
    return {
        key: values[key]
        for key in sorted(values.asked & values.keys())
        if values[key] is not None and key not in but and key not in {"layer_types", "mlp_layer_types", "moe_layers"}
    }


def read_names() -> dict[str, list[str]]:
    """Return which of the keys that families name the same sizes by the class of a model type takes."""
    found = {}
    for kind in sorted(RECIPES.keys() - STRANGERS):
        made = configuration(usual := {"model_type": kind, **FILLED.get(kind, {})})
        plain = made.to_dict()
        own = {*plain, *type(made).attribute_map}
        found[kind] = [
            key
            for keys in ALIASES.values()
            for key in keys
            if len(keys) > 1 and (key in own or _takes(usual, key, plain))
        ]
    return found


def _takes(usual: dict[str, Any], key: str, plain: Mapping[str, Any]) -> bool:
    """Return whether a class has other values, or its model other weights, for a key that is none of its own."""
    try:
        other = configuration(usual | {key: 192}).to_dict()
    except Exception:  # a size that does not fit the others was taken
        return True
    if any(value != plain.get(name) for name, value in other.items() if name != key):
        return True
    if key != "head_dim":  # of which a model may ask a configuration that knows no such key
        return False
    try:
        return parameters(model(base(usual["model_type"]))) != parameters(model(base(usual["model_type"]) | {key: 192}))
    except Exception:  # built as a part of others alone, or not with these sizes
        return True


def file_text(found: Mapping[str, Any]) -> str:
    """Return the text of a file, a line a model type: keys in the order of their letters, as sets have none."""
    rows = (f"{json.dumps(kind)}: {json.dumps(values, sort_keys=True)}" for kind, values in found.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    for file, found in ((FILE, read_defaults()), (NAMES, read_names())):
        file.write_text(file_text(found), "utf-8")
