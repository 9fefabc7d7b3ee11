"""Machines of the catalogue written as the dumps of five tools, healthy and with faults.

A machine has two sockets. Each GPU shares a PCIe switch with its NIC, mlx5_0 beside GPU0 and so on; all switches of a
socket hang on one host bridge.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from meshwright.hardware import Accelerator, load_catalogue

CATALOGUE = load_catalogue()
GENERATION = {"pcie-3": "8.0", "pcie-4": "16.0", "pcie-5": "32.0", "pcie-6": "64.0"}
SECONDS = {"pcie-3": 8, "pcie-4": 16, "pcie-5": 32, "pcie-6": 64}
Pair = tuple[int, int]


@dataclass(frozen=True)
class Machine:
    """What the generators write. `links` are the own links of each pair, `up` those of each GPU to its switches."""

    name: str
    models: tuple[str, ...]  # a key of the catalogue for each GPU
    links: dict[Pair, int]
    up: tuple[int, ...] = ()  # behind a switch
    nic_socket: tuple[int, ...] = ()  # of each NIC; the one of its GPU is right
    lanes: tuple[int, ...] = ()  # of each GPU
    hidden: bool = False  # a virtual machine that shows every device below one bridge
    nics: tuple[int, ...] = field(default=())  # the GPUs that have one

    @property
    def count(self) -> int:
        return len(self.models)

    def accelerator(self, gpu: int) -> Accelerator:
        return CATALOGUE.accelerators[self.models[gpu]]

    def link(self, gpu: int) -> float:
        """GB/s of one own link."""
        own = self.accelerator(gpu).link
        return CATALOGUE.interconnect(own).link_bytes_per_s / 1e9 if own else 0.0

    def socket(self, gpu: int) -> int:
        return 0 if self.hidden else gpu * 2 // self.count

    def own(self, i: int, j: int) -> int:
        """Own links of a pair: to switches as many as the lesser of both has."""
        if self.up:
            return min(self.up[i], self.up[j])
        return self.links.get((min(i, j), max(i, j)), 0)

    def code(self, a: str, b: str) -> str:
        """The code of nvidia-smi between two devices, "GPU0" or "mlx5_0"."""
        i, j = (int(x.strip("GPUmlx").split("_")[-1]) for x in (a, b))
        sockets = [self.socket(n) if x.startswith("GPU") else self.nic_socket[n] for x, n in ((a, i), (b, j))]
        if a.startswith("GPU") and b.startswith("GPU") and self.own(i, j):
            return f"NV{self.own(i, j)}"
        if self.hidden:
            return "PHB"
        if i == j and sockets[0] == sockets[1] and self.nic_socket[i] == self.socket(i):
            return "PIX"
        return "PHB" if sockets[0] == sockets[1] else "SYS"


def machine(name: str) -> Machine:
    """A healthy machine of a node type of the catalogue."""
    node = CATALOGUE.node(name)
    count = round(node.gpus.number)
    key = node.accelerator
    accelerator = CATALOGUE.accelerators[key]
    link = CATALOGUE.interconnect(accelerator.link) if accelerator.link else None
    total = round(link.links.number) if link else 0
    links = {(a, b): n for a, b, n in node.mesh}
    if not node.switch and not links and link:
        share = round(link.peer_rate.number / link.link_bytes_per_s) if link.peer_rate else total // (count - 1)
        links = dict.fromkeys(itertools.combinations(range(count), 2), share)
    return Machine(
        name=name,
        models=(key,) * count,
        links=links,
        up=(total,) * count if node.switch else (),
        nic_socket=tuple(i * 2 // count for i in range(count)),
        lanes=(16,) * count,
        nics=tuple(range(count)),
    )


def bus(m: Machine, number: int, *, nic: bool = False) -> str:
    return f"{m.nic_socket[number] if nic else m.socket(number):04x}:{0x10 + number * 8 + (1 if nic else 0):02x}:00.0"


def names(m: Machine) -> list[str]:
    return [*(f"GPU{i}" for i in range(m.count)), *(f"mlx5_{i}" for i in m.nics)]


def as_matrix(m: Machine) -> str:
    """nvidia-smi -L and topo -m."""
    listing = [
        f"GPU {i}: {m.accelerator(i).aliases[0]} (UUID: GPU-{i:08x}-0000-0000-0000-000000000000)"
        for i in range(m.count)
    ]
    header = "\t" + "\t".join([*names(m), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    rows = []
    for a in names(m):
        cells = [" X " if a == b else m.code(a, b) for b in names(m)]
        if a.startswith("GPU"):
            socket = m.socket(int(a[3:]))
            cells += [f"{socket * 32}-{socket * 32 + 31}", str(socket), "", "N/A"]
        rows.append("\t".join([a, *cells]))
    return "\n".join([*listing, header, *rows, "", "Legend:", "", "  X    = Self", ""])


def as_nccl(m: Machine) -> str:
    cpus = []
    for socket in (0, 1):
        inside = "".join(_nccl_gpu(m, i) for i in range(m.count) if m.socket(i) == socket)
        inside += "".join(_nccl_nic(m, i) for i in m.nics if m.nic_socket[i] == socket and m.socket(i) != socket)
        if inside:
            mask = "00000000,ffffffff" if socket == 0 else "ffffffff,00000000"
            cpus.append(f'<cpu numaid="{socket}" affinity="{mask}" arch="x86_64" vendor="GenuineIntel">{inside}</cpu>')
    return f'<system version="1">{"".join(cpus)}</system>'


def _speed(m: Machine, gpu: int, lanes: int = 16) -> str:
    return f'link_speed="{GENERATION[m.accelerator(gpu).host_link]} GT/s PCIe" link_width="{lanes}"'


def _nccl_gpu(m: Machine, i: int) -> str:
    a = m.accelerator(i)
    vendor, device = a.pci_ids[0].split(":")
    amd = a.vendor == "amd"
    tag, kind = ("xgmi", "0x120000") if amd else ("nvlink", "0x030200")
    if m.up:
        own = f'<nvlink target="fffffff:ffff:ff" count="{m.up[i]}" tclass="0x068000"/>' if m.up[i] else ""
    else:
        own = "".join(
            f'<{tag} target="{bus(m, j)}" count="{m.own(i, j)}" tclass="{kind}"/>'
            for j in range(m.count)
            if j != i and m.own(i, j)
        )
    what = f'sm="94" gcn="{a.architecture}"' if amd else f'sm="{a.architecture[2:]}"'
    pci_class = "0x120000" if amd else "0x030200"
    gpu = (
        f'<pci busid="{bus(m, i)}" class="{pci_class}" vendor="0x{vendor}" device="0x{device}" '
        f'{_speed(m, i, m.lanes[i])}><gpu dev="{i}" {what} rank="{i}" gdr="1">{own}</gpu></pci>'
    )
    if m.hidden:
        return gpu + (_nccl_nic(m, i) if i in m.nics else "")
    nic = _nccl_nic(m, i) if i in m.nics and m.nic_socket[i] == m.socket(i) else ""
    return f'<pci busid="{bus(m, i)[:7]}:1f.0" class="0x060400" {_speed(m, i)}>{gpu}{nic}</pci>'


def _nccl_nic(m: Machine, i: int) -> str:
    return (
        f'<pci busid="{bus(m, i, nic=True)}" class="0x020700" vendor="0x15b3" device="0x1021" {_speed(m, i)}>'
        f'<nic><net name="mlx5_{i}" dev="{i}" speed="400000" port="1" guid="0x{i}" gdr="1"/></nic></pci>'
    )


def as_hwloc(m: Machine) -> str:
    packages = []
    for socket in (0, 1):
        mask = "0x00000000,0xffffffff" if socket == 0 else "0xffffffff,0x00000000"
        where = f'os_index="{socket}" cpuset="{mask}" nodeset="0x0000000{socket + 1}"'
        pus = "".join(f'<object type="PU" os_index="{p}"/>' for p in range(32 * socket, 32 * socket + 32))
        inside = "".join(_hwloc_slot(m, i, socket) for i in range(m.count))
        bridge = f'<object type="Bridge" gp_index="{9000 + socket}" bridge_type="0-1">{inside}</object>'
        packages.append(
            f'<object type="Package" {where} gp_index="{8000 + socket}"><object type="NUMANode" {where} '
            f'local_memory="68719476736"/>{pus}{bridge if inside else ""}</object>'
        )
    machine_ = f'<object type="Machine" os_index="0" nodeset="0x00000003">{"".join(packages)}</object>'
    amd = m.accelerator(0).vendor == "amd"
    name = "XGMIBandwidth" if amd else "NVLinkBandwidth"
    values = [
        1_000_000 if i == j else (100_000 if amd else round(m.own(i, j) * m.link(i) * 1000)) if m.own(i, j) else 0
        for i in range(m.count)
        for j in range(m.count)
    ]
    matrix = (
        f'<distances2 type="OSDev" nbobjs="{m.count}" kind="25" name="{name}" indexing="gp">'
        f'<indexes length="1">{" ".join(str(100 + i) for i in range(m.count))}</indexes>'
        f'<u64values length="1">{" ".join(map(str, values))}</u64values></distances2>'
    )
    has = any(m.own(i, j) for i, j in itertools.combinations(range(m.count), 2))
    return f'<?xml version="1.0"?><topology version="2.0">{machine_}{matrix if has else ""}</topology>'


def _hwloc_slot(m: Machine, i: int, socket: int) -> str:
    def port(number: int, inside: str) -> str:
        return f'<object type="Bridge" gp_index="{number}" bridge_type="1-1" pci_link_speed="{rate}">{inside}</object>'

    giga = SECONDS[m.accelerator(i).host_link]
    rate = giga * 16 / 8 * (242 / 256 if giga == 64 else 128 / 130)
    pci_class = "1200" if m.accelerator(i).vendor == "amd" else "0302"
    gpu = (
        f'<object type="PCIDev" gp_index="{500 + i}" pci_busid="{bus(m, i)}" '
        f'pci_type="{pci_class} [{m.accelerator(i).pci_ids[0]}] [0000:0000] a1" '
        f'pci_link_speed="{rate * m.lanes[i] / 16}"><object type="OSDev" gp_index="{100 + i}" name="nvml{i}" '
        f'osdev_type="5" subtype="NVML"><info name="GPUModel" value="{m.accelerator(i).aliases[0]}"/></object></object>'
    )
    nic = (
        f'<object type="PCIDev" gp_index="{600 + i}" pci_busid="{bus(m, i, nic=True)}" '
        f'pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="{rate}">'
        f'<object type="OSDev" gp_index="{700 + i}" name="mlx5_{i}" osdev_type="3"/></object>'
    )
    has_gpu, has_nic = m.socket(i) == socket, i in m.nics and m.nic_socket[i] == socket
    if m.hidden:
        return (gpu + (nic if i in m.nics else "")) if socket == 0 else ""
    below = (port(2000 + i, gpu) if has_gpu else "") + (port(3000 + i, nic) if has_nic else "")
    number = 4000 + i if has_gpu else 5000 + i
    return port(number + 1000, port(number, below)) if below else ""


def as_rocm(m: Machine) -> str:
    def table(title: str, cell: dict[Pair, str]) -> str:
        ids = [f"GPU{i}" for i in range(m.count)]
        rows = [
            f"GPU{i}   " + "".join(f"{'0' if i == j else cell[min(i, j), max(i, j)]:<13}" for j in range(m.count))
            for i in range(m.count)
        ]
        return f"{f' {title} ':=^80}\n       " + "".join(f"{n:<13}" for n in ids) + "\n" + "\n".join(rows) + "\n\n"

    every = list(itertools.combinations(range(m.count), 2))
    series = "".join(f"GPU[{i}]\t\t: Card series:\t\t{m.accelerator(i).aliases[0]}\n" for i in range(m.count))
    numa = "".join(f"GPU[{i}]\t\t: (Topology) Numa Node: {m.socket(i)}\n" for i in range(m.count))
    return (
        f"{' ROCm System Management Interface ':=^80}\n{series}"
        + table("Weight between two GPUs", {(i, j): "15" if m.own(i, j) else "72" for i, j in every})
        + table("Hops between two GPUs", {(i, j): "1" if m.own(i, j) else "3" for i, j in every})
        + table("Link Type between two GPUs", {(i, j): "XGMI" if m.own(i, j) else "PCIE" for i, j in every})
        + f"{' Numa Nodes ':=^80}\n{numa}{' End of ROCm SMI Log ':=^80}\n"
    )


def as_xgmi(count: int, *, gbits: str = "512 Gb/s", apart: Sequence[Pair] = (), states: str = "") -> str:
    """Return the table of `amd-smi xgmi`; pairs that stand `apart` have no link, `states` stand below it."""
    buses = [f"0000:{16 * i + 5:02x}:00.0" for i in range(count)]

    def counters(i: int) -> str:
        own = ("N/A" if i == j or (min(i, j), max(i, j)) in apart else "1.25 GB" for j in range(count))
        return " ".join(f"{cell:<12}" for cell in own)

    rows = "".join(
        f"GPU{i}   {buses[i]}  32 Gb/s   {gbits:<15}XGMI\n Read        {counters(i)}\n Write       {counters(i)}\n"
        for i in range(count)
    )
    head = "       bdf           bit_rate  max_bandwidth  link_type  " + "".join(f"GPU{i}   " for i in range(count))
    return f"LINK METRIC TABLE:\n{head}\n{rows}\n{states}"


def as_amd_smi(m: Machine) -> str:
    ids = [bus(m, i) for i in range(m.count)]

    def table(title: str, itself: str, cell: dict[Pair, str]) -> str:
        lines = [f"{title} TABLE:", " " * 14 + "  ".join(ids)]
        for i, name in enumerate(ids):
            cells = [itself if i == j else cell[min(i, j), max(i, j)] for j in range(m.count)]
            lines.append(f"{name}  " + "  ".join(f"{c:<12}" for c in cells))
        return "\n".join(lines) + "\n\n"

    every = list(itertools.combinations(range(m.count), 2))
    rate = {(i, j): f"{m.own(i, j) * m.link(i) * 1000:.0f}" for i, j in every}
    return (
        table("WEIGHT", "0", {(i, j): "15" if m.own(i, j) else "72" for i, j in every})
        + table("HOPS", "0", {(i, j): "1" if m.own(i, j) else "3" for i, j in every})
        + table("LINK TYPE", "SELF", {(i, j): "XGMI" if m.own(i, j) else "PCIE" for i, j in every})
        + table("NUMA BW", "N/A", {p: f"{r}-{r}" if m.own(*p) else "N/A" for p, r in rate.items()})
    )


def as_sysfs(m: Machine, root: Path) -> Path:
    """A folder like /sys. Of own links it holds AMD's only, as the kernel shows them."""
    for socket in (0, 1):
        node = root / f"devices/system/node/node{socket}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(f"{socket * 32}-{socket * 32 + 31}\n")
        (node / "meminfo").write_text(f"Node {socket} MemTotal:       67108864 kB\n")
    for i in range(m.count):
        vendor, device = m.accelerator(i).pci_ids[0].split(":")
        kind = "0x120000" if m.accelerator(i).vendor == "amd" else "0x030200"
        _function(m, root, _path(m, i, m.socket(i), bus(m, i)), i, kind, vendor, device, m.lanes[i], m.socket(i))
        if i in m.nics:
            folder = _function(
                m,
                root,
                _path(m, i, m.nic_socket[i], bus(m, i, nic=True)),
                i,
                "0x020700",
                "15b3",
                "1021",
                16,
                m.nic_socket[i],
            )
            port = root / f"class/infiniband/mlx5_{i}/ports/1"
            port.mkdir(parents=True)
            (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
            (port / "link_layer").write_text("InfiniBand\n")
            (port.parents[1] / "device").symlink_to(folder)
        if m.accelerator(i).vendor == "amd":
            _kfd(m, root, i)
    return root


def _path(m: Machine, i: int, socket: int, name: str) -> str:
    top = f"pci{socket:04x}:00"
    if m.hidden:
        return f"{top}/{name}"
    port = f"{0x10 + i:02x}"
    inside = 0 if name.endswith(f"{0x10 + i * 8:02x}:00.0") else 1
    return f"{top}/{socket:04x}:00:{port}.0/{socket:04x}:f{i:x}:00.0/{socket:04x}:f{i:x}:0{inside + 1}.0/{name}"


def _function(
    m: Machine, root: Path, path: str, i: int, kind: str, vendor: str, device: str, lanes: int, socket: int
) -> Path:
    speed = f"{GENERATION[m.accelerator(i).host_link]} GT/s PCIe"
    parts = path.split("/")
    for depth in range(2, len(parts) + 1):
        folder = root / "devices" / "/".join(parts[:depth])
        last = depth == len(parts)
        if folder.exists():
            continue
        folder.mkdir(parents=True)
        values = {
            "class": kind if last else "0x060400",
            "vendor": f"0x{vendor}" if last else "0x1000",
            "device": f"0x{device}" if last else "0xc010",
            "numa_node": str(socket),
            "local_cpulist": f"{socket * 32}-{socket * 32 + 31}",
            "max_link_speed": speed,
            "current_link_speed": speed,
            "max_link_width": "16",
            "current_link_width": str(lanes if last else 16),
        }
        for name, text in values.items():
            (folder / name).write_text(text + "\n")
        link = root / "bus/pci/devices" / folder.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    return root / "devices" / path


def _kfd(m: Machine, root: Path, i: int) -> None:
    folder = root / f"class/kfd/kfd/topology/nodes/{i + 2}"
    folder.mkdir(parents=True)
    number = int(bus(m, i).split(":")[1], 16)
    (folder / "properties").write_text(f"simd_count 304\ndomain {m.socket(i)}\nlocation_id {number << 8}\n")
    for j in range(m.count):
        if j != i and m.own(i, j):
            link = folder / f"io_links/{j}"
            link.mkdir(parents=True)
            megabytes = round(m.own(i, j) * m.link(i) * 1000)
            (link / "properties").write_text(f"type 11\nnode_to {j + 2}\nmax_bandwidth {megabytes}\n")


def degraded(m: Machine, gpu: int, lost: int) -> Machine:
    """Some links of one GPU to its switches are down."""
    return replace(m, up=tuple(n - lost if i == gpu else n for i, n in enumerate(m.up)))


def without_pair(m: Machine, pair: Pair) -> Machine:
    """One link of a mesh is down."""
    return replace(m, links={p: n for p, n in m.links.items() if p != pair})
