"""Topology dumps of nvidia-smi, rocm-smi, NCCL and SLURM, written by generators that know the right graph."""

from collections.abc import Sequence
from dataclasses import dataclass, field

Code = dict[tuple[int, int], str]
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
SLURM = """SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=gpu[00-15]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[16-31]
SwitchName=spine0 Level=1 LinkSpeed=1 Nodes=gpu[00-31] Switches=leaf[0-1]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=cpu[1,3,5-7]
SwitchName=core Level=2 LinkSpeed=1 Nodes=gpu[00-31],cpu[1,3,5-7] Switches=spine0,leaf2
"""


@dataclass(frozen=True)
class Sample:
    """A dump's text and what must come out of it."""

    name: str
    text: str
    names: tuple[str, ...]
    codes: Code
    cpus: tuple[str | None, ...] = ()
    numa: tuple[int | None, ...] = ()
    rates: dict[str, float | None] = field(default_factory=dict)  # GB/s by kind of link


def matrix_text(
    names: Sequence[str],
    codes: Code,
    cpus: Sequence[str | None],
    numa: Sequence[int | None],
    *,
    numa_column: bool = True,
    gpu_numa_column: bool = False,
    separator: str = "\t",
    indent: str = "",
    legend: str = LEGEND,
) -> str:
    """Write a matrix as nvidia-smi does."""
    titles = [
        "CPU Affinity",
        *(["NUMA Affinity"] if numa_column else []),
        *(["GPU NUMA ID"] if gpu_numa_column else []),
    ]
    lines = [indent + separator + separator.join([*names, *titles])]
    for i, name in enumerate(names):
        cells = [" X " if i == j else codes[min(i, j), max(i, j)] for j in range(len(names))]
        if name.startswith("GPU"):
            cells.append(cpus[i] or "N/A")
            if numa_column:
                cells.append("N/A" if numa[i] is None else str(numa[i]))
            if gpu_numa_column:
                cells += ["", "N/A"] if separator == "\t" else ["N/A"]
        lines.append(indent + separator.join([name, *cells]))
    return "\n".join(lines) + "\n" + legend


def every_pair(count: int, code: str) -> Code:
    return {(i, j): code for i in range(count) for j in range(i + 1, count)}


def gpu_names(count: int) -> tuple[str, ...]:
    return tuple(f"GPU{i}" for i in range(count))


def sample(
    name: str,
    names: Sequence[str],
    codes: Code,
    cpus: Sequence[str | None],
    numa: Sequence[int | None],
    rates: dict[str, float | None],
    **style: object,
) -> Sample:
    right = numa if style.get("numa_column", True) else [None] * len(numa)
    text = matrix_text(names, codes, cpus, numa, **style)  # type: ignore[arg-type]
    return Sample(name, text, tuple(names), codes, tuple(cpus), tuple(right), rates)


def halves(count: int, first: str, second: str) -> tuple[list[str | None], list[int | None]]:
    half = count // 2
    return [first] * half + [second] * (count - half), [0] * half + [1] * (count - half)


def cube_mesh(weights: dict[int, str]) -> Code:
    """The hybrid cube mesh of DGX-1; pairs without a link cross the sockets."""
    bonds = {
        **{(0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2},
        **{(2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2},
    }
    return {pair: weights[bonds[pair]] if pair in bonds else "SYS" for pair in every_pair(8, "")}


def nested_pairs(pair_code: str, quad_code: str, far_code: str) -> Code:
    """Eight GPUs: neighbours two by two, then four by four, then the rest."""
    return {
        (i, j): pair_code if i // 2 == j // 2 else quad_code if i // 4 == j // 4 else far_code
        for i, j in every_pair(8, "")
    }


def with_nics(gpus: int, nics: Sequence[str], gpu_code: str, near: dict[int, int]) -> tuple[tuple[str, ...], Code]:
    """GPUs joined by one code; NIC i is behind the switch of GPU `near[i]`, everything else by half of the machine."""
    names = (*gpu_names(gpus), *nics)
    codes = every_pair(gpus, gpu_code)
    half = gpus // 2
    for n in range(len(nics)):
        for g in range(gpus):
            same = (near[n] < half) == (g < half)
            codes[g, gpus + n] = "PIX" if near[n] == g else "NODE" if same else "SYS"
        for m in range(n + 1, len(nics)):
            codes[gpus + n, gpus + m] = "NODE" if (near[n] < half) == (near[m] < half) else "SYS"
    return names, codes


def references() -> list[Sample]:
    """Section 7 of the reference notes."""
    a100 = halves(8, "0-23", "24-47")
    h100 = halves(8, "0-51", "52-103")
    return [
        sample("two_nv2", gpu_names(2), every_pair(2, "NV2"), ["0-23"] * 2, [None] * 2, {"NV2": 50}),
        sample("two_phb", gpu_names(2), every_pair(2, "PHB"), ["0-11"] * 2, [None] * 2, {"PHB": None}),
        sample("8_a100", gpu_names(8), every_pair(8, "NV12"), *a100, {"NV12": 300}),
        sample("8_h100", gpu_names(8), every_pair(8, "NV18"), *h100, {"NV18": None}),
    ]


def layouts() -> list[Sample]:
    """More, after real machines: old and new columns, NICs by name and by number, tabs and blanks, colours, wraps."""
    numbered, numbered_codes = with_nics(8, [f"NIC{i}" for i in range(8)], "NV18", {i: i for i in range(8)})
    named, named_codes = with_nics(8, [f"mlx5_{i}" for i in range(4)], "NV12", {0: 0, 1: 2, 2: 4, 3: 6})
    legend = LEGEND + "\nNIC Legend:\n\n" + "".join(f"  NIC{i}: mlx5_{i}\n" for i in range(8))
    pad: list[str | None] = [None] * 8
    h100_cpus, h100_numa = halves(8, "0-51,104-155", "52-103,156-207")
    a100_cpus, a100_numa = halves(8, "48-63,176-191", "112-127,240-255")
    v100_cpus, v100_numa = halves(8, "0-19,40-59", "20-39,60-79")
    dgx2_cpus, dgx2_numa = halves(16, "0-23,48-71", "24-47,72-95")
    four_cpus, four_numa = halves(4, "0-15", "16-31")
    ring = every_pair(4, "SYS") | {(0, 1): "NV4", (1, 2): "NV4", (2, 3): "NV4", (0, 3): "NV4"}
    pcie = {
        pair: "PIX" if pair[0] // 2 == pair[1] // 2 else "PXB" if pair[0] // 4 == pair[1] // 4 else "SYS"
        for pair in every_pair(8, "")
    }
    bridges = {
        pair: "NV12" if pair[0] // 2 == pair[1] // 2 else "NODE" if pair[0] // 4 == pair[1] // 4 else "SYS"
        for pair in every_pair(8, "")
    }
    h100_nic = sample(
        "h100_nic_numbers", numbered, numbered_codes, [*h100_cpus, *pad], [*h100_numa, *h100_numa],
        {"NV18": None, "PIX": None}, gpu_numa_column=True, legend=legend,
    )  # fmt: skip
    a100_nic = sample(
        "a100_nic_names",
        named,
        named_codes,
        [*a100_cpus, *pad[:4]],
        [*a100_numa, 0, 0, 1, 1],
        {"NV12": 300, "SYS": None},
    )
    v100 = sample(
        "dgx1_v100", gpu_names(8), cube_mesh({1: "NV1", 2: "NV2"}), v100_cpus, v100_numa,
        {"NV1": 25, "NV2": 50}, numa_column=False,
    )  # fmt: skip
    return [
        h100_nic,
        a100_nic,
        v100,
        sample(
            "dgx1_p100",
            gpu_names(8),
            cube_mesh({1: "NV1", 2: "NV1"}),
            v100_cpus,
            v100_numa,
            {"NV1": 20},
            numa_column=False,
        ),
        sample("dgx2", gpu_names(16), every_pair(16, "NV6"), dgx2_cpus, dgx2_numa, {"NV6": 150}),
        sample("a800", gpu_names(8), every_pair(8, "NV8"), a100_cpus, a100_numa, {"NV8": 200}),
        sample("ring_of_4", gpu_names(4), ring, four_cpus, four_numa, {"NV4": 100, "SYS": None}, separator="    "),
        sample("pcie_switches", gpu_names(8), pcie, v100_cpus, v100_numa, {"PIX": None, "SYS": None}, separator="  "),
        sample("bridged_pairs", gpu_names(8), bridges, h100_cpus, h100_numa, {"NV12": 300}, indent="    "),
        sample(
            "station_mesh",
            gpu_names(4),
            every_pair(4, "NV4"),
            ["0-63"] * 4,
            [0] * 4,
            {"NV4": 100},
            gpu_numa_column=True,
        ),
        sample("no_legend", gpu_names(4), every_pair(4, "NV18"), four_cpus, four_numa, {"NV18": None}, legend=""),
        sample(
            "power9",
            gpu_names(4),
            every_pair(4, "SYS") | {(0, 1): "NV3", (2, 3): "NV3"},
            four_cpus,
            four_numa,
            {"NV3": 75},
        ),
        coloured(a100_nic),
        wrapped(h100_nic, 100),
        old_names(),
        with_listing(),
        Sample(
            "prompt_before",
            "$ nvidia-smi topo -m\n" + a100_nic.text,
            a100_nic.names,
            a100_nic.codes,
            a100_nic.cpus,
            a100_nic.numa,
            a100_nic.rates,
        ),
    ]


def coloured(base: Sample) -> Sample:
    """The header underlined, as nvidia-smi prints it on a terminal."""
    header, rest = base.text.split("\n", 1)
    words = header.split("\t")
    marked = "\t".join(f"\x1b[4m{word}\x1b[0m" if word else word for word in words)
    return Sample("coloured", f"{marked}\n{rest}", base.names, base.codes, base.cpus, base.numa, base.rates)


def wrapped(base: Sample, width: int) -> Sample:
    """Long lines broken at blanks, as a mail program does."""
    import textwrap

    lines = []
    for line in base.text.expandtabs(8).splitlines():
        lines += textwrap.wrap(line, width, drop_whitespace=False) or [""]
    return Sample("wrapped", "\n".join(lines), base.names, base.codes, base.cpus, base.numa, base.rates)


def old_names() -> Sample:
    """A driver of 2016: SOC for what is SYS today, one affinity column."""
    codes = every_pair(4, "SOC") | {(0, 1): "PHB", (2, 3): "PHB"}
    made = sample("soc", gpu_names(4), codes, *halves(4, "0-9", "10-19"), {"PHB": None}, numa_column=False)
    new = {pair: "SYS" if code == "SOC" else code for pair, code in codes.items()}
    return Sample("soc", made.text, made.names, new, made.cpus, made.numa, made.rates)


def with_listing() -> Sample:
    """The output of nvidia-smi -L before the matrix: it says which GPU it is, and that one is split."""
    listing = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i:032x})\n" for i in range(8))
    listing += "  MIG 1g.10gb     Device  0: (UUID: MIG-1234)\n"
    made = references()[3]
    return Sample("with_listing", listing + made.text, made.names, made.codes, made.cpus, made.numa, {"NV18": 450})


def rocm(kind: str = "XGMI", hops: str = "1", gpus: int = 4) -> str:
    def table(title: str, cell: str, self_cell: str = "0") -> str:
        names = [f"GPU{i}" for i in range(gpus)]
        rows = [f"{a}   " + "".join(f"{self_cell if a == b else cell:<13}" for b in names) for a in names]
        return f"{f' {title} ':=^80}\n       " + "".join(f"{n:<13}" for n in names) + "\n" + "\n".join(rows) + "\n\n"

    numa = "".join(
        f"GPU[{i}]\t\t: (Topology) Numa Node: {i // 2}\nGPU[{i}]\t\t: (Topology) Numa Affinity: {i // 2}\n"
        for i in range(gpus)
    )
    return (
        f"\n{' ROCm System Management Interface ':=^80}\n"
        + table("Weight between two GPUs", "15")
        + table("Hops between two GPUs", hops)
        + table("Link Type between two GPUs", kind)
        + f"{' Numa Nodes ':=^80}\n{numa}{' End of ROCm SMI Log ':=^80}\n"
    )


def nccl(sm: int = 80, count: int = 12, *, switched: bool = True, gpus: int = 4) -> str:
    """Two sockets, on each a PCIe switch with two GPUs and a NIC, as NCCL writes it."""
    cpus = []
    for numa, (low, affinity) in enumerate([(0, "0000ffff"), (gpus // 2, "ffff0000")]):
        parts = []
        for dev in range(low, low + gpus // 2):
            if switched:
                links = f'<nvlink target="0000:c{dev}:00.0" count="{count}" tclass="0x068000"/>'
            else:
                peers = [d for d in range(gpus) if d != dev]
                links = "".join(f'<nvlink target="0000:0{p}:00.0" count="{count}" tclass="0x030200"/>' for p in peers)
            parts.append(
                f'<pci busid="0000:0{dev}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
                f'<gpu dev="{dev}" sm="{sm}" rank="{dev}" gdr="1">{links}</gpu></pci>'
            )
        parts.append(
            f'<pci busid="0000:1{numa}:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">'
            f'<nic><net name="mlx5_{numa}" dev="{numa}" speed="200000" port="1" guid="0x1" gdr="1"/>'
            "</nic></pci>"
        )
        cpus.append(
            f'<cpu numaid="{numa}" affinity="{affinity}" arch="x86_64" vendor="AuthenticAMD" familyid="143">'
            f'<pci busid="0000:f{numa}:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">'
            f"{''.join(parts)}</pci></cpu>"
        )
    return f'<system version="1">{"".join(cpus)}</system>'
