"""Templates: scripts and manifests with places that something else fills in: `{{ nodes }}`, `<NODES>`.

A place becomes a variable of the shell, so that what hangs on it is asked for; one that is given is filled in, one with
a default has that. Conditions and `set` of Jinja are followed, its loops and those of Go's templates (Helm) are not.
Sources: jinja.palletsprojects.com/templates, helm.sh/docs/chart_template_guide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import InputError
from ..shell.state import PLACES

SUFFIXES = (
    ".j2",
    ".jinja",
    ".jinja2",
    ".tmpl",
    ".tpl",
    ".template",
    "-template",
    "-tmpl",
    ".envsubst",
    ".in",
    ".example",
)
NAME = r"\.?[A-Za-z_][\w.]*"
PLACE = re.compile(rf"(?<!\$)\{{\{{-?\s*({NAME})\s*((?:\|[^{{}}|]*)*)-?\}}\}}")
ANGLE = re.compile(r"(?<![<\w$&])<([A-Z][A-Z0-9]*(?:[_ -][A-Z0-9]+)*)>(?=[\s\"'\\/:,)]|$)")
SAID = re.compile(r"\s*(?:#(?!SBATCH|PBS|BSUB)|echo\b)")  # a line that nothing runs, or that is printed
DEFAULT = re.compile(r"\|\s*(?:default|d)\s*\(?\s*(\"[^\"]*\"|'[^']*'|[\w.+-]+)")
TAG = re.compile(r"\{%[-+]?\s*(.*?)\s*[-+]?%\}\n?", re.DOTALL)
COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
IN_DIRECTIVE = re.compile(r"^#(?:SBATCH|PBS|BSUB).*\{[{%]", re.MULTILINE)
GO = re.compile(r"\{\{-?\s*(?:/\*|(?:if|else|end|range|with|define|block|template|include)\b)")
SET = re.compile(r"set\s+([A-Za-z_]\w*)\s*=\s*(\"[^\"]*\"|'[^']*'|[\w.+-]+)")
CONDITION = re.compile(rf"(not\s+)?({NAME})(?:\s*(==|!=)\s*(\"[^\"]*\"|'[^']*'|[\w.+-]+)|\s+is\s+(not\s+)?defined)?")
FALSE = frozenset({"", "0", "false", "none", "no"})


@dataclass(slots=True)
class FilledTemplate:
    """Text of a template with its places filled in, and what is left open."""

    text: str
    open: list[str] = field(default_factory=list)  # names that nothing gives, of what changes a price
    used: set[str] = field(default_factory=set)  # names that were given
    assumed: list[str] = field(default_factory=list)


def name_of_filled(name: str) -> str:
    """Return the name of the file that a template makes."""
    return next((name[: -len(end)] for end in SUFFIXES if name.lower().endswith(end)), name)


def fill_template(name: str, text: str, given: Mapping[str, str], *, yaml: bool) -> FilledTemplate:
    """Return a script, or with `yaml` a manifest, with its places filled in; unchanged where it has none.

    A script has places in braces if its name or its directives say so: else they are words of `docker --format`.
    Raises InputError for a loop, or for another construct that is not followed.
    """
    sure = yaml or name_of_filled(name) != name or IN_DIRECTIVE.search(text) is not None
    if sure and (construct := GO.search(text)) is not None:
        line = text.count("\n", 0, construct.start()) + 1
        raise InputError(f"{name}: line {line}: a template of Go's is not followed: give what Helm makes of it")
    found = FilledTemplate(COMMENT.sub("", text) if sure else text)
    values = dict(given)
    if sure and TAG.search(found.text):
        found.text = _chosen(name, found, values)

    def filled(match: re.Match[str]) -> str:
        own = match[1].lstrip(".").rpartition(".")[2]
        default = DEFAULT.search(match[2] or "") if match.re is PLACE else None
        key = re.sub(r"\W", "_", own)
        if (value := values.get(match[1], values.get(key))) is not None:
            found.used |= {match[1], key} & given.keys()
            return value
        if default is not None:
            found.assumed += [f"{key}={_plain(default[1])} (its default in {name})"] if not PLACES.search(key) else []
            return _plain(default[1])
        if not PLACES.search(key) and key not in found.open:
            found.open.append(key)
        behind = match.string[match.end() : match.end() + 1]
        return f"${{{key}}}" if re.match(r"\w", behind) or not yaml else f"${key}"

    found.text = PLACE.sub(filled, found.text) if sure else found.text
    lines = found.text.split("\n")
    found.text = "\n".join(line if SAID.match(line) else ANGLE.sub(filled, line) for line in lines)
    found.assumed = list(dict.fromkeys(found.assumed))
    return found


def _plain(text: str) -> str:
    return text.strip("\"'")


def _chosen(name: str, found: FilledTemplate, values: dict[str, str]) -> str:
    """Return the parts of a template that its conditions leave, its settings put among the values."""
    parts = TAG.split(found.text)
    left: list[str] = []
    branches: list[tuple[bool, bool]] = []  # of each open condition: whether this part stands, whether one did
    for place, part in enumerate(parts):
        stands = all(now for now, _ in branches)
        if place % 2 == 0:
            left += [part] if stands else []
            continue
        word, _, rest = part.partition(" ")
        if word == "if":
            holds = stands and _holds(rest, values, found)
            branches.append((holds, holds))
        elif word in {"elif", "else"} and branches:
            _, done = branches.pop()
            outer = all(now for now, _ in branches)
            holds = outer and not done and (word == "else" or _holds(rest, values, found))
            branches.append((holds, done or holds))
        elif word == "endif" and branches:
            branches.pop()
        elif (setting := SET.fullmatch(part)) is not None:
            if stands:
                values.setdefault(setting[1], _plain(setting[2]))
        else:
            raise InputError(f"{name}: {{% {part} %}} of a template is not followed: give the file that is made of it")
    return "".join(left)


def _holds(text: str, values: Mapping[str, str], found: FilledTemplate) -> bool:
    """Whether a condition holds; one of what is not given does not, and that is noted."""
    match = CONDITION.fullmatch(text.strip())
    value = None if match is None else values.get(match[2], values.get(match[2].rpartition(".")[2]))
    if match is None or (value is None and match[3]):
        found.assumed.append(f"{{% if {text} %}} is not decided by what is given: taken as false")
        return False
    if match[3]:
        return (value == _plain(match[4])) == (match[3] == "==") and not match[1]
    there = value is not None if "defined" in text else (value or "").lower() not in FALSE
    return there != bool(match[1] or match[5])
