"""Outside of a launcher: what starts it on each node (machines of a manifest, `srun`, xpk, a command of one's own).

That is held against what the launcher says itself: one for a single node, started on several, trains on each alone.
"""

from dataclasses import replace

from ..errors import InputError
from ..hardware import load_catalogue
from .counts import Count, flagged_counts, is_count
from .files.manifest import JobMachines
from .keys import as_whole
from .launch import Launch, flags_of


def on_machines(launch: Launch, machines: JobMachines) -> Launch:
    """Return a launch with the counts of a manifest's machines where the command leaves them open.

    Raises InputError where the command says another number of nodes.
    """
    told, nodes, gpus = launch.nodes, machines.nodes, machines.gpus
    if nodes and told is not None and told[0] != nodes and "nodes" in launch.counts and not told[1].startswith("no "):
        of_pods = " with GPUs" if machines.told[0].endswith(("pod", "pods")) else ""
        raise InputError(f"{machines.where}: {told[1]} contradicts {machines.told[0]}{of_pods}")
    if launch.launcher == "python" and (gpus or 2) > 1 and not machines.starts_ranks:
        return launch  # one rank or many: only the program knows
    per_node = launch.per_node
    if nodes is None and machines.total and per_node is not None and machines.total % per_node[0] == 0:
        nodes = machines.total // per_node[0]
    found: dict[str, Count] = {}
    if nodes and "--standalone" not in launch.options:  # each node by itself
        found["nodes"] = (nodes, machines.told[0] if machines.nodes else f"{machines.total} GPUs ({machines.where})")
    if gpus:
        found["per_node"] = (gpus, machines.told[1])
    if not found and machines.total:
        found["world"] = (machines.total, f"{machines.total} GPUs")
    more: dict[str, Count] = {"rank": (0, machines.rank)} if machines.rank else {}
    if gpus and not machines.starts_ranks:  # which counts processes
        more["gpus"] = (gpus, machines.told[1])
    around = {**found, **more, **launch.around}
    rest = [doubt for doubt in launch.unknown if not any(is_count(doubt, key) for key in found)]
    return replace(launch, counts={**found, **launch.counts}, unknown=tuple(rest), around=around)


def conflict(launch: Launch) -> str | None:
    """Return in words how a launcher contradicts the nodes that it is started on, None where it does not.

    It does where it counts fewer nodes, waits for more, starts more ranks on each than it has GPUs, or counts fewer
    ranks in all while it says no nodes.
    Sources: `torchrun --nnodes`, huggingface/accelerate:commands/launch.py (--num_processes is of all machines, of
    which there is one by default).
    """
    own, _ = flagged_counts(launch.options)
    nodes, tasks = each_once(launch), launch.around.get("tasks")
    agents = tasks if tasks and tasks[0] > 1 else None  # a loop starts one at a time
    most, waits = launch.around.get("chunks") or nodes or agents, own.get("nodes")
    if most and waits and waits[0] > most[0]:
        return f"{waits[1]} contradicts {most[1]} (it waits for nodes that are not there)"
    there, ranks = launch.around.get("gpus"), own.get("per_node")
    if there and ranks and ranks[0] > there[0]:
        return f"{ranks[1]} contradicts {there[1]} (a rank needs a GPU of its own)"
    if nodes is None:
        return None
    told = own.get("nodes") or (launch.nodes if launch.launcher == "deepspeed" else None)
    if told is not None:
        return f"{told[1]} contradicts {nodes[1]}" if told[0] < nodes[0] else None
    ranks, each = own.get("world"), launch.around.get("per_node")
    configured = flags_of(launch.options).keys() & {"config-file"}  # which may say the nodes
    if launch.launcher != "accelerate" or ranks is None or each is None or configured:
        return None
    whole = nodes[0] * each[0]
    return f"{ranks[1]} contradicts {nodes[1]} x {each[1]} = {whole} ranks" if ranks[0] < whole else None


def same_rank(launch: Launch) -> str | None:
    """Return in words the one rank that a command gives each of several nodes, None where it gives none.

    A rendezvous of torchrun that counts the nodes itself passes over it; a variable of the launcher's differs by node.
    """
    nodes, flags = each_once(launch), flags_of(launch.options)
    name = next((name for name in ("node-rank", "machine-rank") if str(flags.get(name)).isdecimal()), None)
    if nodes is None or name is None or "rank" in launch.around or flags.get("rdzv-backend", "static") != "static":
        return None
    return f"{name.replace('-', '_')} {flags[name]} on each of {nodes[1]}: a node needs a rank of its own to join"


def each_once(launch: Launch) -> Count | None:
    """Return the nodes, where there are several, on each of which a launcher of ranks is started once; else None."""
    nodes = launch.around.get("nodes")
    if nodes is None or nodes[0] <= 1:
        return None
    tasks, of_node = (launch.around.get(name, (None, ""))[0] for name in ("tasks", "tasks_per_node"))
    fewer = tasks is not None and tasks < nodes[0]
    return nodes if not fewer and of_node in {None, 1} else None


def without_rank(launch: Launch, machines: JobMachines | None, ranks: int) -> str:
    """Return in words how many of the GPUs that a job asks for run no rank of its training; "" where each runs one."""
    nodes, gpus = launch.around.get("nodes"), launch.around.get("gpus")
    asked, told = 0, ""
    if machines is not None and machines.nodes and machines.gpus and not machines.starts_ranks:
        asked, told = machines.nodes * machines.gpus, " x ".join(machines.told)
    elif machines is not None and machines.total:
        asked, told = machines.total, machines.where
    elif nodes and gpus:
        asked, told = nodes[0] * gpus[0], f"{nodes[1]} x {gpus[1]}"
    return f"{asked - ranks} of {asked} GPUs ({told}) run no rank of this training" if asked > ranks else ""


def slices_of(launch: Launch) -> tuple[str, int, int] | None:
    """Return the node type of the TPU slices that xpk asks for, their number, and the chips of one; None without them.

    A name that the catalogue does not know tells nothing. Source: AI-Hypercomputer/xpk:src/xpk/parser/workload.py.
    """
    flags = flags_of(launch.before)
    name = flags.get("tpu-type", flags.get("device-type"))
    found = load_catalogue().slice_of(name) if isinstance(name, str) else None
    if found is None:
        return None
    node, chips = found
    return node, as_whole(flags.get("num-slices", 1)) or 1, int(chips)
