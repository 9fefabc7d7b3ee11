"""Operators of a Python configuration on values that are known: numbers, texts, lists and mappings."""

import ast
import re
import string
from typing import Any

from ..arithmetic import NotArithmetic, operation_result
from .values import MOST_TEXT, Opaque, PythonCall, joined_text

MOST_ITEMS = 20_000
OPERATORS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%", ast.Pow: "**"}
PLAIN_PLACES = re.compile(r"(?:[^%]|%[sd%])*", re.DOTALL)  # of texts that `%` fills in without a width


def operated(operator: ast.operator, a: Any, b: Any, text: str) -> Any:
    """Return what an operator makes of two values; unknown, by its text, for what it is not followed for."""
    sign = OPERATORS.get(type(operator))
    whole = all(isinstance(x, int) and not isinstance(x, bool) for x in (a, b))
    if sign and whole:
        try:
            return operation_result(sign, a, b)
        except NotArithmetic:
            pass
    if isinstance(operator, ast.Div) and whole and b:
        return a / b
    if isinstance(operator, ast.Add) and isinstance(a, list) and isinstance(b, list) and len(a) + len(b) < MOST_ITEMS:
        return a + b
    begins = isinstance(a, str) or (isinstance(a, Opaque) and a.partial)
    if isinstance(operator, ast.Add) and begins and isinstance(b, str | Opaque):
        return joined_text([a, b], text)
    if isinstance(operator, ast.Mult) and isinstance(a, list) and isinstance(b, int) and len(a) * b < MOST_ITEMS:
        return a * b
    if isinstance(operator, ast.Mod) and isinstance(a, str):
        return _filled(a, b if isinstance(b, list) else [b], text)
    if isinstance(operator, ast.BitOr) and isinstance(a, dict) and isinstance(b, dict):
        return {**a, **b}
    return Opaque(text)


def comparison_result(operator: ast.cmpop, a: Any, b: Any, text: str) -> Any:
    """Return what a comparison of two values says; unknown, by its text, where one of them is."""
    if isinstance(a, Opaque | PythonCall) or isinstance(b, Opaque | PythonCall):
        return Opaque(text)
    if isinstance(operator, ast.In | ast.NotIn) and isinstance(b, list | dict):
        inside = (str(a) if isinstance(b, dict) else a) in b
        return inside == isinstance(operator, ast.In)
    if isinstance(operator, ast.In | ast.NotIn) and isinstance(a, str) and isinstance(b, str):
        return (a in b) == isinstance(operator, ast.In)
    if isinstance(operator, ast.Is | ast.Eq):
        return a == b
    if isinstance(operator, ast.IsNot | ast.NotEq):
        return a != b
    if isinstance(a, int | float) and isinstance(b, int | float):
        found = {ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}.get(type(operator))
        return Opaque(text) if found is None else found
    return Opaque(text)


def _filled(text: str, values: list[Any], told: str) -> Any:
    """Return a text with values in the places of `%s` and `%d`."""
    if not PLAIN_PLACES.fullmatch(text) or not all(isinstance(one, str | int | float) for one in values):
        return Opaque(told)
    try:
        return (text % tuple(values))[:MOST_TEXT]
    except (TypeError, ValueError):
        return Opaque(told)


def formatted(text: str, args: list[Any], keywords: dict[str, Any], told: str) -> Any:
    """Return a text with values in the places of `{}`, `{0}` and `{name}`; unknown where one is written to a width."""
    parts, count = [], 0
    try:
        places = list(string.Formatter().parse(text))
    except ValueError:
        return Opaque(told)
    for literal, name, width, conversion in places:
        parts.append(literal)
        if name is None:
            continue
        place = name or str(count)
        count += not name
        known = args[int(place)] if place.isdecimal() and int(place) < len(args) else keywords.get(place)
        if width or conversion or not isinstance(known, str | int | float):
            return Opaque(told)
        parts.append(str(known))
    return "".join(parts)[:MOST_TEXT]
