"""Configuration files as plain data: YAML by the safe loader, JSON, TOML; nothing in them is executed.

YAML tags that would build objects are refused, anchors may not blow up, and a key may stand once in a mapping.
"""

from pathlib import PurePath
from typing import Any

import yaml

from ..errors import InputError
from ..files import parse_json, parse_toml, read_text

MAX_BYTES = 4 * 2**20
MOST_NODES = 200_000
KINDS = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python"}


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, with numbers such as 1e-4 as numbers and no key twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
        if not isinstance(key, str | int | float | bool):
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is no word", key_node.start_mark)
        found[key if isinstance(key, str) else str(key)] = loader.construct_object(value_node, deep=True)  # type: ignore[no-untyped-call]
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_document(path: str) -> tuple[str, str]:
    """Return the name of a file, for messages, and its text."""
    return PurePath(path).name, read_text(path, max_bytes=MAX_BYTES)


def kind_of(name: str, text: str) -> str:
    """Return what a file is written in: yaml, json, toml, python or shell."""
    known = KINDS.get(PurePath(name).suffix.lower())
    if known:
        return known
    start = text.lstrip()
    return "json" if start.startswith("{") else "shell"


def load(name: str, text: str, kind: str) -> dict[str, Any]:
    """Return the mapping that a YAML, JSON or TOML text holds; every fault is an InputError of one line."""
    if kind == "json":
        data = parse_json(text, where=name)
    elif kind == "toml":
        data = parse_toml(text, where=name)
    else:
        data = _yaml(name, text)
    if not isinstance(data, dict):
        raise InputError(f"{name}: expected a mapping of settings, got {type(data).__name__}")
    return data


def _yaml(name: str, text: str) -> Any:
    try:
        _refuse_bombs(name, text)
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{name}: {line}{getattr(error, 'problem', None) or 'no YAML'}") from None
    except (ValueError, RecursionError, OverflowError, AttributeError) as error:
        raise InputError(f"{name}: {str(error) or 'nested too deeply'}") from None


def _refuse_bombs(name: str, text: str) -> None:
    """Count what aliases would unfold into; InputError beyond MOST_NODES."""
    sizes: dict[str, int] = {}
    stack: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        size = 0
        if isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            size = 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            stack.append((event.anchor, total))
            size = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = stack.pop()
            if anchor:
                sizes[anchor] = total - before
        total += size
        if total > MOST_NODES or len(stack) > 100:
            raise InputError(f"{name}: unfolds to more than {MOST_NODES} values or 100 levels, refused")
