"""The console that a command prints to, without the tables that only some commands show."""

from rich.console import Console

FILE_WIDTH = 200  # columns where the output is no terminal: a table in a file or a pipe is not cut


def console(*, stderr: bool = False) -> Console:
    """Return the console of a command: styles on a terminal (NO_COLOR is heeded), plain text elsewhere."""
    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=FILE_WIDTH)
