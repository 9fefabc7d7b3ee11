"""Shell scripts read, not run: which commands a launch script would start, with which words.

Variables, arrays, conditions, loops over arguments and functions are followed as far as the script itself decides them.
What only a running machine knows (`$(nproc)`, a file's existence) is a mark in the words, or a branch not taken that is
listed among the assumptions. No command is started and the reader's own environment is not looked at.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence

from ..errors import InputError
from .arithmetic import NotArithmetic, evaluate
from .shell_calls import SHELLS, called_script, inner_script, split_words
from .shell_conditions import Condition
from .shell_state import Outcome, Started, State
from .shell_syntax import Block, Command, Script, Token, parse
from .shell_words import document_of, expand, is_unknown, number_of, reasons, shown, text_of, unknown
from .slurm import directives

MOST_STEPS = 50_000
DEEPEST = 30
QUIET = frozenset({"set", "export", "declare", "local", "readonly", "typeset", "shift", "unset", ":", "true"})
COMMON = frozenset({"echo", "printf", "mkdir", "cd", "sleep", "wait", "ulimit", "date", "hostname", "trap", "module"})
PREFIX = frozenset({"time", "nohup", "exec", "env", "command", "builtin", "sudo"})


class _Leave(Exception):
    """`exit`, `return`, `break` or `continue` of the script."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def follow(
    text: str,
    *,
    where: str,
    given: Mapping[str, str] = {},
    find: Callable[[str], str | None] = lambda name: None,
    before: Sequence[tuple[str, str]] = (),
    stay: bool = False,
) -> Outcome:
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


class _Shell(State):
    """The commands of one script that is followed."""

    def output_of(self, command: str) -> str:
        """Return what `echo`, `expr` and `echo ... | bc` print; all else is unknown."""
        plain = command.strip()
        try:
            words = [word for raw in split_words(plain) for word in expand(raw, self)]
        except InputError:
            return unknown(f"$({plain})")
        if "|" in words and words[-1:] == ["bc"] and words[0] == "echo":
            words = ["expr", *words[1 : words.index("|")]]
        if words[:1] == ["echo"] and not {"|", ">", "<", ";", "&&"} & set(words):
            return " ".join(word for word in words[1:] if word not in {"-n", "-e"})
        if words[:1] == ["expr"]:
            try:
                return str(evaluate(" ".join(words[1:])))
            except NotArithmetic:
                return unknown(f"$({plain})")
        return (
            self._printed_by(plain) if "echo" in words and not {"|", ">", "<"} & set(words) else unknown(f"$({plain})")
        )

    def _printed_by(self, text: str) -> str:
        """Return what conditions and `echo` alone print; unknown where another command has a part in it."""
        outer, variables, started = self.printed, dict(self.set), len(self.outcome.started)
        self.printed = []
        try:
            self.script(parse(text, where=self.where))
        except (_Leave, InputError):
            self.printed = None
        found, self.printed = self.printed, outer
        others = self.outcome.started[started:]
        del self.outcome.started[started:]
        self.set.clear()
        self.set.update(variables)
        return unknown(f"$({text})") if found is None or others else " ".join(found)

    # --- following commands

    def enter(self, text: str, where: str) -> None:
        """Follow a script; what it exits ends only itself."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{where}: scripts are nested too deeply")
        outer, self.where = self.where, where
        for name, value in directives(text).items():
            self.set.setdefault(name, value)
            self.exported.add(name)
        try:
            self.script(parse(text, where=where))
        except _Leave:
            pass
        finally:
            self.where = outer
            self.depth -= 1

    def script(self, script: Script) -> None:
        for node in script:
            self.node(node)

    def node(self, node: Command | Block) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise InputError(f"{self.where}: line {node.line}: more than {MOST_STEPS} commands, refused")
        if isinstance(node, Command):
            self.command(node)
        else:
            getattr(self, f"_{node.kind}")(node)

    def _group(self, block: Block) -> None:
        self.script(block.parts[0])

    def _pipe(self, block: Block) -> None:
        for part in block.parts:
            self.script(part)

    def _not(self, block: Block) -> None:
        self.script(block.parts[0])
        self.status = not self.status

    def _and(self, block: Block) -> None:
        self.script(block.parts[0])
        if self.status:
            self.script(block.parts[1])

    def _or(self, block: Block) -> None:
        self.script(block.parts[0])
        if not self.status:
            self.script(block.parts[1])

    def _function(self, block: Block) -> None:
        self.functions[block.words[0].text] = block.parts[0]

    def _if(self, block: Block) -> None:
        parts = list(block.parts)
        while len(parts) >= 2:
            if self.holds(parts[0]):
                self.script(parts[1])
                return
            del parts[:2]
        if parts:
            self.script(parts[0])

    def _while(self, block: Block, *, until: bool = False) -> None:
        try:
            while self.holds(block.parts[0]) != until and not self.undecided:
                self.steps += 1
                if self.steps > MOST_STEPS:
                    raise InputError(f"{self.where}: line {block.line}: the loop does not end, refused")
                self._round(block.parts[1])
        except _Leave as leave:
            if leave.kind != "break":
                raise

    def _until(self, block: Block) -> None:
        self._while(block, until=True)

    def _round(self, body: Script) -> None:
        try:
            self.script(body)
        except _Leave as leave:
            if leave.kind != "continue":
                raise

    def _for(self, block: Block) -> None:
        values = [value for word in block.words[1:] for value in expand(word.text, self)]
        values = [value for value in values if not is_unknown(value)]
        try:
            for value in values:
                self.assign(block.words[0].text, value)
                self._round(block.parts[0])
        except _Leave as leave:
            if leave.kind != "break":
                raise

    def _for_c(self, block: Block) -> None:
        self.outcome.assume(f"{self.where} line {block.line}: the loop is read once")
        try:
            self._round(block.parts[0])
        except _Leave as leave:
            if leave.kind != "break":
                raise

    def _case(self, block: Block) -> None:
        word = self.tested(block.words[0].text)
        for patterns, part in zip(block.patterns, block.parts, strict=True):
            if any(fnmatch.fnmatchcase(word, self.tested(pattern)) for pattern in patterns):
                self.script(part)
                return

    def _condition(self, block: Block) -> None:
        self.status = self.test([word.text for word in block.words], block.line)

    def _arithmetic(self, block: Block) -> None:
        text = block.words[0].text
        change = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(\+\+|--|(?:[-+*/%] ?)?=)\s*(.*)", text)
        if change is None or change.group(3).startswith("="):
            value = number_of(text, self)
            self.status = value not in {"0", ""} and not reasons(value)
            return
        name, operator, right = change.groups()
        now = self.value(name)
        now = now if isinstance(now, str) and now else "0"
        if operator in {"++", "--"}:
            right, operator = "1", operator[0] + "="
        operator = operator.replace(" ", "")
        self.assign(name, number_of(right if operator == "=" else f"{now}{operator[0]}({right})", self))
        self.status = True

    def tested(self, word: str) -> str:
        """Return a word that is compared: variables that are not set are empty."""
        outer, self.testing = self.testing, True
        try:
            return text_of(word, self)
        finally:
            self.testing = outer

    def holds(self, condition: Script) -> bool:
        self.status, self.undecided = True, ""
        self.script(condition)
        if self.undecided and self.status:
            self.outcome.assume(
                f"{self.where}: whether `{self.undecided}` succeeds is known only on the machine: taken so"
            )
        return self.status

    def test(self, words: list[str], line: int) -> bool:
        """Return whether a condition holds; where only a machine knows, it does not, and that is assumed."""
        found = Condition(self, [word for word in words if word]).either()
        if found is None:
            self.undecided = plain = " ".join(words)
            self.outcome.assume(f"{self.where} line {line}: [ {plain} ] is known only on the machine, taken as false")
        return bool(found)

    def command(self, command: Command) -> None:
        words = list(command.words)
        assigned: dict[str, str] = {}
        while words and (words[0].kind == "array" or re.match(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=", words[0].text)):
            self._assignment(words.pop(0), assigned, alone=False)
        self.status = True
        if not words and not command.documents:
            for name, value in assigned.items():
                self.assign(name, value)
            return
        name = words[0].text if words else ""
        if name in QUIET:
            self._quiet(name, words[1:])
            return
        fields = [value for word in words for value in expand(word.text, self)]
        while fields and fields[0] in PREFIX:
            fields.pop(0)
            while fields and re.match(r"[A-Za-z_]\w*=", fields[0]):
                key, _, value = fields.pop(0).partition("=")
                assigned[key] = value
        if fields and fields[0] == "read" and command.documents:
            document = command.documents[-1]
            self._read(
                fields, command, assigned, document.text if document.quoted else document_of(document.text, self)
            )
        elif not self._documents(command, fields) and fields:
            self._call(fields, command, assigned)

    def _assignment(self, token: Token, assigned: dict[str, str], *, alone: bool) -> None:
        match = re.match(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=", token.text)
        if match is None:
            return
        name, index, more = match.group(1), match.group(2), bool(match.group(3))
        if token.kind == "array" and token.items and all(re.match(r"\[[^\]]+\]=", item) for item in token.items):
            for item in token.items:
                key, _, value = item[1:].partition("]=")
                self._element(name, key, text_of(value, self))
            return
        if token.kind == "array":
            values = [value for item in token.items for value in expand(item, self)]
            old = self.value(name)
            before = old if isinstance(old, list) else [old] if isinstance(old, str) and old else []
            if name not in self.given:
                self.set[name] = [*before, *values] if more else values
            return
        value = text_of(token.text[match.end() :], self)
        old = self.value(name)
        if index is not None:
            self._element(name, index[1:-1], value)
        elif more:
            if isinstance(old, list):
                self.set[name] = [(old[0] if old else "") + value, *old[1:]]
            else:
                self.assign(name, (old or "") + value)
        elif alone:
            self.assign(name, value)
        else:
            assigned[name] = value

    def _element(self, name: str, index: str, value: str) -> None:
        old = self.value(name)
        values = list(old) if isinstance(old, list) else []
        number = number_of(index, self)
        if not number.isdecimal():
            self.set[f"{name}[{text_of(index, self)}]"] = value
            return
        if int(number) <= len(values) + 1000:
            values += [""] * (int(number) + 1 - len(values))
            values[int(number)] = value
            self.set[name] = values

    def _quiet(self, name: str, words: list[Token]) -> None:
        if name == "shift":
            del self.arguments[: int(words[0].text) if words and words[0].text.isdecimal() else 1]
        elif name == "unset":
            for word in words:
                self.set.pop(word.text, None)
        elif name == "set":
            if words and words[0].text == "--":
                self.arguments = [value for word in words[1:] for value in expand(word.text, self)]
        elif name not in {":", "true"}:
            if name == "export" or any(word.text == "-x" for word in words):
                self.exported |= {re.split(r"\+?=", word.text)[0] for word in words}
            for word in words:
                if word.kind == "array" or "=" in word.text:
                    self._assignment(word, {}, alone=True)
        else:
            for word in words:  # `: ${NAME:=default}`
                expand(word.text, self)

    def _documents(self, command: Command, fields: list[str]) -> bool:
        """Follow here-documents that are scripts and keep those that are files; return whether there were any."""
        for document in command.documents:
            body = document.text if document.quoted else document_of(document.text, self)
            target = text_of(command.output, self) if command.output else ""
            if target and not re.search(r"\.(sh|sbatch|slurm|batch|job)$", target):
                self.outcome.documents[target] = body
            elif not fields or fields[0].rpartition("/")[2] in {"sbatch", "cat", "srun", "tee", "qsub", *SHELLS}:
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
            raise _Leave(name)
        elif name == "false":
            self.status = False
        elif name in self.functions:
            self._function_called(self.functions[name], fields[1:])
        elif name in {"source", "."}:
            self._source(fields[1:])
        elif name == "let":
            for word in fields[1:]:
                self._arithmetic(Block("arithmetic", command.line, (Token(word, command.line),)))
        elif name == "echo" and self.printed is not None:
            self.printed.append(" ".join(word for word in fields[1:] if word not in {"-n", "-e"}))
        elif name in COMMON:
            pass
        elif name == "eval":
            self.enter(" ".join(fields[1:]), f"{self.where} line {command.line}")
        elif name in {"read", "mapfile", "readarray"}:
            self._read(fields, command, assigned)
        else:
            self._start(fields, command, assigned)

    def _read(self, fields: list[str], command: Command, assigned: Mapping[str, str], document: str = "") -> None:
        """Set the names of `read` from a here-string or here-document, split at blanks or IFS; unknown for others.

        With `-d ''` all of a document is read, else its first line.
        """
        reader, *words = fields
        names = [word for word in words if re.fullmatch(r"[A-Za-z_]\w*", word)]
        is_array = reader != "read" or any(re.match(r"-[a-z]*a", word) for word in words)
        if not (command.given or document) or is_array or not names:
            for name in names:
                self.assign(name, unknown(f"${name}"))
            return
        separators = assigned.get("IFS")
        whole = any(re.match(r"-[a-z]*d", word) for word in words)
        text = text_of(command.given, self) if command.given else document if whole else document.partition("\n")[0]
        most = len(names) - 1
        if separators and most:
            parts = re.split(f"[{re.escape(separators)}]", text, maxsplit=most)
        else:
            parts = text.split(maxsplit=most) if most else [text.strip()]
        for name, part in zip(names, [*parts, *[""] * len(names)], strict=False):
            self.assign(name, part)

    def _function_called(self, body: Script, arguments: list[str]) -> None:
        outer, self.arguments = self.arguments, list(arguments)
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{self.where}: functions are nested too deeply")
        try:
            self.script(body)
        except _Leave as leave:
            if leave.kind != "return":
                raise
        finally:
            self.arguments = outer
            self.depth -= 1

    def _source(self, words: list[str]) -> None:
        path = words[0] if words else ""
        text = self.find(path)
        if text is None:
            self.outcome.sourced_missing.append(shown(path))
            return
        self.enter(text, shown(path).rpartition("/")[2])

    def _script_called(
        self, launcher: tuple[str, ...], path: str, arguments: list[str], assigned: Mapping[str, str], line: int
    ) -> None:
        """Follow another script as a process of its own: its arguments, and of our variables the exported ones."""
        name = shown(path).rpartition("/")[2]
        if name in self.following:  # it submits itself again, for when this job has ended
            return
        text = self.find(path)
        if text is None:
            self.outcome.called_missing.append(name)
            return
        self.outcome.called.append(name)
        outer, mine, functions, exported = dict(self.set), self.arguments, self.functions, set(self.exported)
        for key in [key for key in self.set if key not in self.exported]:
            del self.set[key]
        self.set.update(assigned)
        self.arguments, self.functions = arguments, {}
        count = len(self.outcome.started)
        self.following.append(name)
        try:
            self.enter(text, name)
        finally:
            self.following.pop()
            self.arguments, self.functions, self.exported = mine, functions, exported
            self.set.clear()
            self.set.update(outer)
        self._put_before(launcher, count)

    def _put_before(self, launcher: tuple[str, ...], count: int) -> None:
        """Put a launcher before all commands but the first `count`: they run under its nodes and tasks."""
        self.outcome.started[count:] = [
            Started((*launcher, *one.words), one.line, one.where, one.variables) for one in self.outcome.started[count:]
        ]

    def _start(self, fields: list[str], command: Command, assigned: dict[str, str]) -> None:
        """Note a command; one that hands a text to a shell is followed into that text."""
        inner = inner_script(fields)
        if inner is not None:
            launcher, text, words = inner
            count = len(self.outcome.started)
            outer, self.arguments = self.arguments, words
            self.enter(text, f"{self.where} line {command.line}")
            self.arguments = outer
            self._put_before(launcher, count)
            return
        called = called_script(fields)
        if called is not None:
            self._script_called(*called, assigned, command.line)
            return
        self.undecided = shown(" ".join(fields))[:60]
        plain = {key: value for key, value in self.set.items() if isinstance(value, str)}
        self.outcome.started.append(Started(tuple(fields), command.line, self.where, {**plain, **assigned}))
