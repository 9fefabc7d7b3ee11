"""Dockerfiles: what a container of the image starts, by its ENTRYPOINT, its CMD and its ENV.

Sources: docs.docker.com/reference/dockerfile (the last ENTRYPOINT and CMD of the last stage count; words as a JSON list
are joined, an ENTRYPOINT as plain text goes to a shell and takes no CMD), compose-spec/compose-spec:05-services.md
(`command` stands in place of CMD, `entrypoint` in place of ENTRYPOINT and of CMD too).
"""

import json
import re
from dataclasses import dataclass, field

from .recipes import shell_word

LINE = re.compile(r"^[ \t]*(FROM|ENTRYPOINT|CMD|ENV)[ \t]+(.+)$", re.IGNORECASE | re.MULTILINE)
PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|\S*)")


@dataclass(slots=True)
class DockerImage:
    """Start of an image's containers, as its Dockerfile says it; None for what it does not say."""

    entry: str | None = None  # as a line of a shell
    command: str | None = None
    takes_words: bool = True  # whether its entry point takes the words of a command
    variables: dict[str, str] = field(default_factory=dict)

    def line(self, entry: str | None = None, command: str | None = None) -> str:
        """Return the line that a container starts, with an entry point or a command of its own in place of these."""
        if entry is not None:
            return f"{entry} {command or ''}".strip()
        if self.entry is not None and not self.takes_words:
            return self.entry
        return f"{self.entry or ''} {self.command or '' if command is None else command}".strip()


def parse_dockerfile(text: str) -> DockerImage:
    """Return what the last stage of a Dockerfile starts."""
    found = DockerImage()
    plain = re.sub(r"\\[ \t]*\n(?:[ \t]*#.*\n)*", " ", text.replace("\r\n", "\n"))
    for name, value in LINE.findall(plain):
        match name.upper():
            case "FROM":
                found = DockerImage()
            case "CMD":
                found.command, _ = _words(value)
            case "ENTRYPOINT":
                found.entry, found.takes_words = _words(value)
            case _:
                key, _, rest = value.strip().partition(" ")
                pairs = PAIR.findall(value) if "=" in key else [(key, rest)]
                found.variables |= {one: inner.strip().strip("\"'") for one, inner in pairs}
    return found


def _words(value: str) -> tuple[str, bool]:
    """Return words as a line of a shell, and whether they are a list, to which others are added."""
    if value.strip().startswith("["):
        try:
            words = json.loads(value)
        except ValueError:
            return value.strip(), False
        if isinstance(words, list):
            return " ".join(shell_word(str(word)) for word in words), True
    return value.strip(), False
