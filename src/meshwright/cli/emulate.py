"""`meshwright emulate`: a cluster in a box: run a command in it, break it, look into it."""

import contextlib
import sys
import time
from typing import Any

import click
from msgspec.structs import replace

from ..cluster.emulation import Emulation, EmulationSpec, state, stream
from ..cluster.emulation.derive import derived, measure_carry
from ..cluster.emulation.protocol import NoAnswerError
from ..cluster.emulation.session import send_request, visit
from ..cluster.expand import expanded
from ..cluster.wire import read_cluster
from ..errors import InputError, nearest
from ..files import to_json
from ..units import counted, format_network_rate, parse_rate
from .help_format import Brief, Listing
from .plan_output import optional

_SPEC_OPTIONS = ("nodes", "ranks_per_node", "topology", "nodes_per_leaf", "oversubscription", "mtu")


class _CommandAfterDashes(Brief, Listing):
    """A group that can also be called as itself: everything after `--` is the command to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and (not args or args[0] not in self.commands):
            cut = args.index("--")
            ctx.meta["argv"] = args[cut + 1 :]
            args = args[:cut]
        elif not args and not ctx.resilient_parsing:  # a shell that completes shows no help
            raise click.exceptions.NoArgsIsHelpError(ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            hint = nearest(args[0], self.commands)
            raise InputError(f"emulate: unexpected {args[0]!r}; the command to run comes after `--`; {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_CommandAfterDashes,
    often=("nodes", "ranks_per_node", "nic", "cluster_file", "per_node", "as_json"),
    invoke_without_command=True,
    subcommand_metavar="-- COMMAND",
    epilog="Example: meshwright emulate --nodes 2 --nic 1Gbps -- python train.py",
)
@click.option("--nodes", metavar="N", type=int, help="Emulated machines.  [default: 2, or the cluster's]")
@click.option(
    "--ranks-per-node",
    metavar="N",
    type=int,
    help="Copies of COMMAND.  [default: 1, or the cluster's GPUs]",
)
@click.option("--cluster", "cluster_file", metavar="FILE", help="Nodes, topology and ratios of rates.")
@click.option("--carry", metavar="RATE", help="With --cluster: what this machine can move.  [default: measured]")
@click.option("--nic", metavar="RATE", help="Of each NIC, each way (1Gbps).  [default: unlimited]")
@click.option("--intra", metavar="RATE", help="Rate of a node's loopback.  [default: unlimited]")
@click.option("--topology", type=click.Choice(["star", "fat-tree"]), help="[default: star]")
@click.option("--oversubscription", type=float, help="Of a fat-tree's leaves.  [default: 1]")
@click.option("--nodes-per-leaf", metavar="N", type=int, help="In a fat-tree.  [default: 2]")
@click.option("--mtu", default=9000, show_default=True)
@click.option("--per-node", is_flag=True, help="Run COMMAND once a node, not once a rank.")
@click.option("--stop-after", type=float, metavar="SECONDS", help="Time the others have when one fails.")
@click.option("--json", "as_json", is_flag=True, help="Print the end as JSON; output goes to stderr.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> int:
    """Run COMMAND on every rank of a cluster of network namespaces.

    Exits with the worst exit code of the ranks, and takes everything down, however it ends. When a rank fails, the
    others have 10 seconds (with --per-node as long as they want).
    """
    if ctx.invoked_subcommand is not None:
        return 0
    argv = ctx.meta.get("argv")
    if not argv:
        raise InputError("emulate: no command; expected one after `--`, such as `-- torchrun train.py` with --per-node")
    return _run(spec_of(options), argv, options)


def spec_of(options: dict[str, Any]) -> EmulationSpec:
    """Return the cluster that the options describe, over what --cluster says, over the defaults."""
    given: dict[str, Any] = {name: options[name] for name in _SPEC_OPTIONS if options[name] is not None}
    for option, field in (("nic", "nic_bytes_per_s"), ("intra", "intra_bytes_per_s")):
        if options[option] is not None:
            given[field] = optional(parse_rate, options[option], f"--{option}")
    if options["cluster_file"] is None:
        if options["carry"] is not None:
            raise InputError("--carry: says how far to scale a cluster; expected together with --cluster")
        return EmulationSpec(**{"nodes": 2, **given})
    cluster = expanded(read_cluster(options["cluster_file"]))
    carry = parse_rate(options["carry"]) if options["carry"] else measure_carry()
    base = derived(cluster, carry_bytes_per_s=carry, nodes=options["nodes"], ranks=options["ranks_per_node"])
    return replace(base, **given)


def _run(wanted: EmulationSpec, argv: list[str], options: dict[str, Any]) -> int:
    per_node, stop_after_s = options["per_node"], options["stop_after"]
    if stop_after_s is None and not per_node:
        stop_after_s = 10.0
    out = sys.stderr.buffer if options["as_json"] else sys.stdout.buffer
    began = time.monotonic()
    with Emulation(wanted) as emulation:
        setup_s = time.monotonic() - began
        click.echo(
            f"meshwright: emulation {emulation.owner_pid} ready in {setup_s:.2f} s: {_sentence(wanted)}", err=True
        )
        foreground = stream.Foreground(emulation, out, sys.stderr.buffer)
        outcome = foreground.run(argv, per_node=per_node, stop_after_s=stop_after_s, setup_s=setup_s)
    if options["as_json"]:
        click.echo(to_json({"spec": wanted, "outcome": outcome, "worst": outcome.worst}))
    return outcome.worst


def _sentence(wanted: EmulationSpec) -> str:
    nic = wanted.nic_bytes_per_s
    rate = "unlimited links" if nic is None else f"{format_network_rate(nic)} per direction"
    inside = (
        "" if wanted.intra_bytes_per_s is None else f", {format_network_rate(wanted.intra_bytes_per_s)} inside a node"
    )
    return (
        f"{counted(wanted.nodes, 'node')} x {counted(wanted.ranks_per_node, 'rank')}, {wanted.topology}, {rate}{inside}"
    )


@command.command("list", epilog="Example: meshwright emulate list --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_running(as_json: bool) -> int:
    """Print the emulations that run here, and what runs in them."""
    found = []
    for entry in state.running(state.root()):
        with contextlib.suppress(NoAnswerError):  # one that is not up yet, or ends just now, runs nothing
            found.append({"id": entry.owner_pid, **send_request(entry.folder, {"op": "status"})})
    if as_json:
        click.echo(to_json(found))
        return 0
    if not found:
        click.echo("meshwright: no emulation runs here", err=True)
    for emulation in found:
        running = [p for p in emulation["programs"] if p["exit_code"] is None]
        click.echo(f"{emulation['id']}: {emulation['spec']['nodes']} nodes, {counted(len(running), 'program')} running")
    return 0


@command.command("exec", epilog="Example: meshwright emulate exec node1 -- ip addr")
@click.option("--id", "owner_pid", type=int, help="Which emulation, when several run.")
@click.argument("node", metavar="NODE")
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND")
def execute(owner_pid: int | None, node: str, argv: tuple[str, ...]) -> int:
    """Run COMMAND on a node of a running emulation."""
    return visit(state.find_emulation(state.root(), owner_pid).folder, node, argv)


@command.command("fault", epilog="Example: meshwright emulate fault slow node1 100Mbps")
@click.option("--id", "owner_pid", type=int, help="Which emulation, when several run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("words", nargs=-1, required=True, metavar="KIND TARGET [VALUE]")
def fault(owner_pid: int | None, as_json: bool, words: tuple[str, ...]) -> int:
    """Break something in a running emulation, or mend it.

    \b
    cut node1            pull a node's cable (cut leaf0: a leaf's uplink)
    restore node1        plug it in again, at its first rate
    slow node1 100Mbps   give it another rate
    lose node1 5%        drop packets at random
    delay node1 2ms      hold packets back (where the kernel has netem)
    pause rank3          stop a rank, or all of a node (resume: let it go on)
    kill rank3           SIGKILL a rank, or power off a node
    """
    entry = state.find_emulation(state.root(), owner_pid)
    done = send_request(entry.folder, {"op": "fault", "text": " ".join(words)})["done"]
    click.echo(to_json({"id": entry.owner_pid, "done": done}) if as_json else done)
    return 0
