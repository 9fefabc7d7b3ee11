"""The catalogue as rows: listed, filtered by words, and compared column by column."""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import InputError, nearest
from ..units import format_network_rate, format_rate
from .arithmetic import gpu_link, node_network_bytes_per_s
from .catalogue import Catalogue, sourced_figures

TABLES = ("accelerators", "interconnects", "switches", "networks", "nodes", "fabrics", "traps")
OF_A_GPU = ("memory", "memory_rate", "flops.bf16", "flops.fp8")  # of a node's accelerators, what nodes are told by
EMPTY: tuple[object, ...] = (None, False, "", [], (), {})


class HardwareEntry(msgspec.Struct, frozen=True):
    """One entry of the catalogue as text, with the number behind each figure and its source."""

    table: str
    name: str
    title: str
    texts: dict[str, str]
    numbers: dict[str, float]
    sources: dict[str, str]
    traps: tuple[str, ...] = ()


def entries(catalogue: Catalogue, words: Sequence[str] = ()) -> list[HardwareEntry]:
    """Return the entries in which every one of `words` occurs (in table, name, title or text), in the file's order.

    A word that ends in a digit is a whole number first ("H20" is no H200), and the beginning of one ("mi35") where no
    entry has them all so.
    """
    found = [
        _entry(catalogue, table, name, item)
        for table in TABLES[:-1]
        for name, item in getattr(catalogue, table).items()
    ]
    found += [HardwareEntry("traps", trap.name, trap.claim, {"truth": trap.truth}, {}, {}) for trap in catalogue.traps]
    exact = [_word(word) for word in words]
    begun = [re.compile(re.escape(word.lower())) for word in words]
    chosen = (
        [entry for entry in found if all(word.search(_haystack(entry)) for word in wanted)] for wanted in (exact, begun)
    )
    return next(filter(None, chosen), [])


def with_accelerators(catalogue: Catalogue, found: Sequence[HardwareEntry]) -> list[HardwareEntry]:
    """Return entries with the accelerators of the nodes among them before them, where nothing but nodes was found."""
    if any(entry.table != "nodes" for entry in found):
        return list(found)
    keys = dict.fromkeys(catalogue.nodes[entry.name].accelerator for entry in found)
    return [*(_entry(catalogue, "accelerators", key, catalogue.accelerators[key]) for key in keys), *found]


def find_entry(catalogue: Catalogue, name: str) -> HardwareEntry:
    """Return the entry of exactly this name; InputError with the nearest name if there is none."""
    every = {entry.name: entry for entry in entries(catalogue)}
    if name not in every:
        node = catalogue.node_key(name) if catalogue.is_node(name) else None
        name = catalogue.driver_key(name) or node or name
    if name not in every:
        close = nearest(name, every)
        told = close if close.startswith("did") else "`topo --catalogue WORD` lists those with a word, without one all"
        raise InputError(f"no entry {name!r} in the catalogue ({told})")
    return every[name]


def of_its_gpus(catalogue: Catalogue, entry: HardwareEntry) -> HardwareEntry:
    """Return the entry of a node with the figures of one of its accelerators behind its own; others as they are."""
    if entry.table != "nodes":
        return entry
    node = catalogue.nodes[entry.name]
    one = _entry(catalogue, "accelerators", node.accelerator, catalogue.accelerators[node.accelerator])
    keys = {key: f"gpu {key.removeprefix('flops.')}" for key in OF_A_GPU if key in one.texts}
    texts = {word: one.texts[key] for key, word in keys.items()}
    numbers = {word: one.numbers[key] for key, word in keys.items()}
    if node.link or catalogue.accelerators[node.accelerator].link:
        rate = gpu_link(catalogue, node).rate_bytes_per_s
        texts["gpu links"], numbers["gpu links"] = _text("nodes", "rate", format_rate(rate), rate), rate
    return msgspec.structs.replace(entry, texts=entry.texts | texts, numbers=entry.numbers | numbers)


def compared(chosen: Sequence[HardwareEntry]) -> list[tuple[str, list[str]]]:
    """Return rows (figure, one text an entry); a number carries its ratio to the first entry's."""
    keys = list(dict.fromkeys(key for entry in chosen for key in entry.texts))
    rows = []
    for key in keys:
        base = chosen[0].numbers.get(key)
        cells = []
        for entry in chosen:
            text, number = entry.texts.get(key, "-"), entry.numbers.get(key)
            ratio = f" ({number / base:.2f}x)" if base and number and entry is not chosen[0] else ""
            cells.append(text + ratio)
        rows.append((key, cells))
    return rows


def toml_entry(catalogue: Catalogue, name: str) -> str:
    """Return an entry as TOML that a file for --hardware may start from, with the sources that it names."""
    entry = find_entry(catalogue, name)
    if entry.table == "traps":
        raise InputError(f"{name}: a trap is no entry to start from")
    if entry.table == "accelerators":
        name = catalogue.accelerator_key(name)
    item = getattr(catalogue, entry.table)[name]
    plain = {key: value for key, value in msgspec.to_builtins(item).items() if value not in EMPTY}
    used = sorted({claim.source for figure in sourced_figures(item).values() for claim in (figure, *figure.others)})
    lines = ["[sources]", *(f"{key} = {_toml(catalogue.sources[key])}" for key in used)]
    lines += ["", f"[{entry.table}.{name}]", *(f"{key} = {_toml(value)}" for key, value in plain.items())]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """Return a value of the catalogue in TOML, tables inline."""
    if isinstance(value, dict):
        inside = ", ".join(f"{key} = {_toml(v)}" for key, v in value.items() if v not in EMPTY)
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(v) for v in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False)


def _entry(catalogue: Catalogue, table: str, name: str, item: Any) -> HardwareEntry:
    texts, numbers, sources = {}, {}, {}
    for field in item.__struct_fields__:
        value = getattr(item, field)
        if isinstance(value, str) and value and field != "title":
            texts[field] = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            texts[field], numbers[field] = f"{value:g}", float(value)
    for key, figure in sourced_figures(item).items():
        texts[key], numbers[key], sources[key] = (
            _text(table, key, figure.value, figure.number),
            figure.number,
            figure.source,
        )
        for other in figure.others:
            texts[key] += f" [{other.value} by {other.source}]"
    if found_in := getattr(item, "found_in", ()):
        texts["found_in"] = ", ".join(found_in)
    if table == "nodes" and item.network:
        rate = node_network_bytes_per_s(catalogue, item)
        texts["network_rate"], numbers["network_rate"] = f"{format_network_rate(rate)} per direction", rate
    return HardwareEntry(table, name, item.title, texts, numbers, sources, getattr(item, "traps", ()))


def _text(table: str, key: str, value: str | int | float, number: float) -> str:
    """Print a figure; rates between nodes in Gb/s, inside a node in GB/s with the duplex figure beside it."""
    if not isinstance(value, str):
        return f"{value:g}"
    if not key.endswith("rate") or key == "memory_rate":
        return value
    if table == "networks":
        return f"{format_network_rate(number)} per direction"
    return f"{format_rate(number)} per direction ({format_rate(2 * number)} duplex)"


def _word(word: str) -> re.Pattern[str]:
    """Return what finds a word, but no number within a longer one: "H20" is no H200."""
    before, behind = (r"(?<!\d)" if word[:1].isdigit() else ""), (r"(?!\d)" if word[-1:].isdigit() else "")
    return re.compile(before + re.escape(word.lower()) + behind)


def _haystack(entry: HardwareEntry) -> str:
    said = (re.sub(r" by [\w-]+\]", "]", text) for text in entry.texts.values())  # a source is no word of the entry
    return " ".join((entry.table, entry.name, entry.title, *said)).lower()
