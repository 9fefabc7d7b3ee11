"""Names of models as people write them: "Nemotron_3_Nano", "Qwen2.5-72B", "meta-llama/Llama-3.1-70B-Instruct"."""

import re
from collections.abc import Iterable

# words at the end that say how a model was tuned or stored: its architecture is the same
ENDINGS = frozenset({
    "base", "chat", "instruct", "it", "pt", "thinking", "reasoning", "hf", "original", "pretrain", "sft",
    "bf16", "fp16", "fp8", "nvfp4", "awq", "gptq", "int4", "int8", "w4a16", "0324", "0528", "2507",
})  # fmt: skip
OWNERS = frozenset({"meta", "nvidia", "openai"})  # that stand before some names too


def plain_name(name: str) -> str:
    """Return a name without the account, what is in brackets, case, marks between words, and words of tuning."""
    bare = re.sub(r"\(.*?\)", "", name).rpartition("/")[2].strip().lower()
    words = re.split(r"[\s_-]+", bare)
    while len(words) > 1 and words[-1] in ENDINGS:
        words.pop()
    if len(words) > 1 and words[0] in OWNERS:
        words = words[1:]
    return "".join(c for c in "".join(words) if c.isalnum())


def entry_meant(name: str, known: Iterable[tuple[str, Iterable[str]]]) -> str | None:
    """Return the entry that a name means, of entries with the other names that each goes by; None where none does."""
    meant = plain_name(name)
    for key, others in known:
        if meant and meant in {plain_name(key), *(plain_name(other) for other in others)}:
            return key
    return None
