"""From a Layout to running modules.

- in: `api` (for a loop of one's own), `build` (which engine), `engine` (all that the training loop sees of one)
- engines: `data_parallel` (DDP) with `compression` and `encoding`, `spmd` (all other axes of one stage), `pipeline`,
  `asynchronous`
- `layers`: what an engine does to layers
- ranks and tensors: `device_mesh`, `shard_placement`
- drawn: `graph_view` of `step_boxes`
"""
