"""Help that fits a screen: a command of many options shows those used most, and all with `--help-all`."""

from collections.abc import Collection
from typing import Any

import click

_ALL = "meshwright.help_all"


class Brief(click.Command):
    """A command whose `--help` shows the options named in `often`."""

    def __init__(self, *args: Any, often: Collection[str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.often = {*often, "help_all"}
        count = sum(isinstance(option, click.Option) for option in self.params)
        text = f"Show all {count} options and exit."
        self.params.append(
            click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help=text)
        )

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


def _show_all(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()
