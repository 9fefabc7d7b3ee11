"""Commands that start a launcher by themselves, `axolotl train` and `trl sft`: their words hold its options.

Sources: axolotl-ai-cloud/axolotl:src/axolotl/cli/main.py (what stands behind `--` goes to the launcher) and
huggingface/trl:trl/cli (options of `accelerate launch` among its own, its configuration as `--accelerate_config`).
"""

from collections.abc import Sequence

ACCELERATE = "accelerate"
AXOLOTL_LAUNCHERS = frozenset({ACCELERATE, "torchrun"})
# options of `accelerate launch` that say how many ranks there are; the value of each is the next word
COUNTED = frozenset({"num_processes", "num_machines"})
# what each command is called, and the words of it that start a training
COMMANDS = {"axolotl": frozenset({"train"}), "trl": frozenset({"sft", "dpo", "kto", "reward"})}


def own_launcher(command: str, words: Sequence[str]) -> tuple[str, list[str], list[str]] | None:
    """Return the launcher that a command starts, the launcher's options, and the words left; None for other commands.

    `words` are those behind the command's name.
    """
    if command not in COMMANDS:
        return None
    mine, behind = _split(words)
    if command == "axolotl":
        taken, rest = _taken(mine, {*COUNTED, "launcher"})
        launcher = taken.pop("launcher", ACCELERATE)
        return (launcher if launcher in AXOLOTL_LAUNCHERS else "python"), [*_flags(taken), *behind], rest
    taken, rest = _taken(mine, {*COUNTED, "accelerate_config"})
    if "accelerate_config" in taken:
        taken["config_file"] = taken.pop("accelerate_config")
    return ACCELERATE, _flags(taken), rest


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before and behind `--`."""
    place = list(words).index("--") if "--" in words else len(words)
    return list(words[:place]), list(words[place + 1 :])


def _taken(words: Sequence[str], names: set[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of some flags by their names with underscores, and the other words."""
    found: dict[str, str] = {}
    rest: list[str] = []
    waiting = ""
    for word in words:
        key, equals, value = word.partition("=")
        name = key[2:].replace("-", "_") if key.startswith("--") else ""
        if waiting:
            found[waiting], waiting = word, ""
        elif name in names and equals:
            found[name] = value
        elif name in names:
            waiting = name
        else:
            rest.append(word)
    return found, rest


def _flags(options: dict[str, str]) -> list[str]:
    """Return options as words."""
    return [word for name, value in options.items() for word in (f"--{name}", value)]
