"""Help that fits a screen and cuts nothing off.

A command of many options shows those used most, and all with `--help-all`, which every command takes; a group says of
each of its commands the whole first sentence.
"""

from collections.abc import Collection
from typing import Any

import click

_ALL = "meshwright.help_all"
_WHOLE = 10_000  # characters, beyond which click would cut a sentence off


class Listing(click.Group):
    """A group whose help has the whole first sentence of each command, over several lines where it is long."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name and the first sentence of each command."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(limit=_WHOLE)) for name, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Brief(click.Command):
    """A command whose `--help` shows the options named in `often`."""

    def __init__(self, *args: Any, often: Collection[str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.often = {*often, "help_all"}
        count = sum(isinstance(option, click.Option) for option in self.params)
        text = f"Show all {count} options and exit."
        self.params.append(_help_all(help=text))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are asked for."""
        shown = [
            option
            for option in self.get_params(ctx)
            if ctx.meta.get(_ALL) or option.name in self.often or {*option.opts} & {*ctx.help_option_names}
        ]
        with formatter.section("Options"):
            formatter.write_dl([record for option in shown if (record := option.get_help_record(ctx))])
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def with_help_all(command: click.Command) -> click.Command:
    """Return the command and its sub-commands, which now take `--help-all`, also where `--help` shows all."""
    if all(param.name != "help_all" for param in command.params):
        command.params.append(_help_all(hidden=True))
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_help_all(each)
    return command


def _help_all(**shown: Any) -> click.Option:
    return click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, **shown)


def _show_all(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
