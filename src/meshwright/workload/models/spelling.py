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

# names of models that were trained on from a published one without a change of sizes, by the config.json of each size
# that is listed, and that one's entry
TRAINED_ON: tuple[tuple[str, str], ...] = (
    (r"qwen[-_ ]?2(?:[._ ]?5)?[-_ ]?(?:coder|math)[-_ ]?(0\.5|1\.5|3|7|14|32|72)b", r"qwen2.5-\1b"),
    (r"qwq[-_ ]?(32)b", r"qwen2.5-\1b"),
    (r"qwen[-_ ]?3[-_ ]?coder[-_ ]?(30b[-_ ]?a3b)", r"qwen3-\1"),
    (r"deepseek[-_ ]?r1[-_ ]?distill[-_ ]?qwen[-_ ]?(7|14|32)b", r"qwen2.5-\1b"),  # that of 1.5B is not tied
    (r"deepseek[-_ ]?r1[-_ ]?distill[-_ ]?llama[-_ ]?(8|70)b", r"llama3-\1b"),
    (r"llama[-_ ]?3[._]1[-_ ]?nemotron[-_ ]?(70)b", r"llama3-\1b"),
    (r"llama[-_ ]?guard[-_ ]?3[-_ ]?(8)b", r"llama3-\1b"),
    (r"vicuna[-_ ]?(7|13)b", r"llama2-\1b"),
    (r"zephyr[-_ ]?(7)b", r"mistral-\1b"),
)
# words that make another model of a family's name: another size, fewer layers, a smaller sibling
VARIANT = re.compile(
    r"(?<![\w.])(?:\d+(?:\.\d+)?b\d?|\d{2,}m|x?l|xs|\d*[-_ ]?layers?|l\d+|large|medium|small|lite|mini|nano|tiny|toy"
    r"|\d+x\d*|draft|eagle-?\d*|medusa|speculator|debug\w*|proxy|distil\w*|sheared|vl|vision|audio|omni|reduced|pruned)(?![a-z0-9])"
)
_VERSION = re.compile(r"v\d+(\.\d+)?")  # behind the words of tuning, as in "Mixtral-8x22B-Instruct-v0.1"
_POINT = re.compile(r"(?<=\d)\.(?=\d+[bm](?![a-z0-9]))")  # of a size: 1.3B is not 13B
_POINT_AS_MARK = re.compile(r"\d_\d+[bm](?![a-z0-9])", re.IGNORECASE)  # as in "qwen2_5_0_5b"


@functools.lru_cache(maxsize=4096)  # each name that is looked for is held against every name there is
def plain_name(name: str) -> str:
    """Return a name without the account, what is in brackets, case, marks between words, and words of tuning.

    The point in a size counts and becomes a "p".
    """
    bare = re.sub(r"\(.*?\)", "", name).rpartition("/")[2].strip().lower()
    words = re.split(r"[\s_-]+", _POINT.sub("p", bare))
    behind = [words.pop()] if len(words) > 2 and _VERSION.fullmatch(words[-1]) else []
    while len(words) > 1 and words[-1] in ENDINGS:
        words.pop()
    words += behind
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


def of_family(name: str, families: Iterable[tuple[str, str]]) -> str | None:
    """Return what a name stands for by the first family whose pattern is in it; None where none is, or one of its
    variants is meant.
    """
    for pattern, meant in families:
        match = re.search(rf"(?:^|[-_ /.]){pattern}(?=$|[-_ .])", name)
        if match:
            rest = f"{name[: match.start()]} {name[match.end() :]}".replace("_", " ")
            found = match.expand(meant).replace("_", "-").replace(" ", "-")
            return None if VARIANT.search(rest) else found
    return None


def base_meant(name: str) -> str | None:
    """Return the entry of the model that a name's was trained on from with the same sizes, None where none is known."""
    return of_family(name.rpartition("/")[2].strip().lower(), TRAINED_ON)
