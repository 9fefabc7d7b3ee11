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
    "NVLink 4": "nvlink-4", "NVLink 4, cut": "nvlink-4-cut", "NVLink 5": "nvlink-5", "NVLink-C2C": "nvlink-c2c",
    "NVLink 2 over a bridge": "nvlink-2-bridge", "NVLink 3 over a bridge": "nvlink-3-bridge",
    "NVLink 3, A30": "nvlink-3-a30",
    "NVLink 4 over a bridge": "nvlink-4-bridge", "NVLink 6": "nvlink-6", "NVLink-C2C, shared": "nvlink-c2c-shared",
    "xGMI, MI50": "xgmi-mi50", "xGMI, MI100": "xgmi-mi100", "xGMI, MI210": "xgmi-mi210",
    "xGMI, MI250X": "xgmi-mi250x", "xGMI, one die of MI250X": "xgmi-mi200-gcd", "xGMI, MI300A": "xgmi-mi300a",
    "xGMI, MI300X": "xgmi-mi300x", "xGMI, MI350X": "xgmi-mi350", "Gaudi2": "gaudi2", "Gaudi 3": "gaudi3",
    "TPU v4": "ici-v4", "TPU v5e": "ici-v5e", "TPU v5p": "ici-v5p", "TPU v6e": "ici-v6e", "TPU7x": "ici-v7",
    "NeuronLink 2": "neuronlink-2", "NeuronLink 3": "neuronlink-3", "NeuronLink 3, UltraServer": "neuronlink-3-ultra",
    "NeuronLink 4": "neuronlink-4",
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
    "nvidia-smi topo -m with nvlink -s": "matrix.txt --from links.txt",
    "rocm-smi --showtopo": "rocm-smi.txt",
    "lstopo XML (hwloc)": "lstopo.xml",
    "NCCL's topology XML": "nccl.xml",
    "scontrol show topology": "slurm.txt",
    "sysfs: PCIe, NUMA, InfiniBand rates, network interfaces": "sysfs --gpu h100",
}
ACCELERATORS = {
    "V100": "v100", "A100": "a100", "A800": "a800", "H100": "h100", "H200": "h200", "B200": "b200", "B300": "b300",
    "MI250X": "mi250x", "MI300X": "mi300x", "MI350X": "mi35", "Gaudi2": "gaudi", "Rubin": "rubin", "TPU": "tpu",
    "Trainium": "trainium",
}  # fmt: skip
FABRICS = {
    "Flat: one switch": "flat",
    "Fat-tree": "fat-tree --nodes-per-leaf 2",
    "Fat-tree, oversubscribed": "fat-tree --nodes-per-leaf 2 --oversubscription 4",
    "Rail-optimised fat-tree": "rail-optimised --nodes-per-leaf 4",
    "Dragonfly": "dragonfly --nodes-per-leaf 2 --leaves-per-group 2",
    "Torus": "torus",
}
PLUGINS = (
    "from meshwright.cluster.discovery.plugins import net_plugins; "
    "print(*net_plugins({'LD_LIBRARY_PATH': 'plugins'}, ()), sep='\\n')"
)


SMALL = "--model llama3-8b --cluster dgx-h200 --gpus 8 --global-batch 64"
MODEL = "--model llama3-70b --cluster dgx-h100 --gpus 256 --global-batch 512"
PARALLEL = {
    "Data parallel, synchronous": (SMALL, "dp=8", "Every rank holds the model; gradients are summed, and all "
        "wait for all (BSP)."),
    "Fully sharded, ZeRO-1": (MODEL, "tp=8,pp=2,sp=1,zero=1", "Optimiser state is sharded over data-parallel ranks."),
    "Fully sharded, ZeRO-2": (MODEL, "tp=8,pp=2,sp=1,zero=2", "Gradients too."),
    "Fully sharded, ZeRO-3": (MODEL, "tp=8,sp=1,zero=3", "Parameters too, gathered when needed: 3N bytes, not 2N."),
    "Pipeline, GPipe": (MODEL, "tp=8,pp=4,sp=1,zero=1,schedule=gpipe", "All forwards, then all backwards."),
    "Pipeline, 1F1B": (MODEL, "tp=8,pp=4,sp=1,zero=1,schedule=1f1b", "Bubble (p-1)/m, p micro-batches in flight."),
    "Pipeline, interleaved": (MODEL, "tp=8,pp=4,vpp=2,sp=1,zero=1,schedule=interleaved", "Bubble (p-1)/(v m)."),
    "Pipeline, zero-bubble": (MODEL, "tp=8,pp=4,sp=1,zero=1,schedule=zb", "The weights' gradients fill the bubble."),
    "Tensor parallel": (MODEL, "tp=8,zero=1", "Each layer cut over the GPUs of a node."),
    "Sequence parallel": (MODEL, "tp=8,sp=1,zero=1", "What tensor parallelism leaves whole is cut along the sequence."),
    "Context parallel": (MODEL, "tp=8,cp=2,sp=1,zero=1", "The sequence cut over ranks, keys and values passed round."),
    "Expert parallel": (
        "--model mixtral-8x7b --cluster dgx-h100 --gpus 64 --global-batch 256", "tp=2,sp=1,ep=8,zero=1", "Experts over "
        "ranks, tokens sent to them."),
    "Hybrid": (MODEL, "tp=8,pp=4,dp=8,sp=1,zero=1", "Tensor inside a node, pipeline and data between nodes."),
    "Recomputation": (MODEL, "tp=8,pp=4,sp=1,zero=1,recompute=full", "Forward twice: 4 passes' FLOPs instead of 3."),
}  # fmt: skip
SIZING = {
    "FLOPs of a step, MFU, memory of the state, gradient traffic in a node": "--params 2B --seq-len 2048 "
    "--global-batch 16 --gpus 8 --cluster dgx-a100-80g --recompute full",
    "Between nodes: 200 Gb/s": "--params 2B --seq-len 2048 --global-batch 64 --gpus 32 --cluster dgx-a100-80g "
    "--inter 200Gbps --recompute full",
    "Between nodes: 400 Gb/s": "--params 2B --seq-len 2048 --global-batch 64 --gpus 32 --cluster dgx-a100-80g "
    "--inter 400Gbps --recompute full",
    "The same on H100": "--params 2B --seq-len 2048 --global-batch 16 --gpus 8 --cluster dgx-h100 --recompute full",
    "A token budget, and a layer that must be cut": "--params 1.8T --tokens 13T --layers 120 --seq-len 2048 "
    "--global-batch 1 --gpus 1 --cluster dgx-a100-80g --mfu 1",
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
        "Run on live ranks",
        (Entry("Every collective and every reduction", "python examples/every_collective.py"),),
        "Over the backend `meshwright`, which any `torch.distributed` program can use.",
    ),
    Chapter(
        "Ways of all-reduce",
        (
            *(Entry(name, f"meshwright collectives show {key} --ranks 4") for name, key in WAYS.items()),
            Entry("Hierarchical", "meshwright collectives show hierarchical:ring/ring:2 --ranks 4"),
            Entry("A way proved", "meshwright collectives verify ring --ranks 8"),
            Entry("Every way priced", _priced(8)),
            Entry(
                "A parameter server that is the bottleneck",
                "meshwright collectives price parameter_server --ranks 256 --bytes 102.2MB --rate 50GB/s --alpha 1us",
                "256 workers with ResNet-50's 25.557 M gradients: three times a second would need a third of a second.",
            ),
            Entry(
                "Why payloads are fused into buckets",
                "meshwright collectives price ring --ranks 8 --bytes 4MB,4GB --rate 300GB/s --alpha 5us",
            ),
            Entry(
                "Bus bandwidth, fits and verdicts of a measured table",
                "meshwright bench --from saved.txt --node dgx-a100-80g",
            ),
        ),
    ),
    Chapter(
        "Ways to parallelise",
        (
            *(
                Entry(name, f"meshwright plan {setting} --layout {layout}", about)
                for name, (setting, layout, about) in PARALLEL.items()
            ),
            Entry(
                "Data parallel, asynchronous, local and compressed",
                "python examples/data_parallel_modes.py",
                "A parameter server with bounded staleness, local SGD, DiLoCo, and gradients compressed to int8 or by "
                "PowerSGD: `meshwright train --set data_parallel.mode=...`, each run here on two ranks.",
                lasts=True,
            ),
            Entry(
                "Graph fusion",
                f"meshwright plan {SMALL} --layout tp=2,pp=2,dp=2,sp=1 --graph step.svg",
                "Neighbours in the graph merge: operators of a layer into one compiled kernel inside a device "
                "(`train.compile`), gradients into buckets between devices, drawn with one colour underneath.",
            ),
            Entry("Linear scaling as the yardstick", f"meshwright plan {MODEL} --scaling fixed"),
            Entry("Every legal layout, ranked", f"meshwright plan {MODEL}"),
            Entry(
                "Solved backwards: the network that a utilisation needs", f"meshwright plan {MODEL} --target-mfu 0.4"
            ),
        ),
    ),
    Chapter(
        "Sizing arithmetic",
        (
            *(Entry(name, f"meshwright plan {words}") for name, words in SIZING.items()),
            Entry(
                "The gradients of 80 B parameters once over 200 Gb/s",
                "meshwright collectives price direct --collective send --ranks 2 --bytes 320GB --rate 200Gbps "
                "--alpha 0s",
            ),
            Entry(
                "The same over 1600 Gb/s",
                "meshwright collectives price direct --collective send --ranks 2 --bytes 320GB --rate 1600Gbps "
                "--alpha 0s",
            ),
            Entry("2(P-1)/P: NVLink against the network, A100 and A800", "python examples/dgx_a100_against_a800.py"),
        ),
    ),
    Chapter(
        "Simulated",
        (
            Entry(
                "An all-reduce on the flows of a cluster's links",
                "meshwright simulate --collective all_reduce --algorithm ring --ranks 64 --bytes 1GiB "
                "--cluster dgx-h100",
            ),
            Entry(
                "The same, hierarchical",
                "meshwright simulate --collective all_reduce --algorithm hierarchical:ring/ring --ranks 64 "
                "--ranks-per-node 8 --bytes 1GiB --cluster dgx-h100",
            ),
            *(
                Entry(
                    name,
                    "meshwright simulate --collective all_reduce --algorithm halving_doubling --ranks 64 --bytes 1GiB "
                    f"--cluster dgx-h100 --fabric {fabric}",
                )
                for name, fabric in FABRICS.items()
            ),
            Entry(
                "A training step, rank by rank",
                "meshwright simulate --model llama3-8b --layout tp=8,pp=2,dp=2,mbs=1 --gpus 32 --global-batch 64 "
                "--seq-len 4096 --cluster dgx-h100 --fabric rail-optimised",
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
        (
            *(Entry(name, f"meshwright topo --catalogue networks {key}") for name, key in BETWEEN.items()),
            Entry("Topologies", "meshwright topo --catalogue fabrics", "What a step makes of each is simulated above."),
        ),
    ),
    Chapter(
        "Machines and accelerators",
        (
            *(
                Entry(title, f"meshwright topo --catalogue accelerators {words}")
                for title, words in ACCELERATORS.items()
            ),
            Entry("Hardware of one's own", "meshwright topo --hardware own.toml --catalogue accelerators own"),
            Entry("Nodes side by side", "meshwright topo --catalogue --compare dgx-a100-80g dgx-a800"),
            Entry("Traps in published figures", "meshwright topo --catalogue traps"),
        ),
    ),
    Chapter(
        "Finding out what a machine has",
        (
            *(Entry(name, f"meshwright topo --from {file}") for name, file in DUMPS.items()),
            Entry("NCCL's net plugins", f'python -c "{PLUGINS}"'),
            Entry("What is set up badly, and why each check matters", "meshwright doctor --list"),
        ),
        "Without `--from`, `meshwright topo` reads this machine from sysfs (PCIe, NUMA, InfiniBand), NVML, AMD's KFD "
        "and netlink, and names NCCL's net plugins on the library path.",
    ),
)
