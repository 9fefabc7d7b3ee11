"""The mechanisms that the page "What is in the box" shows, by chapter."""

from docsite.box import Chapter, Entry

PRIMITIVES = {
    "Send and receive": ("send", "direct"),
    "Copy": ("copy", "local"),
    "Signal and wait": ("signal", "direct"),
    "Barrier": ("barrier", "dissemination"),
    "Broadcast": ("broadcast", "binomial"),
    "Scatter": ("scatter", "binomial"),
    "Gather": ("gather", "binomial"),
    "Reduce": ("reduce", "binomial"),
    "All-gather": ("all_gather", "ring"),
    "Reduce-scatter": ("reduce_scatter", "ring"),
    "All-to-all": ("all_to_all", "pairwise"),
}
WAYS = {
    "Parameter server": "parameter_server",
    "Naive decentralised": "naive",
    "Staggered decentralised": "staggered",
    "Partitioned": "partitioned",
    "Partitioned, one message at a time": "partitioned_staggered",
    "Ring": "ring",
    "Recursive halving-doubling": "halving_doubling",
    "Recursive doubling": "recursive_doubling",
    "Double binary tree": "tree",
    "Double binary tree, pipelined": "tree_pipelined",
    "One shot": "one_shot",
}
INSIDE = {
    "PCIe 3": "pcie-3", "PCIe 4": "pcie-4", "PCIe 5": "pcie-5", "PCIe 6": "pcie-6", "PCIe 7": "pcie-7",
    "NVLink 1": "nvlink-1", "NVLink 2": "nvlink-2", "NVLink 3": "nvlink-3", "NVLink 3, cut": "nvlink-3-cut",
    "NVLink 4": "nvlink-4", "NVLink 4, cut": "nvlink-4-cut", "NVLink 5": "nvlink-5", "xGMI, MI250X": "xgmi-mi250x",
    "xGMI, MI300X": "xgmi-mi300x", "Gaudi2": "gaudi2",
}  # fmt: skip
BETWEEN = {
    "InfiniBand": "infiniband", "EFA": "efa", "Gaudi2's RoCE": "gaudi2-100gbe", "GPUDirect-TCPX": "tcpx",
    "Slingshot": "slingshot", "Omni-Path": "opa", "RoCE v2": "roce", "TCP over Ethernet": "tcp-",
}  # fmt: skip
DUMPS = {
    "nvidia-smi topo -m, two GPUs with NV2": "two_nv2.txt",
    "nvidia-smi topo -m, two GPUs over the host bridge": "two_phb.txt",
    "nvidia-smi topo -m, eight A100": "8_a100.txt",
    "nvidia-smi topo -m, eight H100": "8_h100.txt --gpu h100",
    "nvidia-smi topo -m, a DGX-1's cube mesh": "dgx1_v100.txt",
    "rocm-smi --showtopo": "rocm-smi.txt",
    "lstopo XML (hwloc)": "lstopo.xml",
    "NCCL's topology XML": "nccl.xml",
    "scontrol show topology": "slurm.txt",
}


def _priced(ranks: int) -> str:
    return f"meshwright collectives price --ranks {ranks} --bytes 64M --rate 300GB/s --alpha 5us"


CHAPTERS = (
    Chapter(
        "Collectives",
        tuple(
            Entry(name, f"meshwright collectives draw {algorithm} --collective {kind} --ranks 4" + extra)
            for name, (kind, algorithm) in PRIMITIVES.items()
            for extra in (" --target 1" if kind in {"send", "signal"} else "",)
        ),
        "Drawn for four ranks; every algorithm of each is in `meshwright collectives list`.",
    ),
    Chapter(
        "Ways of all-reduce",
        (
            *(Entry(name, f"meshwright collectives show {key} --ranks 4") for name, key in WAYS.items()),
            Entry("Hierarchical", "meshwright collectives show hierarchical:ring/ring:2 --ranks 4"),
            Entry("Every way proved", "meshwright collectives verify ring --ranks 8"),
            Entry("Every way priced", _priced(8)),
            Entry(
                "Bus bandwidth, fits and verdicts of a measured table",
                "meshwright bench --from saved.txt --node dgx-a100-80g",
            ),
        ),
    ),
    Chapter(
        "Links inside a node",
        tuple(Entry(name, f"meshwright topo --catalogue interconnects {key}") for name, key in INSIDE.items()),
    ),
    Chapter("Switches between GPUs", (Entry("NVSwitch", "meshwright topo --catalogue switches"),)),
    Chapter(
        "Fabrics between nodes",
        tuple(Entry(name, f"meshwright topo --catalogue networks {key}") for name, key in BETWEEN.items()),
    ),
    Chapter(
        "Machines and accelerators",
        (
            Entry("Accelerators", "meshwright topo --catalogue accelerators a100"),
            Entry("Nodes side by side", "meshwright topo --catalogue --compare dgx-a100-80g dgx-a800"),
            Entry("Traps in published figures", "meshwright topo --catalogue traps"),
        ),
    ),
    Chapter(
        "Finding out what a machine has",
        (
            *(Entry(name, f"meshwright topo --from {file}") for name, file in DUMPS.items()),
            Entry("What is set up badly, and why each check matters", "meshwright doctor --list"),
        ),
        "Without `--from`, `meshwright topo` reads this machine from sysfs (PCIe, NUMA, InfiniBand), NVML, AMD's KFD "
        "and netlink, and names NCCL's net plugins on the library path.",
    ),
)
