"""Configuration files as plain data: YAML by the safe loader, JSON, TOML; nothing in them is executed.

YAML tags that would build objects are refused, a tag of some program's own (`!include`) stays a word; aliases may not
blow up, and a key may stand once in a mapping.
"""

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from ..errors import InputError
from ..files import parse_json, parse_toml, read_text

MAX_BYTES = 4 * 2**20
MOST_VALUES = 200_000
CONFLICT = re.compile(r"^<{7} .*$(?=[\s\S]*?^={7}$[\s\S]*?^>{7} )", re.MULTILINE)  # the marks of git merge
DEEPEST = 100
KINDS = {
    **{".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python", ".ipynb": "notebook"},
    **{".mk": "makefile", "makefile": "makefile", "gnumakefile": "makefile"},
    **{
        ".just": "justfile",
        "justfile": "justfile",
        ".justfile": "justfile",
        "dockerfile": "dockerfile",
        ".dockerfile": "dockerfile",
        ".md": "markdown",
        ".markdown": "markdown",
    },
}


@dataclass(frozen=True, slots=True)
class Document:
    """One configuration file as plain data."""

    name: str
    kind: str  # yaml, json, toml
    data: dict[str, Any]
    path: str = ""  # as it was given

    @property
    def keys(self) -> frozenset[str]:
        """The names of its first level."""
        return frozenset(self.data)


def read_document(path: str) -> tuple[str, str]:
    """Return the name of a file, for messages, and its text; InputError for one whose merge nobody finished."""
    name, text = PurePath(path).name, read_text(path, max_bytes=MAX_BYTES)
    found = CONFLICT.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise InputError(f"{name}: line {line}: a merge conflict, which git has left in the file and nobody resolved")
    return name, text


def kind_of(name: str, text: str) -> str:
    """Return what a file is written in: yaml, json, toml, python, notebook, makefile, markdown or shell, ..."""
    path = PurePath(name.lower())
    known = KINDS.get(path.suffix) or KINDS.get(path.name)
    if known:
        return known
    start = text.lstrip()
    return "json" if start.startswith("{") else "shell"


def load_document(name: str, text: str, kind: str) -> dict[str, Any]:
    """Return the mapping that a YAML, JSON or TOML text holds; every fault is an InputError of one line."""
    if kind == "json":
        try:
            data = parse_json(text, where=name)
        except InputError:
            plain = without_comments(text)  # DeepSpeed reads its file as Hjson
            if plain == text:
                raise
            data = parse_json(plain, where=name)
    elif kind == "toml":
        data = parse_toml(text, where=name)
    else:
        data = _yaml(name, text)
    if not isinstance(data, dict):
        raise InputError(f"{name}: expected a mapping of settings, got {type(data).__name__}")
    return data


STRING = r'"(?:[^"\\\n]|\\.)*"'
BESIDE = re.compile(rf"({STRING})|//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
TRAILING = re.compile(rf"({STRING})|,(?=\s*[}}\]])")


def without_comments(text: str) -> str:
    """Return a JSON text without comments and without commas that close a list."""
    plain = BESIDE.sub(lambda match: match.group(1) or "", text)
    return TRAILING.sub(lambda match: match.group(1) or "", plain)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader, for which a tag that a program gives a meaning of its own is a word before its value."""


def _tagged(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return f"!{tag} {node.value}".rstrip()


_Loader.add_multi_constructor("!", _tagged)


def _yaml(name: str, text: str) -> Any:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _unfolded(root, name, {}, 0)
        return _Loader(text).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{name}: {line}{getattr(error, 'problem', None) or 'no YAML'}") from None
    except (ValueError, RecursionError, OverflowError, AttributeError, TypeError) as error:
        raise InputError(f"{name}: {str(error) or 'nested too deeply'}") from None


def _unfolded(node: yaml.Node, name: str, sizes: dict[int, int], depth: int) -> int:
    """Return how many values a node unfolds into; InputError beyond the limits, or for a key that stands twice."""
    line = node.start_mark.line + 1
    if depth > DEEPEST:
        raise InputError(f"{name}: line {line}: nested deeper than {DEEPEST} levels, refused")
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise InputError(f"{name}: line {line}: a value that holds itself, refused")
        return sizes[id(node)]
    sizes[id(node)] = 0  # until all that it holds is counted
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inner = list(node.value)
    elif isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        twice = next((key for place, key in enumerate(keys) if key in keys[:place]), None) if len(keys) < 2000 else None
        if twice is not None:
            raise InputError(f"{name}: line {line}: key {twice!r} is given twice")
    size = 1 + sum(_unfolded(part, name, sizes, depth + 1) for part in inner)
    if size > MOST_VALUES:
        raise InputError(f"{name}: line {line}: unfolds to more than {MOST_VALUES} values, refused")
    sizes[id(node)] = size
    return size
