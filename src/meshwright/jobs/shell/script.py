"""Shell scripts read, not run: which commands a launch script would start, with which words.

Variables, arrays, conditions, loops over arguments and functions are followed as far as the script itself decides them.
What only a running machine knows (`$(nproc)`, a file's existence) is a mark in the words, or a branch not taken that is
listed among the assumptions. No command is started and the reader's own environment is not looked at.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...errors import InputError
from ..allocation import batch_directives
from ..slurm import directives, step_variables
from .builtins import ASSIGNED
from .calls import (
    PYTHON,
    RUN_TRAIN,
    SHELLS,
    called_script,
    handed_manifests,
    handed_variables,
    inner_script,
    takes_manifest,
)
from .edited import Editing
from .marks import OF_PROCESS, is_unknown, reasons, shown
from .printf import echoed
from .state import Leave, ScriptOutcome, Started
from .submitted import SUBMITS, pbs_directives, submitted
from .syntax import Command, Compound, Script, Token, parse_script
from .words import arithmetic_value, document_of, expand, undivided_text

MOST_STEPS = 50_000
DEEPEST = 30
QUIET = frozenset({"set", "export", "declare", "local", "readonly", "typeset", "shift", "unset", ":", "true"})
OF_MACHINE = frozenset({"date", "hostname", "nproc", "uname", "whoami"})  # which print what only the machine knows
COMMON = OF_MACHINE | {"echo", "mkdir", "sleep", "wait", "ulimit", "trap", "module"}
PREFIX = frozenset({"time", "nohup", "exec", "env", "command", "builtin", "sudo"})


def follow(
    text: str,
    *,
    where: str,
    given: Mapping[str, str] = {},
    find: Callable[[str], str | None] = lambda name: None,
    before: Sequence[tuple[str, str]] = (),
    stay: bool = False,
) -> ScriptOutcome:
    """Return what a script would start.

    `given` are variables set from outside, `find` returns the text of a file that the script sources (None where it is
    not at hand), `before` are scripts (name and text) whose variables hold first, such as `config_*.sh`. With `stay`,
    `exit` is passed over: what it guards against (arguments that are missing) is known only where the script runs.
    """
    shell = _Shell(where, dict(given), find)
    shell.stay = stay
    try:
        for name, script in before:
            shell.enter(script, name)
        shell.enter(text, where)
    except RecursionError:
        raise InputError(f"{where}: commands are nested too deeply") from None
    return shell.outcome


class _Shell(Editing):
    """The commands of one script that is followed."""

    def enter(self, text: str, where: str) -> None:
        """Follow a script; what it exits ends only itself."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{where}: scripts are nested too deeply")
        outer, self.where = self.where, where
        for name, value in {**pbs_directives(text), **batch_directives(text), **directives(text, self.set)}.items():
            self.set.setdefault(name, value)
            self.exported.add(name)
        try:
            self.script(parse_script(text, where=where))
        except Leave:
            pass
        finally:
            self.where = outer
            self.depth -= 1

    def script(self, script: Script) -> None:
        for node in script:
            self.node(node)

    def node(self, node: Command | Compound) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise InputError(f"{self.where}: line {node.line}: more than {MOST_STEPS} commands, refused")
        if isinstance(node, Command):
            self.command(node)
        else:
            getattr(self, f"_{node.kind}")(node)
        self.code = 0 if self.status else self.code or 1

    def _group(self, block: Compound) -> None:
        self.script(block.parts[0])

    def _subshell(self, block: Compound) -> None:
        """Follow commands whose variables are gone behind them."""
        self._apart(block.parts[0])

    def _apart(self, script: Script) -> None:
        variables, arguments, folder = dict(self.set), list(self.arguments), self.folder
        try:
            self.script(script)
        except Leave as leave:
            if leave.kind != "exit":
                raise
        finally:
            self.set.clear()
            self.set.update(variables)
            self.arguments, self.folder = arguments, folder

    def _pipe(self, block: Compound) -> None:
        if self.printed is not None:
            self.filtered_output(block)
            return
        if self.teed(block):
            return
        outer = self.lines
        self.lines = None
        try:
            for place, part in enumerate(block.parts):
                if place and isinstance(part[0], Compound) and _prints(block.parts[place - 1]):
                    text = self.output(block.parts[place - 1])
                    self.lines = None if text is None or reasons(text) else text.splitlines()
                self._apart(part)
        finally:
            self.lines = outer

    def _fed(self, block: Compound) -> None:
        """Follow a block that reads a here-document, a here-string, or a file that nobody knows."""
        outer, self.lines = self.lines, None
        if block.words:
            token = block.words[0]
            if token.kind == "heredoc":
                text = token.text if token.quoted else document_of(token.text, self)
            else:
                text = self.handed(token.text)
            self.lines = None if reasons(text) else text.rstrip("\n").split("\n")
        try:
            self.script(block.parts[0])
        finally:
            self.lines = outer

    def _not(self, block: Compound) -> None:
        self.script(block.parts[0])
        self.status = not self.status

    def _and(self, block: Compound) -> None:
        self.script(block.parts[0])
        if self.status:
            self.script(block.parts[1])

    def _or(self, block: Compound) -> None:
        self.script(block.parts[0])
        if not self.status:
            self.script(block.parts[1])

    def _function(self, block: Compound) -> None:
        self.functions[block.words[0].text] = block.parts[0]

    def _if(self, block: Compound) -> None:
        parts = list(block.parts)
        while len(parts) >= 2:
            if self.holds(parts[0]):
                self.script(parts[1])
                return
            del parts[:2]
        if parts:
            self.script(parts[0])

    def _while(self, block: Compound, *, until: bool = False) -> None:
        try:
            while self.holds(block.parts[0]) != until and not self.undecided:
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise InputError(f"{self.where}: line {block.line}: the loop does not end, refused")
                self._round(block.parts[1])
        except Leave as leave:
            self._left(leave)
        reads, self.undecided = self.undecided.startswith(("read", "mapfile")), ""
        if reads:
            how = "read once" if self.starts_ranks(block.parts[1]) else "passed over"
            self.outcome.assume(f"{self.where} line {block.line}: the loop over what `read` takes in is {how}")

    def _left(self, leave: Leave) -> None:
        """End a loop that was left; one around it is left too where the script says so."""
        if leave.kind != "break":
            raise leave
        if leave.number > 1:
            raise Leave("break", leave.number - 1)

    def _until(self, block: Compound) -> None:
        self._while(block, until=True)

    def _round(self, body: Script) -> None:
        try:
            self.script(body)
        except Leave as leave:
            if leave.kind != "continue":
                raise
            if leave.number > 1:
                raise Leave("continue", leave.number - 1) from None

    def _for(self, block: Compound) -> None:
        self.outcome.loops[block.words[0].text] = None
        values = [value for word in block.words[1:] for value in expand(word.text, self)]
        for value in values:
            if is_unknown(value):
                self.assign(block.words[0].text, value)
                how = "read once" if self.starts_ranks(block.parts[0]) else "passed over"
                self.outcome.assume(f"{self.where} line {block.line}: the loop over {shown(value)} is {how}")
        values = [value for value in values if not is_unknown(value)]
        try:
            for value in values:
                self.assign(block.words[0].text, value)
                self._round(block.parts[0])
        except Leave as leave:
            self._left(leave)

    def _for_c(self, block: Compound) -> None:
        first, condition, step = ([*block.words[0].text.split(";"), "", ""])[:3]
        arithmetic_value(first or "0", self)
        try:
            while (held := arithmetic_value(condition.strip() or "1", self)) != "0":
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise InputError(f"{self.where}: line {block.line}: the loop does not end, refused")
                if reasons(held):
                    self.outcome.assume(f"{self.where} line {block.line}: the loop is read once")
                self._round(block.parts[0])
                if reasons(held):
                    break
                arithmetic_value(step or "0", self)
        except Leave as leave:
            self._left(leave)

    def _case(self, block: Compound) -> None:
        word = self.tested(block.words[0].text)
        through = False  # whether the part before falls into this one
        for patterns, part, end in zip(block.patterns, block.parts, block.words[1:], strict=True):
            if through or any(fnmatch.fnmatchcase(word, self.tested(pattern)) for pattern in patterns):
                self.script(part)
                if end.text == ";;":
                    return
                through = end.text == ";&"

    def _condition(self, block: Compound) -> None:
        self.status = self.test([word.text for word in block.words], block.line)

    def _arithmetic(self, block: Compound) -> None:
        text = block.words[0].text
        change = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*((?:[-+*/%] ?)?=)\s*([^=,?][^,]*)", text)
        if change is None:
            value = arithmetic_value(text, self)
            self.status = value not in {"0", ""} and not reasons(value)
            if doubt := ", ".join(reasons(value)):
                told = f"(({shown(text)})) is known only on the machine ({doubt}), taken as false"
                self.outcome.assume(f"{self.where} line {block.line}: {told}")
            return
        name, operator, right = change.groups()  # what depends on something unknown is unknown
        now = self.value(name)
        now = now if isinstance(now, str) and now else "0"
        self.assign(name, arithmetic_value(right if operator == "=" else f"{now}{operator[0]}({right})", self))
        self.status = True

    def holds(self, condition: Script) -> bool:
        self.status, self.undecided = True, ""
        self.script(condition)
        if self.undecided and self.status:
            self.outcome.assume(
                f"{self.where}: whether `{self.undecided}` succeeds is known only on the machine: taken so"
            )
        return self.status

    def command(self, command: Command) -> None:
        words = list(command.words)
        assigned: dict[str, str] = {}
        while words and (words[0].kind == "array" or ASSIGNED.match(words[0].text)):
            self.assignment(words.pop(0), assigned, alone=False)
        self.status = True
        if not words and not command.documents:
            for name, value in assigned.items():
                self.assign(name, value)
            return
        name = words[0].text if words else ""
        if name in QUIET:
            self.quiet(name, words[1:])
            return
        fields = [value for word in words for value in expand(word.text, self)]
        while fields and fields[0] in PREFIX:
            fields.pop(0)
            while fields and re.match(r"[A-Za-z_]\w*=", fields[0]):
                key, _, value = fields.pop(0).partition("=")
                assigned[key] = value
        if fields and fields[0] in {"read", "mapfile", "readarray"}:
            self.read(fields, command, assigned)
        elif not self._documents(command, fields) and fields:
            self._call(fields, command, assigned)

    def _documents(self, command: Command, fields: list[str]) -> bool:
        """Follow here-documents that are scripts, keep the ones that are files; return whether there were any."""
        for document in command.documents:
            body = document.text if document.quoted else document_of(document.text, self)
            name = fields[0].rpartition("/")[2] if fields else ""
            target = undivided_text(command.output, self) if command.output else ""
            if takes_manifest(fields):
                self.outcome.manifests[f"{self.where} line {document.line}"] = body
                continue
            if PYTHON.match(name):
                self.rewritten_by(body, f"{name} <<", command)
            if name == "tee":
                target = next((word for word in fields[1:] if not word.startswith("-")), "")
            if target and name not in {"", "cat", "tee", *SHELLS}:
                continue  # a program writes it
            if self.keep(body, target, appends=command.appends or "-a" in fields):
                continue
            if self.printed is not None and fields == ["cat"]:
                self.printed.append(body)
            elif not fields or name in {"sbatch", "cat", "srun", "tee", "qsub", *SHELLS}:
                self.enter(body, f"{self.where} line {document.line}")
        return bool(command.documents)

    def _call(self, fields: list[str], command: Command, assigned: dict[str, str]) -> None:
        name = fields[0].rpartition("/")[2]
        if name in {"[", "test"}:
            raw = [word.text for word in command.words[1:]]
            self.status = self.test(raw[:-1] if raw[-1:] == ["]"] else raw, command.line)
        elif name == "exit" and self.stay:
            self.outcome.assume(f"{self.where} line {command.line}: exit is passed over")
        elif name in {"exit", "return", "break", "continue"}:
            self._leave(name, fields[1:])
        elif name == "false":
            self.status = False
        elif name in self.functions:
            self._function_called(self.functions[name], fields[1:])
        elif name in {"source", "."}:
            self._source(fields[1:], command)
        elif name == "let":
            for word in fields[1:]:
                self._arithmetic(Compound("arithmetic", command.line, (Token(word, command.line),)))
        elif name in {"printf", "echo"}:
            self._print(self.printf(fields[1:]) if name == "printf" else echoed(fields[1:]), command)
        elif name == "getopts" and len(fields) > 2:
            self.getopts(fields[1:])
        elif name in {"cd", "pushd", "popd"}:
            self.go(name, fields[1:])
        elif name in COMMON:
            self.printed = None if name in OF_MACHINE and not command.output else self.printed
        elif name == "eval":
            self.enter(" ".join(fields[1:]), f"{self.where} line {command.line}")
        else:
            self._start(fields, command, assigned)

    def _print(self, text: str, command: Command) -> None:
        if command.output:
            self.keep(text, undivided_text(command.output, self), appends=command.appends)
        elif self.printed is not None:
            self.printed.append(text)

    def _leave(self, kind: str, words: list[str]) -> None:
        number = int(words[0]) if words and re.fullmatch(r"\d{1,3}", words[0]) else None
        if kind == "return":
            self.code = self.code if number is None else number
            self.status = self.code == 0
        raise Leave(kind, number or 1)

    def _function_called(self, body: Script, arguments: list[str]) -> None:
        outer, self.arguments = self.arguments, list(arguments)
        self.frames.append({})
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{self.where}: functions are nested too deeply")
        try:
            self.script(body)
        except Leave as leave:
            if leave.kind != "return":
                raise
        finally:
            self.arguments = outer
            self.depth -= 1
            for name, value in self.frames.pop().items():
                if value is None:
                    self.set.pop(name, None)
                else:
                    self.set[name] = value

    def _source(self, words: list[str], command: Command) -> None:
        path = words[0] if words else ""
        of_process = path.startswith(OF_PROCESS) and len(command.words) > 1
        text = self.handed(command.words[1].text) if of_process else self.at_hand(path)
        if text is None or reasons(text):
            self.outcome.sourced_missing.append(shown(path))
            return
        name = shown(path).rpartition("/")[2]
        self.outcome.called.append(name)
        self.enter(text, name)

    def _script_called(
        self,
        launcher: tuple[str, ...],
        path: str,
        arguments: list[str],
        assigned: Mapping[str, str],
        fields: Sequence[str],
    ) -> None:
        """Follow another script as a process of its own: its arguments, and of our variables the exported ones.

        A batch system that it is handed to sets more for it, and may hide the environment.
        """
        name = shown(path).rpartition("/")[2]
        if name in self.following:  # it submits itself again, for when this job has ended
            return
        text = self.at_hand(path)
        if text is None:
            self.outcome.called_missing.append(name)
            seen = {key: value for key, value in self.set.items() if key in self.exported and isinstance(value, str)}
            self.outcome.seen_by_missing = seen | dict(assigned)
            return
        self.outcome.called.append(name)
        outer, mine, functions, exported = dict(self.set), self.arguments, self.functions, set(self.exported)
        seen = {key: value for key, value in self.set.items() if isinstance(value, str)} | dict(assigned)
        handed, keeps = submitted(fields, path, seen) or (step_variables(launcher, self.set), True)
        for key in [key for key in self.set if key not in (self.exported if keeps else self.given)]:
            del self.set[key]
        self.set.update(assigned if keeps else {})
        self.set.update({key: value for key, value in handed.items() if key not in self.given})
        self.exported |= handed.keys()
        self.arguments, self.functions = arguments, {}
        count, folder = len(self.outcome.started), self.folder
        self.following.append(name)
        try:
            self.enter(text, name)
        finally:
            self.following.pop()
            self.folder = folder
            self.arguments, self.functions, self.exported = mine, functions, exported
            self.set.clear()
            self.set.update(outer)
        self._put_before(launcher, count)
        if SUBMITS & {word.rpartition("/")[2] for word in fields}:  # it runs though its output is asked for
            self.outcome.started[count:] = [replace(one, submitted=True) for one in self.outcome.started[count:]]

    def _put_before(self, launcher: tuple[str, ...], count: int) -> None:
        """Put a launcher before all commands but the first `count`: they run under its nodes and tasks.

        Lines of flags that lost their command have none.
        """
        self.outcome.started[count:] = [
            one if one.words[0].startswith("--") else replace(one, words=(*launcher, *one.words))
            for one in self.outcome.started[count:]
        ]

    def _start(self, fields: list[str], command: Command, assigned: dict[str, str]) -> None:
        """Note a command; one that hands a text to a shell is followed into that text."""
        if self.edited(fields, command, assigned):
            return
        for path in handed_manifests(fields) or ():
            if (text := self.file_text(path)) is not None:
                self.outcome.manifests[path] = text
        inner = inner_script(fields)
        if inner is not None:
            launcher, text, words = inner
            count = len(self.outcome.started)
            outer, self.arguments = self.arguments, words
            handed = {**step_variables(launcher, self.set), **handed_variables(launcher)}
            handed = {key: one for key, one in handed.items() if key not in self.given}
            before = {key: self.set[key] for key in handed if key in self.set}
            self.set.update(handed)
            self.enter(text, f"{self.where} line {command.line}")
            self.arguments = outer
            for key in handed:
                self.set.pop(key, None)
            self.set.update(before)
            self._put_before(launcher, count)
            return
        called = called_script(fields)
        if called is not None and not (called[1].endswith(RUN_TRAIN) and self.at_hand(called[1]) is None):
            self._script_called(*called, assigned, fields)
            return
        self.undecided = shown(" ".join(fields))[:60]
        plain = {key: value for key, value in self.set.items() if isinstance(value, str)}
        seen = {key: value for key, value in plain.items() if key in self.exported} | assigned
        place = (command.line, self.where)
        self.outcome.started.append(Started(tuple(fields), *place, {**plain, **assigned}, seen, self.folder))


def _prints(script: Script) -> bool:
    """Whether commands may do nothing but print."""
    first = script[0]
    return isinstance(first, Command) and bool(first.words) and first.words[0].text in {"echo", "printf", "cat"}
