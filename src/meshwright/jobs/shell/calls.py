"""The text or script that a command hands to another shell, and the words before it."""

import itertools
import re
import shlex
from collections.abc import Collection, Sequence

from ...errors import InputError
from ..counts import STARTS_TASKS

SHELLS = frozenset({"bash", "sh", "zsh"})
PYTHON = re.compile(r"python[\d.]*$")
LAUNCHERS = frozenset({"torchrun", "deepspeed", "accelerate"})
RUN_TRAIN = "run_train.sh"  # torchtitan's launcher, which is known where it is not at hand
OF_ONE_HOST = frozenset({"ssh", "oarsh", "rsh"})  # whose first word is the host
OF_MANY_HOSTS = frozenset({"pssh", "parallel-ssh"})  # by a file of them
OTHER_HOSTS = OF_ONE_HOST | OF_MANY_HOSTS | {"pdsh", "clush"}  # commands that run a text on other machines
WITH_VALUE = re.compile(r"-[bcDEeFIiJLlmOopQRSWwx]$|--(?:user|fanout)$")  # options of theirs that a word follows
WITH_VALUE_OF_MANY = re.compile(r"-[hHlptoexO]$|--(?:hosts?|user|par|timeout|outdir|errdir|option)$")
# options of starters of tasks that a file follows
OF_FILE = re.compile(r"-[oeix]|--?(?:output|error|input|(?:task-)?(?:prolog|epilog)|bcast|export|hostfile|machinefile)")
HANDED = re.compile(r"(?:-e|--env|-x)=?|--env=(?P<own>.+)")  # options that hand a variable to what is started


APPLIES = {  # commands that hand manifests to a cluster, and the words of theirs that start something
    **dict.fromkeys(("kubectl", "oc"), r"apply|create|replace"),
    **{"argo": "submit", "sky": r"launch|exec|jobs", "dstack": "apply"},
}
# keys of `tmux send-keys` that are no text; options of tmux and of screen that a word follows
KEYS = {"Enter": "\n", "C-m": "\n", "C-j": "\n", "KPEnter": "\n", "Space": " ", "C-c": "", "C-l": "", "C-u": ""}
SESSIONS = frozenset({"new-session", "new", "new-window", "neww", "split-window", "splitw", "respawn-pane"})
WITH_VALUE_OF_TMUX, WITH_VALUE_OF_SCREEN = re.compile(r"-[A-Za-z]*[cefFNnstxylp]"), re.compile(r"-[A-Za-z]*[cehpsStT]")


def takes_manifest(fields: Sequence[str]) -> bool:
    """Whether a command hands the manifest that it is fed to a cluster: `kubectl apply -f -`."""
    named = {"-", "-f-", "--filename=-"} & set(fields)
    return bool(named) and handed_manifests(fields) is not None


def handed_manifests(fields: Sequence[str]) -> list[str] | None:
    """Return the YAML files that a command hands to a cluster, None for a command that hands it none."""
    wanted = APPLIES.get(fields[0].rpartition("/")[2]) if fields else None
    if wanted is None or not any(re.fullmatch(wanted, word) for word in fields[1:]):
        return None
    words = [word.removeprefix("--filename=").removeprefix("-f=") for word in fields[1:]]
    return [word for word in words if word.endswith((".yaml", ".yml"))]


def split_words(text: str) -> list[str]:
    """Return the words of a command as written, with their quotes."""
    try:
        lexer = shlex.shlex(text, posix=False, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, ""
        return list(lexer)
    except ValueError:
        raise InputError("a quotation is not closed") from None


def called_script(fields: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]] | None:
    """Return the words before a script that a command starts, the script's path and its arguments; None for others.

    A script of its own name (`./run.sh`), or the first word after a shell, `sbatch` or `qsub` that is no flag.
    """
    for place, word in enumerate(fields):
        name = word.rpartition("/")[2]
        if PYTHON.match(name) or name in LAUNCHERS or name.endswith(".py"):
            return None
        if name in SHELLS or name in {"sbatch", "qsub"}:
            for at in range(place + 1, len(fields)):
                if re.search(r"\.(sh|bash|slurm|sbatch|pbs)$", fields[at]) and not fields[at].startswith("-"):
                    return tuple(fields[:place]), fields[at], list(fields[at + 1 :])
            return None
    own = 0 if fields[0].rpartition("/")[2] not in STARTS_TASKS else _script_of_task(fields)
    if own is not None and re.search(r"\.(sh|bash)$", fields[own]):
        return tuple(fields[:own]), fields[own], list(fields[own + 1 :])
    return None


def _script_of_task(fields: Sequence[str]) -> int | None:
    """Return where the script stands that `srun`, `mpirun` or another starter of tasks runs, None where it runs none.

    A script behind an option that takes a file is none of its tasks.
    """
    places = (at for at, word in enumerate(fields) if at and re.search(r"\.(sh|bash)$", word) and word[0] != "-")
    return next((at for at in places if not OF_FILE.fullmatch(fields[at - 1])), None)


def inner_script(fields: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]] | None:
    """Return the words before `bash -c TEXT NAME WORD ...`, the text and its words; None for other commands."""
    typed = _in_terminal(fields)
    if typed is not None:
        return (), typed, []
    for place, word in enumerate(fields):
        if word.rpartition("/")[2] not in SHELLS:
            continue
        flags = list(itertools.takewhile(lambda later: later.startswith("-"), fields[place + 1 :]))
        if any(re.fullmatch(r"-[a-z]*c[a-z]*", flag) for flag in flags):
            rest = list(fields[place + 1 + len(flags) :])
            return (tuple(fields[:place]), rest[0], rest[2:]) if rest else None
    if fields[0].rpartition("/")[2] == "sshpass" and "ssh" in fields:
        fields = fields[list(fields).index("ssh") :]
    if fields[0].rpartition("/")[2] in OTHER_HOSTS and (text := _on_hosts(fields)):
        return (), text, []
    flags_of_text = {"--wrap"} if fields[0].rpartition("/")[2] == "sbatch" else {"--command", "--COMMAND"}
    for place, word in enumerate(fields):
        name, equals, text = word.partition("=")
        if name in flags_of_text:  # of `sbatch`, and of what starts a text on other machines (xpk, gcloud, MaxText's)
            text = text if equals else "".join(fields[place + 1 : place + 2])
            before = tuple(fields[:place]) if fields[0].rpartition("/")[2] == "xpk" else ()  # it says the machines
            return (before, text, []) if " " in text else None
    return None


def _in_terminal(fields: Sequence[str]) -> str | None:
    """Return the text that tmux or screen types or runs in a terminal of its own, None for any other command.

    Sources: tmux(1) (send-keys joins its words, keys by their names among them; new-session runs what is left of its
    words) and screen(1) (`-dm COMMAND WORD ...`, `-X stuff TEXT`).
    """
    name, rest = fields[0].rpartition("/")[2], list(fields[1:])
    if name == "screen" and "stuff" in rest[:-1]:
        return re.sub(r"\^M|\\(?:n|r|015)", "\n", rest[rest.index("stuff") + 1])
    if name == "screen" and not any(re.fullmatch(r"-[A-Za-z]*[rRxXQ]|-ls|-list|-wipe", word) for word in rest):
        return _joined_words(_behind_options(rest, WITH_VALUE_OF_SCREEN)) or None
    at = next((at for at, word in enumerate(rest) if word in SESSIONS | {"send-keys", "send"}), None)
    if name != "tmux" or at is None:
        return None
    words = _behind_options(rest[at + 1 :], WITH_VALUE_OF_TMUX)
    if rest[at] in SESSIONS:
        return _joined_words(words) or None
    return "".join(KEYS.get(word, word) for word in words)


def _joined_words(words: Sequence[str]) -> str:
    """Return words as one command: a single one is a text for a shell, several are quoted where they must be."""
    return words[0] if len(words) == 1 else " ".join(re.sub(r".*[\s\"'$;&|<>()].*", _quoted, word) for word in words)


def _quoted(match: re.Match[str]) -> str:
    return shlex.quote(match[0])


def _behind_options(words: Sequence[str], with_value: re.Pattern[str]) -> list[str]:
    place = 0
    while place < len(words) and words[place].startswith("-"):
        place += 2 if with_value.fullmatch(words[place]) else 1
    return list(words[place:])


def _on_hosts(fields: Sequence[str]) -> str:
    """Return the text that `ssh HOST TEXT` runs there, empty where it opens a session or forwards ports."""
    place, name = 1, fields[0].rpartition("/")[2]
    with_value = WITH_VALUE_OF_MANY if name in OF_MANY_HOSTS else WITH_VALUE
    while place < len(fields) and fields[place].startswith("-"):
        place += 2 if with_value.match(fields[place]) else 1
    named_by_option = name not in OF_ONE_HOST
    return " ".join(fields[place if named_by_option else place + 1 :])


def handed_variables(fields: Sequence[str]) -> dict[str, str]:
    """Return the variables that words before a shell give it: `docker run -e NAME=VALUE`, `env NAME=VALUE`.

    Apptainer takes several in one word: `--env NAME=VALUE,NAME=VALUE`.
    """
    found = {}
    several = any(word.rpartition("/")[2] in {"apptainer", "singularity"} for word in fields)
    for before, word in zip(("", *fields), fields, strict=False):
        own = HANDED.fullmatch(word)
        text = own["own"] if own and own["own"] else word
        handed = bool(own and own["own"]) or HANDED.fullmatch(before) or before.rpartition("/")[2] == "env"
        for one in re.split(r",(?=[A-Za-z_]\w*=)", text) if several else [text]:
            name, equals, value = one.partition("=")
            if equals and handed and re.fullmatch(r"[A-Za-z_]\w*", name):
                found[name] = value
    return found


def component(words: Sequence[str], starters: Collection[str], of_ranks: Collection[str]) -> Sequence[str]:
    """Return the command of `srun ... : ...` or `mpirun ... : ...` that trains; any other command as it is.

    That is the part with a launcher `of_ranks`, else with the most tasks; `starters` are the commands with such parts.
    """
    if ":" not in words or words[0].rpartition("/")[2] not in starters:
        return words
    ends = [place for place, word in enumerate(words) if word == ":"]
    parts = [words[begin + 1 : end] for begin, end in itertools.pairwise([0, *ends, len(words)])]

    def weight(part: Sequence[str]) -> tuple[bool, int]:
        tasks = re.search(r"(?<!\S)(?:-np?|--ntasks)[ =](\d{1,9})", " ".join(part))
        return bool({word.rpartition("/")[2] for word in part} & set(of_ranks)), int(tasks[1]) if tasks else 0

    return [words[0], *max(parts, key=weight)]
