"""Results that Megatron's rerun machine found wrong: of a GPU, or of the program, by its second and third look.

It computes a suspicious result again, first on the same GPU, then on another one after a restart. What differs then is
a fault of the first GPU, or of a step that is not deterministic; what comes out alike is the program's or the data's.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, WENT_ON

_WORDS = re.compile(
    r"(?P<transient>Possible transient error!)|(?P<persistent>Possible persistent error!)"
    r"|(?P<correct>Correct result \(but possible Application error\))"
    r"|(?P<again>Need to rerun on a different GPU to verify|Got rescheduled on the same GPU\. Need to resume)"
)
_FOUND = re.compile(
    r"\bUnexpected result (?P<result>\S{1,60}) on rank (?P<rank>\d{1,6})\b"
    r"(?:.*\bmessage='(?P<said>[^']{0,160}))?"
)
_LOCAL = re.compile(r"\blocal\b|\bbefore\b.{0,40}\bcommunication\b")  # no other rank's numbers are in it
_OWN = re.compile(r"\bRank (?P<rank>\d{1,6}), node \S{1,120}, device \d{1,4}: ")
_WHATS = {
    "transient": ("device", "computed a result that did not come out again on its GPU: a possible transient error"),
    "persistent": (
        "device",
        "had a GPU whose result another one does not give: a possible persistent error of it",
    ),
}
_CORRECT = "an unexpected result came out again on another GPU: it is the program's or the data's, no GPU's"
_UNDECIDED = "came out again on the same GPU; whether that GPU's or the program's, a rerun on another one would tell"


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield what the machine last found in one file; nothing where the training went on after it."""
    told: tuple[re.Match[str], LogMessage, int | None] | None = None
    rank, steps = None, 0
    results: dict[int, re.Match[str]] = {}
    for message in messages:
        if "nexpected result" in message.text and (found := _FOUND.search(message.text)):
            rank = int(found["rank"])
            results[rank] = found
        word = _WORDS.search(message.text) if "ossible " in message.text or "Need to re" in message.text else None
        if word:
            own = _OWN.search(message.text)
            told, steps = (word, message, int(own["rank"]) if own else message.rank), 0
        elif told and WENT_ON.search(message.text):
            steps += 1
    if told is None or steps >= MANY_STEPS:
        return
    word, message, own_rank = told
    name = word.lastgroup or ""
    if name == "correct":
        yield Failure(kind="exception", what=_CORRECT, where=message.where, is_general=True)
        return
    if name not in _WHATS:
        yield _undecided(list(results.values()), message)
        return
    kind, what = _WHATS[name]
    rank = rank if own_rank is None else own_rank
    yield Failure(kind=kind, what=f"rank {rank} {what}" if rank is not None else what, rank=rank, where=message.where)


def _undecided(results: Sequence[re.Match[str]], message: LogMessage) -> Failure:
    """Return a result that came out again on its GPU: of a rank where it is the only one, and computed it alone."""
    last = results[-1] if results else None
    said = f": {last['said']}" if last and last["said"] else ""
    of = f" {last['result']} on rank {last['rank']}{said}" if last else ""
    ranks = {int(found["rank"]) for found in results}
    is_own = len(ranks) == 1 and last is not None and _LOCAL.search(last["said"] or "") is not None
    rank = ranks.pop() if is_own else None
    what = f"an unexpected result{of}, {_UNDECIDED}"
    return Failure(kind="exception", what=what, rank=rank, where=message.where.by(rank))
