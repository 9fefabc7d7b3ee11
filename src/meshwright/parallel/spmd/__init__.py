"""One part of a model split over the ranks of its stage.

- `engine` (a whole model) on `part` (what a pipeline's stage is as well)
- axes: `tensor` with `derive` and `overlapped`, `context`, `experts`; `channel` (blocking collectives with gradients)
- data parallelism: `buckets`, `fsdp` with `fsdp_tracing`, `offload`
"""
