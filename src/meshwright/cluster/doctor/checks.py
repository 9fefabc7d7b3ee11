"""The checks: each a function from the facts of all nodes to what is wrong, with a name, a reason and a remedy."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from ...machine_load import others_share
from ...units import counted, format_bytes
from ..discovery.local import format_cores
from .facts import NodeFacts
from .interfaces import gloo_takes, nccl_takes

SHM_BYTES = 2**30  # NVIDIA's advice for containers (--shm-size=1g); Docker's default is 64 MiB
MEMLOCK_BYTES = 2**30  # registered buffers of an InfiniBand job; the usual default is 64 KiB or 8 MiB
BUSY_SHARE = 0.25  # of the processors; what other programs take below is the system's own housekeeping
CLOCK_S = 2.0  # between two clocks: what is told travels for less

Found = Iterator[tuple[NodeFacts, str]]  # the node, and what is wrong there


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that can be wrong: how to find it, why it matters, what to do."""

    name: str
    reason: str
    remedy: str
    find: Callable[[Sequence[NodeFacts]], Found]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong on one node."""

    check: str
    host: str
    found: str
    reason: str
    remedy: str


def run_checks(nodes: Sequence[NodeFacts], checks: "Iterable[Check] | None" = None) -> list[Finding]:
    """Return everything that the checks find on these nodes, in the order of the checks."""
    return [
        Finding(check=check.name, host=facts.host, found=found, reason=check.reason, remedy=check.remedy)
        for check in (CHECKS if checks is None else checks)
        for facts, found in check.find(nodes)
    ]


def gloo_names(nodes: Sequence[NodeFacts]) -> Found:
    """Check that GLOO_SOCKET_IFNAME names interfaces that are there and up."""
    for facts in nodes:
        known = {interface.name: interface for interface in facts.interfaces}
        for name in filter(None, facts.environment.get("GLOO_SOCKET_IFNAME", "").split(",")):
            if name.startswith(("^", "=")):
                yield (
                    facts,
                    f"GLOO_SOCKET_IFNAME={name}: Gloo takes plain names only, the form with {name[0]} is NCCL's",
                )
            elif name not in known:
                yield facts, f"GLOO_SOCKET_IFNAME={name}: no such interface (there are {', '.join(known)})"
            elif not known[name].up:
                yield facts, f"GLOO_SOCKET_IFNAME={name}: that interface is down"
            elif known[name].loopback and facts.nodes > 1:
                yield facts, f"GLOO_SOCKET_IFNAME={name}: leads to no other node"


def gloo_default(nodes: Sequence[NodeFacts]) -> Found:
    """Check that without a variable, Gloo takes the interface on the way to the other nodes."""
    for facts in nodes:
        right = facts.route_interface
        if facts.environment.get("GLOO_SOCKET_IFNAME") or facts.nodes == 1 or right is None:
            continue
        taken = [interface.name for interface in gloo_takes(facts)]
        if taken != [right.name]:
            yield facts, f"Gloo would take {', '.join(taken) or 'nothing'}; the other nodes are reached by {right.name}"


def nccl_names(nodes: Sequence[NodeFacts]) -> Found:
    """Check that NCCL takes an interface that reaches the other nodes."""
    for facts in nodes:
        text, taken, right = facts.environment.get("NCCL_SOCKET_IFNAME", ""), nccl_takes(facts), facts.route_interface
        if text and not taken:
            names = ", ".join(interface.name for interface in facts.interfaces)
            yield facts, f"NCCL_SOCKET_IFNAME={text}: fits no interface that is up (there are {names})"
        elif facts.nodes > 1 and right is not None and right not in taken:
            names = ", ".join(interface.name for interface in taken) or "nothing"
            yield facts, f"NCCL would take {names}; the other nodes are reached by {right.name}"


def host_name(nodes: Sequence[NodeFacts]) -> Found:
    """Check that a node's own name resolves to an address that others can reach."""
    for facts in nodes:
        if facts.nodes == 1:
            continue
        if not facts.host_addresses:
            yield facts, f"its own name {facts.host} does not resolve"
        elif all(_is_loopback(address) for address in facts.host_addresses):
            yield facts, f"its own name {facts.host} resolves to {', '.join(facts.host_addresses)}"


def master_name(nodes: Sequence[NodeFacts]) -> Found:
    """Check that MASTER_ADDR is reachable and, with several nodes, not loopback."""
    for facts in nodes:
        master = facts.environment.get("MASTER_ADDR")
        if master is None:
            continue
        if not facts.master_addresses:
            yield facts, f"MASTER_ADDR={master} does not resolve"
        elif facts.nodes > 1 and any(_is_loopback(address) for address in facts.master_addresses):
            yield facts, f"MASTER_ADDR={master} resolves to {', '.join(facts.master_addresses)}, this machine itself"
        elif not facts.route_address:
            yield facts, f"MASTER_ADDR={master} ({facts.master_addresses[0]}): there is no route to it"


def same_master(nodes: Sequence[NodeFacts]) -> Found:
    """Check that all nodes have the same rendezvous."""
    first = nodes[0]
    for facts in nodes[1:]:
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            here, there = facts.environment.get(name), first.environment.get(name)
            if here != there:
                yield facts, f"{name} is {here} here and {there} on {first.host}"


def mtu(nodes: Sequence[NodeFacts]) -> Found:
    """Check that the interfaces that join the nodes agree about the largest packet."""
    joined = [(facts, facts.route_interface) for facts in nodes]
    largest = max((interface.mtu for _, interface in joined if interface), default=0)
    for facts, interface in joined:
        if interface is not None and interface.mtu != largest and not interface.loopback:
            yield facts, f"{interface.name} has MTU {interface.mtu}, another node has {largest}"


def shared_memory(nodes: Sequence[NodeFacts]) -> Found:
    """Check that /dev/shm has room for the ranks' buffers."""
    for facts in nodes:
        if facts.shm_bytes < SHM_BYTES:
            yield facts, f"/dev/shm has {format_bytes(facts.shm_bytes)}; expected {format_bytes(SHM_BYTES)} or more"
        elif facts.shm_free_bytes < SHM_BYTES / 4:
            used = format_bytes(facts.shm_bytes - facts.shm_free_bytes)
            yield facts, f"/dev/shm is full: {used} of {format_bytes(facts.shm_bytes)} in use"


def memlock(nodes: Sequence[NodeFacts]) -> Found:
    """Hold that, where there is InfiniBand, enough memory can be pinned."""
    for facts in nodes:
        if facts.infiniband and facts.memlock_bytes is not None and facts.memlock_bytes < MEMLOCK_BYTES:
            limit = format_bytes(facts.memlock_bytes)
            yield facts, f"memlock is limited to {limit}, with {', '.join(facts.infiniband)} in the machine"


def numa_binding(nodes: Sequence[NodeFacts]) -> Found:
    """Check that a rank that shares its node runs on one NUMA node."""
    for facts in nodes:
        touched = [number for number, cores in facts.numa.items() if set(cores) & set(facts.cores)]
        if "RANK" in facts.environment and facts.ranks > 1 and len(touched) > 1:
            where = ", ".join(map(str, touched))
            yield (
                facts,
                f"{counted(facts.ranks, 'rank')}, each free to wander over NUMA nodes {where} "
                f"({format_cores([*facts.cores])})",
            )


def governor(nodes: Sequence[NodeFacts]) -> Found:
    """Check that no core is held at a low frequency."""
    for facts in nodes:
        slow = sum(count for name, count in facts.governors.items() if name in ("powersave", "conservative"))
        if slow:
            names = ", ".join(f"{name} ({counted(count, 'core')})" for name, count in facts.governors.items())
            yield facts, f"CPU frequency governor: {names}"


def omp_threads(nodes: Sequence[NodeFacts]) -> Found:
    """Check that ranks that share a node do not each start a thread on every core."""
    for facts in nodes:
        if "RANK" in facts.environment and facts.ranks > 1 and "OMP_NUM_THREADS" not in facts.environment:
            every = len(facts.cores)
            yield (
                facts,
                f"OMP_NUM_THREADS is not set: {counted(facts.ranks, 'rank')} start "
                f"{counted(every, 'thread')} each on {counted(every, 'core')}",
            )


def oversubscription(nodes: Sequence[NodeFacts]) -> Found:
    """Check that the threads of all ranks fit on the cores."""
    for facts in nodes:
        text = facts.environment.get("OMP_NUM_THREADS", "1")
        threads = int(text) if text.isdecimal() else 1
        wanted, cores = facts.ranks * threads, len(facts.cores)
        if facts.quota_cores is not None and facts.quota_cores < min(wanted, cores):
            yield facts, f"{counted(wanted, 'thread')} under a container's limit of {facts.quota_cores:g} cores"
        elif wanted > cores:
            yield (
                facts,
                f"{counted(facts.ranks, 'rank')} with {counted(threads, 'thread')} each, on {counted(cores, 'core')}",
            )


def compiler(nodes: Sequence[NodeFacts]) -> Found:
    """Check that the C helpers can be built, unless they are off by choice."""
    for facts in nodes:
        if facts.lacks_compiler:
            yield facts, "no C compiler on PATH (cc, gcc, clang, or what CC names)"


def versions(nodes: Sequence[NodeFacts]) -> Found:
    """Check that all nodes run the same software."""
    first = nodes[0]
    for facts in nodes[1:]:
        for name in sorted(first.versions.keys() | facts.versions.keys()):
            here, there = facts.versions.get(name, "not installed"), first.versions.get(name, "not installed")
            if here != there:
                yield facts, f"{name} is {here} here and {there} on {first.host}"


def nccl_switches(nodes: Sequence[NodeFacts]) -> Found:
    """Check that no variable forbids NCCL its fast paths."""
    for facts in nodes:
        for name, forbidding in _NCCL_SWITCHES.items():
            if facts.environment.get(name, "").lower() in forbidding:
                yield facts, f"{name}={facts.environment[name]}"


def same_nccl(nodes: Sequence[NodeFacts]) -> Found:
    """Check that NCCL's variables are the same everywhere."""
    first = nodes[0]
    for facts in nodes[1:]:
        names = {
            n for f in (first, facts) for n in f.environment if n.startswith("NCCL_") and n != "NCCL_SOCKET_IFNAME"
        }
        for name in sorted(names):
            here, there = facts.environment.get(name, "not set"), first.environment.get(name, "not set")
            if here != there:
                yield facts, f"{name} is {here} here and {there} on {first.host}"


_NCCL_SWITCHES = {
    "NCCL_P2P_DISABLE": ("1",),
    "NCCL_P2P_LEVEL": ("loc", "0"),
    "NCCL_SHM_DISABLE": ("1",),
    "NCCL_IB_DISABLE": ("1",),
    "NCCL_NET": ("socket",),
    "NCCL_NET_GDR_LEVEL": ("loc", "0"),
}


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def clock(nodes: Sequence[NodeFacts]) -> Found:
    """Check that the wall clocks of all nodes say the same as node 0's."""
    for facts in nodes:
        ahead_s = facts.clock_ahead_s
        if ahead_s is not None and not abs(ahead_s) <= CLOCK_S:
            way = "ahead of" if ahead_s > 0 else "behind"
            yield facts, f"its clock is {abs(ahead_s):.1f} s {way} that of {nodes[0].host}"


def busy(nodes: Sequence[NodeFacts]) -> Found:
    """Check that other programs leave the processors to the job."""
    for facts in nodes:
        share = others_share([facts.load]) if facts.load else 0.0
        emulated = "MESHWRIGHT_EMULATION" in facts.environment  # its nodes share the cores of one machine
        if facts.load and share >= BUSY_SHARE and not emulated:
            stolen = facts.load.stolen_s / (facts.load.wall_s * facts.load.processors)
            of_it = f", {stolen:.0%} other virtual machines" if stolen >= BUSY_SHARE else ""
            yield facts, f"other programs take {share:.0%} of {facts.load.processors} processors{of_it}"


CHECKS = (
    Check(
        "gloo-interface",
        "Gloo fails at start, or binds where the other nodes cannot reach it",
        "set GLOO_SOCKET_IFNAME to the plain name of the interface that joins the nodes, such as eth0",
        gloo_names,
    ),
    Check(
        "gloo-default",
        "without GLOO_SOCKET_IFNAME, Gloo takes the interface that has the address of the host name",
        "set GLOO_SOCKET_IFNAME to the interface that joins the nodes",
        gloo_default,
    ),
    Check(
        "nccl-interface",
        "NCCL's bootstrap hangs or crawls when it takes a bridge, a VPN or a management port",
        "set NCCL_SOCKET_IFNAME to the interface that joins the nodes (=eth0), or leave others out (^docker,lo)",
        nccl_names,
    ),
    Check(
        "host-name",
        "libraries tell the other nodes the address of the host name; a loopback address makes those call themselves",
        "in /etc/hosts, give the host name its address on the network in place of 127.0.1.1",
        host_name,
    ),
    Check(
        "master-address",
        "every node must reach the rendezvous under MASTER_ADDR",
        "set MASTER_ADDR to the address of node 0 on the network that joins the nodes",
        master_name,
    ),
    Check(
        "same-rendezvous",
        "nodes with different rendezvous wait for each other until the timeout",
        "set the same MASTER_ADDR and MASTER_PORT on all nodes",
        same_master,
    ),
    Check(
        "mtu",
        "packets above the smaller MTU vanish or are cut up: small messages pass, large ones hang or crawl",
        "set the same MTU on all nodes and switches (ip link set dev eth0 mtu 9000)",
        mtu,
    ),
    Check(
        "shared-memory",
        "ranks and data loaders of one node exchange data through /dev/shm; when it is full they die with SIGBUS",
        "enlarge it (docker run --shm-size=8g or --ipc=host; mount -o remount,size=50% /dev/shm), remove stale files",
        shared_memory,
    ),
    Check(
        "memlock",
        "InfiniBand pins its buffers; with a low limit, registration fails or falls back to copies",
        "raise it (ulimit -l unlimited; memlock in /etc/security/limits.conf; docker run --ulimit memlock=-1)",
        memlock,
    ),
    Check(
        "numa-binding",
        "memory of another NUMA node costs up to half of the bandwidth, and differently in each run",
        "bind each rank to the NUMA node of its device (numactl, or torchrun --numa-binding)",
        numa_binding,
    ),
    Check(
        "cpu-governor",
        "cores at a low frequency slow down every launch and every reduction on the CPU",
        "cpupower frequency-set -g performance",
        governor,
    ),
    Check(
        "omp-threads",
        "more threads than cores take turns: operators become many times slower, with rare slow steps",
        "set OMP_NUM_THREADS to the cores of a node divided by its ranks (torchrun sets 1)",
        omp_threads,
    ),
    Check(
        "cpu-oversubscription",
        "ranks that take turns on a core make every collective wait for the slowest turn",
        "use fewer ranks or threads, or give the container more cores",
        oversubscription,
    ),
    Check(
        "busy-processors",
        "ranks that share their cores with other programs wait for them, and every rank waits for the slowest",
        "end the other programs (top shows them), or measure and train when the machine is quiet",
        busy,
    ),
    Check(
        "c-compiler",
        "without a C compiler the backend and the simulator run in Python alone: small collectives take longer",
        "install gcc or clang, or say by MESHWRIGHT_HELPER=0 that it is meant so",
        compiler,
    ),
    Check(
        "versions",
        "nodes with different versions disagree about wire formats and defaults, and hang or differ in results",
        "install the same versions on all nodes",
        versions,
    ),
    Check(
        "nccl-switches",
        "a variable left over from debugging forbids NVLink, shared memory, InfiniBand or GPUDirect",
        "unset it, in the job script and in /etc/nccl.conf",
        nccl_switches,
    ),
    Check(
        "same-nccl",
        "nodes with different NCCL variables choose different algorithms or transports, and hang",
        "export the same NCCL variables on all nodes",
        same_nccl,
    ),
    Check(
        "clock",
        "torchrun takes a machine whose clock is some seconds behind for dead; logs and traces of nodes do not compare",
        "synchronise them (chronyc tracking, timedatectl; systemctl enable --now chronyd)",
        clock,
    ),
)
