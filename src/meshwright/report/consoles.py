"""The console that a command prints to, without the tables that only some commands show."""

from typing import Any

from rich.console import Console

from .prose import hanging

FILE_WIDTH = 200  # columns where the output is no terminal: a table in a file or a pipe is not cut


class TerminalConsole(Console):
    """A console whose sentences go on with a hanging indent where they are longer than a line of the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, with long lines of plain text wrapped first."""
        wrapped = [hanging(each, self.width) if isinstance(each, str) else each for each in objects]
        super().print(*wrapped, **options)


def console(*, stderr: bool = False) -> Console:
    """Return the console of a command: styles on a terminal (NO_COLOR is heeded), plain text elsewhere."""
    made = TerminalConsole(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=FILE_WIDTH)
