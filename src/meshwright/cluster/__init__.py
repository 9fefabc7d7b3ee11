"""Machines and links: the Cluster graph, and the ways to get one.

- the noun: `graph`, its file form `wire`; `compact` and `expand` (groups of nodes to devices and back), `builders`
- this machine: `discover`, `local`, `sysfs`, `sysfs_host`, `nvml`, `kfd`, `plugins`, `processes`; `binding` (NUMA)
- other machines: `dumps` (saved output of tools), `emulation` (a cluster in a box)
- common to readers: `cpumask`, `numa`, `pcipath`, `paths`, `catalogue_devices`, `domains`, `nics`
- judged: `analysis`, `cuts`, `proximity`, `verdicts`; `doctor`
- measured: `curve`
- drawn: `draw`; `svg` with `arrangement`, `svg_places` (nodes under switches) and `svg_parts`
"""
