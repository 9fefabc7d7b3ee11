"""The command line: one file a command, imported only when that command is called.

- commands: `train`, `plan` (with `plan_ways`, `plan_here`, `plan_target`, `plan_envelope`, `plan_output`),
  `validate`, `simulate`, `bench` (with `bench_work`, `bench_from`), `topo`, `emulate`,
  `collectives` (with `collectives_nccl`, `collectives_trips`), `checkpoint`, `report`, `doctor`, `completion`
- options that several take: `options`, `precision`, `stacks`, `job`, `emission`, `named_cluster`, `cluster_gpus`,
  `named_model`, `calibration`
- common to all: `help_format` (help), `meant` (options of other tools), `prose` (sentences), `values` (the tab
  key), `amounts` (numbers with units), `bounds` (of numbers), `streams`, `unproved` (notes on schedules)
"""

import errno
import importlib
import re
import resource
import sys

import click

from .. import __version__, interruptible
from ..errors import InputError, MeshwrightError, nearest, one_line
from .bounds import bounded
from .help_format import with_help_all
from .meant import meant
from .prose import say
from .streams import let_go_of_output, open_standard_streams
from .values import completing

# command: what `meshwright --help` says of it; the code is in the module of the same name
COMMANDS = {
    "train": "Plan, run and verify a training job. The main command.",
    "plan": "Rank ways to split a model, price one, solve for the network.",
    "report": "The page of a run, of two or of a trace: predicted, measured.",
    "collectives": "List, verify, draw, price, export and import schedules.",
    "bench": "Measure links, collectives, compute and memory; judge them.",
    "simulate": "A collective or a step, link by link, on up to 100,000 devices.",
    "topo": "Devices, links, bottlenecks, here or saved; the catalogue.",
    "validate": "The planner against measured runs, published or your own.",
    "emulate": "A cluster in a box: run a command in it, break links and ranks.",
    "checkpoint": "Verify, show and convert checkpoints (Hugging Face in and out).",
    "completion": "Print or install the completion of bash, zsh or fish.",
    "doctor": "Why is it slow, why does it hang, which rank is stuck?",
}


GLOBAL = {  # options that are typed as commands
    "help": "meshwright --help shows all commands, meshwright COMMAND --help the options of one",
    "version": "meshwright --version shows it",
}
_MACHINES_END = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class _Commands(click.Group):
    """A group whose commands are imported on first use, so that `--help` starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        interruptible.ready()  # an import has nothing to clean up, and may make another error of a KeyboardInterrupt
        return with_help_all(completing(bounded(command)))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@with_help_all
@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: meshwright train --steps 100",
)
@click.version_option(__version__, prog_name="meshwright")
def group() -> None:
    """Plan, run and verify distributed PyTorch training."""


def main(args: list[str] | None = None) -> None:
    """Run one command and leave with 0 (fine), 1 (failed), 2 (bad input) or 130 (interrupted)."""
    open_standard_streams()
    code = run_command(args)
    interruptible.until_ready()  # nothing more to say while Python ends
    sys.exit(code)


def run_command(args: list[str] | None = None, command: click.Command = group) -> int:
    """Run a command and return its exit code; every failure is one line on standard error."""
    try:
        result = command.main(args, prog_name="meshwright", standalone_mode=False)
        sys.stdout.flush()  # a disk that is full is said, and not met while Python ends
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), color=error.ctx.color)
        return 0
    except click.ClickException as error:
        return _fail(_with_nearest(error), InputError.exit_code)
    except MeshwrightError as error:
        return _fail(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except RuntimeError as error:  # so Python 3.11 wraps what is raised while a class names its attributes
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _fail("interrupted", 130)
        raise
    except BrokenPipeError:  # the reader of our output left
        let_go_of_output()
        return 0
    except OSError as error:
        if error.errno not in _MACHINES_END:
            raise
        _drop_what_does_not_go_out()
        return _fail(f"{error.strerror}{_more(error)}", MeshwrightError.exit_code)
    except SystemExit as leave:
        pacified = type(sys.stdout).__name__.endswith("PacifyFlushWrapper")  # so click says that the reader left
        if pacified or isinstance(leave.__context__, BrokenPipeError):  # and so rich
            return 0
        raise
    return result if isinstance(result, int) else 0


def _drop_what_does_not_go_out() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        let_go_of_output()


def _more(error: OSError) -> str:
    """Return what an error of the system says beside its name: the file, or the limit that was met."""
    if error.errno == errno.EMFILE:
        return f" (ulimit -n: {resource.getrlimit(resource.RLIMIT_NOFILE)[0]})"
    return f": {error.filename}" if error.filename else ""


def _with_nearest(error: click.ClickException) -> str:
    """Return what an error says, with the nearest command, option or value where one of a closed set does not exist."""
    said = error.format_message().replace("is not a valid integer range", "is no whole number, such as 32")
    context = getattr(error, "ctx", None)
    example = getattr(getattr(context, "command", None), "epilog", None)
    if isinstance(error, click.MissingParameter) and example:
        return f"{said} {' '.join(example.split())}"
    if isinstance(error, click.NoSuchOption) and context is not None:
        hint = meant(error.option_name, {name for param in context.command.params for name in param.opts})
        return f"{error.message} {hint}" if hint else error.format_message()
    values = getattr(getattr(error, "param", None), "type", None)
    if isinstance(error, click.BadParameter) and isinstance(values, click.Choice):
        word = re.match(r"'([^']+)'", error.message)  # click names the value first, then lists the known ones
        hint = nearest(word[1], map(str, values.choices)) if word else ""
        return f"{said} {hint.capitalize()}" if hint.startswith("did you mean") else said
    word = re.match(r"No such command '([^']+)'\.", error.message)  # some versions of click add a hint of their own
    if word is None or context is None or not isinstance(context.command, click.Group):
        return said
    if word[1] in GLOBAL:
        return f"{word[0]} {GLOBAL[word[1]]}"
    return f"{word[0]} {nearest(word[1], context.command.list_commands(context), cutoff=0.6).capitalize()}"


def _fail(message: str, code: int) -> int:
    say(f"meshwright: {one_line(message)}", err=True)
    return code
