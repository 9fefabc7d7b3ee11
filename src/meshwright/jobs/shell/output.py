"""Output of a script's commands in `$(...)` and pipes, as far as the script alone decides it."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from ...errors import InputError
from ..allocation import LSF_NODES
from ..arithmetic import NotArithmetic, evaluate
from .builtins import Builtins
from .calls import APPLIES, LAUNCHERS, split_words, takes_manifest
from .filters import filtered
from .marks import reasons, unknown
from .printf import sequence
from .state import Leave
from .syntax import Command, Compound, Script, parse_script
from .words import expand

VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
NODEFILE = r"""["']?\$\{?PBS_NODEFILE\}?["']?"""
LSFS = r"""["']?\$\{?LSB_(?:DJOB_HOSTFILE|HOSTFILE)\}?["']?"""  # a line a slot, and one of the node of the script
# commands that count what SLURM, PBS or LSF gives a job, and the variable of it
COUNTED = (
    (
        re.compile(
            r"nvidia-smi (?:-L|--list-gpus|--query-gpu=\S+ --format=csv,noheader\S*)(?: 2>/dev/null)? ?\| ?wc -l"
        ),
        "SLURM_GPUS_PER_NODE",
    ),
    (
        re.compile(r"""python3? -c ["']import torch; ?print\(torch\.cuda\.device_count\(\)\)["']"""),
        "SLURM_GPUS_PER_NODE",
    ),
    (re.compile(rf"(?:wc -l ?< ?{NODEFILE}|cat {NODEFILE} ?\| ?wc -l)"), "PBS_NP"),
    (
        re.compile(rf"(?:sort -u|uniq|cat|sort) {NODEFILE}(?: ?\| ?(?:sort -u|sort|uniq)){{0,2}} ?\| ?wc -l"),
        "PBS_NUM_NODES",
    ),
    (
        re.compile(
            rf"(?=.*(?:sort -u|uniq))(?=.*grep -v)(?:cat|sort(?: -u)?|uniq|grep -v \S+) {LSFS}"
            r"(?: ?\| ?(?:sort -u|sort|uniq|grep -v \S+)){0,4} ?\| ?wc -l"
        ),
        LSF_NODES,
    ),
    (re.compile(r"scontrol show hostnames?(?: \S+)? ?\| ?wc -l"), "SLURM_NNODES"),
)
PLACE = ("where", "code", "arguments", "lines", "folder")  # of what is followed: it is as before once a trial is over
COMPUTED = {"expr", "bc", "seq", "basename", "dirname", "command", "which", "realpath", "readlink", "mktemp"}


class Printing(Builtins):
    """Commands whose output is asked for."""

    def output_of(self, command: str) -> str:
        """Return what `echo`, `expr`, `which` and `echo ... | bc` print; all else is unknown."""
        plain = command.strip()
        for pattern, name in COUNTED:
            known = self.set.get(name)
            if pattern.fullmatch(plain) and isinstance(known, str) and known.isdecimal():
                return known
        try:
            raws = split_words(plain)
            if not COMPUTED & set(raws):
                return self._printed_by(plain)
            words = [word for raw in raws for word in expand(raw, self)]
        except InputError:
            return unknown(f"$({plain})")
        if "|" in words and words[-1:] == ["bc"] and words[0] == "echo":
            words = ["expr", *words[1 : words.index("|")]]
        if words[:1] == ["expr"]:
            try:
                return str(evaluate(" ".join(words[1:])))
            except NotArithmetic:
                return unknown(f"$({plain})")
        if {"|", ">", "<", ";", "&&", "||"} & set(words) or not words:
            return self._printed_by(plain)
        name, *rest = words
        if name == "seq" and (found := sequence(rest)) is not None:
            return found
        if (name == "which" and len(rest) == 1) or (name == "command" and rest[:1] == ["-v"] and len(rest) == 2):
            return rest[-1]  # its place, which changes nothing of what it does
        if name == "mktemp":
            return self._temporary(rest)
        if name in {"realpath", "readlink"} and rest:
            return rest[-1]  # the same file
        if name in {"basename", "dirname"} and rest and not any(map(reasons, rest)):
            folder, _, last = rest[0].rstrip("/").rpartition("/")
            return last.removesuffix(rest[1] if len(rest) > 1 else "") if name == "basename" else folder or "."
        return self._printed_by(plain)

    def _temporary(self, words: list[str]) -> str:
        """Return a name of its own for a temporary file or folder, with the ending of its template."""
        self.temporaries += 1
        template = next((word for word in words if not word.startswith("-")), "")
        suffix = next((word.partition("=")[2] for word in words if word.startswith("--suffix=")), "")
        suffix = suffix or (re.search(r"X{3,}(.*)$", template, re.DOTALL) or ["", ""])[1]
        return f"/tmp/temporary-{self.temporaries}{suffix}"

    def _printed_by(self, text: str) -> str:
        """Return what `echo`, `printf`, a script's own functions and conditions alone print.

        It is unknown where another command has a part in it.
        """
        try:
            script = parse_script(text, where=self.where)
        except InputError:
            return unknown(f"$({text})")
        found = self.output(script)
        return unknown(f"$({text})") if found is None else found.rstrip("\n")

    def output(self, script: Script) -> str | None:
        """Return what commands print, None where an unknown one has a part in it; variables stay as they were."""
        outer, variables, started = self.printed, dict(self.set), len(self.outcome.started)
        missing = len(self.outcome.called_missing)
        kept = {name: getattr(self, name) for name in PLACE}
        self.printed = []
        try:
            self.script(script)
        except Leave:
            pass
        except InputError:
            self.printed = None
        found, self.printed = self.printed, outer
        others = self.outcome.started[started:]
        del self.outcome.started[started:]
        self.set.clear()
        self.set.update(variables)
        for name, value in kept.items():
            setattr(self, name, value)
        self.outcome.started += [one for one in others if one.submitted]
        unknown_ones = others or self.outcome.called_missing[missing:]
        return None if found is None or unknown_ones else "".join(found)

    def starts_ranks(self, body: Script) -> bool:
        """Follow the body of a loop of unknown rounds; what it starts is kept where that starts ranks.

        Variables that it sets are not known behind it, all others stay as they were.
        """
        variables, started = dict(self.set), len(self.outcome.started)
        place = {name: getattr(self, name) for name in (*PLACE, "steps")}
        with contextlib.suppress(Leave, InputError):  # what cannot be followed so starts nothing more
            self.script(body)
        mine = self.outcome.started[started:]
        kept = any({word.rpartition("/")[2] for word in one.words} & LAUNCHERS for one in mine)
        if not kept:
            del self.outcome.started[started:]
        changed = [name for name, value in self.set.items() if variables.get(name) != value and name not in self.given]
        self.set.clear()
        self.set.update(variables | {name: unknown(f"${name}") for name in changed})
        for name, value in place.items():
            setattr(self, name, value)
        return kept

    def keep(self, text: str, target: str, *, appends: bool = False) -> bool:
        """Keep a text as the file that it is written to; return whether it is a file, and no script or device."""
        if not target or re.search(r"^/dev/|\.(sh|sbatch|slurm|batch|job)$", target):
            return False
        files = self.outcome.documents
        before = files.get(target, self.at_hand(target) or "") if appends else ""
        files[target] = before + text
        self.outcome.changed.add(PurePath(target).name)
        return True

    def teed(self, block: Compound) -> bool:
        """Keep what a pipe hands to `tee FILE`, `sponge FILE` or `kubectl apply -f -`; return whether it does that."""
        last = block.parts[-1][0]
        words = list(last.words) if isinstance(last, Command) else []
        if not words or words[0].text not in {"tee", "sponge", *APPLIES}:
            return False
        fields = [value for word in words for value in expand(word.text, self)]
        if words[0].text in APPLIES and not takes_manifest(fields):
            return False
        text = self._through(block.parts[:-1])
        if text is None:
            return False
        if words[0].text in APPLIES:
            self.outcome.manifests[f"{self.where} line {block.line}"] = text
            return True
        files = [word for word in fields[1:] if not word.startswith("-")]
        kept = [self.keep(text, target, appends="-a" in fields) for target in files]
        return bool(kept) and all(kept)

    def filtered_output(self, block: Compound) -> None:
        """Print what a pipe prints, where filters that are followed alone stand in it."""
        text = self._through(block.parts)
        if text is None:
            self.printed = None
        elif self.printed is not None:
            self.printed.append(text)

    def _through(self, parts: Sequence[Script]) -> str | None:
        """Return what the last part of a pipe prints, None where another than a filter that is followed is in it."""
        text = self.output(parts[0])
        for part in parts[1:]:
            words = list(part[0].words) if isinstance(part[0], Command) else []
            fields = [value for word in words for value in expand(word.text, self)]
            if fields[:1] == ["envsubst"]:
                text = None if text is None else self.substituted(text, fields[1:], {})
            else:
                text = None if text is None or reasons(text) else filtered(text, fields)
        return text

    def substituted(self, text: str, words: Sequence[str], assigned: Mapping[str, str]) -> str:
        """Return a text with the variables that the environment has, of `envsubst` and its words.

        Where these name variables (`envsubst '$NODES $IMAGE'`), the others stay as they are.
        """
        wanted = {one or other for word in words for one, other in VARIABLE.findall(word)}

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if wanted and name not in wanted:
                return match[0]
            known = assigned.get(name, self.value(name))
            if name not in self.exported and name not in assigned:
                known = None
            return known if isinstance(known, str) else unknown(f"${name}")

        return VARIABLE.sub(value, text)
