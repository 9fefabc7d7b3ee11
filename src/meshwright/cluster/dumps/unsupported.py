"""Outputs that are known and not read: their name, and the command whose output is wanted instead."""

import re
from collections.abc import Mapping

LINKS = "nvidia-smi topo -m"
SWITCHES = "scontrol show topology, or ibnetdiscover"
COUNTERS = "meshwright doctor --logs names what its figures show of trouble"
KNOWN = (
    (
        r"<(?:system|cpu|pci)\s[^>\n]*\b(?:version|numaid|busid)=",
        "a piece of NCCL's topology XML",
        "all of it, from <system to </system>",
    ),
    (r"<object type=\"", "a piece of lstopo's XML", "all of it, from <topology> to </topology>"),
    (r"^\s*Architecture:.*\n(?:.*\n)*?\s*CPU\(s\):", "lscpu", "numactl -H, or lstopo --of xml"),
    (r"^PARTITION\s+AVAIL", "sinfo", "scontrol show topology"),
    (
        r"^\s*NAME\s+STATUS\s+ROLES\s+AGE\s",
        "kubectl get nodes without labels",
        "kubectl get nodes --show-labels",
    ),
    (
        r"^CA '\S+'\s*$",
        "ibstat without the state of a port",
        "iblinkinfo, or nvidia-smi topo -m for the NICs of a host",
    ),
    (
        r"^Infiniband device '\S+' port \d",
        "ibstatus without the state of a port",
        "iblinkinfo, or nvidia-smi topo -m for the NICs of a host",
    ),
    (
        r"^hca_id:\s*\S+",
        "ibv_devinfo without the state of a port",
        "iblinkinfo, or nvidia-smi topo -m for the NICs of a host",
    ),
    (
        r"^Operational Info\s*$|^Physical state\s+: ",
        "mlxlink without the speed of a port",
        "iblinkinfo, or nvidia-smi topo -m for the NICs of a host",
    ),
    (
        r"^provider: \S+\s*\n\s+fabric: ",
        "fi_info without the rates of NICs",
        "fi_info -v, or nvidia-smi topo -m",
    ),
    (
        r"^Successfully ran diagnostic for group|^\|-+ +(?:Metadata|Deployment|Integration) +-",
        "dcgmi diag",
        f"{LINKS}; meshwright doctor --logs names GPUs that fail its tests",
    ),
    (r"^LLDP neighbors:", "lldpcli without an interface", SWITCHES),
    (r"^Settings for \S+:\s*$", "ethtool without the speed of a port", LINKS),
    (r"^\s*\| GPU ID \| Device Information", "dcgmi discovery -l", LINKS),
    (r"^\s*\| (?:GPU ID: \d+|\S+) +\| Topology Information", "dcgmi topo without a path to a GPU", LINKS),
    (
        r"NvLink Link Status|^\s*gpuId \d+:\s*$",
        "dcgmi nvlink without states",
        "dcgmi nvlink -s, or nvidia-smi nvlink -s, with " + LINKS,
    ),
    (
        r"^LinkState:\.{3,}|^PhysLinkState:\.{3,}",
        "ibportstate or smpquery, of one port",
        "iblinkinfo, or nvidia-smi topo -m for the NICs of a host",
    ),
    (r"^\S+: flags=\d+<", "ifconfig", LINKS),
    (r"^\d+: \S+: <\S+> mtu(?:.*\n)+?\s+RX: +bytes ", "ip -s link, of counters", f"{LINKS}; {COUNTERS}"),
    (r"^\d+: \S+: <\S+> mtu", "ip addr", LINKS),
    (r"^NIC statistics:\s*$", "ethtool -S, of counters", f"ethtool without -S for the speed of a port; {COUNTERS}"),
    (r"^link \w+/\d+ (?:\w+ \d+ ?){4}", "rdma statistic, of counters", f"{LINKS}; {COUNTERS}"),
    (r"^# Port (?:extended )?counters: Lid", "perfquery, of counters", f"iblinkinfo or ibnetdiscover; {COUNTERS}"),
    (r"^qdisc \w+ \w+: dev ", "tc qdisc show, of queues", f"{LINKS}; {COUNTERS}"),
    (
        r"^DEV\s+PORT\s+INDEX\s+GID|^\w+\s+\d+\s+\d+\s+(?:[0-9a-f]{4}:){7}[0-9a-f]{4}",
        "show_gids, of addresses",
        f"ibstat for the rates of ports, and {LINKS}; meshwright doctor --logs names a port without the GID that "
        "NCCL_IB_GID_INDEX asks for",
    ),
    (
        r"^Node #\d+\s+- \S+\s+- [A-Z_]+\s+- Version:",
        "nvidia-imex-ctl, of hosts that share a domain of NVLink",
        f"{LINKS} of each host, with --domain N; meshwright doctor --logs names the hosts that are kept out of it",
    ),
    (
        r"^\|\s*GPU instance(?:s| profiles):|^\|\s*Compute instances:",
        "nvidia-smi mig, of parts of GPUs, which have neither NVLink nor peer access",
        f"{LINKS} for whole GPUs (MIG off); nvidia-smi -L lists GPUs and their parts",
    ),
    (r"^# gpu +(?:pwr|sm|gtemp|mclk)\b", "nvidia-smi dmon, of loads and heat", f"{LINKS}; {COUNTERS}"),
    (r"^Communicators\.\.\. |^Group +Comms +Nodes +Ranks", "ncclras", f"{LINKS}; meshwright doctor --logs reads it"),
    (
        r"GPU Link Info|Remote Device .*: Link",
        "nvidia-smi nvlink -p or -c",
        "nvidia-smi nvlink -s, with nvidia-smi topo -m",
    ),
    (r"^\s*-\+?-?\[[0-9a-f]{4}:|^-\[[0-9a-f]{4}", "lspci -t", "lspci -vvnn, lstopo --of xml, or a copy of /sys"),
    (
        r"^[0-9a-f]{2,4}:[0-9a-f]{2}[:.].*(?:controller|bridge|accelerator)",
        "lspci without -vvnn",
        "lspci -vvnn, lstopo --of xml, or a copy of /sys",
    ),
    (
        r"^Machine \(\d|^\s*(?:PCIBridge|HostBridge|Package|PU) L#\d",
        "a piece of lstopo's text",
        "all of it, or lstopo --of xml",
    ),
    (r"NCCL INFO .*\bIB NIC distance", "the log of an old NCCL with how far NICs are", LINKS),
    (
        r"hl-smi|HL-\d{3}|^modID\s+(?:CPU|NUMA) Affinity",
        "hl-smi without topo -c -N",
        "hl-smi topo -c -N, with lstopo --of xml, or a copy of /sys",
    ),
    (r"xpu-smi|^[ \t]*GPU \d+/\d+[ \t]", "xpu-smi", "xpu-smi topology -m"),
    (r"npu-smi|Ascend\d{3}", "npu-smi", "npu-smi info -t topo"),
    (r"mx-smi|MX-SMI", "mx-smi", "mx-smi topo -m"),
    (r"mthreads-gmi|MTT S\d{2,4}", "mthreads-gmi", "mthreads-gmi topo -m"),
    (
        r"neuron-ls|NEURON DEVICE|^\| +NEURON +\| +NEURON +\|",
        "neuron-ls",
        "--cluster of meshwright plan in its place, for the catalogue has the links of Trainium, or lstopo --of xml",
    ),
    (r"ROCm System Management Interface|ROCM-SMI", "rocm-smi without --showtopo", "rocm-smi --showtopo"),
    (
        r"AMD-SMI|\bamd-smi\b|^GPU: \d+\s*\n\s+BDF:",
        "amd-smi without its topology",
        "amd-smi topology",
    ),
    (
        r"^kind: compute#\w+",
        "what Google Cloud says of one resource",
        "gcloud compute instances list --format=json, for the places of instances",
    ),
    (
        r"^acceleratorType: |^acceleratorConfig:",
        "what Google Cloud says of a slice of TPUs",
        "--cluster tpu-... --gpus N of meshwright plan in its place, for the catalogue has its links",
    ),
    (
        r"^\S*/sys/(?:bus/pci|class|devices)/\S+:.",
        "files of /sys, a line each",
        "a folder with a copy of /sys, or lspci -vvnn",
    ),
    (
        r"^(?:.{1,80} kernel: )?\[ *\d{1,7}\.\d{6}\] |\bNVRM: Xid \(",
        "the log of a kernel",
        f"{LINKS}; meshwright doctor --logs names what failed",
    ),
    (
        r"^apiVersion:|^kind: *[A-Z]",
        "a Kubernetes object",
        "scontrol show topology, or nvidia-smi topo -m inside a pod",
    ),
)


def known_but_unread(text: str) -> str | None:
    """Return what a text is and what is wanted in its place; None where it is nothing that is known."""
    found = _known(text)
    if found is None:
        return None
    return f"this is {found[0]}, which does not say how GPUs are linked or is not read; expected {found[1]}"


def name_of_unread(text: str) -> str:
    """Return the name of the tool that wrote an output which is not read, "" where it is nothing that is known."""
    found = _known(text)
    return found[0] if found else ""


def _known(text: str) -> tuple[str, str] | None:
    head = text[:100_000]
    return next(((name, wanted) for pattern, name, wanted in KNOWN if re.search(pattern, head, re.M)), None)


def known_but_unread_json(data: object) -> str | None:
    """Return the same of what a JSON file holds."""
    if isinstance(data, Mapping) and "lscpu" in data:
        return "this is lscpu -J, which does not say how GPUs are linked; expected numactl -H, or lstopo --of xml"
    if isinstance(data, Mapping) and "lldp" in data:
        return f"this is lldpctl -f json, of one host's ports, which is not read; expected {SWITCHES}"
    if isinstance(data, Mapping) and {"system", "gpus"} <= set(data):
        return f"this is rapidsmpf's list of GPUs and NICs, which does not say how GPUs are linked; expected {LINKS}"
    return None


def known_but_unread_xml(root: str) -> str | None:
    """Return the same of an XML whose root has a name."""
    if root == "graphs":
        return (
            "this is NCCL's choice of channels (NCCL_GRAPH_DUMP_FILE), which does not say all links; expected the file "
            "of NCCL_TOPO_DUMP_FILE"
        )
    return None
