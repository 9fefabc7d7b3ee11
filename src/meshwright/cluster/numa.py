"""CPUs by their NUMA nodes, as every reader of a machine names them; CPUs of no node are counted too."""

from collections.abc import Iterable

from .graph import Device


def cpu_id(node: int | None) -> str:
    """Return the id of the CPU of a NUMA node, or of the cores that no node holds."""
    return "CPU of no node" if node is None else f"CPU{node}"


def node_count(cpus: Iterable[Device]) -> int:
    """Return how many NUMA nodes these are the CPUs of."""
    return sum(cpu.numa is not None for cpu in cpus)


def of_no_node(cpus: Iterable[Device]) -> list[str]:
    """Return a warning for the cores that no node holds, none where each has one."""
    return [
        f"CPUs {cpu.cpu_affinity} are in no NUMA node of this copy: which is nearest is not known"
        for cpu in cpus
        if cpu.numa is None
    ]
