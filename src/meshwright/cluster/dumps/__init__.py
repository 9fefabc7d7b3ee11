"""Saved dumps of other tools, read into a Cluster.

- `detect`: which reader a file gets; `pasted`: text as people paste it; `unsupported`: outputs that are refused by name
- NVIDIA: `nvidia` with `matrix`, `p2p`, `names`, `evidence`, `nvlink_errors`, `query_gpu`,
  `pcie_generations`, `dcgmi_topo`, `dcgmi_nvlink`; `nccl` (XML) with `nccl_links`, `nccl_log`, `nccl_paths`,
  `nccl_rates`
- AMD: `rocm`, `amd_xgmi`, `amd_static`; Intel, Huawei and others: `other_makers`, `hl_smi`
- any vendor: `hwloc` with `hwloc_links` and `lstopo_text`, `lspci` with `lspci_acs`, `lspci_tree`, `numactl`
- networks: `ibnet`, `ibnet_rates`, `ibstat`, `port_speeds` and `neighbours` (of a host), `slurm` with `hostlist` and
  `yaml`, `slurm_nodes`, `kubernetes` with `kubernetes_yaml`, `clouds` (instances of AWS and GCP); `places`: what they
  say of nodes, checked
- `merge`: several dumps as one cluster; `xml`: without its dangers
"""

from .detect import load_dump, load_dumps

__all__ = ["load_dump", "load_dumps"]
