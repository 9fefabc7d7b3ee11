"""Reader: the keys of one config.json, with the defaults of its model type; it knows which keys were understood."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ..architecture import MOST_LAYERS
from .ignored import is_ignored

# the names that families give to the same size, the commonest first
ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "dff", "hidden_dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_query_groups", "n_head_kv"),
    "head_dim": ("head_dim", "attention_head_dim"),
    "max_position_embeddings": (
        *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length"),
        "max_sequence_length",
    ),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": (
        *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k"),
        *("top_k_experts",),
    ),
    "expert_size": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_size": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
    ),
    "first_k_dense_replace": ("first_k_dense_replace", "num_dense_layers"),
    "num_nextn_predict_layers": ("num_nextn_predict_layers", "num_mtp_layers"),
    "tied": ("tie_word_embeddings",),
    "channels": ("num_channels", "in_channels"),  # of an image
}
OTHERWISE = "{read} = {size} is read; {key} = {value}, which the class passes over, says otherwise"
OF_FILES = frozenset({"num_nextn_predict_layers"})  # what a file says of layers that its class leaves out
SHARING = re.compile("tie|share|no_")
LENGTH = "max_position_embeddings"
OF_LENGTH = re.compile("position_embeddings|n_positions|n_ctx|seq.*len|context_length|(model|source|target).*(len|pos)")
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
MOST = 2**40


class ConfigReader:
    """Sizes by name: what the config says, else the default of its model type.

    `assumed` collects the sizes that came from defaults, `used` the keys that were read. `names`: the keys of ALIASES
    that the class takes; another one says nothing to it. None: all of them (no class is known).
    """

    def __init__(
        self, config: Mapping[str, Any], defaults: Mapping[str, Any], where: str, names: Sequence[str] | None = None
    ) -> None:
        self._config, self._defaults, self.where, self._names = config, defaults, where, names
        self.used: set[str] = set()
        self.assumed: list[str] = []
        self.token: list[str] = []  # of those, what a token stands for, where it is no word of one text
        self._parts: dict[str, ConfigReader] = {}  # of objects inside
        self._layers: dict[int, ConfigReader] = {}  # of single layers
        self._of_layers: dict[int, Mapping[str, Any]] | None = None  # what is said of single layers

    @property
    def of_library(self) -> bool:
        """Whether the model type has a class in the library, whose defaults are known."""
        return bool(self._defaults)

    def value(self, name: str, default: Any = None) -> Any:
        """Return what the config says under a name or its aliases, or the model type's default, or `default`.

        Where the config says null it is `default`.
        """
        keys = self.keys(name)
        given = [key for key in keys if self._config.get(key) is not None]
        self.used.update(given)
        if given:
            values = [self._config[key] for key in given]
            if any(value != values[0] for value in values):
                raise InputError(f"{self.where}: {' and '.join(given)}: expected one value, got {values}")
            return values[0]
        if name not in SIZES and self.says(name):
            return default  # null: the class leaves it out, whatever it assumes where nothing is said
        for key in keys:
            if self._defaults.get(key) is not None:
                if name in SIZES:
                    self._assume(name, key)
                return self._defaults[key]
        return default

    def _assume(self, name: str, key: str) -> None:
        if name in self._config:  # null, where a size must stand
            raise InputError(f"{self.where}: {name}: expected a whole number, got null")
        told = f"{key} = {self._defaults[key]}, the default of the model type"
        if told not in self.assumed:
            self.assumed.append(told)

    def tell_token(self, told: str) -> None:
        """Assume what a token stands for."""
        self.token.append(told)
        self.assumed.append(told)

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number of 0 or more; InputError where it is missing and has no default."""
        value = self.value(name, default)
        if value is False and default is not None:  # a number that is switched off
            value = default
        if isinstance(value, list) and value and all(item == value[0] for item in value):  # one for each layer
            value = value[0]
        if value is None:
            raise InputError(f"{self.where}: {name}: missing (expected a key such as {', '.join(self.keys(name))})")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
            raise InputError(f"{self.where}: {self.found(name)}: expected a whole number of 0 or more, got {value!r}")
        return value

    def worked_out(self, name: str, size: int, how: str) -> int:
        """Return a whole number, or the `size` that classes without a default of their own work out from others."""
        if self.given(name) or any(key in self._defaults for key in self.keys(name)):
            return self.whole(name)
        told = f"{name} = {size}, {how}, as the class of the model type works it out"
        if told not in self.assumed:
            self.assumed.append(told)
        return size

    def layers(self) -> int:
        """Return the number of layers."""
        count = self.whole("num_hidden_layers")
        if not 1 <= count <= MOST_LAYERS:
            raise InputError(f"{self.where}: num_hidden_layers: expected 1 to {MOST_LAYERS}, got {count}")
        return count

    def classes(self) -> int:
        """Return over how many classes an output is: as many as there are labels, else 2 as the library has it."""
        labels = self.value("id2label", {})
        count = self.whole("num_labels", len(labels) if isinstance(labels, dict) and labels else 2)
        if not count:
            raise InputError(f"{self.where}: num_labels: expected 1 or more, got 0")
        return count

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return a switch: that of the first name that is given; null is off."""
        for name in names:
            value = self.value(name, False if self.says(name) else None)
            if value is not None:
                if not isinstance(value, bool):
                    raise InputError(f"{self.where}: {self.found(name)}: expected true or false, got {value!r}")
                return value
        return default

    def numbers(self, name: str) -> list[int] | None:
        """Return a list of whole numbers, None where there is none."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or not all(type(item) is int and 0 <= item < MOST for item in value):
            raise InputError(f"{self.where}: {name}: expected a list of whole numbers, got {value!r}")
        return list(value)

    def words(self, name: str, count: int, further: int = 0) -> list[str] | None:
        """Return a list of one word for each of `count` layers, None where there is none.

        `further`: words of as many layers that predict further tokens may follow.
        """
        value = self.value(name)
        if name not in self._config or value is None:  # a default holds for the default number of layers alone
            return None
        words = value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None
        if words is None or len(words) not in {count, count + further}:
            got = f"a list of {len(words)}" if words is not None else f"{value!r:.100}"
            layers = f"{count} layers ({self.found('num_hidden_layers')})"
            raise InputError(f"{self.where}: {name}: expected a word for each of the {layers}, got {got}")
        return [*value[:count]]

    def alone(self, key: str) -> Any:
        """Return what the config says under one key and none of its aliases, None where it says nothing."""
        return self._config.get(key)

    def given(self, name: str) -> bool:
        """Return whether the config itself says something under a name."""
        return any(self._config.get(key) is not None for key in self.keys(name))

    def says(self, name: str) -> bool:
        """Return whether the config itself has a name, if only as null."""
        return any(key in self._config for key in self.keys(name))

    def changed(self, values: Mapping[str, Any]) -> "ConfigReader":
        """Return a reader that finds some values in place of those of the config, and knows what this one read."""
        names = None if self._names is None else (*self._names, *values)
        other = ConfigReader({**self._config, **values}, self._defaults, self.where, names)
        other.used, other.assumed, other.token = self.used, self.assumed, self.token
        return other

    def of_layers(self) -> dict[int, Mapping[str, Any]]:
        """Return what `per_layer_config` says by the place of a layer, however that is written: 2, "2" or "02"."""
        if self._of_layers is not None:
            return self._of_layers
        found: dict[int, Mapping[str, Any]] = {}
        count = self.layers()
        for key, values in self.part("per_layer_config").items():
            place = int(key) if str(key).isdecimal() else count
            if place >= count or place in found:
                raise InputError(f"{self.where}: per_layer_config: {key}: expected each of 0 to {count - 1} once")
            if not isinstance(values, Mapping):
                raise InputError(f"{self.where}: per_layer_config: {key}: expected an object")
            found[place] = values
        self._of_layers = found
        return found

    def of_layer(self, place: int) -> "ConfigReader":
        """Return the reader of one layer, of which `per_layer_config` may say values of its own."""
        if place not in self._layers:
            other = self.changed(self.of_layers().get(place, {}))
            other.used, other._names = set(), self._names
            self._layers[place] = other
        return self._layers[place]

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a mapping inside the config, empty where there is none."""
        value = self.value(name, {})
        if not isinstance(value, Mapping):
            raise InputError(f"{self.where}: {name}: expected an object, got {type(value).__name__}")
        return value

    def inside(self, name: str) -> "ConfigReader":
        """Return the reader of an object inside the config, whose keys must be understood as those of the config."""
        given, usual = self.part(name), self._defaults.get(name)
        other = ConfigReader(given if given is not usual else {}, usual or {}, f"{self.where}: {name}")
        other.assumed, other.token = self.assumed, self.token
        self._parts[name] = other
        return other

    def take(self, name: str, part: "ConfigReader") -> None:
        """Hold the keys of an object, wherever it came from, to be understood as those of the config."""
        self._parts[name] = part

    def skip(self, *names: str) -> None:
        """Take keys as understood: they change no size in this model type."""
        self.used.update(key for name in names for key in ALIASES.get(name, (name,)))

    def repeats(self, name: str, size: int) -> None:
        """Take the keys of a name as understood that say a size which stands under another name."""
        self.used.update(key for key in ALIASES[name] if key in self._config and _same(self._config[key], size))

    def fixed(self, expected: Mapping[str, Any]) -> None:
        """Take keys as understood that hold what the class does anyway; InputError at one with another value."""
        for key, value in expected.items():
            said = self.value(key, value) if self.keys(key) else self.alone(key)
            self.used.add(key)
            if said not in (None, value):
                raise InputError(
                    f"{self.where}: {key}: expected {value!r}, as the class has it, got {self.alone(key)!r}"
                )

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the keys that a name may stand under."""
        keys = ALIASES.get(name, (name,))
        if self._names is None or len(keys) == 1 or name in OF_FILES:
            return keys
        return tuple(key for key in keys if key in self._names)

    def found(self, name: str) -> str:
        """Return the key under which the config has a name."""
        return next((key for key in self.keys(name) if self._config.get(key) is not None), name)

    def length_beside(self) -> tuple[int, str]:
        """Return the tokens of a sequence that a file says under a key which its class passes over, and that key."""
        own = self.keys(LENGTH)
        said = ((self._config.get(key), key) for key in ALIASES[LENGTH] if key not in own)
        return next(((size, key) for size, key in said if type(size) is int and 0 < size < MOST), (0, ""))

    def is_usual_length(self, size: int) -> bool:
        """Return whether a length is the default of the model type, and the file says none under whatever key."""
        said = any(OF_LENGTH.search(key) and not is_empty(value) for key, value in self._config.items())
        return not said and any(self._defaults.get(key) == size for key in self.keys(LENGTH))

    def _repeated(self) -> set[str]:
        """Return the keys that say no more than others do: of heads what follows from the width, and other names."""
        hidden, heads = (
            next((self._config[key] for key in self.keys(name) if type(self._config.get(key)) is int), 0)
            for name in ("hidden_size", "num_attention_heads")
        )
        said = {
            **dict.fromkeys((*ALIASES["head_dim"], "attention_head_size"), hidden / heads if heads else 0),
            **dict.fromkeys(ALIASES["num_key_value_heads"], heads),
        }
        repeated = {key for key, value in said.items() if value and self._config.get(key) == value}
        return repeated | {other for other, _ in self._other_names()}

    def _other_names(self) -> list[tuple[str, str]]:
        """Return the keys that the class passes over, each with the one of the same size that was read."""
        found = []
        for name, keys in ALIASES.items():
            own, read = self.keys(name), self.found(name)
            if read in own and read in self.used and self._config.get(read) is not None:
                found += [(key, read) for key in keys if key not in own and self._config.get(key) is not None]
        return found

    def otherwise(self) -> list[str]:
        """Return what keys say that the class passes over, where it is another size than the one that was read."""
        return [
            OTHERWISE.format(key=key, value=self._config[key], read=read, size=self._config[read])
            for key, read in self._other_names()
            if not _same(self._config[key], self._config[read])
        ]

    def unknown(self) -> list[str]:
        """Return the keys that were neither read nor known to change no size.

        A switch that is off says nothing, unless it is one of sharing: without that there are more weights.
        """
        used = self.used.union(*(layer.used for layer in self._layers.values()))
        found = self._not_in(used, self._config)
        for place, values in self.of_layers().items() if "per_layer_config" in self.used else ():
            read = self._layers[place].used if place in self._layers else self.used
            found += [f"per_layer_config.{key}" for key in self._not_in(read, values)]
        found += [f"{name}.{key}" for name, part in self._parts.items() for key in part.unknown()]
        return list(dict.fromkeys(found))

    def _not_in(self, used: set[str], part: Mapping[str, Any]) -> list[str]:
        known = {*used, *self._repeated()}
        return [
            key
            for key, value in part.items()
            if key not in known
            and not is_ignored(key, value)
            and not (is_empty(value) and not (value is False and SHARING.match(key)))
        ]


def _same(one: Any, other: Any) -> bool:
    """Return whether two values say the same size; a list says it of each layer."""
    sizes = [each for value in (one, other) for each in (value if isinstance(value, list) else [value])]
    return all(size == sizes[0] for size in sizes)


def is_empty(value: Any) -> bool:
    """Return whether a value says nothing: null, false, zero, an empty list, or an object of nothing but such."""
    if isinstance(value, Mapping):
        return all(is_empty(each) for each in value.values())
    return value is None or value is False or value in (0, "", [])
