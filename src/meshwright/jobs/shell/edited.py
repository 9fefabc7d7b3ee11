"""Files that a script makes of others with sed, jq, yq, cat, cp, mv and envsubst, as far as those are at hand."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from .calls import PYTHON
from .filters import filtered, sed
from .marks import reasons, shown
from .output import Printing
from .queries import QUERIES, Query, queried
from .syntax import Command
from .words import undivided_text

READERS = frozenset({"cat", "sed", "grep", "head", "tail", "envsubst", "awk", "cut"})
# files whose text is asked for, and templates of them (job.yaml-template, job.yaml.tmpl)
KEPT = re.compile(r"\.(?:ya?ml|json|toml|txt|conf|cfg|env)(?:[-.][A-Za-z]\w*)?$")
# commands that change files in their place, and the option with which they do where it takes one
CHANGES = (
    ("perl", r"-\w*i\S*"),
    ("ruby", r"-\w*i\S*"),
    ("awk", r"-i|--include=inplace"),
    ("gawk", r"-i|--include=inplace"),
    ("dasel", r"put|delete"),
    ("crudini", r"--(?:set|del|merge|inplace)"),
    ("tomlq", r"-\w*i\w*|--in-place"),
    *((name, r".*") for name in ("ed", "ex", "patch", "toml")),
)
NAMES = re.compile(r"[\w./-]{1,200}\.(?:ya?ml|json|toml|conf)\b")
WRITES = re.compile(r"\bdump\(|\.write\(|write_text\(|safe_dump\(|[\"']w[+t]?[\"']|\bsave\(")


class Editing(Printing):
    """Commands that read configurations and write them changed."""

    def edited(self, fields: Sequence[str], command: Command, assigned: Mapping[str, str]) -> bool:
        """Follow a command that makes a file or prints a part of one; return whether it was one."""
        name = fields[0].rpartition("/")[2]
        target = undivided_text(command.output, self) if command.output else ""
        if name in {"cp", "mv"}:
            return self._copied([word for word in fields[1:] if not word.startswith("-")])
        if name in QUERIES:
            return self._queried(Query(fields), fields, command, target, assigned)
        if any(name == own and any(re.fullmatch(how, word) for word in fields[1:]) for own, how in CHANGES):
            return self._not_followed(fields, command, [word for word in fields[1:] if KEPT.search(word)])
        if PYTHON.match(name) and "-c" in fields[1:-1]:
            self.rewritten_by(fields[fields.index("-c") + 1], " ".join(fields[:2]), command)
        if name == "sed" and (own := re.fullmatch(r"-i.*|--in-place.*|-[Er]i", next(iter(fields[1:]), ""))):
            return self._changed(own[0], fields[2:], command)
        if name == "grep" and (found := self._held(fields[1:], command, target)) is not None:
            self.status = found
            return True
        if name not in READERS or not (target or self.printed is not None):
            return False
        words, text = self._read(name, list(fields[1:]), command)
        made = (
            None
            if text is None
            else self.substituted(text, words, assigned)
            if name == "envsubst"
            else filtered(text, [name, *words])
        )
        if target:
            return made is not None and self.keep(made, target, appends=command.appends)
        if made is None or self.printed is None:
            return False
        self.printed.append(made)
        return True

    def _held(self, words: Sequence[str], command: Command, target: str) -> bool | None:
        """Whether a file at hand has a line that `grep` asks for and nobody sees; None where that is not known."""
        plain = [re.sub(r"^(-[A-Za-z]*)q", r"\1", word) for word in words if word not in {"--quiet", "--silent"}]
        quiet = plain != list(words) or target == "/dev/null" or (not target and self.printed is None)
        rest, text = self._read("grep", [word for word in plain if word != "-"], command) if quiet else ([], None)
        found = None if text is None else filtered(text, ["grep", *rest])
        return None if found is None else bool(found)

    def _read(self, name: str, words: list[str], command: Command) -> tuple[list[str], str | None]:
        """Return a command's words without the files that it reads, and their text; None where one is not at hand."""
        if command.source:
            return words, self.file_text(undivided_text(command.source, self))
        files: list[str] = []
        least = 0 if name in {"cat", "envsubst"} or "-e" in words else 1  # the pattern or program stands first
        plain = [word for word in words if not word.startswith("-")]
        while words and len(plain) > least and (KEPT.search(words[-1]) or name == "cat") and words[-1] == plain[-1]:
            files.insert(0, words.pop())
            plain.pop()
        texts = [self.file_text(path) for path in files]
        known = [text for text in texts if text is not None]
        return words, "".join(known) if files and len(known) == len(texts) else None

    def file_text(self, path: str) -> str | None:
        """Return the text of a configuration that a script wrote, or that is at hand."""
        own = os.path.normpath(path)
        written = next((text for name, text in self.outcome.documents.items() if os.path.normpath(name) == own), None)
        if written is not None:
            return written
        return self.at_hand(path) if KEPT.search(path) else None

    def _copied(self, paths: Sequence[str]) -> bool:
        text = self.file_text(paths[0]) if len(paths) == 2 else None
        if text is None:
            return False
        target = f"{paths[1]}{PurePath(paths[0]).name}" if paths[1].endswith("/") else paths[1]
        return self.keep(text, target)

    def _queried(
        self, query: Query, fields: Sequence[str], command: Command, target: str, assigned: Mapping[str, str]
    ) -> bool:
        """Follow jq or yq: what it sets in a file, or prints of one; return whether that is all that it does."""
        paths = query.files or ([undivided_text(command.source, self)] if command.source else [])
        text = self.file_text(paths[0]) if len(paths) == 1 else None
        if not (query.in_place or target or self.printed is not None):
            return False

        def value(name: str) -> str | None:
            known = assigned.get(name, self.value(name) if name in self.exported else None)
            return known if isinstance(known, str) else None

        made = None if text is None else queried(query, text, paths[0], value)
        target = paths[0] if query.in_place and paths else target
        if made is None:
            return self._not_followed(fields, command, paths) if target and target != "/dev/null" else False
        if not target and self.printed is not None:
            self.printed.append(made)
            return True
        return self.keep(made, target)

    def _not_followed(self, fields: Sequence[str], command: Command, paths: Sequence[str]) -> bool:
        """Say that what a command changes in files at hand is not followed; return whether there are any."""
        known = [path for path in paths if self.file_text(path) is not None]
        if known:
            told = shown(" ".join(fields))[:60]
            names = ", ".join(PurePath(shown(path)).name for path in known)
            self.outcome.assume(f"{self.where} line {command.line}: what `{told}` changes of {names} is not followed")
        return bool(known)

    def rewritten_by(self, text: str, told: str, command: Command) -> None:
        """Say where a program in the script itself may write configurations that are at hand, which nobody follows."""
        if WRITES.search(text):
            self._not_followed([told], command, list(dict.fromkeys(NAMES.findall(text))))

    def _changed(self, flag: str, words: Sequence[str], command: Command) -> bool:
        """Follow `sed -i`: files that it changes in a way that is not followed are named."""
        more = ["-E"] if re.search("[Er]", flag.removeprefix("-i")) and not flag.startswith("--") else []
        rest = [word for word in words if not (KEPT.search(word) and not reasons(word))]
        for path in [word for word in words if word not in rest]:
            text = self.file_text(path)
            made = None if text is None else sed(text, [*more, *rest])
            if made is not None:
                self.outcome.documents[path] = made
                self.outcome.changed.add(PurePath(path).name)
            elif text is not None:
                told = shown(" ".join(rest))[:60]
                self.outcome.assume(f"{self.where} line {command.line}: what `sed {told}` changes is not followed")
        return True
