"""Hydra's trees of YAML: the configuration that a program gets, with the groups and words of its command line.

Source: hydra.cc/docs/advanced/defaults_list (1.3): a defaults list in its order, `_self_` last where it is not named.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from ...errors import InputError
from ..documents import load_document, read_document
from ..interpolation import Interpolated
from ..keys import dotted_keys
from ..launch import named_by
from ..python.values import Opaque, PythonCall
from ..shell.marks import reasons

WORD = re.compile(r"(\+{1,2}|~)?([A-Za-z_][\w./@-]*)(?:=(.*))?", re.DOTALL)
PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
ENTRY = re.compile(r"((?:(?:optional|override)\s+){0,2})(/?[\w./-]+)(?:@([\w.:/-]+))?")
TREE = "DictConfig"
DEEPEST = 20
Find = Callable[[str], tuple[str, dict[str, Any]] | None]  # text and settings of a file, by its path in the tree


def compose(name: str, words: Sequence[str], find: Find, variables: Mapping[str, str]) -> tuple[PythonCall, list[str]]:
    """Return the configuration of this name with words of a command line on top, and what was assumed.

    Raises InputError where a file of the tree is missing or a word is of a kind that is not read.
    """
    values = laid(name, words, find)
    flat = Interpolated(dotted_keys(values), variables, f"{name}.yaml")
    resolved = {
        key: Opaque(", ".join(told)) if isinstance(value, str) and (told := reasons(value)) else value
        for key, value in flat.resolved().items()
    }
    return _record(values, resolved, ""), flat.assumed


def laid(name: str, words: Sequence[str], find: Find) -> dict[str, Any]:
    """Return the settings of this name with words of a command line on top, interpolations as they stand.

    Raises InputError where a file of the tree is missing or a word is of a kind that is not read.
    """
    made = _Tree(find)
    for word in words:
        if (match := WORD.fullmatch(word)) is not None and (match[3] is not None or match[1] == "~"):
            made.take(match)
    values = made.whole(name)
    for entry in [one for one in made.choices if one not in made.groups]:
        made.values.append(("", entry.replace("/", "."), made.choices[entry]))
    for sign, key, text in made.values:
        _set(values, key, text, removed=sign == "~")
    return values


def tree_finder(root: Path, taken: set[Path] | None = None) -> Find:
    """Return what finds the files of the tree in a folder, and adds each to `taken`."""

    def find(path: str) -> tuple[str, dict[str, Any]] | None:
        file = root / f"{path.removesuffix('.yaml')}.yaml"
        if ".." in PurePath(path).parts or not file.is_file():
            return None
        _, text = read_document(str(file))
        if taken is not None:
            taken.add(file.resolve())
        return text, load_document(f"{path}.yaml", text, "yaml")

    return find


def named_tree(arguments: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the folder and the name of the configuration that a command's own flags choose, None for what they leave.

    Source: hydra.cc/docs/advanced/hydra-command-line-flags.
    """
    folder, name = (
        next(filter(None, (named_by(arguments, flag) for flag in flags)), None)
        for flags in (("config-path", "cp", "config-dir", "cd"), ("config-name", "cn"))
    )
    return folder, None if name is None else name.removesuffix(".yaml")


class _Tree:
    """The choices of groups and the words of a command line, while files of a tree are put together."""

    def __init__(self, find: Find) -> None:
        self.find = find
        self.choices: dict[str, str] = {}  # `group=option` of the command line and of `override` entries
        self.groups: set[str] = set()  # that a defaults list has
        self.added: list[tuple[str, str]] = []
        self.values: list[tuple[str, str, str]] = []

    def take(self, match: re.Match[str]) -> None:
        """Take a word of the command line: a choice of a group, or a value."""
        sign, key, text = match[1] or "", match[2], match[3] or ""
        if sign.startswith("+") and self.find(f"{key}/{text}") is not None:
            self.added.append((key, text))
        elif sign or "." in key:
            self.values.append((sign, key, text))
        else:
            self.choices[key] = text

    def whole(self, name: str) -> dict[str, Any]:
        """Return the files of the tree laid over each other; an `override` holds for groups that came before it too."""
        while True:
            values: dict[str, Any] = {}
            known = set(self.choices)
            self.add(name, "", "", values, 0)
            for group, option in self.added:
                self.add(f"{group}/{option}", group, group.replace("/", "."), values, 0)
            if self.choices.keys() == known:
                return values

    def add(self, name: str, folder: str, package: str, values: dict[str, Any], depth: int) -> None:
        """Lay a file of the tree, with its defaults list, over the values."""
        found = self.find(name)
        if found is None or depth > DEEPEST:
            raise InputError(f"{name}.yaml: is not here: give the files of Hydra's tree too")
        text, data = found
        own = {key: value for key, value in data.items() if key != "defaults"}
        if (said := PACKAGE.search(text)) is not None and said[1] not in {"_group_", "_name_"}:
            package = "" if said[1] == "_global_" else said[1]
        entries = data.get("defaults")
        listed = entries if isinstance(entries, list) else []
        for entry in listed:  # overrides hold for what stands before them too
            if isinstance(entry, dict):
                for key, option in entry.items():
                    match = ENTRY.fullmatch(str(key))
                    if match is not None and "override" in match[1] and isinstance(option, str):
                        self.choices.setdefault(match[2].lstrip("/"), option)
                        self.groups.add(match[2].lstrip("/"))
        for entry in [*listed, *(["_self_"] if "_self_" not in listed else [])]:
            if entry == "_self_":
                _merge(values, package, own)
            else:
                self._entry(entry, folder, package, values, depth)

    def _entry(self, entry: Any, folder: str, package: str, values: dict[str, Any], depth: int) -> None:
        """Add what one entry of a defaults list names."""
        pairs = list(entry.items()) if isinstance(entry, dict) else [(str(entry), None)]
        for key, option in pairs:
            match = ENTRY.fullmatch(str(key))
            if match is None:
                raise InputError(f"defaults: {key}: is of a kind that is not read")
            kind, path, placed = match.groups()
            path = path.lstrip("/") if path.startswith("/") or not folder else f"{folder}/{path}"
            if "override" in kind or path.split("/")[0] == "hydra":
                continue
            if not isinstance(entry, dict):
                group, _, _ = path.rpartition("/")
                self.add(path, group, _package(placed, package, group), values, depth + 1)
                continue
            self.groups.add(path)
            chosen = self.choices.get(path, option)
            for one in chosen if isinstance(chosen, list) else [chosen]:
                if one is None or str(one).lower() in {"null", ""}:
                    continue
                if "optional" in kind and self.find(f"{path}/{one}") is None:
                    continue
                self.add(f"{path}/{one}", path, _package(placed, package, path), values, depth + 1)


def _package(placed: str | None, outer: str, group: str) -> str:
    """Return the dotted place of a file: its group, or what stands behind the @."""
    if placed is None:
        return group.replace("/", ".")
    if placed.startswith("_global_"):
        return placed.removeprefix("_global_").lstrip(".")
    inner = "" if placed == "_here_" else placed
    return ".".join(part for part in (outer, inner) if part)


def _merge(values: dict[str, Any], package: str, own: Mapping[str, Any]) -> None:
    for part in package.split(".") if package else []:
        inner = values.get(part)
        values[part] = values = inner if isinstance(inner, dict) else {}
    _lay(values, own)


def _lay(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        old = values.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _lay(old, value)
        elif isinstance(value, Mapping):
            values[key] = {}
            _lay(values[key], value)
        else:
            values[key] = value


def _set(values: dict[str, Any], key: str, text: str, *, removed: bool) -> None:
    """Set a value by a word of the command line, or take it away."""
    *heads, last = key.split(".")
    for head in heads:
        inner = values.get(head)
        values[head] = values = inner if isinstance(inner, dict) else {}
    if removed:
        values.pop(last, None)
        return
    try:
        values[last] = text if reasons(text) else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        values[last] = text


def _record(values: Mapping[str, Any], resolved: Mapping[str, Any], prefix: str) -> PythonCall:
    """Return a mapping as a record, so that the program's `cfg.a.b` finds what stands there."""
    found = PythonCall(TREE)
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.fields[str(key)] = _record(value, resolved, f"{prefix}{key}.")
        else:
            found.fields[str(key)] = resolved.get(f"{prefix}{key}", value)
    return found
