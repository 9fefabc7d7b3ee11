"""`meshwright completion`: commands and options by the tab key."""

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ..errors import InputError
from ..files import to_json, write_atomic
from .prose import say

PLACES = {
    "bash": ".local/share/bash-completion/completions/meshwright",
    "zsh": ".zfunc/_meshwright",
    "fish": ".config/fish/completions/meshwright.fish",
}


@click.command("completion", epilog="Example: meshwright completion bash --install")
@click.argument("shell", type=click.Choice(list(PLACES)))
@click.option("--install", is_flag=True, help="Write it to where the shell looks for it.")
@click.option("--json", "as_json", is_flag=True, help="Print shell, script and path as JSON.")
def command(shell: str, install: bool, as_json: bool) -> int:
    """Print the completion script of SHELL, or install it for your user."""
    from . import group

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(group, {}, "meshwright", "_MESHWRIGHT_COMPLETE").source()
    if not install:
        click.echo(to_json({"shell": shell, "script": script}) if as_json else script)
        return 0
    path = Path.home() / PLACES[shell]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, script.encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if as_json:
        click.echo(to_json({"shell": shell, "installed": str(path)}))
        return 0
    more = "; put `fpath+=~/.zfunc; autoload -Uz compinit; compinit` into ~/.zshrc" if shell == "zsh" else ""
    say(f"{path}: in new shells, the tab key completes meshwright{more}")
    return 0
