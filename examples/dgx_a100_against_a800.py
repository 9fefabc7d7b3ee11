"""Two servers of eight GPUs, tensor parallel inside and pipeline between: DGX A100 against its A800 variant.

    python examples/dgx_a100_against_a800.py

A rule of thumb says that NVLink must be 2(P-1)/P = 1.75 times the node's network so as not to be the bottleneck. You
see the rule (A100 passes with its 300 GB/s over a measured 160, A800 with 200 over 160 fails), and what the full model
says: how much longer a step takes, and that the difference is tensor-parallel communication.
"""

from meshwright.hardware import load_catalogue
from meshwright.hardware.arithmetic import gpu_link, intra_node_ratio_needed
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.units import format_rate, format_time
from meshwright.workload.models import load_model

NETWORK_BYTES_PER_S = 160e9  # measured on DGX A100, of 200 by the spec


def main() -> None:
    catalogue, layout = load_catalogue(), Layout(tp=8, pp=2, sp=1)
    needed = intra_node_ratio_needed(8)
    found = {}
    for name in ("dgx-a100-80g", "dgx-a800"):
        link = gpu_link(catalogue, catalogue.node(name))
        ratio = link.rate_bytes_per_s / NETWORK_BYTES_PER_S
        print(
            f"{name:<13} NVLink {format_rate(link.rate_bytes_per_s)} over {format_rate(NETWORK_BYTES_PER_S)}: "
            f"{ratio:.3f}, the rule asks for {needed:.2f}: {'fine' if ratio >= needed else 'bound by NVLink'}"
        )
        setting = Setting(
            architecture=load_model("megatron-22b").architecture, cluster=cluster_by_name(catalogue, name, 16), gpus=16,
            global_batch=16, seq_len=2048, inter_bytes_per_s=NETWORK_BYTES_PER_S,
        )  # fmt: skip
        found[name] = price_layouts(setting, Grid.of([layout]))
    a100, a800 = found.values()
    for name, prices in found.items():
        print(
            f"{name:<13} {layout}: step {format_time(float(prices.step_time_s[0]))}, of it tensor-parallel "
            f"communication {format_time(float(prices.tensor_comm_s[0]))}"
        )
    longer = float(a800.step_time_s[0] - a100.step_time_s[0])
    tensor = float(a800.tensor_comm_s[0] - a100.tensor_comm_s[0])
    print(
        f"A800 takes {longer / float(a100.step_time_s[0]):.1%} longer; tensor-parallel communication explains "
        f"{format_time(tensor)} of {format_time(longer)}"
    )


if __name__ == "__main__":
    main()
