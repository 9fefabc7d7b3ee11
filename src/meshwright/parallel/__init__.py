"""From a Layout to running modules.

- in: `api` (for a loop of one's own), `build` (which engine), `engine` (all that the training loop sees of one)
- engines: `data_parallel` (DDP), `spmd_engine` (on `spmd_part`), `pipeline`; `asynchronous`
- axes: `tensor` with `derive` and `overlapped`, `context`, `experts`; `channel` (blocking collectives with gradients)
- data parallelism: `buckets`, `fsdp` with `fsdp_tracing`, `offload`, `compression`, `encoding`
- ranks and tensors: `device_mesh`, `shard_placement`
- layers: `recompute`, `compiled`, `dropout`
- drawn: `graph_view` of `step_boxes`
"""
