"""Machines and links: the Cluster graph, and the ways to get one.

- the noun: `graph`, its file form `wire`; `compact` and `expand` (groups of nodes to devices and back), `builders`,
  `as_network`
- this machine: `discovery`
- other machines: `dumps` (saved output of tools), `emulation` (a cluster in a box)
- common to readers: `cpumask`, `numa`, `pcipath`, `paths`, `catalogue_devices`, `domains`, `nics`
- judged: `analysis`, `cuts`, `proximity`, `verdicts`; `doctor`
- measured: `curve`
- drawn: `drawing`
"""
