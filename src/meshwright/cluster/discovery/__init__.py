"""Discovery of this machine as a Cluster, and where a rank belongs on it.

- `discover` asks `local` (CPUs, memory), `sysfs` with `sysfs_host`, `nvml`, `kfd` and `plugins`
- `binding` of ranks to NUMA nodes; `processes` that hold devices
"""
