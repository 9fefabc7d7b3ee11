"""Readers of what tools print: each turns messages, or a whole file, into facts.

- stacks: `stacks` (py-spy, pystack, faulthandler), `native_stacks` (gdb and its like), `headings` above them;
  `interrupts` (Ctrl-C)
- processes: `processes` with `commands`, `memory_tables`, `syscalls` (strace)
- GPUs: `gpu_tables`, `gpu_use`, `gpu_memory_errors`, `gpu_diagnostics` (dcgmi), `device_monitors` (clocks), times of
  `kernels`; ports: `port_counters`, and of NPUs `npu_ports`; `npu_health`
- the network of a host: `interface_counters` (ethtool, ip, rdma), `traffic_control` (tc), `imex_domains`, `gid_tables`
- torch's analyser of flight records: `analyses`, `entry_tables`
"""
