"""Types of options as people write them: shares with a percent sign, times with their unit, thousands with commas."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..errors import InputError
from ..units import parse_days, parse_share, parse_time

_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_BINARY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmM])(?:i?[bB])?")
_SCALES = {"k": (1024, 1000), "m": (1024**2, 1000**2)}


class Whole(click.IntRange):
    """A whole number, also with commas between thousands; one with k or M is answered with the numbers it may mean."""

    name = "integer range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; click's error for what is none or is out of range."""
        if isinstance(value, str):
            if _THOUSANDS.fullmatch(value.strip()):
                value = value.replace(",", "")
            elif (found := _BINARY.fullmatch(value.strip())) is not None:
                meant = " or ".join(f"{float(found[1]) * scale:.0f}" for scale in _SCALES[found[2].lower()])
                counted = _counted_by(param)
                if "sequences" in counted and found[2].lower() == "m":  # a million sequences are no step
                    counted += "; of tokens, give their number over --seq-len, such as 4194304 / 8192 = 512"
                self.fail(f"{value!r} is no whole number, such as {meant}{counted}", param, ctx)
        return super().convert(value, param, ctx)


def _counted_by(param: click.Parameter | None) -> str:
    """Return what an option counts, by the first sentence of its help: tokens are easily given for sequences."""
    counts = (getattr(param, "help", None) or "").partition(".")[0]
    return f" ({counts[:1].lower()}{counts[1:]})" if counts else ""


class Amount(click.types.FloatParamType):
    """A number with its unit, by a parser of `units`, within bounds where it is given any."""

    def __init__(self, name: str, parse: Callable[[str], float], **bounds: Any) -> None:
        self.name, self._parse, self._within = name, parse, click.FloatRange(**bounds)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; click's error with what the parser says of a text that is none, or for its bounds."""
        try:
            number = self._parse(value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(str(error), param, ctx)
        return self._within.convert(number, param, ctx)


class Synonyms(click.Choice[str]):
    """A choice that other words stand for too, with what each of them means."""

    def __init__(self, choices: Sequence[str], also: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._also = also

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the choice that a word means; click's error for one that means none."""
        return super().convert(self._also.get(value, value), param, ctx)


class CollectiveName(click.Choice[str]):
    """A collective, also as other programs write it: "allreduce", "AllGather", "reduce-scatter", "all_reduce_perf"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the collective that a name means; click's error for one that means none."""
        return super().convert(collective_named(value, self.choices) if isinstance(value, str) else value, param, ctx)


def collective_named(word: str, known: Sequence[str]) -> str:
    """Return the one of `known` that a word means, however other programs spell it; the word itself for none."""
    plain = re.sub(r"[^a-z]", "", word.lower()).removesuffix("perf").removeprefix("nccl")  # of nccl-tests, NCCL
    return {name.replace("_", ""): name for name in known}.get(plain, word)


SHARE, PART = Amount("share", parse_share), Amount("share", parse_share, min=0, max=1)
DAYS = Amount("days", parse_days)
SCALING = Synonyms(("fixed", "grown"), {"strong": "fixed", "weak": "grown"})
SECONDS = Amount("seconds", parse_time, min=0, min_open=True)
