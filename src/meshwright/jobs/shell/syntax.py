"""The syntax of shell scripts, as far as launch scripts use it: text to a tree of commands. Nothing is run.

Words keep their quotes and expansions as written (`words` expands them); here-documents stay with their command.
"""

import re
from dataclasses import dataclass, field

from ...errors import InputError
from .marks import OF_PROCESS, OPEN, behind_mark

OPERATORS = (
    *("&&", "||", ";;&", ";;", ";&", "<<<", "<<-", "<<", ">>", ">&", "<&", "&>>", "&>"),
    *(";", "|&", "|", "&", "(", ")", "<", ">", "\n"),
)
_OPERATOR = re.compile("|".join(map(re.escape, OPERATORS)))
REDIRECTS = frozenset({"<<<", ">>", ">&", "<&", "&>>", "&>", "<", ">"})
ASSIGNED = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=$")
FUNCTION = re.compile(r"[A-Za-z_][\w-]*$")
BEFORE_BRACKET = re.compile(r"[?*+@!=]$|^(?:time|coproc)$")
MOST_TOKENS, DEEPEST = 200_000, 80


@dataclass(frozen=True, slots=True)
class Token:
    """A word as written, an operator, or the body of an array or here-document."""

    text: str
    line: int
    kind: str = "word"  # word, operator, array, heredoc
    items: tuple[str, ...] = ()  # words of an array
    quoted: bool = False  # of a here-document: nothing in it is expanded; of an operator: not of the output


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words (arrays as tokens) and here-documents, the files that its output goes to."""

    words: tuple[Token, ...]
    line: int
    documents: tuple[Token, ...] = ()
    output: str = ""
    given: str = ""  # the word of a here-string, as written
    appends: bool = False  # to the file that its output goes to
    source: str = ""  # the file that it reads


@dataclass(frozen=True, slots=True)
class Compound:
    """A compound command; `kind` says which parts are used."""

    kind: str  # if, while, until, for, case, group, subshell, function, condition, arithmetic, and, or, pipe, not, fed
    line: int
    words: tuple[Token, ...] = ()
    parts: tuple["Script", ...] = ()
    patterns: tuple[tuple[str, ...], ...] = field(default=())


Node = Command | Compound
Script = tuple[Node, ...]


def parse_script(text: str, *, where: str) -> Script:
    """Return the commands of a script; InputError naming file and line where it cannot be understood."""
    try:
        reader = _Reader(tokens_of(text.replace("\r\n", "\n"), where=where), where)
        script = reader.script(())
        if reader.peek().text:
            raise reader.error("unexpected")
        return script
    except RecursionError:
        raise InputError(f"{where}: commands are nested too deeply") from None


def tokens_of(text: str, *, where: str) -> list[Token]:
    """Return the tokens of a script, comments left out."""
    lexer = _Lexer(text, where)
    return lexer.run()


class _Lexer:
    """Cuts a text into tokens, counting lines."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where, self.at, self.line = text, where, 0, 1
        self.found: list[Token] = []
        self.other = False  # whether a number before the next redirection says another stream than the output
        self.waiting: list[tuple[str, bool, bool]] = []  # here-documents: delimiter, quoted, tabs stripped

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            if len(self.found) > MOST_TOKENS:
                raise InputError(f"{self.where}: more than {MOST_TOKENS} words, refused")
            self._next()
        return self.found

    def _next(self) -> None:
        char = self.text[self.at]
        if self.text.startswith("\\\n", self.at):
            self.at, self.line = self.at + 2, self.line + 1
        elif char in " \t":
            self.at += 1
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        else:
            match = _OPERATOR.match(self.text, self.at)
            operator = match[0] if match else None
            if operator is None or (operator[0] in "<>" and self.text[self.at + 1 : self.at + 2] == "("):
                self._word()
            else:
                self._operator(operator)

    def _operator(self, operator: str) -> None:
        self.at += len(operator)
        if operator in {"<<", "<<-"}:
            while self.at < len(self.text) and self.text[self.at] in " \t":
                self.at += 1
            raw = self._raw_word()
            self.waiting.append((re.sub(r"[\"'\\]", "", raw), bool(re.search(r"[\"'\\]", raw)), operator == "<<-"))
            return
        self.found.append(Token(operator, self.line, "operator", quoted=self.other))
        self.other = False
        if operator == "\n":
            self.line += 1
            for delimiter, quoted, tabs in self.waiting:
                self._document(delimiter, quoted, tabs)
            self.waiting.clear()

    def _document(self, delimiter: str, quoted: bool, tabs: bool) -> None:
        start, lines = self.line, []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            text = self.text[self.at : end]
            self.at, self.line = min(end + 1, len(self.text)), self.line + 1
            if (text.lstrip("\t") if tabs else text) == delimiter:
                break
            lines.append(text.lstrip("\t") if tabs else text)
        document = Token("\n".join(lines) + "\n", start, "heredoc", quoted=quoted)
        self.found.insert(len(self.found) - 1, document)  # before the newline that ends its command

    def _word(self) -> None:
        line, raw = self.line, self._raw_word()
        if ASSIGNED.fullmatch(raw) and self.text[self.at : self.at + 1] == "(":
            self.found.append(Token(raw, line, "array", tuple(self._array())))
        elif raw.isdecimal() and self.text[self.at : self.at + 1] in {"<", ">"}:
            self.other = raw != "1"  # the number of a file descriptor
        elif raw:
            self.found.append(Token(raw, line))
        else:  # an operator that opens a word, such as <(
            raise InputError(f"{self.where}: line {line}: {self.text[self.at : self.at + 10]!r} is not understood")

    def _array(self) -> list[str]:
        self.at += 1
        words: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            char = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif char in " \t\n":
                self.line += char == "\n"
                self.at += 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                words.append(self._raw_word(inside_array=True))
        if self.at >= len(self.text):
            raise InputError(f"{self.where}: line {self.line}: an array is not closed")
        self.at += 1
        return words

    def _raw_word(self, *, inside_array: bool = False) -> str:
        stop = " \t\n;&|()<>" if not inside_array else " \t\n)"
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.at == start and self.text[self.at : self.at + 2] in {"<(", ">("}:
                self.at = closing(self.text, self.at + 2, "(", ")", self.where)
            elif char == "\\":
                self.at += 2
            elif char in "'\"`$":
                self.at = skip_quoted(self.text, self.at, self.where)
            elif char == OPEN:
                self.at = behind_mark(self.text, self.at)
            elif char in stop:
                break
            else:
                self.at += 1
        self.at = min(self.at, len(self.text))
        raw = self.text[start : self.at]
        if not raw:  # a lone operator character inside an array
            self.at += 1
        self.line += raw.count("\n")
        return raw


def skip_quoted(text: str, at: int, where: str) -> int:
    """Return the place behind the quotation or expansion that opens at `at`."""
    char = text[at]
    if char == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise InputError(f"{where}: line {_line(text, at)}: a quotation is not closed")
        return end + 1
    if char == "$":
        if text.startswith("$'", at):
            match = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL).match(text, at + 2)
            return match.end() if match else len(text)
        if text.startswith("${", at):
            return closing(text, at + 2, "{", "}", where)
        if text.startswith("$(", at):
            return closing(text, at + 2, "(", ")", where)
        return at + 1
    end = at + 1
    while end < len(text) and text[end] != char:
        if text[end] == "\\":
            end += 2
        elif char == '"' and text[end] in "$`":
            end = skip_quoted(text, end, where)
        elif text[end] == OPEN:
            end = behind_mark(text, end)
        else:
            end += 1
    if end >= len(text):
        raise InputError(f"{where}: line {_line(text, at)}: a quotation is not closed")
    return end + 1


def closing(text: str, at: int, opened: str, closed: str, where: str, depth: int = 0) -> int:
    """Return the place behind the bracket that closes what was opened before `at`."""
    start, level = at, 1
    if depth > DEEPEST:
        raise InputError(f"{where}: expansions are nested too deeply")
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char in "'\"`" or text.startswith(("${", "$("), at):
            at = skip_quoted(text, at, where)
            continue
        if char == OPEN:
            at = behind_mark(text, at)
            continue
        level += (char == opened) - (char == closed)
        at += 1
        if not level:
            return at
    raise InputError(f"{where}: line {_line(text, start)}: {opened!r} is not closed")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _joined(words: list[Token]) -> str:
    """Return the tokens of an arithmetic expression as its text; redirections in it are comparisons."""
    return re.sub(r"([<>]) =", r"\1=", " ".join(word.text for word in words))


class _Reader:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[Token], where: str) -> None:
        self.tokens, self.where, self.at, self.depth = tokens, where, 0, 0

    def peek(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else Token("", self._last_line(), "operator")

    def _last_line(self) -> int:
        return self.tokens[-1].line if self.tokens else 1

    def error(self, what: str) -> InputError:
        token = self.peek()
        shown = "the end of the script" if not token.text else repr(token.text.strip() or "end of line")
        return InputError(f"{self.where}: line {token.line}: {what} {shown}")

    def take(self, text: str = "") -> Token:
        token = self.peek()
        if not token.text or (text and token.text != text):
            raise self.error(f"expected {text!r}, got" if text else "unexpected")
        self.at += 1
        return token

    def blank(self) -> None:
        while self.peek().text in {"\n", ";", "&"} and self.peek().kind == "operator":
            self.at += 1

    def script(self, ends: tuple[str, ...]) -> Script:
        """Return commands up to one of the closing words, which is left."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"{self.where}: line {self.peek().line}: commands are nested too deeply")
        found: list[Node] = []
        self.blank()
        while self.peek().text and self.peek().text not in ends:
            found.append(self.list_())
            self.blank()
        self.depth -= 1
        return tuple(found)

    def list_(self) -> Node:
        left = self.pipe()
        while self.peek().text in {"&&", "||"}:
            kind = "and" if self.take().text == "&&" else "or"
            self.blank()
            left = Compound(kind, self.peek().line, parts=((left,), (self.pipe(),)))
        return left

    def pipe(self) -> Node:
        if self.peek().text == "!":
            line = self.take().line
            return Compound("not", line, parts=((self.pipe(),),))
        parts = [self.command()]
        while self.peek().text in {"|", "|&"}:
            self.take()
            self.blank()
            parts.append(self.command())
        return parts[0] if len(parts) == 1 else Compound("pipe", self.peek().line, parts=tuple((p,) for p in parts))

    def command(self) -> Node:
        token = self.peek()
        if token.kind == "word" and token.text in {"if", "while", "until", "for", "select", "case", "function"}:
            block: Node = getattr(self, f"_{token.text}")()
            return self._redirected(block)
        if token.text == "{" or (token.text == "(" and token.kind == "operator"):
            return self._redirected(self._group())
        if token.text == "[[":
            return self._condition()
        if token.kind == "word" and self.tokens[self.at + 1 : self.at + 2] and FUNCTION.fullmatch(token.text):
            following = [t.text for t in self.tokens[self.at + 1 : self.at + 3]]
            if following == ["(", ")"]:
                self.at += 3
                self.blank()
                return Compound("function", token.line, (token,), ((self.command(),),))
        return self._simple()

    def _redirected(self, block: Node) -> Node:
        while self.peek().text in REDIRECTS or self.peek().kind == "heredoc":
            token = self.take()
            if token.kind == "heredoc":
                block = Compound("fed", token.line, (token,), ((block,),))
            elif self.peek().kind == "word":
                source = self.take()
                if token.text in {"<", "<<<"}:
                    words = (source,) if token.text == "<<<" or source.text.startswith(OF_PROCESS) else ()
                    block = Compound("fed", token.line, words, ((block,),))
        return block

    def _group(self) -> Node:
        token = self.take()
        if token.text == "(" and self.peek().text == "(":
            return self._arithmetic(token)
        end = "}" if token.text == "{" else ")"
        body = self.script((end,))
        self.take(end)
        return Compound("group" if end == "}" else "subshell", token.line, parts=(body,))

    def _arithmetic(self, token: Token) -> Node:
        """Return `(( ... ))`, whose first bracket was taken."""
        opened, words = 1, []
        while opened:
            word = self.take()
            opened += (word.text == "(") - (word.text == ")")
            words.append(word)
        return Compound("arithmetic", token.line, (Token(_joined(words[1:-2]), token.line),))

    def _condition(self) -> Node:
        line, words = self.take("[[").line, []
        while self.peek().text != "]]":
            word = self.take()
            if word.text != "\n":
                words.append(word)
            if word.text == "=~":
                words.append(self._pattern())
        self.take("]]")
        return Compound("condition", line, tuple(words))

    def _pattern(self) -> Token:
        """Return the regular expression of a condition as one word: brackets and bars in it are its own."""
        line, text, depth = self.peek().line, "", 0
        while self.peek().text != "]]" and (depth or self.peek().text not in {"&&", "||"}):
            part = self.take().text
            depth += (part == "(") - (part == ")")
            text += part
        return Token(text, line)

    def _if(self) -> Node:
        line, parts = self.take("if").line, []
        parts.append(self.script(("then",)))
        self.take("then")
        parts.append(self.script(("elif", "else", "fi")))
        while self.peek().text == "elif":
            self.take()
            parts.append(self.script(("then",)))
            self.take("then")
            parts.append(self.script(("elif", "else", "fi")))
        if self.peek().text == "else":
            self.take()
            parts.append(self.script(("fi",)))
        self.take("fi")
        return Compound("if", line, parts=tuple(parts))

    def _while(self) -> Node:
        token = self.take()
        condition = self.script(("do",))
        return Compound(token.text, token.line, parts=(condition, self._body()))

    _until = _while

    def _body(self) -> Script:
        self.take("do")
        body = self.script(("done",))
        self.take("done")
        return body

    def _for(self) -> Node:
        line = self.take().line
        if self.peek().text == "(":
            depth, words = 0, []
            while True:
                word = self.take()
                depth += (word.text == "(") - (word.text == ")")
                words.append(word)
                if not depth:
                    break
            self.blank()
            return Compound("for_c", line, (Token(_joined(words[2:-2]), line),), (self._body(),))
        words = [self.take()]
        self.blank()
        if self.peek().text == "in":
            self.take()
            while self.peek().kind == "word":
                words.append(self.take())
        else:
            words.append(Token('"$@"', line))
        self.blank()
        return Compound("for", line, tuple(words), (self._body(),))

    _select = _for

    def _case(self) -> Node:
        line, word = self.take("case").line, self.take()
        self.blank()
        self.take("in")
        self.blank()
        patterns, parts, ends = [], [], []
        while self.peek().text != "esac":
            if self.peek().text == "(":
                self.take()
            choice = [self.take().text]
            while self.peek().text == "|":
                self.take()
                choice.append(self.take().text)
            self.take(")")
            patterns.append(tuple(choice))
            parts.append(self.script((";;", ";&", ";;&", "esac")))
            ends.append(self.take() if self.peek().text != "esac" else Token(";;", line, "operator"))
            self.blank()
        self.take("esac")
        return Compound("case", line, (word, *ends), tuple(parts), tuple(patterns))

    def _function(self) -> Node:
        line = self.take("function").line
        name = self.take()
        if self.peek().text == "(":
            self.take("(")
            self.take(")")
        self.blank()
        return Compound("function", line, (name,), ((self.command(),),))

    def _simple(self) -> Node:
        words: list[Token] = []
        documents: list[Token] = []
        line, output, given, appends, source = self.peek().line, "", "", False, ""
        while True:
            token = self.peek()
            if token.kind == "heredoc":
                documents.append(self.take())
            elif token.kind == "operator" and token.text in REDIRECTS:
                self.take()
                if self.peek().kind == "word":
                    target = self.take().text
                    if token.text in {">", ">>", "&>", "&>>"} and not token.quoted:
                        output, appends = target, token.text.endswith(">>")
                    elif token.text == ">&" and target == "2" and not token.quoted:
                        output = "/dev/stderr"
                    given = target if token.text == "<<<" else given
                    source = target if token.text == "<" else source
            elif token.kind in {"word", "array"}:
                words.append(self.take())
            else:
                break
        if token.text == "(" and words and not BEFORE_BRACKET.search(words[-1].text):  # bash starts nothing of it
            raise self.error("a bracket is not quoted:")
        if not words and not documents and not output:
            raise self.error("unexpected")
        return Command(tuple(words), line, tuple(documents), output, given, appends, source)
