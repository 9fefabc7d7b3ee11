"""Readers of what libraries log: each turns messages into facts.

- torch: `watchdog`; NVIDIA: `nccl`, `inits`, its report `ras` with `ras_forms`, `stragglers`, in-process `restarts`,
  its plugin's records (`nccl_inspector`)
- others: `hccl` with `hccl_rank_table`, `accelerators`, `neuron`, `tpus`, `horovod`, `mpi`; `frameworks` on top of
  them; `unreachable` hosts, `gloo_addresses`
- Megatron's `reruns` of suspicious results; times: its `timers`, DeepSpeed's `comms_summaries`, steps that slow down
  (`slowdowns`)
"""
