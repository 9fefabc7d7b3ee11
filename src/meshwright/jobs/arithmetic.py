"""Whole-number arithmetic of shell scripts and interpolations: parsed by hand, nothing is executed."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

TOKENS = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+#\w+|\d+|[A-Za-z_]\w*|\*\*|\+\+|--|(?:<<|>>|[-+*/%])=|<=|>=|==|!=|&&|\|\||<<|>>"
    r"|[-+*/%()<>!?:=,])"
)
CHANGES = {"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>="}
BINARY: tuple[tuple[str, ...], ...] = (
    *(("||",), ("&&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"), ("*", "/", "%"), ("**",)),
)
LARGEST = 2**62
MOST_DIGITS = 20  # of one number, its sign included
DEEPEST = 60


class NotArithmetic(ValueError):
    """The text is no whole-number expression, or one of its names has no number."""


def evaluate(
    text: str,
    names: Mapping[str, str] | Callable[[str], str] = MappingProxyType({}),
    assign: Callable[[str, str], None] | None = None,
) -> int:
    """Return the value of an expression such as "GPUS * (NODES + 1)", with C's operators and integer division.

    `names` gives the text of a name, `assign` takes what the expression sets (`i++`, `n *= 2`); without it an
    assignment is none. Raises NotArithmetic for anything that is not a number in the end.
    """
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        match = TOKENS.match(text, at)
        if match is None:
            raise NotArithmetic(f"{text!r} is no whole-number expression")
        tokens.append(match.group(1))
        at = match.end()
    parser = _Parser(tokens, names if callable(names) else lambda name: names.get(name, ""), assign)
    value = parser.listed(0)
    if parser.at < len(tokens):
        raise NotArithmetic(f"{text!r} is no whole-number expression")
    return value


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(
        self, tokens: list[str], names: Callable[[str], str], assign: Callable[[str, str], None] | None
    ) -> None:
        self.tokens, self.names, self.assign, self.at = tokens, names, assign, 0
        self.skipped = 0  # how many branches around this place are not taken: nothing is set there

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str = "") -> str:
        found = self.peek()
        if not found or (token and found != token):
            raise NotArithmetic(f"expected {token or 'a number'}, got {found or 'the end'}")
        self.at += 1
        return found

    def listed(self, depth: int) -> int:
        value = self.assignment(depth)
        while self.peek() == ",":
            self.take()
            value = self.assignment(depth)
        return value

    def assignment(self, depth: int) -> int:
        if depth > DEEPEST:
            raise NotArithmetic("nested too deeply")
        name, change = self.peek(), self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""
        if not _is_name(name) or change not in CHANGES:
            return self.ternary(depth + 1)
        self.at += 2
        right = self.assignment(depth + 1)
        return self._set(name, right if change == "=" else operation_result(change[:-1], self._named(name), right))

    def _set(self, name: str, value: int) -> int:
        if self.assign is None:
            raise NotArithmetic(f"{name} is set in an expression")
        if not self.skipped:
            self.assign(name, str(value))
        return value

    def ternary(self, depth: int) -> int:
        if depth > DEEPEST:
            raise NotArithmetic("nested too deeply")
        condition = self.binary(0, depth + 1)
        if self.peek() != "?":
            return condition
        self.take()
        first = self._branch(bool(condition), depth + 1)
        self.take(":")
        second = self._branch(not condition, depth + 1)
        return first if condition else second

    def _branch(self, taken: bool, depth: int) -> int:
        self.skipped += not taken
        try:
            return self.assignment(depth)
        finally:
            self.skipped -= not taken

    def binary(self, level: int, depth: int) -> int:
        if level == len(BINARY):
            return self.unary(depth)
        left = self.binary(level + 1, depth)
        while self.peek() in BINARY[level]:
            operator = self.take()
            idle = (operator == "&&" and not left) or (operator == "||" and bool(left))
            self.skipped += idle
            right = self.binary(level if operator == "**" else level + 1, depth)
            self.skipped -= idle
            left = operation_result(operator, left, right)
        return left

    def unary(self, depth: int) -> int:
        if depth > DEEPEST:
            raise NotArithmetic("nested too deeply")
        token = self.take()
        if token == "(":
            value = self.listed(depth + 1)
            self.take(")")
            return value
        if token in {"++", "--"}:
            name = self.take()
            return self._set(name, self._named(name) + (1 if token == "++" else -1))
        if token in "+-!":
            value = self.unary(depth + 1)
            return {"+": value, "-": -value, "!": int(not value)}[token]
        if token[0].isdigit():
            return _number(token)
        if not _is_name(token):
            raise NotArithmetic(f"unexpected {token}")
        value = self._named(token)
        if self.peek() in {"++", "--"}:
            self._set(token, value + (1 if self.take() == "++" else -1))
        return value

    def _named(self, name: str) -> int:
        given = self.names(name).strip()
        if len(given) <= MOST_DIGITS and re.fullmatch(r"[-+]?\d+", given):
            return int(given)
        raise NotArithmetic(f"{name} is {given!r}, no whole number" if given else f"{name} is not set")


def _is_name(token: str) -> bool:
    return bool(token) and (token[0].isalpha() or token[0] == "_")


def _number(token: str) -> int:
    """Return a number as C or a shell writes it: 12, 0x1f, 10#08."""
    if len(token) > MOST_DIGITS:
        raise NotArithmetic(f"{token[:MOST_DIGITS]}... has {len(token)} digits")
    base, sharp, digits = token.rpartition("#")
    try:
        return int(digits, int(base)) if sharp else int(token, 0) if token[:2] in {"0x", "0X"} else int(token)
    except ValueError:
        raise NotArithmetic(f"{token} is no number") from None


def operation_result(operator: str, left: int, right: int) -> int:
    """Return one operation of C; NotArithmetic for a division by zero or a number beyond 62 bits."""
    if operator in {"/", "%"} and right == 0:
        raise NotArithmetic("division by zero")
    if operator in {"**", "<<"} and not 0 <= right <= 62:
        raise NotArithmetic(f"{left} {operator} {right} is too large")
    if operator in {"/", "%"}:  # C truncates towards zero
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        value = quotient if operator == "/" else left - quotient * right
    else:
        value = _PLAIN[operator](left, right)
    if abs(value) > LARGEST:
        raise NotArithmetic(f"{left} {operator} {right} is too large")
    return int(value)


_PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "**": lambda a, b: a**b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> max(0, b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
}
