"""Readers of what is around a job: each turns messages into facts.

- the machine: `system` (kernel log, shells), `port_states`, `link_rates`, `file_servers`, `host_checks`
- where ranks are: `placements`, `pods`, `pod_containers`, `pod_environments`, `numbered_hosts`, `scheduled_hosts`,
  `spawned`, `host_addresses`
- who starts and ends ranks: `launchers`, torchrun's `agents`, `batch` systems, `killers` on a host
- how ranks end: torchrun's `summaries`, `endings`, `logged_errors`, `quoted_errors` (one rank's, in another's log),
  `device_asserts` of kernels, `full_gpus`, `unused_parameters` of DDP, `connections` that a client could not make;
  `unraised` errors end none
- `busy_with_data`: who still prepares data; `outlived`: what did no harm
"""
