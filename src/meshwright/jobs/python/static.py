"""Python configuration files read as data: calls, keywords and assignments; nothing in the file is executed.

A call of a class or of a function from elsewhere becomes a `Record` of its keywords; functions and constants of the
same file, and of modules in the same source tree, are followed. What cannot be told without running is `Opaque` and is
named where it matters.
"""

import ast
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..documents import read_document
from .calls import (
    ENVIRONMENT,
    LISTS,
    MAPPINGS,
    Walk,
    computed,
    instantiated,
    list_method,
    mapping_method,
    method,
    spread_fields,
    starred_values,
    text_method,
    variable,
)
from .functions import (
    FIELDS,
    LoopLeft,
    Returned,
    copied_fields,
    given_arguments,
    grown_lists,
    items_of,
    returns_config,
    runs_among,
    whole_call,
)
from .imports import imports_of, module_file, parsed
from .operators import OPERATORS, comparison_result, formatted, operated
from .values import COMPUTED, DEEPEST, TEXTS, Opaque, PythonCall, fields_of, is_of, joined_text, record_of

MOST_STEPS = 20_000
MOST_MODULES = 60
COPIES = frozenset({"copy.deepcopy", "deepcopy", "copy.copy", "cast", "typing.cast"})
PLAIN_TREES = frozenset({"OmegaConf.to_container", "OmegaConf.create"})  # of Hydra's configuration: the same settings
INSTANTIATE = frozenset({"instantiate", "hydra.utils.instantiate", "hydra.utils.call"})
REPLACES = frozenset({"replace", "dataclasses.replace", "dc_replace"})
# imported functions that the readers know by their arguments: which model, with which converters (torchtitan)
KNOWN_CALLS = frozenset({"model_registry"})


def config_of(
    text: str, function: str | None, *, where: str, path: Path, walk: Walk, given: Mapping[str, Any] | None = None
) -> tuple[str, Any]:
    """Return the name of a configuration function (or constant), and what it returns as data.

    `given` are values for its parameters by name. Without `function`, the file must have one alone; InputError names
    the functions found, or the parameters without a default that were not given.
    """
    reader = PythonModule(text, where, path, walk)
    name = function or reader.only_config()
    try:
        found = reader.defined(name)  # by the file itself, or by a module whose names it passes on
        if found is not None:
            module, own = found
            node = module.functions.get(own)
            if node is None:
                return name, module.constant(own)
            return name, module.call(node, [], given_arguments(node, given or {}, where))
    except RecursionError:
        raise InputError(f"{where}: {name}: nested too deeply") from None
    raise InputError(f"{where}: no function {name!r} (there are: {', '.join(reader.configs()) or 'none'})")


class PythonModule:
    """The functions and constants of one file, and the modules of its source tree that it takes others from."""

    def __init__(self, text: str, where: str, path: Path, walk: Walk) -> None:
        self.where, self.path, self.walk = where, path.resolve(), walk
        walk.modules[self.path] = self
        tree = parsed(text, where)
        self.tree, self.imports = tree, imports_of(tree)
        self.names: dict[str, Any] = {}  # of the first level, where the file is followed as a program
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.constants: dict[str, ast.expr] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign):
                self.constants |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
                self.constants[node.target.id] = node.value
        self.known: dict[str, Any] = {}
        self.files: dict[str, Path | None] = {}  # of imported names

    def module(self, name: str) -> "PythonModule | None":
        """Return the module that an imported name comes from, None where it is not in the source tree."""
        if name not in self.files:
            self.files[name] = module_file(self.path, self.imports[name])
        found = self.files[name]
        if found is None or len(self.walk.modules) >= MOST_MODULES:
            return None
        if found not in self.walk.modules:
            _, text = read_document(str(found))
            PythonModule(text, found.name, found, self.walk)
        module: PythonModule = self.walk.modules[found]
        return module

    def defined(self, name: str, depth: int = 0) -> "tuple[PythonModule, str] | None":
        """Return the module that defines a name, as a function or a constant, and the name that it has there."""
        if name in self.functions or name in self.constants:
            return self, name
        is_class = name[:1].isupper() and not name.isupper()  # what a class holds is not looked into
        if name not in self.imports or is_class or name in KNOWN_CALLS or depth > DEEPEST:
            return None
        module = self.module(name)
        return module.defined(self.imports[name].name, depth + 1) if module is not None else None

    def configs(self) -> list[str]:
        """Return the functions that seem to return a configuration."""
        return [name for name, node in self.functions.items() if not name.startswith("_") and returns_config(node)]

    def only_config(self) -> str:
        """Return the one function that returns a configuration; InputError where there is none, or more."""
        found = runs_among(self.configs(), self.functions)
        if len(found) == 1:
            return found[0]
        if not found:
            raise InputError(f"{self.where}: no function in it returns a configuration that is known")
        shown = ", ".join(found[:12]) + (", ..." if len(found) > 12 else "")
        raise InputError(f"{self.where}: say which function: FILE:NAME with one of {shown}")

    def constant(self, name: str) -> Any:
        """Return what a name of the first level holds."""
        if name not in self.known:
            self.known[name] = Opaque(name)  # for one that refers to itself
            self.known[name] = self.value(self.constants[name], {})
        return copy.deepcopy(self.known[name])

    def call(self, node: ast.FunctionDef, args: list[Any], keywords: dict[str, Any]) -> Any:
        """Follow a function of the file; return what it returns."""
        self.walk.depth += 1
        if self.walk.depth > DEEPEST:
            raise InputError(f"{self.where}: {node.name}: functions call each other too deeply")
        names = self._parameters(node, args, keywords)
        try:
            self.block(node.body, names)
        except Returned as found:
            return found.value
        finally:
            self.walk.depth -= 1
        return None

    def _parameters(self, node: ast.FunctionDef, args: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        spec = node.args
        plain = [*spec.posonlyargs, *spec.args]
        names: dict[str, Any] = {}
        for parameter, default in zip(reversed(plain), reversed(spec.defaults), strict=False):
            names[parameter.arg] = self.value(default, {})
        for parameter, given in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if given is not None:
                names[parameter.arg] = self.value(given, {})
        names |= {parameter.arg: value for parameter, value in zip(plain, args, strict=False)}
        taken = {parameter.arg for parameter in [*plain, *spec.kwonlyargs]}
        names |= {key: value for key, value in keywords.items() if key in taken}
        if spec.kwarg is not None:
            names[spec.kwarg.arg] = {key: value for key, value in keywords.items() if key not in taken}
        if spec.vararg is not None:
            names[spec.vararg.arg] = args[len(plain) :]
        return names

    def block(self, body: list[ast.stmt], names: dict[str, Any]) -> None:
        """Follow statements, which set `names`."""
        for node in body:
            self.walk.steps += 1
            if self.walk.steps > MOST_STEPS:
                raise InputError(f"{self.where}: line {node.lineno}: more than {MOST_STEPS} steps, refused")
            self.statement(node, names)

    def statement(self, node: ast.stmt, names: dict[str, Any]) -> None:
        """Follow a statement; one of a kind that is not read is passed over."""
        if isinstance(node, ast.Break | ast.Continue):
            raise LoopLeft(ends=isinstance(node, ast.Break))
        if isinstance(node, ast.Return):
            raise Returned(None if node.value is None else self.value(node.value, names))
        if isinstance(node, ast.Assign):
            value = self.value(node.value, names)
            for target in node.targets:
                self.assign(target, value, names)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value, names), names)
        elif isinstance(node, ast.AugAssign):
            self.assign(node.target, self._operated(node.op, node.target, node.value, names), names)
        elif isinstance(node, ast.If):
            test = self.value(node.test, names)
            if isinstance(test, Opaque | PythonCall):
                self.walk.assumed.append(
                    f"{self.where} line {node.lineno}: if {ast.unparse(node.test)[:60]}: taken as false"
                )
                test = False
            self.block(node.body if test else node.orelse, names)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._updated(node.value, names)
        elif isinstance(node, ast.With | ast.Try):
            self.block(node.body, names)
        elif isinstance(node, ast.For | ast.While | ast.Match):
            self._repeated(node, names)

    def _repeated(self, node: ast.For | ast.While | ast.Match, names: dict[str, Any]) -> None:
        """Follow a loop over a list that is known; one that is not, and that sets something, is said to be left out."""
        items = items_of(self.value(node.iter, names)) if isinstance(node, ast.For) else None
        if isinstance(node, ast.For) and isinstance(items, list):
            for item in items:
                self.assign(node.target, item, names)
                try:
                    self.block(node.body, names)
                except LoopLeft as leave:
                    if leave.ends:
                        return
            self.block(node.orelse, names)
            return
        inner = list(ast.walk(node))
        for grown in grown_lists(inner):
            if isinstance(known := names.get(grown, self.names.get(grown)), list):
                known.append(Opaque(f"{grown} of line {node.lineno}"))
        if any(isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store) for one in inner):
            self.walk.assume(f"{self.where} line {node.lineno}: what is set there, again and again, is passed over")

    def _updated(self, node: ast.Call, names: dict[str, Any]) -> None:
        """Follow `settings.update(...)` of a mapping and local functions that change their argument."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "update":
            target = self.value(function.value, names)
            if isinstance(target, dict):
                for argument in node.args:
                    value = self.value(argument, names)
                    if isinstance(value, dict):
                        target.update(value)
                target.update(self._keywords(node, names))
        elif self.walk.calls is not None or (isinstance(function, ast.Name) and self.defined(function.id) is not None):
            self.value(node, names)

    def assign(self, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        """Set a name, an attribute of a record, an entry of a mapping, or several of them."""
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self._owner(target.value, names)
            if isinstance(owner, PythonCall):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner = self._owner(target.value, names)
            key = self.value(target.slice, names)
            if isinstance(owner, dict) and isinstance(key, str):
                owner[key] = value
            elif isinstance(owner, PythonCall) and isinstance(key, str):
                owner.fields[key] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, list | tuple):
            for one, part in zip(target.elts, value, strict=False):
                self.assign(one, part, names)

    def _owner(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return what an attribute is set on, made a record where it is none yet."""
        if isinstance(node, ast.Name):
            found = names.get(node.id, self.names.get(node.id))
            if isinstance(found, Opaque) and (record := record_of(found)) is not None:
                names[node.id] = record
                return record
            if not isinstance(found, PythonCall | dict):
                found = names[node.id] = PythonCall(found.text if isinstance(found, Opaque) else node.id)
            return found
        if isinstance(node, ast.Attribute):
            owner = self._owner(node.value, names)
            if isinstance(owner, PythonCall):
                inner = owner.fields.get(node.attr)
                if not isinstance(inner, PythonCall | dict):
                    inner = owner.fields[node.attr] = PythonCall(node.attr)
                return inner
        return self.value(node, names)

    def value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return an expression as data."""
        self.walk.steps += 1
        if self.walk.steps > 20 * MOST_STEPS:
            raise InputError(f"{self.where}: more than {20 * MOST_STEPS} steps, refused")
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple):
            return [one for item in node.elts for one in starred_values(item, lambda inner: self.value(inner, names))]
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._each(node, names)
        if isinstance(node, ast.Dict):
            return self._dict(node, names)
        if isinstance(node, ast.DictComp) and (owner := copied_fields(node)) is not None:
            return fields_of(self.value(owner, names), _text(node))
        if isinstance(node, ast.Name):
            return self._name(node.id, names)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, names)
        if isinstance(node, ast.Call):
            return self._call(whole_call(node), names)
        if isinstance(node, ast.BinOp):
            return self._operated(node.op, node.left, node.right, names)
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand, names)
            if isinstance(node.op, ast.Not) and not isinstance(inner, Opaque | PythonCall):
                return not inner
            return -inner if isinstance(node.op, ast.USub) and isinstance(inner, int | float) else Opaque(_text(node))
        if isinstance(node, ast.BoolOp | ast.Compare | ast.IfExp):
            return self._decided(node, names)
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.value(one.value if isinstance(one, ast.FormattedValue) else one, names) for one in node.values
            ]
            wide = any(isinstance(one, ast.FormattedValue) and one.format_spec for one in node.values)
            return Opaque(_text(node)) if wide else joined_text(parts, _text(node))
        if isinstance(node, ast.Subscript):
            owner, key = self.value(node.value, names), self.value(node.slice, names)
            if _text(node.value) in {"os.environ", "environ"}:
                return variable(key, None, self.walk, self.where)
            if isinstance(owner, PythonCall) and isinstance(key, str):
                return owner.fields.get(key, Opaque(_text(node)))
            if isinstance(owner, dict) and isinstance(key, str | list):
                return owner.get(str(key), Opaque(_text(node)))
            if isinstance(owner, list) and isinstance(key, int) and -len(owner) <= key < len(owner):
                return owner[key]
        return Opaque(_text(node))

    def _each(self, node: ast.ListComp | ast.GeneratorExp, names: dict[str, Any]) -> Any:
        """Return a list made of each item of another for which the conditions hold."""
        rule = node.generators[0]
        items = items_of(self.value(rule.iter, names))
        if len(node.generators) > 1 or not isinstance(items, list):
            return Opaque(_text(node))
        found = []
        for item in items:
            inner = dict(names)
            self.assign(rule.target, item, inner)
            tests = [self.value(test, inner) for test in rule.ifs]
            if any(isinstance(one, Opaque | PythonCall) for one in tests):
                return Opaque(_text(node))
            found += [self.value(node.elt, inner)] if all(tests) else []
        return found

    def _dict(self, node: ast.Dict, names: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.value(value, names)
            if key is None:
                found |= (further := spread_fields(inner, _text(value)))
                if isinstance(further.get("**"), Opaque) and (before := sorted(found.keys() - further.keys())):
                    self.walk.assume(f"{self.where}: **{_text(value)} sets none of {', '.join(before)}")
            else:
                found[str(self.value(key, names))] = inner
        return found

    def _name(self, name: str, names: dict[str, Any]) -> Any:
        if name in names or name in self.names:
            return names.get(name, self.names.get(name))
        found = self.defined(name)
        if found is None or found[1] not in found[0].constants:
            return Opaque(name)
        return found[0].constant(found[1])

    def _attribute(self, node: ast.Attribute, names: dict[str, Any]) -> Any:
        owner = self.value(node.value, names)
        if isinstance(owner, PythonCall) and node.attr == "__dict__":
            return fields_of(owner, _text(node))
        if isinstance(owner, PythonCall):
            return owner.fields.get(node.attr, Opaque(_text(node), owner, node.attr))
        return Opaque(_text(node), owner if isinstance(owner, Opaque) else None, node.attr)

    def _keywords(self, node: ast.Call, names: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, names)
            if keyword.arg is None:
                found |= spread_fields(value, _text(keyword.value))
            else:
                found[keyword.arg] = value
        return found

    def _call(self, node: ast.Call, names: dict[str, Any]) -> Any:
        name = _text(node.func)
        args = [self.value(argument, names) for argument in node.args if not isinstance(argument, ast.Starred)]
        keywords = self._keywords(node, names)
        defined = self.defined(name) if isinstance(node.func, ast.Name) else None
        if defined is not None and defined[1] in defined[0].functions:
            function = defined[0].functions[defined[1]]
            if not args and not keywords and (tree := self._tree(function)) is not None:
                args = [tree]
            return defined[0].call(function, args, keywords)
        if name in PLAIN_TREES and args and isinstance(args[0], PythonCall):
            return copy.deepcopy(args[0])
        if name in INSTANTIATE and args and (made := instantiated(args[0], keywords)) is not None:
            if self.walk.calls is not None:
                self.walk.calls.append(made)
            return made
        if name in {"list", "tuple"} and len(args) == 1 and isinstance(args[0], list):
            return list(args[0])
        if name in REPLACES and args:
            base = copy.deepcopy(args[0])
            if isinstance(base, PythonCall):
                base.fields |= keywords
            return base
        if name in FIELDS and len(args) == 1 and self.defined(name) is None:
            return fields_of(args[0], _text(node))
        if name in COPIES and args:
            return copy.deepcopy(args[-1])
        if name == "dict":
            return (spread_fields(args[0], _text(node)) if args else {}) | keywords
        if name == "isinstance" and len(args) == 2 and (told := is_of(args[0], _text(node.args[1]))) is not None:
            return told
        if isinstance(node.func, ast.Subscript) and (registered := self._registered(node.func, names)) is not None:
            return registered[0].call(registered[0].functions[registered[1]], args, keywords)
        if name == "getattr" and len(args) == 3 and isinstance(args[0], PythonCall) and isinstance(args[1], str):
            return args[0].fields.get(args[1], args[2])
        if name in COMPUTED and self.defined(name) is None:
            return computed(name, args, _text(node))
        if name in ENVIRONMENT and args:
            return variable(args[0], args[1] if len(args) > 1 else None, self.walk, self.where)
        return self._made(node, name, args, keywords, names)

    def _tree(self, function: ast.FunctionDef) -> PythonCall | None:
        """Return the configuration that Hydra hands to a function under its decorator, None for another function."""
        for one in function.decorator_list:
            if isinstance(one, ast.Call) and _text(one.func) in {"hydra.main", "main"} and self.walk.tree is not None:
                given = {word.arg: self.value(word.value, self.names) for word in one.keywords}
                folder, name = given.get("config_path"), given.get("config_name")
                if isinstance(name, str):
                    return self.walk.tree(folder if isinstance(folder, str) else ".", name)
        return None

    def _made(self, node: ast.Call, name: str, args: list[Any], keywords: dict[str, Any], names: dict[str, Any]) -> Any:
        """Return what a call of something that is not in the source tree makes: a record, or what is known of it."""
        made = PythonCall(name, [list(one) if isinstance(one, list) else one for one in args], keywords)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value, names)
            own = node.func.attr
            if isinstance(owner, str) and own in TEXTS and all(isinstance(one, str) for one in args):
                return text_method(owner, own, args, _text(node))
            if isinstance(owner, str) and own == "format":
                return formatted(owner, args, keywords, _text(node))
            if isinstance(owner, str | list) and own in LISTS:
                return list_method(owner, own, args, _text(node))
            if isinstance(owner, dict) and own in MAPPINGS and not keywords:
                return mapping_method(owner, own, args, _text(node))
            if isinstance(owner, PythonCall):
                if (known := method(owner, own, made, self.walk, self.where)) is not None:
                    return known
                made.args = [owner, *args]
        if self.walk.calls is not None:
            self.walk.calls.append(made)
        return made

    def _registered(self, node: ast.Subscript, names: dict[str, Any]) -> Any:
        """Return the module and name of a function that a table filled by a decorator has under its own name."""
        key = self.value(node.slice, names)
        table = self.defined(_text(node.value)) if isinstance(node.value, ast.Name) else None
        if not isinstance(key, str) or table is None or table[0].constant(table[1]) != {}:
            return None
        return (table[0], key) if key in table[0].functions else None

    def _operated(self, operator: ast.operator, left: ast.expr, right: ast.expr, names: dict[str, Any]) -> Any:
        a, b = self.value(left, names), self.value(right, names)
        told = f"{_text(left)} {OPERATORS.get(type(operator), '?')} {_text(right)}"
        return operated(operator, a, b, told)

    def _decided(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Return a comparison, `and`/`or`, or a choice, where its parts are known."""
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, names)
            if isinstance(test, Opaque | PythonCall):
                return Opaque(_text(node))
            return self.value(node.body if test else node.orelse, names)
        if isinstance(node, ast.BoolOp):
            last: Any = None
            for part in node.values:
                last = self.value(part, names)
                if isinstance(last, Opaque | PythonCall) or bool(last) == isinstance(node.op, ast.Or):
                    return last
            return last
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return comparison_result(
                node.ops[0], self.value(node.left, names), self.value(node.comparators[0], names), _text(node)
            )
        return Opaque(_text(node))


def _text(node: ast.AST) -> str:
    return ast.unparse(node)[:120]
