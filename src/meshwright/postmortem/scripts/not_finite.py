"""Losses that are no numbers any more: of a training that stops itself at that, and of one that goes on to its end."""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..nouns.names import NOT_FINITE
from ..nouns.paces import LostNumbers
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step

_VALUE = r"(?:tensor\()?-?(?P<value>[Nn]a[Nn]|NAN|[Ii]nf(?:inity)?|INF)\b"
_STOPS = re.compile(  # of Lightning's EarlyStopping, torchvision's references and those made from them, people's own
    r"Monitored metric (?P<metric>[\w./-]{1,80}) = (?P<of>\S{1,30}) is not finite\b"
    r"|\b(?P<loss>[Ll]oss\w*)(?: is| became| went)? ?[:=]? ?" + _VALUE + r".{0,60}?"
    r"\b(?:[Ss]topp?(?:ing|ed)?|[Aa]bort(?:ing|ed)?|[Ee]xit(?:ing)?|[Tt]erminat(?:ing|ed)|[Ee]nding)\b"
    r"|\b(?:[Ss]topping|[Aa]borting|[Ee]xiting|[Tt]erminating)\b.{0,60}?\b[Ll]oss\w*(?: is| became)? ?[:=]? ?"
    r"(?P<last>[Nn]a[Nn]|NAN|[Ii]nf(?:inity)?|INF)\b"
)
_FIGURE = re.compile(  # of a step in training, as trainers print it
    r"(?<![\w./-])(?P<of>(?:(?:lm|train(?:ing)?|total)[ _/])?loss(?:/train)?"
    r"|(?:train/)?(?:global[ _])?grad(?:ient)?[ _]?norm)[\"']?"
    r"(?: {0,3}[:=] {0,6}| )(?:tensor\()?(?P<figure>[-+]?(?:nan|inf(?:inity)?|\d+(?:\.\d*)?(?:e[-+]?\d+)?))(?!\w)",
    re.IGNORECASE,
)
_STEP = re.compile(r"\b(?:step|iter(?:ation)?)\b[\"']?[ :=]{1,4}(?P<step>\d{1,9})\b|(?P<bar>\d{1,9}/\d{1,9}) ?\[")
_HELD_OUT = re.compile(  # of data that train nothing, in small letters
    r"(?:^|[^a-z])(?:eval(?:uation)?|valid(?:ation)?|val|test)(?: *[:|\]]|[ _/-](?:loss|results?|metrics?|epoch|step))"
)
_APPLIED = re.compile(  # of a step whose gradients changed the weights: none was left out, or no scaler is at work
    r"\bskipped (?:iterations|steps): +0\b|\bloss[ _]scale[\"']?(?: {0,3}[:=] {0,6}| )1(?:\.0*)?(?:e\+?0+)?(?![\w.])",
    re.IGNORECASE,
)
_SKIPPED = 20  # steps in a row whose gradients alone are no numbers: a scaler of losses finds its scale in fewer
_BEFORE = 2  # lines that show from where it came


def read(messages: Sequence[LogMessage]) -> Iterator[Failure | LostNumbers]:
    """Yield what was no number when the training of one file stopped itself, and what is none to the end of the file.

    Nothing of a stop after which it made steps.
    """
    yield from _lost(messages)
    for at, message in enumerate(messages):
        low = message.text.lower()
        if ("nan" not in low and "inf" not in low) or not (stop := _STOPS.search(message.text)):
            continue
        if sum(is_step(later.text) for later in messages[at + 1 :]) >= MANY_STEPS:
            continue
        name, value = stop["metric"] or stop["loss"] or "the loss", stop["of"] or stop["value"] or stop["last"]
        yield Failure(kind="exception", what=f"{NOT_FINITE}: {name} is {value}", where=message.where, is_general=True)
        return


class _Tail:
    """The steps of one rank at the end of its log, as far as their figures are no numbers."""

    def __init__(self) -> None:
        self.good: list[LogMessage] = []  # the last lines before it
        self.bad: list[LogMessage] = []
        self.told: list[str] = []
        self.without_loss = 0  # of these, lines whose gradients alone are no numbers
        self.near = ""

    def add(self, message: LogMessage, figures: dict[str, str], near: str) -> None:
        """Note the figures of a step."""
        lost = {name: value for name, value in figures.items() if value.lstrip("+-").lower()[:3] in {"nan", "inf"}}
        if not lost:
            self.good = [*self.good, *self.bad[-1:], message][-_BEFORE:]
            self.bad, self.told, self.without_loss = [], [], 0
            return
        self.near = self.near if self.bad else near
        self.bad.append(message)
        self.told = self.told or [f"{name} is {value}" for name, value in lost.items()]
        losses = [value for name, value in figures.items() if "loss" in name]
        is_applied = not losses and _APPLIED.search(message.text) is not None  # a loss that is a number says otherwise
        told = any(value in lost.values() or float(value or 0) == 0.0 for value in losses)
        self.without_loss += not (told or is_applied)

    def fact(self, rank: int | None) -> LostNumbers | None:
        """Return what is no number to the end, None where too few steps say so."""
        steps = len(self.bad)
        if steps < MANY_STEPS or (self.without_loss > steps - MANY_STEPS and steps < _SKIPPED):
            return None
        return LostNumbers(
            what=", ".join(self.told),
            lines=steps,
            rank=rank,
            first=self.bad[0].where,
            last_good=tuple(message.where for message in self.good),
            near=self.near,
            where=self.bad[-1].where,
        )


def _lost(messages: Sequence[LogMessage]) -> Iterator[LostNumbers]:
    """Yield of each rank the loss or gradient norm that is no number from some step to the end of its lines.

    Lines of other figures, such as the mean at the end of all, are looked at by themselves.
    """
    if not any("nan" in (low := message.text.lower()) or "inf" in low for message in messages):
        return
    tails: dict[tuple[int | None, frozenset[str]], _Tail] = {}
    bars: dict[int | None, str] = {}
    for message in messages:
        if step := _STEP.search(message.text):
            bars[message.rank] = step["step"] or step["bar"]
        low = message.text.lower()
        if ("loss" not in low and "norm" not in low) or _HELD_OUT.search(low):
            continue
        if figures := {one["of"].replace("_", " "): one["figure"] for one in _FIGURE.finditer(message.text)}:
            tails.setdefault((message.rank, frozenset(figures)), _Tail()).add(
                message, figures, bars.get(message.rank, "")
            )
    sound = {rank for (rank, names), tail in tails.items() if tail.good and not tail.bad and _has_loss(names)}
    for (rank, names), tail in tails.items():
        if (fact := tail.fact(rank)) and (_has_loss(names) or rank not in sound):
            yield fact


def _has_loss(names: frozenset[str]) -> bool:
    return any("loss" in name for name in names)
