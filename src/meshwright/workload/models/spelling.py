"""Names of models as people write them: "Nemotron_3_Nano", "Qwen2.5-72B", "meta-llama/Llama-3.1-70B-Instruct"."""

import functools
import re
from collections.abc import Iterable

# words at the end that say how a model was tuned or stored: its architecture is the same
ENDINGS = frozenset({
    "base", "chat", "instruct", "it", "pt", "thinking", "reasoning", "hf", "original", "pretrain", "sft",
    "bf16", "fp16", "fp8", "nvfp4", "awq", "gptq", "int4", "int8", "w4a16", "0324", "0528", "2507",
})  # fmt: skip
OWNERS = frozenset({"meta", "nvidia", "openai"})  # that stand before some names too

_POINT = re.compile(r"(?<=\d)\.(?=\d+[bm](?![a-z0-9]))")  # of a size: 1.3B is not 13B
_POINT_AS_MARK = re.compile(r"\d_\d+[bm](?![a-z0-9])", re.IGNORECASE)  # as in "qwen2_5_0_5b"


@functools.lru_cache(maxsize=4096)  # each name that is looked for is held against every name there is
def plain_name(name: str) -> str:
    """Return a name without the account, what is in brackets, case, marks between words, and words of tuning.

    The point in a size counts and becomes a "p".
    """
    bare = re.sub(r"\(.*?\)", "", name).rpartition("/")[2].strip().lower()
    words = re.split(r"[\s_-]+", _POINT.sub("p", bare))
    while len(words) > 1 and words[-1] in ENDINGS:
        words.pop()
    if len(words) > 1 and words[0] in OWNERS:
        words = words[1:]
    return "".join(c for c in "".join(words) if c.isalnum())


def entry_meant(name: str, known: Iterable[tuple[str, Iterable[str]]]) -> str | None:
    """Return the entry that a name means, of entries with the other names that each goes by; None where none does."""
    meant, entries = plain_name(name), [(key, [key, *others]) for key, others in known]
    for key, names in entries:
        if meant and meant in map(plain_name, names):
            return key
    if _POINT_AS_MARK.search(name):
        return next((key for key, names in entries if meant in {plain_name(n.replace(".", "")) for n in names}), None)
    return None
