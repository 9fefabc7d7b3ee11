"""Find out what kind of dump a file is, and read it; several dumps of one machine are read together."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ...files import parse_json, read_text, refuse_endless_numbers
from ...hardware import Catalogue
from ...hardware.pci import WHAT_IS_SOUGHT
from ...quantities import checked
from ..discovery.discover import assemble
from ..discovery.sysfs_host import host_of, is_sysfs
from ..graph import Cluster, consistent
from ..numa import without_disputed_cpus
from ..wire import may_be_cluster, read_cluster
from .amd_static import (
    from_amd_static,
    from_amd_static_json,
    looks_like_amd_static,
    looks_like_amd_static_json,
)
from .amd_xgmi import from_xgmi, from_xgmi_json, looks_like_xgmi, looks_like_xgmi_json
from .clouds import from_cloud_json, from_cloud_yaml, looks_like_cloud_json, looks_like_cloud_yaml
from .dcgmi_nvlink import from_dcgmi_nvlink, looks_like_dcgmi_nvlink
from .dcgmi_topo import from_dcgmi_topo, looks_like_dcgmi_topo
from .evidence import GpuEvidence, evidence, evidence_of_xml, from_evidence, with_facts
from .hl_smi import from_hl_smi_topo, looks_like_hl_smi_topo
from .hwloc import from_hwloc
from .ibnet import from_ibnet, looks_like_ibnet
from .ibstat import from_ibstat, looks_like_ibstat
from .kubernetes import (
    from_kubernetes,
    from_kubernetes_json,
    looks_like_kubernetes,
    looks_like_kubernetes_json,
)
from .lspci import from_lspci, from_lspci_links, looks_like_lspci, looks_like_lspci_links
from .lspci_tree import from_lspci_tree, looks_like_lspci_tree
from .lstopo_text import from_lstopo_text, looks_like_lstopo_text
from .matrix import holds_codes, looks_like_matrix
from .merge import merged_dumps, sources
from .nccl import from_nccl
from .nccl_log import from_nccl_log, looks_like_nccl_log
from .nccl_paths import from_nccl_paths, looks_like_nccl_paths
from .neighbours import from_fi_info, from_lldp, looks_like_fi_info, looks_like_lldp
from .numactl import from_numactl, looks_like_numactl
from .nvidia import from_nvidia_matrix
from .other_makers import MAKERS
from .p2p import from_p2p, looks_like_p2p, without_p2p
from .pasted import plain_lines, short_lines, uncommented
from .port_speeds import (
    from_port_speeds,
    from_port_speeds_json,
    looks_like_port_speeds,
    looks_like_port_speeds_json,
)
from .rocm import from_rocm_json, from_rocm_topology, looks_like_rocm, looks_like_rocm_json
from .slurm import from_slurm_topology, from_slurm_yaml, looks_like_slurm, looks_like_slurm_yaml
from .slurm_nodes import from_slurm_nodes, looks_like_slurm_nodes
from .unsupported import known_but_unread, known_but_unread_json, known_but_unread_xml
from .xml import parse_xml

MAX_BYTES = 32 * 2**20
MAX_LINES = 200_000
ROOTS = ("topology", "system", "nvidia_smi_log")
JSON_START = re.compile(r"^(?:\{|\[\s*\{)", re.M)
MARKUP = re.compile(rf"<(?:\?xml|!DOCTYPE|(?:{'|'.join(ROOTS)})[\s>/])")
KNOWN = (
    "nvidia-smi topo -m, nvidia-smi nvlink -s or -q, rocm-smi --showtopo, amd-smi topology, lstopo, NCCL topology "
    "XML or log, scontrol show topology, topology.yaml, kubectl get nodes --show-labels, aws ec2 "
    "describe-instance-topology, ibnetdiscover, iblinkinfo, ibstat, mlxlink, ethtool, numactl -H, a folder like /sys, "
    "or cluster.json"
)


class UnknownDump(InputError):
    """A text or JSON that is of no dump that is known."""


Read = Callable[[str, str, Catalogue, str | None, GpuEvidence | None], Cluster]  # text, where, catalogue, --gpu, facts


@dataclass(frozen=True, slots=True)
class DumpReader:
    """One kind of text: the command that writes it, how it is told from others, and what reads it."""

    command: str
    looks: Callable[[str], bool]
    read: Read


def _from_single_gpus(
    text: str, where: str, catalogue: Catalogue, gpu: str | None, facts: GpuEvidence | None
) -> Cluster:
    return from_evidence(evidence([line.text for line in plain_lines(text)]), where, catalogue, gpu)


def _names_single_gpus(text: str) -> bool:
    return bool(evidence([line.text for line in plain_lines(text)]).gpus)


def _from_matrix_and_p2p(
    text: str, where: str, catalogue: Catalogue, gpu: str | None, facts: GpuEvidence | None
) -> Cluster:
    """Return the machine of a matrix with the states of peer-to-peer in the same file."""
    matrix = from_nvidia_matrix(without_p2p(text), where, catalogue, gpu, facts)
    if len({device.node for device in matrix.devices}) > 1:
        return matrix
    return merged_dumps(where, [(where, matrix), (where, from_p2p(text, where, catalogue, gpu))], one_machine=True)


def _from_both_of_amd(
    text: str, where: str, catalogue: Catalogue, gpu: str | None, facts: GpuEvidence | None
) -> Cluster:
    """Return the machine of amd-smi's topology with what its xGMI links carry in the same file."""
    parts = from_rocm_topology(text, where, catalogue, gpu), from_xgmi(text, where, catalogue, gpu)
    return merged_dumps(where, [(where, part) for part in parts], one_machine=True)


def _looks_like_both_of_amd(text: str) -> bool:
    return looks_like_rocm(text) and looks_like_xgmi(text)


def _looks_like_ports_alone(text: str) -> bool:
    return looks_like_ibstat(text) and not _names_single_gpus(text)


def _looks_like_both(text: str) -> bool:
    return looks_like_p2p(text) and holds_codes(without_p2p(text))


# in the order in which they are asked; the table of docs/topology.md has the same commands
READERS = (
    DumpReader("scontrol show topology", looks_like_slurm, lambda t, w, c, g, f: from_slurm_topology(t, w)),
    DumpReader("scontrol show node", looks_like_slurm_nodes, lambda t, w, c, g, f: from_slurm_nodes(t, w)),
    DumpReader("kubectl get nodes --show-labels", looks_like_kubernetes, lambda t, w, c, g, f: from_kubernetes(t, w)),
    DumpReader("gcloud compute instances", looks_like_cloud_yaml, lambda t, w, c, g, f: from_cloud_yaml(t, w)),
    DumpReader("topology.yaml", looks_like_slurm_yaml, lambda t, w, c, g, f: from_slurm_yaml(t, w)),
    DumpReader("NCCL_DEBUG=INFO", looks_like_nccl_log, lambda t, w, c, g, f: from_nccl_log(t, w, c, g)),
    DumpReader("NCCL_DEBUG=INFO", looks_like_nccl_paths, lambda t, w, c, g, f: from_nccl_paths(t, w, c, g)),
    *(DumpReader(maker.command, maker.looks, maker.read) for maker in MAKERS),
    DumpReader("amd-smi topology", _looks_like_both_of_amd, _from_both_of_amd),
    DumpReader("rocm-smi --showtopo", looks_like_rocm, lambda t, w, c, g, f: from_rocm_topology(t, w, c, g)),
    DumpReader("amd-smi xgmi", looks_like_xgmi, lambda t, w, c, g, f: from_xgmi(t, w, c, g)),
    DumpReader("amd-smi static", looks_like_amd_static, lambda t, w, c, g, f: from_amd_static(t, w, c, g)),
    DumpReader("nvidia-smi topo -m", _looks_like_both, _from_matrix_and_p2p),
    DumpReader("nvidia-smi topo -p2p r", looks_like_p2p, lambda t, w, c, g, f: from_p2p(t, w, c, g)),
    DumpReader("nvidia-smi topo -m", looks_like_matrix, from_nvidia_matrix),
    DumpReader("hl-smi topo -c -N", looks_like_hl_smi_topo, lambda t, w, c, g, f: from_hl_smi_topo(t, w)),
    DumpReader("dcgmi topo", looks_like_dcgmi_topo, from_dcgmi_topo),
    DumpReader("dcgmi nvlink -s", looks_like_dcgmi_nvlink, lambda t, w, c, g, f: from_dcgmi_nvlink(t, w, c, g)),
    DumpReader("lspci -vvnn", looks_like_lspci, lambda t, w, c, g, f: from_lspci(t, w, c, g)),
    DumpReader("lspci -vvnn", looks_like_lspci_links, lambda t, w, c, g, f: from_lspci_links(t, w)),
    DumpReader("lspci -tv", looks_like_lspci_tree, lambda t, w, c, g, f: from_lspci_tree(t, w, c, g)),
    DumpReader("lstopo", looks_like_lstopo_text, lambda t, w, c, g, f: from_lstopo_text(t, w, c, g)),
    DumpReader("ibnetdiscover", looks_like_ibnet, lambda t, w, c, g, f: from_ibnet(t, w)),
    DumpReader("numactl -H", looks_like_numactl, lambda t, w, c, g, f: from_numactl(t, w)),
    DumpReader("ibstat", _looks_like_ports_alone, lambda t, w, c, g, f: from_ibstat(t, w)),
    DumpReader("ethtool", looks_like_port_speeds, lambda t, w, c, g, f: from_port_speeds(t, w)),
    DumpReader("fi_info -v", looks_like_fi_info, lambda t, w, c, g, f: from_fi_info(t, w)),
    DumpReader("lldpctl", looks_like_lldp, lambda t, w, c, g, f: from_lldp(t, w)),
    DumpReader("nvidia-smi nvlink -s", _names_single_gpus, _from_single_gpus),
)


def load_dump(path: str | os.PathLike[str], catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Read a saved dump, a copy of /sys, or a cluster file; InputError in one line for anything else."""
    return load_dumps([path], catalogue, gpu)


def load_dumps(
    paths: Sequence[str | os.PathLike[str]], catalogue: Catalogue, gpu: str | None = None, *, one_machine: bool = True
) -> Cluster:
    """Read several dumps: of one machine, which complete each other, or of a host each, named by their files."""
    if one_machine:
        facts = _shared_facts([path for path in paths if len(paths) > 1])
        parts = [(str(path), _load(Path(path), catalogue, gpu, facts)) for path in paths]
    else:
        parts = [(Path(path).stem, _load(Path(path), catalogue, gpu, None)) for path in paths]
        twice = next((name for name, _ in parts if [n for n, _ in parts].count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{twice}: two dumps of one host; expected a file each with the host's name")
    name = parts[0][1].name if len(parts) == 1 else sources(parts)
    whole = without_disputed_cpus(merged_dumps(name, parts, one_machine=one_machine))
    try:
        return consistent(checked(whole))
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def _shared_facts(paths: Sequence[str | os.PathLike[str]]) -> GpuEvidence | None:
    """Return what the text dumps together say of single GPUs, where several are given."""
    texts = [_text(Path(p)) for p in paths if not Path(p).is_dir() and Path(p).suffix != ".toml"]
    xml = [text for text in texts if "<nvidia_smi_log" in text[:2000]]
    if xml:
        return evidence_of_xml(parse_xml(xml[0].lstrip("\ufeff \n"), "nvidia-smi -q -x"))
    lines = [line.text for text in texts if not MARKUP.match(text.lstrip()) for line in plain_lines(text)]
    found = evidence(lines)
    return found if found.gpus else None


def _load(path: Path, catalogue: Catalogue, gpu: str | None, facts: GpuEvidence | None) -> Cluster:
    if path.is_dir():
        return _saved_sysfs(path, catalogue, gpu)
    if path.suffix == ".toml":
        return read_cluster(path)
    if path.suffix == ".json":
        data = parse_json(read_text(path, max_bytes=MAX_BYTES), where=str(path))
        found = _from_json(data, str(path), catalogue, gpu)
        if found is None and not (isinstance(data, dict) and may_be_cluster(data)):
            raise UnknownDump(f"{path}: not a known dump; expected {KNOWN}")
        return found or read_cluster(path)
    cluster = parse_dump(_text(path), str(path), catalogue, gpu, facts)
    return replace(cluster, name=path.stem) if cluster.name == str(path) else cluster


def _from_json(data: Any, where: str, catalogue: Catalogue, gpu: str | None) -> Cluster | None:
    """Return the cluster of a tool's JSON; None if it is of none that is known."""
    if looks_like_kubernetes_json(data):
        return from_kubernetes_json(data, where)
    if looks_like_cloud_json(data):
        return from_cloud_json(data, where)
    if looks_like_port_speeds_json(data):
        return from_port_speeds_json(data, where)
    if said := known_but_unread_json(data):
        raise InputError(f"{where}: {said}")
    if looks_like_amd_static_json(data):
        return from_amd_static_json(data, where, catalogue, gpu)
    if looks_like_xgmi_json(data):
        return from_xgmi_json(data, where, catalogue, gpu)
    return from_rocm_json(data, where, catalogue, gpu) if looks_like_rocm_json(data) else None


def _json_inside(text: str) -> Any:
    """Return the JSON with which a text goes on from some line, below a command or warnings; None if there is none."""
    start = JSON_START.search(text)
    try:
        return parse_json(text[start.start() :], where="") if start else None
    except InputError:
        return None


def _text(path: Path) -> str:
    text = read_text(path, max_bytes=MAX_BYTES)
    refuse_endless_numbers(text, where=str(path))
    return text


def _saved_sysfs(folder: Path, catalogue: Catalogue, gpu: str | None) -> Cluster:
    roots = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    copies = [root.resolve() for root in roots if is_sysfs(root)]
    if not copies:
        raise InputError(f"{folder}: no bus/pci/devices in this folder; expected a copy of /sys, or a file of {KNOWN}")
    if len(copies) > 1 and copies[0] != folder.resolve():
        raise InputError(f"{folder}: {len(copies)} copies of /sys, expected one ({copies[0].name}, {copies[1].name})")
    cluster = assemble(host_of(copies[0]), catalogue, [], gpu, copies[0], None)
    if cluster.of_kind("gpu"):
        return cluster
    return replace(cluster, warnings=(*cluster.warnings, f"no accelerator found: looked for {WHAT_IS_SOUGHT}"))


ASKED_ELSE = " give the outputs of nvidia-smi nvlink -s and of nvidia-smi topo -m"
UNREAD = (  # of nvidia-smi nvlink, beside what its -s says
    (re.compile(r"Remote Device \S+: Link"), "where a link ends (nvlink -R) is not read:"),
    (re.compile(r"Link \d+, P2P is supported"), "what links can do (nvlink -c) does not say which are up:"),
)


def parse_dump(
    text: str, where: str, catalogue: Catalogue, gpu: str | None = None, facts: GpuEvidence | None = None
) -> Cluster:
    """Return the cluster that a dump's text describes; `where` opens the message of an error.

    `facts` say of single GPUs what other dumps of the machine say.
    """
    text = text.removeprefix("\ufeff")  # a byte order mark
    if text.count("\n") > MAX_LINES:
        raise InputError(f"{where}: more than {MAX_LINES} lines, refused")
    if MARKUP.match(text.lstrip()):
        cluster = _from_xml(text.lstrip(), where, catalogue, gpu)
    else:
        cluster = _from_text(text, where, catalogue, gpu, facts)
    if facts is None or gpu is not None:
        return cluster
    devices = [
        with_facts(d, int(d.id[3:]), facts, catalogue) if d.kind == "gpu" and d.id[3:].isdecimal() else d
        for d in cluster.devices
    ]
    return replace(cluster, devices=tuple(devices))


def _from_xml(text: str, where: str, catalogue: Catalogue, gpu: str | None) -> Cluster:
    root = parse_xml(text, where)
    if root.name == "topology":
        return from_hwloc(root, where, catalogue, gpu)
    if root.name == "system":
        return from_nccl(root, where, catalogue, gpu)
    if root.name == "nvidia_smi_log":
        return from_evidence(evidence_of_xml(root), where, catalogue, gpu)
    if said := known_but_unread_xml(root.name):
        raise InputError(f"{where}: {said}")
    raise InputError(
        f"{where}: XML element {root.name[:40]!r}, expected topology (lstopo), system (NCCL) or nvidia_smi_log"
    )


def _from_text(text: str, where: str, catalogue: Catalogue, gpu: str | None, facts: GpuEvidence | None) -> Cluster:
    text = uncommented(text)
    short = short_lines(text)
    *first, last = READERS
    for reader in first:
        if reader.looks(short):
            return _with_ports(reader.read(text, where, catalogue, gpu, facts), text, where)
    if inside := _markup_inside(text):
        return _from_xml(inside, where, catalogue, gpu)
    if cluster := _from_json(_json_inside(text), where, catalogue, gpu):
        return cluster
    if last.looks(short):
        found = last.read(text, where, catalogue, gpu, facts)
        unread = [words + ASKED_ELSE for pattern, words in UNREAD if pattern.search(text)]
        return replace(found, warnings=(*found.warnings, *unread))
    if said := known_but_unread(short):
        raise InputError(f"{where}: {said}")
    if text.lstrip().startswith("<"):
        return _from_xml(text.lstrip(), where, catalogue, gpu)
    raise UnknownDump(f"{where}: not a known dump; expected {KNOWN}")


def command_of(text: str) -> str:
    """Return the command that wrote a dump which is read, "" where a text is none; names of GPUs alone are none."""
    if MARKUP.match(text.lstrip()):
        return "lstopo, NCCL or nvidia-smi as XML"
    return next((reader.command for reader in READERS[:-1] if reader.looks(text)), "")


def _with_ports(cluster: Cluster, text: str, where: str) -> Cluster:
    """Return a machine with the rates and states of its NICs where ibstat stands in the same text and names them."""
    if not cluster.of_kind("gpu") or not looks_like_ibstat(text):
        return cluster
    ports = from_ibstat(text, where)
    nics = {name for nic in cluster.of_kind("nic") for name in (nic.id, nic.model)}
    if not {device.id for device in ports.devices} <= nics:
        return cluster
    return merged_dumps(where, [(where, cluster), (where, ports)], one_machine=True)


def _markup_inside(text: str) -> str | None:
    """Return the XML that stands between prose, from its root's first tag to its last."""
    for root in ROOTS:
        start, end = re.search(rf"<{root}[\s>]", text), text.rfind(f"</{root}>")
        if start and end > start.start():
            return text[start.start() : end + len(root) + 3]
    return None
