"""Sentences of a command: wrapped with a hanging indent on a terminal, one line each elsewhere."""

import sys

import click

from ..report.prose import hanging, width_of


def say(text: str, *, err: bool = False, indent: int | None = None) -> None:
    """Print sentences; what does not fit a terminal's line goes on in the column `indent`, as `hanging` does."""
    width = width_of(sys.stderr if err else sys.stdout)
    click.echo(text if width is None else hanging(text, width, indent), err=err)
