"""A cluster in a box: nodes as namespaces of this machine, joined by links of chosen rates.

    with Emulation(EmulationSpec(nodes=2, ranks_per_node=4, nic_bytes_per_s=parse_rate("1Gbps"))) as cluster:
        job = cluster.start_ranks(["python", "train.py"])
        cluster.fault("cut node1")
        codes = job.wait(timeout_s=60)

Each node has its own network, host name, /etc/hosts, /dev/shm, /proc and process numbers. The switches live in one more
network namespace, so nothing of an emulation is visible in the machine's own network, and no two emulations can meet.
Everything hangs on processes and none on files: when they are gone, the kernel takes namespaces and links away.

- asked for: `spec`, `derive` (from a given cluster), `state` (where it is written down)
- launcher: `session`, `stream` (a command in the foreground), `protocol`
- supervisor: `supervisor`, `requests`, `program`, `node`, `links`, `faults`, `loss`
- Linux: `linux`, `rootless`; `inside`: for programs that run in an emulation
"""

from .session import Emulation, StartedJob
from .spec import EmulationSpec, Topology

__all__ = ["Emulation", "EmulationSpec", "StartedJob", "Topology"]
