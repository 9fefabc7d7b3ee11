"""Ranks of a job by the counts of its launcher; those of a node by the cluster's where each of its GPUs gets one."""

from .draft import Draft
from .keys import as_whole
from .launch import Launch, further_words
from .outside import conflict, same_rank
from .shell.marks import shown

DEPENDS = " is known only where the job runs"
# launchers that start on the node they are on alone, unless a file of its own names more
ONE_WITHOUT = {
    "deepspeed": "/job/hostfile",
    "accelerate": "the default_config.yaml of `accelerate config`",
}
OF_ONE_NODE = frozenset({"torchrun", "composer"})  # launchers whose default is one node


def world_of(launch: Launch | None, draft: Draft) -> None:
    """Set the ranks from the counts of the launcher, if there is one; what depends on something unknown is --gpus'.

    Raises InputError where the launcher contradicts what starts it, unless --gpus says the ranks.
    """
    if launch is None:
        return
    if (told := conflict(launch)) is not None and draft.question.gpus is None:
        raise draft.refused(f"{told}: --gpus says how many ranks train together")
    if (told := same_rank(launch)) is not None:
        draft.note(told)
    nodes = launch.nodes or _alone(launch, draft)
    open_ones = [*(set(launch.unknown) - set(further_words(launch.arguments))), *further_words(launch.options)]
    counted_here = launch.per_node is not None or (launch.each_gpu and draft.question.gpus_per_node)
    alone = launch.launcher in OF_ONE_NODE and counted_here and not open_ones
    if nodes is None and alone and "world" not in launch.counts:
        nodes = (1, "nnodes 1")
        draft.assume(f"nnodes 1 (the default of {launch.launcher})")
    draft.nodes_times(nodes, launch.per_node or _of_clusters_nodes(launch, draft))
    world = launch.counts.get("world")
    if world is not None and launch.launcher != "torchrun":
        draft.world = world
    if draft.world is not None and draft.world[1].count("(") == 0:
        draft.world = (draft.world[0], f"{draft.world[1]} ({draft.files[0]})")
    for text in dict.fromkeys((*launch.unknown, *further_words(launch.options))):
        draft.note(f"{text}{DEPENDS}")


def _alone(launch: Launch, draft: Draft) -> tuple[int, str] | None:
    """Return one node, where a launcher takes the GPUs of its own and nothing names another; None elsewhere.

    Sources: deepspeedai/DeepSpeed:deepspeed/launcher/runner.py (local ranks where no hostfile is found),
    huggingface/accelerate:src/accelerate/commands/launch.py (one machine and all of its GPUs where no file is found).
    """
    hosts = ONE_WITHOUT.get(launch.each_gpu)
    several = (as_whole(launch.variables.get("SLURM_NNODES")) or 1) > 1 or "NNODES" in launch.variables
    joined = draft.question.gpus_per_node is None or draft.question.gpus is not None
    if hosts is None or several or joined or launch.unknown or launch.around or further_words(launch.options):
        return None
    draft.assume(f"one node: {launch.each_gpu} starts on others where {hosts} names them; --gpus says how many ranks")
    return 1, "one node"


def _of_clusters_nodes(launch: Launch, draft: Draft) -> tuple[int, str] | None:
    """Return the GPUs of a node of the cluster where a launcher starts a rank on each that it sees; None elsewhere."""
    starts = f"{shown(launch.each_gpu)} starts one on each GPU that it sees"
    return ranks_of_node(draft, starts) if launch.each_gpu else None


def ranks_of_node(draft: Draft, why: str) -> tuple[int, str] | None:
    """Return the GPUs of a node of the cluster as the ranks of one, and list why; None where --gpus says the ranks."""
    gpus = draft.question.gpus_per_node
    if gpus is None or draft.question.gpus is not None:
        return None
    draft.assume(f"{gpus} ranks a node: {why}, and a node of --cluster has {gpus}")
    return gpus, f"{gpus} GPUs of a node"
