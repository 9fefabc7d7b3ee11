"""Conditions on layouts, as `--only` and `--not` take them: "schedule=1f1b,interleaved", "zero<=1", "cp=1"."""

import re
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...errors import InputError, nearest
from ...jobs.emit.rules import misordered
from ...layout import OFFLOADS, ORDERS
from ...layout_names import names_sharding, own_name
from .quantities import RECOMPUTES, SCHEDULES, Grid

NUMBERS = ("tp", "pp", "dp", "cp", "ep", "etp", "vpp", "mbs", "zero", "sp", "replicas")
MOST = {"zero": 3, "sp": 1}
WORDS = {"schedule": SCHEDULES, "recompute": RECOMPUTES, "order": ORDERS, "offload": OFFLOADS}
SHAPE = re.compile(r"\s*([a-zA-Z][\w-]*)\s*(<=|>=|!=|=|<|>)\s*(\S.*?)\s*")
SEVERAL = re.compile(r",(?=\s*[A-Za-z][\w-]*\s*(?:[<>!]=|[=<>]))")  # between conditions: values have no sign
EXPECTED = 'expected KEY=VALUE, such as "schedule=1f1b,interleaved", "zero<=1" or "cp=1"'


class LayoutCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One condition on a key of a layout; words stand for their places in the lists of `cost.quantities`."""

    name: str
    sign: str
    values: tuple[int, ...]
    negated: bool = False  # of `--not`
    text: str = ""

    @property
    def flag(self) -> str:
        """The condition as it is typed."""
        return f"--{'not' if self.negated else 'only'} {self.text}"

    def holds(self, grid: Grid) -> npt.NDArray[np.bool_]:
        """Return which layouts the condition keeps."""
        if self.name == "order":  # axes of degree 1 have no place
            away = misordered([ORDERS[value] for value in self.values], grid.columns())
            ordered: npt.NDArray[np.bool_] = (away == (self.sign == "!=")) != self.negated
            return ordered
        column = self._column(grid)
        signs = {"<=": np.less_equal, ">=": np.greater_equal, "<": np.less, ">": np.greater}
        if self.sign in signs:
            found = signs[self.sign](column, self.values[0])
        else:
            found = np.isin(column, self.values) != (self.sign == "!=")
        mask: npt.NDArray[np.bool_] = np.broadcast_to(found != self.negated, len(grid))
        return mask

    def alternatives(self, grid: Grid) -> str:
        """Return which values the key has in legal layouts, in words; "" of the order of axes."""
        if self.name == "order" or not len(grid):
            return ""
        found = [int(value) for value in np.unique(self._column(grid))]
        names = [WORDS[self.name][value] if self.name in WORDS else str(value) for value in found]
        return f"{self.name} of legal ones is {', '.join(names)}"

    def _column(self, grid: Grid) -> npt.NDArray[np.float64]:
        return np.asarray(grid.expert_tp if self.name == "etp" else getattr(grid, self.name))


def parse_conditions(only: Sequence[str], without: Sequence[str]) -> tuple[LayoutCondition, ...]:
    """Return the conditions of `--only` and `--not`; InputError, with the nearest key or value, for others."""
    asked = [_parse(part, negated=False) for text in only for part in SEVERAL.split(text)]
    for text in without:
        if len(parts := SEVERAL.split(text)) > 1:
            each = " ".join(f"--not {part.strip()}" for part in parts)
            raise InputError(f"--not {text}: expected one condition; {each} leaves out what meets any of them")
        asked.append(_parse(text, negated=True))
    return tuple(asked)


def kept(
    conditions: Sequence[LayoutCondition], grid: Grid, *, only: Collection[str] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which layouts all conditions keep: those on the keys `only`, or on all keys but the order of axes."""
    mask = np.ones(len(grid), dtype=bool)
    for condition in conditions:
        if (condition.name in only) if only is not None else (condition.name != "order"):
            mask &= condition.holds(grid)
    return mask


def _parse(text: str, *, negated: bool) -> LayoutCondition:
    text = text.strip()
    where = f"--{'not' if negated else 'only'} {text}"
    shape = SHAPE.fullmatch(text)
    if shape is None:
        raise InputError(f"{where}: {EXPECTED}")
    name, sign, rest = shape.groups()
    known = (*NUMBERS, *WORDS)
    if names_sharding(name):
        raise InputError(f"{where}: {name}: say it as dp, replicas and zero, such as --only dp=8 --only zero=3")
    name = own_name(name) or name
    if name not in known:
        raise InputError(f"{where}: {name}: no such key of a layout ({nearest(name, known)})")
    if name in WORDS and sign not in {"=", "!="}:
        raise InputError(f"{where}: {name} has no order; expected {name}=VALUE or {name}!=VALUE")
    parts = [part.strip() for part in rest.split(",")]
    if sign not in {"=", "!="} and len(parts) > 1:
        raise InputError(f"{where}: expected one number after {sign}")
    values = tuple(_value(name, part, where) for part in parts)
    return LayoutCondition(name=name, sign=sign, values=values, negated=negated, text=text)


def _value(name: str, text: str, where: str) -> int:
    if name in WORDS:
        if text not in WORDS[name]:
            known = "" if name == "order" else f"; there are {', '.join(WORDS[name])}"
            raise InputError(f"{where}: {text!r}: no such {name} ({nearest(text, WORDS[name])}){known}")
        return WORDS[name].index(text)
    if not text.isdecimal():
        swapped = f"; {text[0]}= in place of ={text[0]}" if text[:1] in {"<", ">"} else ""
        raise InputError(f"{where}: {text!r}: expected a whole number{swapped}")
    if int(text) > MOST.get(name, int(text)):
        raise InputError(f"{where}: {name} is 0 to {MOST[name]}")
    return int(text)
