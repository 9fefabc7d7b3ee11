"""Pipeline parallelism: a model cut into stages, each on a rank, and micro-batches that flow through them.

- the model: `stages` (what it must offer), `capture` (any module, by torch.export), `node_costs` (for the cut)
- the step: `engine`, `runtime` (one rank's row of the grid), `split_backward` (zero-bubble), `wire` (messages)
"""
