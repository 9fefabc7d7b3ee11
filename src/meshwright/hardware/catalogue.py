"""Load the catalogue: the TOML files of this package, extended or overridden by a user's."""

import functools
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import InputError, nearest
from ..files import convert, parse_toml, read_text
from .figures import SourcedFigure
from .kinds import Accelerator, FabricType, Interconnect, NetworkPort, NodeType, Switch, Trap

T = TypeVar("T")
FILES = ("sources", "interconnects", "networks", "accelerators", "nodes", "traps")
KINDS: dict[str, Any] = {
    "interconnects": Interconnect,
    "switches": Switch,
    "networks": NetworkPort,
    "accelerators": Accelerator,
    "nodes": NodeType,
    "fabrics": FabricType,
}
CLOUDS = {  # what each is called before a name of its own: "aws-p5.48xlarge"
    "aws": ("aws", "amazon"), "gcp": ("gcp", "google", "gcloud"), "azure": ("azure",), "oci": ("oci", "oracle"),
}  # fmt: skip
YOUR_OWN = "--hardware FILE adds one (docs/hardware.md, Your own hardware)"
USER_FILES = "MESHWRIGHT_HARDWARE"  # paths, separated like PATH


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every hardware that is known by name."""

    interconnects: dict[str, Interconnect]
    switches: dict[str, Switch]
    networks: dict[str, NetworkPort]
    accelerators: dict[str, Accelerator]
    nodes: dict[str, NodeType]
    fabrics: dict[str, FabricType]
    sources: dict[str, str]
    traps: tuple[Trap, ...] = ()

    def interconnect(self, name: str) -> Interconnect:
        """Return one kind of link; InputError with the nearest name if there is none."""
        return _get(self.interconnects, name, "interconnect")

    def network(self, name: str) -> NetworkPort:
        """Return one kind of NIC."""
        return _get(self.networks, name, "network")

    @property
    def whole_nodes(self) -> dict[str, NodeType]:
        """Return the node types from which others with their accelerator are told: whole, with a documented network."""
        return {key: node for key, node in self.nodes.items() if node.network and not node.part}

    def node_network(self, node: NodeType) -> NetworkPort:
        """Return the NIC of a node; InputError where what joins several of them is not documented."""
        if node.network is None:
            raise InputError(f"{node.title}: {node.no_network}")
        return self.network(node.network)

    def node(self, name: str) -> NodeType:
        """Return one node type, by its key or by a cloud's name for it ("p5.48xlarge")."""
        return self.nodes[self.node_key(name)]

    def node_key(self, name: str) -> str:
        """Return the key of the node type that `name` means; InputError with the nearest names if none does."""
        if name in self.nodes:
            return name
        plain = _plain(name)
        if (found := self._node_named(plain)) is not None:
            return found
        if theirs := self.nodes_with(name):
            sizes = list(dict.fromkeys(self.nodes[key].accelerator for key in theirs))
            alone = f"; or one of {', '.join(sizes)}, alone in a machine" if len(sizes) > 1 else ""
            told = f"expected a node type that has it, of {', '.join(theirs)}{alone}"
            raise InputError(f"{name!r} is an accelerator: {told}")
        called = [alias for node in self.nodes.values() for alias in node.aliases]
        self._refuse_slice(name)
        if "," in name:
            raise InputError(f"{name!r}: expected one node type; `plan --compare` sets several side by side")
        close = nearest(name, [*self.nodes, *called])
        theirs, alone = self._with_accelerator_in(plain), self._accelerator_called(plain)
        if theirs and not alone and not close.startswith(tuple(f"did you mean {key}" for key in theirs)):
            few = re.match(r"([1-9]\d{0,3}) ?[xX*] ?(?:([1-9]\d{0,2}) ?[xX*])?", name)
            part = f"; `--gpus {int(few[1]) * int(few[2] or 1)}` says how many" if few else ""
            # such as one with 16 and one with 32 GB
            kinds = dict.fromkeys(self.nodes[key].accelerator for key in theirs)
            if few and len(kinds) > 1 and not few[2]:
                part += f"; or with the accelerator told in full, {' or '.join(f'{few[1]}x{kind}' for kind in kinds)}"
            told = "; ".join(
                ", ".join(key for key in theirs if self.nodes[key].accelerator == kind)
                + f" ({kind})" * (len(kinds) > 1)
                for kind in kinds
            )
            raise InputError(f"no node type {name!r} in the catalogue; of that accelerator: {told}{part}")
        if alone := alone or self._accelerator_in(plain):
            joined = self.accelerators[alone].link and not self.accelerators[alone].bridged
            some = "" if joined else f"4x{alone} is a machine of four; "
            raise InputError(f"{name!r}: no node type of the catalogue has the accelerator {alone}; {some}{YOUR_OWN}")
        told = close if close.startswith("did") else nearest(name, self.nodes)
        if not _like(name, told):
            told = f"`topo --catalogue nodes` lists them; {YOUR_OWN}"
        several = re.match(r"\d+ ?[xX*]", name) or re.search(r"[xX*:] ?\d+$", name)
        counted = "; of several of them `--gpus N` says how many GPUs there are in all" if several else ""
        raise InputError(f"no node type {name!r} in the catalogue ({told}){counted}")

    def _node_named(self, plain: str) -> str | None:
        """Return the node type that a plain name means, also without its cloud where no accelerator is called so."""
        for key, node in self.nodes.items():
            if any(_same(plain, known) for known in _names(key, node)):
                return key
        if any(plain in _families(node.accelerator) for node in self.nodes.values()):
            return None
        return next((key for key in self.nodes if _same(plain, _plain(_without_cloud(key)))), None)

    def is_node(self, name: str) -> bool:
        """Return whether a name is that of a node type."""
        return self._node_named(_plain(name)) is not None

    def nodes_with(self, accelerator: str) -> list[str]:
        """Return the node types with an accelerator that is called so; none where a node type is called so too."""
        plain, driver = _plain(accelerator), self.driver_key(accelerator)
        if any(plain in _names(key, node) for key, node in self.nodes.items()):
            return []
        every = self.nodes.items()
        return [key for key, node in every if node.accelerator == driver or plain in _families(node.accelerator)]

    def _refuse_slice(self, name: str) -> None:
        """Raise InputError where a name is a cloud's of a slice, which tells the number of its chips."""
        if (found := self.slice_of(name)) is not None:
            key, chips = found
            raise InputError(f"{name!r} names a slice of {chips:g} chips: expected {key} and that number of GPUs")

    def slice_of(self, name: str) -> tuple[str, float] | None:
        """Return the node type and the number of chips that a cloud's name of a slice means ("v5p-256"), else None."""
        found = re.fullmatch(r"(?:google[- ]?)?(?:cloud[- ]?)?(?:tpu[- ]?)?(\w+)-(\d{1,6})", name.lower())
        for key, node in self.nodes.items():
            if found and found[1] in node.slice_names and node.slice_name_counts:
                return key, int(found[2]) / node.slice_name_counts.number
        return None

    def _accelerator_called(self, plain: str) -> str:
        """Return the accelerator that a plain text names, also as its cloud's slices are called; "" if none is."""
        bare = _without_vendor(plain)
        for key, accelerator in self.accelerators.items():
            names = (key, accelerator.title, *accelerator.aliases)
            if any(_without_vendor(_plain(name)) == bare for name in names):
                return key
        sliced = (node for node in self.nodes.values() if plain in map(_plain, node.slice_names))
        return next((node.accelerator for node in sliced), "")

    def _accelerator_in(self, plain: str) -> str:
        """Return the accelerator whose number of four digits ends a plain text; "" if none does."""
        for key in self.accelerators:
            number = re.search(r"\d{4,}\w*$", _plain(key))
            if number and plain.endswith(number.group()):
                return key
        return ""

    def _with_accelerator_in(self, plain: str) -> list[str]:
        """Return the node types whose accelerator's name stands in a plain text, the longest such name ("h100x8")."""
        names = {found for node in self.nodes.values() for found in _families(node.accelerator) if found in plain}
        longest = max((found for found in names if any(map(str.isdigit, found))), key=len, default="")
        return [key for key, node in self.nodes.items() if longest and longest in _families(node.accelerator)]

    def fabric(self, name: str) -> FabricType:
        """Return one fabric."""
        return _get(self.fabrics, name, "fabric")

    def accelerator(self, name: str) -> Accelerator:
        """Return an accelerator by its key or by a name that a driver reports ("NVIDIA A100-SXM4-80GB")."""
        return self.accelerators[self.accelerator_key(name)]

    def accelerator_key(self, name: str) -> str:
        """Return the key of the accelerator that `name` means; InputError if none does."""
        if name in self.accelerators:
            return name
        if found := self._accelerator_called(_plain(name)):
            return found
        self._refuse_slice(name)
        raise InputError(
            f"no accelerator {name!r} in the catalogue ({nearest(name.lower(), self.accelerators)}); "
            "--hardware FILE adds one, `topo --catalogue NAME --toml` prints an entry to start from"
        )

    def driver_key(self, name: str) -> str | None:
        """Return the key of the accelerator that a driver's name means, also one cut short by "..."; None if unknown.

        A name that was cut counts where all that begin so are one accelerator. The PCI ID database (lspci) has the
        name in brackets, behind that of the chip and without that of the vendor.
        """
        cut = name.rstrip().endswith("...")
        called = [_plain(form) for form in _forms(name)]
        found = {
            key
            for key, accelerator in self.accelerators.items()
            for known in (_plain(key), *map(_plain, accelerator.aliases))
            for plain in called
            if _same(plain, known) or (cut and len(plain) > 5 and known.startswith(plain))
        }
        return found.pop() if len(found) == 1 else None

    def shown_key(self, name: str) -> str:
        """Return the key of what drivers list of an accelerator: one die where each is a device of its own."""
        key = self.accelerator_key(name)
        return self.accelerators[key].shown_as or key

    def dies(self, accelerator: str) -> int:
        """Return how many devices drivers list of one accelerator: the dies of a card with several, else 1."""
        card = self.accelerators[accelerator]
        return round(card.memory.number / self.accelerators[card.shown_as].memory.number) if card.shown_as else 1

    def listed_node(self, name: str) -> NodeType:
        """Return a node type with the GPUs that its driver lists, which a process drives one each."""
        node = self.node(name)
        listed = round(node.gpus.number) * self.dies(node.accelerator)
        gpus = replace(node.gpus, value=listed)
        return (
            node
            if listed == node.gpus.number
            else replace(node, accelerator=self.shown_key(node.accelerator), gpus=gpus)
        )

    def socket_memory_rate(self, accelerator: str) -> tuple[float, str] | None:
        """Return the rate in bytes per second of one socket's memory beside a GPU that drivers list, and of which node.

        That is the first type with this accelerator whose processors are known; None where there is none.
        """
        for key, node in self.nodes.items():
            if node.host_memory_rate and self.shown_key(node.accelerator) == accelerator:
                return node.host_memory_rate.number / node.numa_nodes.number, key
        return None

    def by_pci_id(self, pci_id: str) -> str | None:
        """Return the key of the accelerator with a PCI id such as "10de:2330"; None if it is not known."""
        return next((key for key, a in self.accelerators.items() if pci_id in a.pci_ids), None)

    def of_architecture(self, architecture: str) -> list[Accelerator]:
        """Return the accelerators of an architecture such as "sm90" or "gfx942"."""
        return [a for a in self.accelerators.values() if a.architecture and a.architecture == architecture]


def load_catalogue(*user_files: str | os.PathLike[str]) -> Catalogue:
    """Return the catalogue, extended by TOML files of the user and the files that MESHWRIGHT_HARDWARE names.

    A table of a user's file with a new name adds an entry; with a known name it replaces the keys that it gives.
    """
    named = [path for path in os.environ.get(USER_FILES, "").split(os.pathsep) if path]
    return _load(tuple((str(path), _written_ns(path)) for path in (*named, *user_files)))


def shipped() -> Catalogue:
    """Return the catalogue of this package alone, without any file of the user."""
    return _load(())


@functools.lru_cache(maxsize=1)
def _shipped_data() -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name in FILES:
        text = resources.files(__package__).joinpath("data", f"{name}.toml").read_text("utf-8")
        data |= tomllib.loads(text)
    return data


def _written_ns(path: str | os.PathLike[str]) -> int:
    """Return when a file was last written, 0 where there is none: reading it will say so."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)  # a search asks for it with every row
def _load(user_files: tuple[tuple[str, int], ...]) -> Catalogue:
    """Return the catalogue with files that were last written at these times."""
    data, where = _shipped_data(), "catalogue"
    for path, _ in user_files:
        where = str(path)
        data = _merged(data, parse_toml(read_text(Path(path), max_bytes=2**20), where=where))
    catalogue = _typed(data, where)
    _check(catalogue, where)
    return catalogue


def _typed(data: Mapping[str, Any], where: str) -> Catalogue:
    """Convert entry by entry, so that an error names the entry and the nearest key."""
    for table in data:
        _known(table, Catalogue.__struct_fields__, f"{where}: table")
    tables: dict[str, Any] = {}
    for table, kind in KINDS.items():
        entries = data[table]
        if not isinstance(entries, Mapping):
            raise InputError(f"{where}: {table}: expected tables such as [{table}.NAME]")
        for key, entry in entries.items():
            _refuse_bare_figures(entry, kind, f"{where}: {table}.{key}")
        tables[table] = {key: convert(entry, kind, where=f"{where}: {table}.{key}") for key, entry in entries.items()}
    rest = {name: data[name] for name in ("sources", "traps")}
    return Catalogue(
        sources=convert(rest["sources"], dict[str, str], where=f"{where}: sources"),
        traps=convert(rest["traps"], tuple[Trap, ...], where=f"{where}: traps"),
        **tables,
    )


def _refuse_bare_figures(entry: object, kind: type[msgspec.Struct], where: str) -> None:
    """Raise InputError for a number where a figure with its source is expected."""
    if not isinstance(entry, Mapping):
        return
    for field in msgspec.structs.fields(kind):
        given = entry.get(field.encode_name)
        figures: dict[str, object] = {field.name: given}
        if isinstance(given, Mapping) and "value" not in given:
            figures = {f"{field.name}.{name}": value for name, value in given.items()}
        for name, value in figures.items():
            if "SourcedFigure" in str(field.type) and isinstance(value, int | float | str):
                text = f'"{value}"' if isinstance(value, str) else value
                expected = f'{{ value = {text}, source = "NAME" }}, with NAME = "..." under [sources]'
                raise InputError(f"{where}: {name}: expected a figure with its source: {expected}")


def _merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the tables of `extra` merged in; a figure is replaced as a whole."""
    result = dict(base)
    if "memory" in extra and "memory_shown" not in extra:  # what the driver shows of another size
        result.pop("memory_shown", None)
    for key, value in extra.items():
        known = result.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping) and "value" not in value:
            result[key] = _merged(known, value)
        elif isinstance(known, list) and isinstance(value, list) and key == "traps":
            result[key] = [*known, *value]
        else:
            result[key] = value
    return result


def sourced_figures(entry: object) -> dict[str, SourcedFigure]:
    """Return the figures of an entry by name, those in tables with a dotted one."""
    found: dict[str, SourcedFigure] = {}
    for name in getattr(entry, "__struct_fields__", ()):
        value = getattr(entry, name)
        if isinstance(value, SourcedFigure):
            found[name] = value
        elif isinstance(value, dict):
            found |= {f"{name}.{key}": item for key, item in value.items() if isinstance(item, SourcedFigure)}
    return found


def _check(catalogue: Catalogue, where: str) -> None:
    """Raise InputError for a name that leads nowhere or a figure whose source is not listed."""
    for table in KINDS:
        for key, entry in getattr(catalogue, table).items():
            for name, figure in sourced_figures(entry).items():
                for claim in (figure, *figure.others):
                    _known(claim.source, catalogue.sources, f"{where}: {table}.{key}.{name}.source")
    for key, accelerator in catalogue.accelerators.items():
        _known(accelerator.host_link, catalogue.interconnects, f"{where}: accelerators.{key}.host_link")
        if accelerator.shown_as:
            _known(accelerator.shown_as, catalogue.accelerators, f"{where}: accelerators.{key}.shown_as")
        for name in ("link", "cpu_link"):
            if link := getattr(accelerator, name):
                _known(link, catalogue.interconnects, f"{where}: accelerators.{key}.{name}")
    for key, node in catalogue.nodes.items():
        _known(node.accelerator, catalogue.accelerators, f"{where}: nodes.{key}.accelerator")
        if (node.network is None) != (node.nics is None) or (node.network is None) != bool(node.no_network):
            raise InputError(f"{where}: nodes.{key}: expected network and nics, or no_network with the reason")
        if node.network:
            _known(node.network, catalogue.networks, f"{where}: nodes.{key}.network")
        _known(node.fabric, catalogue.fabrics, f"{where}: nodes.{key}.fabric")
        if node.built_as:
            _known(node.built_as, catalogue.fabrics, f"{where}: nodes.{key}.built_as")
        if node.link:
            _known(node.link, catalogue.interconnects, f"{where}: nodes.{key}.link")
        if node.switch:
            _known(node.switch, catalogue.switches, f"{where}: nodes.{key}.switch")


def _known(name: str, table: Iterable[str], where: str) -> None:
    if name not in table:
        raise InputError(f"{where}: no such entry {name!r} ({nearest(name, table)})")


def _get(table: Mapping[str, T], name: str, what: str) -> T:
    if name not in table:
        raise InputError(f"no {what} {name!r} in the catalogue ({nearest(name, table)})")
    return table[name]


def _forms(name: str) -> list[str]:
    """Return a driver's name, and what it would be with the vendor's name in front where that is left out."""
    inside = re.search(r"\[([^\[\]]+)\]", name)
    bare = [inside.group(1)] if inside else []
    bare += [name] if re.match(r"\s*Instinct\b", name, re.I) else []
    bare += [f"Instinct {name}"] if re.match(r"\s*MI\d", name, re.I) else []
    return [name, *(f"{vendor}{form}" for form in bare for vendor in ("", "NVIDIA ", "AMD "))]


def _families(accelerator: str) -> set[str]:
    """Return what an accelerator is called alone, plainly: "a100-80g" is an A100 too."""
    return {_plain(accelerator), _plain(accelerator.partition("-")[0])}


def _names(key: str, node: NodeType) -> set[str]:
    """Return what a node type is called, plainly, also with its cloud before the cloud's own name for it."""
    cloud = key.partition("-")[0]
    before = CLOUDS.get(cloud, ())
    return {_plain(key), *(_plain(first + alias) for alias in node.aliases for first in ("", *before))}


def _without_cloud(key: str) -> str:
    """Return a node's key as the cloud itself calls it: "a4x" for "gcp-a4x"."""
    cloud, _, rest = key.partition("-")
    return rest if cloud in CLOUDS else key


def _like(name: str, told: str) -> bool:
    """Return whether a hint names what `name` may be a slip of: its first word, or one of its numbers, is there too."""
    words = re.findall(r"[a-z]+|\d{2,}", name.lower())
    return not words or words[0] in told or any(word in told for word in words if word.isdigit())


def is_family(name: str, accelerator: str | None) -> bool:
    """Return whether a name is what an accelerator is called without the size of its memory ("A100")."""
    return accelerator is not None and _plain(name) == _plain(accelerator.partition("-")[0])


def _same(plain: str, known: str) -> bool:
    """Return whether two plain names are one, a size of memory also without its unit: "a100-80" is "a100-80g"."""
    return plain == known or (plain[-2:].isdigit() and known == f"{plain}g")


@functools.lru_cache(maxsize=4096)  # each name that is looked for is held against every name there is
def _without_vendor(plain: str) -> str:
    return re.sub(r"^(nvidia|amd|intel)(?=.)", "", plain)


def _plain(name: str) -> str:
    plain = "".join(c for c in name.lower() if c.isalnum())
    return re.sub(r"(?<=\d)gb$", "g", plain)  # a size of memory: 80GB is 80G
