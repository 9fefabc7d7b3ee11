"""A folder like /sys, filled by hand: PCI functions, GPUs, NICs and network interfaces."""

from pathlib import Path


class FakeSys:
    """A folder like /sys, filled by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bus/pci/devices").mkdir(parents=True)

    def pci(self, path: str, *, numa: int = 0, cpus: str = "0-3", **files: str) -> Path:
        """Add a PCI function at a path below the host bridge, such as "pci0000:00/0000:00:01.0/0000:01:00.0"."""
        folder = self.root / "devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        values = {"numa_node": str(numa), "local_cpulist": cpus, "class": "0x060400", "vendor": "0x8086"} | files
        for name, text in values.items():
            (folder / name).write_text(text + "\n")
        link = self.root / "bus/pci/devices" / folder.name
        if not link.exists():
            link.symlink_to(folder)
        return folder

    def gpu(self, path: str, vendor: str = "0x10de", **more: object) -> None:
        speed = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}
        self.pci(path, vendor=vendor, **{"class": "0x030200"}, **speed, **more)  # type: ignore[arg-type]

    def nic(
        self, path: str, *, infiniband: str | None = None, net: str | None = None, speed: str = "", **more: object
    ) -> None:
        width = {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}
        folder = self.pci(path, vendor="0x15b3", **{"class": "0x020000"}, **width, **more)  # type: ignore[arg-type]
        if infiniband:
            port = self.root / "class/infiniband" / infiniband / "ports/1"
            port.mkdir(parents=True)
            (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
            (port / "link_layer").write_text("InfiniBand\n")
            (port.parents[1] / "device").symlink_to(folder)
        if net:
            self.interface(net, speed, folder)

    def interface(self, name: str, speed: str, device: Path | None = None, state: str = "up") -> None:
        folder = self.root / "class/net" / name
        folder.mkdir(parents=True)
        (folder / "speed").write_text(speed)
        (folder / "operstate").write_text(state)
        if device is not None:
            (folder / "device").symlink_to(device)
