"""Sentences of a command: wrapped with a hanging indent on a terminal, one line each elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ..report.prose import hanging, width_of

HELD = "meshwright.held"  # in a command's context: notes that wait for its answer


def say(text: str, *, err: bool = False, indent: int | None = None) -> None:
    """Print sentences; what does not fit a terminal's line goes on in the column `indent`, as `hanging` does."""
    context = click.get_current_context(silent=True) if err else None
    if context is not None and HELD in context.meta:
        context.meta[HELD].append((text, indent))
        return
    width = width_of(sys.stderr if err else sys.stdout)
    click.echo(text if width is None else hanging(text, width, indent), err=err)


@contextmanager
def notes_held() -> Iterator[None]:
    """Hold what is said on stderr until `tell_held` or the end; a question that is refused before prints that alone."""
    meta = click.get_current_context().meta
    meta[HELD] = []
    try:
        yield
        tell_held()
    finally:
        meta.pop(HELD, None)


def tell_held() -> None:
    """Print the notes that wait for an answer, which comes now."""
    for text, indent in click.get_current_context().meta.pop(HELD, ()):
        say(text, err=True, indent=indent)
